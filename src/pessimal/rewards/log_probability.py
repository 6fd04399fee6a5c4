"""log p(response | prompt) in nats, of a causal language model: the sum over the response's tokens.

Without a closing token, a token of the vocabulary is its next-token probability, and one forward
gives them all.
"""

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import SequenceClassifierOutput

from pessimal.errors import ModelError
from pessimal.rewards.base import NetworkReward, Part
from pessimal.rewards.checkpoint_files import Checkpoint
from pessimal.rewards.language import (
    Continued,
    check_is_language_model,
    context_digest,
    is_chat,
    listed_rows,
    load_language_network,
)
from pessimal.rewards.network import RewardNetwork
from pessimal.rewards.spec import Dtype
from pessimal.tables.score_table import LOG_PROBABILITY

# Logits that are float32 at once; and rows of an output embedding in lower precision that are
# turned into float32 at once, in one buffer: a whole one of Gemma 2 27B would take 4.7 GB. On a CPU
# (128,256 rows of 1,024) this took 25 ms, a tensor of its own for every 1,024 rows 310 ms, and
# 4,096 at once 39 ms.
_LOGITS, _ROWS = 2**24, 1024


@dataclass(frozen=True)
class LogProbability(NetworkReward):
    """The log-probabilities of a causal language model on this machine's disk."""

    @property
    def conversations(self) -> Continued:
        """How it is asked."""
        conversations = self.parts[0].conversations
        assert isinstance(conversations, Continued)
        return conversations

    @property
    def score(self) -> str:
        """Log-probabilities are no rewards."""
        return LOG_PROBABILITY

    def keeps_states(self, *, of_vocabulary: bool) -> bool:
        """Of a vocabulary one forward gives all, and states would take one a word."""
        return not of_vocabulary

    def slot_fault(self, *, is_last: bool) -> str | None:
        """Why candidates cannot stand in an answer."""
        return "a log-probability is the answer's, and no reward of a conversation"

    def network(self, dtype: Dtype | None = None, which: int = 0) -> "SequenceNetwork":
        causal = load_language_network(self.spec, self.folder, dtype=dtype or self.spec.dtype)
        rows = len(output_embedding(causal).weight)
        # A model with code of its own may name it so that its files do not show this.
        if rows < self.embedding_rows:
            raise ModelError(
                f"{type(causal).__name__} gives {rows} next-token probabilities, and its tokenizer "
                f"has ids up to {self.embedding_rows - 1}: the two do not belong together"
            )
        return SequenceNetwork(causal)


def open_log_probability(checkpoint: Checkpoint) -> LogProbability:
    """The language model in a checkpoint. ModelError where it is none, FrameError where its
    chat template cannot be asked."""
    spec, config, shapes = checkpoint.spec, checkpoint.config, checkpoint.shapes
    check_is_language_model(spec, config, shapes)
    tokenizer = checkpoint.tokenizer
    chat = is_chat(tokenizer, chat=spec.chat, name=spec.name)
    rows = listed_rows(config, shapes)
    conversations = Continued(tokenizer, chat, rows)
    if chat:  # one that does not open the assistant's turn is refused, for whole conversations too
        conversations.context("Why?")
    return LogProbability(
        embedding_rows=rows,
        parts=(Part(1.0, conversations),),
        template_digest=context_digest(tokenizer, chat=chat),
        **checkpoint.fields(),
    )


class LanguageNetwork(RewardNetwork):
    """A causal language model that is read as a reward."""

    base_model_prefix = "backbone"
    reward_output = 0
    assistant_opening = ()

    def __init__(self, causal: PreTrainedModel):
        super().__init__()
        self.causal, self.config = causal, causal.config
        self.eval()

    @property
    def backbone(self) -> nn.Module:
        return self.causal.get_submodule(self.causal.base_model_prefix)

    def get_input_embeddings(self) -> nn.Module:
        return self.causal.get_input_embeddings()


class SequenceNetwork(LanguageNetwork):
    """Gives log p of the last ids after those before them."""

    sequence = True
    """Its forward is told how many of the last ids are the response's."""

    def __init__(self, causal: PreTrainedModel):
        super().__init__(causal)
        self._last: tuple[Tensor, Tensor] | None = None

    def make_head(self) -> "SequenceHead":
        return SequenceHead(self.causal)

    def forget(self) -> None:
        """Drop the answer that is kept of the last context."""
        self._last = None

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, n_response: int = 1, **_
    ) -> SequenceClassifierOutput:
        """log p(last `n_response` ids | the others) as `logits` (batch, 1), by the model's
        untouched forward, normalised in float64 over all rows of its output embedding."""
        before, targets = input_ids[:, :-1], input_ids[:, -n_response:].unsqueeze(-1)
        last = self._last
        if last is None or last[1].shape[1] != n_response or not torch.equal(last[0], before):
            logits = self.causal(input_ids=before).logits[:, -n_response:]
            exact = logits.cpu() if logits.device.type == "mps" else logits  # which has no float64
            # Candidates of one token are asked one by one about the same context: its answer is
            # kept.
            last = self._last = (before, torch.log_softmax(exact.double(), dim=-1))
        chosen = last[1].gather(-1, targets.to(last[1].device)).sum(dim=1)
        return SequenceClassifierOutput(logits=chosen)


class SequenceHead:
    """From final hidden states to log-probabilities of tokens, in float32. No `Head`, which reads
    one position."""

    gated, sequence = False, True

    def __init__(self, causal: PreTrainedModel):
        self.embedding = output_embedding(causal)
        self.scaling = LogitScaling.of(causal.config)

    def to(self, device: torch.device) -> "SequenceHead":
        return self  # the network's own module, which moves with it

    def distribution(self, states: Tensor) -> Tensor:
        """Log-probabilities (n, rows) float32 after the positions with these final `states` (n,
        hidden)."""
        return torch.log_softmax(self._logits(states).double(), dim=-1).float()

    def chosen(self, states: Tensor, ids: Tensor) -> Tensor:
        """Log-probabilities (batch, T) float32 of `ids` (batch, T) after positions with `states`
        (batch, T, hidden)."""
        flat, targets = states.flatten(0, 1), ids.flatten().unsqueeze(-1)
        size = max(1, _LOGITS // len(self.embedding.weight))
        parts = []
        for some, wanted in zip(flat.split(size), targets.split(size), strict=True):
            logits = self._logits(some)
            parts.append(logits.gather(-1, wanted)[:, 0] - logits.logsumexp(dim=-1))
        return torch.cat(parts).view(ids.shape)

    def _logits(self, states: Tensor) -> Tensor:
        weight, bias = self.embedding.weight, self.embedding.bias
        states = states.to(weight.device, torch.float32)
        if weight.dtype is torch.float32:
            logits = states @ weight.T
        else:
            # In bfloat16, logits of size 16 lie an eighth apart: a vocabulary of 128,000 then has a
            # few hundred of them.
            logits = torch.cat([states @ rows.float().T for rows in weight.split(_ROWS)], dim=-1)
        return self.scaling(logits if bias is None else logits + bias.float())


def output_embedding(causal: PreTrainedModel) -> nn.Linear:
    """The layer that turns hidden states into logits."""
    return cast(nn.Linear, causal.get_output_embeddings())


@dataclass(frozen=True)
class LogitScaling:
    """What some models do to their logits: Cohere's multiply, Granite's divide, Gemma 2's cap
    them."""

    factor: float = 1.0
    cap: float | None = None

    @classmethod
    def of(cls, config: PreTrainedConfig) -> "LogitScaling":
        text = config.get_text_config()
        times, over = (getattr(text, name, None) for name in ("logit_scale", "logits_scaling"))
        return cls((times or 1.0) / (over or 1.0), getattr(text, "final_logit_softcapping", None))

    def __call__(self, logits: Tensor) -> Tensor:
        logits = logits if self.factor == 1.0 else logits * self.factor
        return logits if self.cap is None else torch.tanh(logits / self.cap) * self.cap

    def gap(self, most: Tensor) -> Tensor:
        """The most that one logit can lie above another, from the `most` before scaling."""
        most = most * self.factor
        if self.cap is None:
            return most
        return 2 * self.cap * torch.tanh(most.clamp(min=0) / (2 * self.cap))
