"""Causal language models as rewards: which checkpoints are one, how their network is loaded, and
networks that give the probability of what is said, the odds of a judge's answers, or the last
hidden states alone.

Knows configurations, names of weights, transformers' loading and modules. Does not know prompts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    MODEL_FOR_MASKED_LM_MAPPING,
    AutoModel,
    AutoModelForCausalLM,
    GenerationConfig,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.modeling_outputs import SequenceClassifierOutput

from pessimal.errors import ModelError
from pessimal.rewards.ceiling import Interval, NormalisedStates
from pessimal.rewards.checkpoint_files import load_checkpoint, load_with_own_code
from pessimal.rewards.heads import ENCODERS, Head, Shapes, head_for
from pessimal.rewards.network import RewardNetwork, backbone_in
from pessimal.rewards.question import AnswerReading, Answers
from pessimal.rewards.spec import CheckpointSpec, Dtype
from pessimal.rewards.weights import template_digest
from pessimal.tables.score_table import PLAIN_TEXT, PLAIN_TEXT_ALL_THE_SAME

# Logits that are float32 at once; and rows of an output embedding in lower precision that are
# turned into float32 at once, in one buffer: a whole one of Gemma 2 27B would take 4.7 GB. On a CPU
# (128,256 rows of 1,024) this took 25 ms, a tensor of its own for every 1,024 rows 310 ms, and
# 4,096 at once 39 ms.
_LOGITS, _ROWS = 2**24, 1024
DECODER = "give a decoder, such as a Llama, Gemma, GPT or Qwen"
"""The remedy for what is no causal language model."""


def has_reward_head(shapes: Shapes) -> bool:
    """Whether weights of these names hold a head that gives a reward."""
    return head_for(shapes) is not None or any(name in shapes for name in ENCODERS)


def check_is_language_model(spec: CheckpointSpec, config: PreTrainedConfig, shapes: Shapes) -> None:
    """ModelError where a checkpoint, by its files, gives no next-token probabilities: a reward
    model, an encoder."""
    message, kind = f"model.kind={spec.kind} was asked of {spec.name!r}, ", type(config).__name__
    if has_reward_head(shapes):
        raise ModelError(f"{message}which has a reward head: leave out model.kind")
    masked = type(config) in MODEL_FOR_MASKED_LM_MAPPING
    encoder = masked and not getattr(config, "is_decoder", False)
    own_code = spec.trust_remote_code and _brings_own_code(config)
    unknown = type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING and not own_code
    if encoder or unknown or getattr(config, "is_encoder_decoder", False):
        raise ModelError(f"{message}a {kind}, which gives no next token here: {DECODER}")


def listed_rows(config: PreTrainedConfig, shapes: Shapes) -> int:
    """Number of ids that have both an input and an output embedding: ids from here on have no
    probability."""
    names = [name for name in shapes if name.endswith(("lm_head.weight", "embed_out.weight"))]
    return min([config.get_text_config().vocab_size, *(shapes[name][0] for name in names)])


def load_language_network(
    spec: CheckpointSpec, folder: Path, *, dtype: Dtype, kind: type = AutoModelForCausalLM
) -> PreTrainedModel:
    """The language model in evaluation mode, on the CPU; safetensors only. ModelError where it
    cannot be."""

    def make(config: PreTrainedConfig, **options: Any) -> tuple[PreTrainedModel, dict[str, Any]]:
        if spec.trust_remote_code and _brings_own_code(config):
            return load_with_own_code(kind, folder, **options)
        loaded: Any = kind
        return loaded.from_pretrained(folder, config=config, **options)

    advice = ". Give a causal language model that `save_pretrained` wrote."
    network = load_checkpoint(spec, folder, make, dtype=dtype, noun="language model", advice=advice)
    return cast(PreTrainedModel, network)


def _brings_own_code(config: PreTrainedConfig) -> bool:
    return "AutoModelForCausalLM" in (getattr(config, "auto_map", None) or {})


def context_digest(tokenizer: PreTrainedTokenizerBase, *, chat: bool) -> str:
    """`template_digest` in a table's provenance: the template's sha256, or PLAIN_TEXT where none
    was in use."""
    if chat:
        return template_digest(tokenizer)
    return PLAIN_TEXT_ALL_THE_SAME if tokenizer.chat_template else PLAIN_TEXT


def set_sampling(
    causal: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    *,
    tokens: int,
    temperature: float = 1.0,
    **more: Any,
) -> set[int]:
    """Have `generate` write at most so many tokens; gives those that end a reply. In place of the
    checkpoint's own sampling habits (top-k, penalties), which would fill what is left open: the
    temperature says all."""
    end, pad = getattr(causal.generation_config, "eos_token_id", None), tokenizer.pad_token_id
    ends = {*(end if isinstance(end, list) else [end]), tokenizer.eos_token_id} - {None}
    options: dict[str, Any] = {"max_new_tokens": tokens, "eos_token_id": sorted(ends) or None}
    options["pad_token_id"] = min(ends, default=0) if pad is None else pad
    if temperature > 0:
        options |= {"do_sample": True, "temperature": temperature, "top_k": 0, "top_p": 1.0}
    causal.generation_config = GenerationConfig(**options, **more)
    return ends


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
        previous = self._last
        if (
            previous is None
            or previous[1].shape[1] != n_response
            or not torch.equal(previous[0], before)
        ):
            logits = self.causal(input_ids=before).logits[:, -n_response:]
            exact = logits.cpu() if logits.device.type == "mps" else logits  # which has no float64
            # Candidates of one token are asked one by one about the same context: its answer is
            # kept.
            previous = self._last = (before, torch.log_softmax(exact.double(), dim=-1))
        total = previous[1].gather(-1, targets.to(previous[1].device)).sum(dim=1)
        return SequenceClassifierOutput(logits=total)


class SequenceHead:
    """From final hidden states to log-probabilities of tokens, in float32. No `Head`, which reads
    one position."""

    gated, sequence = False, True

    def __init__(self, causal: PreTrainedModel):
        self.embedding = output_embedding(causal)
        self.scaling = LogitScaling.from_config(causal.config)

    def to(self, device: torch.device) -> "SequenceHead":
        return self  # the network's own module, which moves with it

    def distribution(self, states: Tensor) -> Tensor:
        """Log-probabilities (n, rows) float32 after the positions with these final `states` (n,
        hidden)."""
        return torch.log_softmax(self._logits(states).double(), dim=-1).float()

    def log_probabilities(self, states: Tensor, ids: Tensor) -> Tensor:
        """Log-probabilities (batch, T) float32 of `ids` (batch, T) after positions with `states`
        (batch, T, hidden)."""
        flat, targets = states.flatten(0, 1), ids.flatten().unsqueeze(-1)
        size, parts = max(1, _LOGITS // len(self.embedding.weight)), []
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
    """The scaling of logits in some models: Cohere's multiply, Granite's divide, Gemma 2's cap
    them."""

    factor: float = 1.0
    cap: float | None = None

    @classmethod
    def from_config(cls, config: PreTrainedConfig) -> "LogitScaling":
        text = config.get_text_config()
        times, over = (getattr(text, name, None) for name in ("logit_scale", "logits_scaling"))
        return cls((times or 1.0) / (over or 1.0), getattr(text, "final_logit_softcapping", None))

    def __call__(self, logits: Tensor) -> Tensor:
        logits = logits if self.factor == 1.0 else logits * self.factor
        return logits if self.cap is None else torch.tanh(logits / self.cap) * self.cap

    def gap(self, largest: Tensor) -> Tensor:
        """The largest difference of two logits, from the `largest` before scaling."""
        largest = largest * self.factor
        if self.cap is None:
            return largest
        return 2 * self.cap * torch.tanh(largest.clamp(min=0) / (2 * self.cap))


class JudgeNetwork(LanguageNetwork):
    """Gives the reward of what it has read."""

    def __init__(self, causal: PreTrainedModel, reading: AnswerReading):
        super().__init__(causal)
        self.reading = reading

    def make_head(self) -> "AnswersHead":
        return AnswersHead(self.causal, self.reading)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, **_
    ) -> SequenceClassifierOutput:
        """Rewards as `logits` (batch, 1), by the model's untouched forward; where steps are graded
        the log-odds at all positions, (batch, length, 1)."""
        if self.steps is not None:
            every = self.causal(input_ids=input_ids, attention_mask=attention_mask).logits.float()
            answers = every[..., list(self.reading.ids)]
            odds = self.reading.reward(answers.flatten(0, 1))
            return SequenceClassifierOutput(logits=odds.view(*input_ids.shape, 1))
        logits = self._next(input_ids, attention_mask)[:, list(self.reading.ids)]
        return SequenceClassifierOutput(logits=self.reading.reward(logits).unsqueeze(-1))

    @torch.no_grad()
    def answers(self, inputs: Sequence[Sequence[int]]) -> Answers | None:
        """Probability of the answers to whole `inputs`; None for a raw logit, which is of no
        answer."""
        if not (self.reading.negative or self.reading.values):
            return None
        device = next(self.parameters()).device
        batches = (torch.tensor([ids], device=device) for ids in inputs)
        logs = torch.cat([self._next(ids).log_softmax(dim=-1) for ids in batches])
        ids = list(self.reading.ids)
        sums = logs[:, ids].exp().sum(dim=-1)
        logs[:, ids] = float("-inf")
        instead = logs[sums.argmin()].argmax()
        return Answers(float(sums.mean()), float(sums.min()), int(instead))

    def _next(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Logits (batch, rows) float32 of what comes next."""
        inputs = {"input_ids": input_ids, "attention_mask": attention_mask}
        if self.config.is_encoder_decoder:
            start = self.config.decoder_start_token_id
            inputs["decoder_input_ids"] = torch.full_like(input_ids[:, :1], start)
        return self.causal(**inputs).logits[:, -1].float()


class AnswersHead(Head):
    """The rows of the output embedding that are read, in float32."""

    def __init__(self, causal: PreTrainedModel, reading: AnswerReading):
        embedding, ids = output_embedding(causal), list(reading.ids)
        self.weight = embedding.weight.detach()[ids].float()  # (ids, hidden)
        self.bias = None if embedding.bias is None else embedding.bias.detach()[ids].float()
        self.scaling, self.reading = LogitScaling.from_config(causal.config), reading

    @staticmethod
    def fits(shapes: Shapes) -> bool:
        return False

    def read(self, final: Tensor, context: Tensor | None) -> Tensor:
        logits = final @ self.weight.T
        logits = logits if self.bias is None else logits + self.bias
        return self.reading.reward(self.scaling(logits))

    def bounds(self, states: NormalisedStates) -> Interval:
        values, positive = self.reading.values, len(self.reading.positive)
        if values:
            return torch.tensor([min(values)]).double(), torch.tensor([max(values)]).double()
        if not self.reading.negative:
            low, high = states.linear(self.weight, self.bias)
            return self.scaling(low[:1]), self.scaling(high[:1])
        weight = (self.weight[:positive, None] - self.weight[None, positive:]).flatten(0, 1)
        bias = self.bias
        if bias is not None:
            bias = (bias[:positive, None] - bias[None, positive:]).flatten()
        # Each answer's odds are at most those against every other answer at once.
        low, high = states.linear(weight, bias)
        above, below = (self.scaling.gap(side).view(positive, -1) for side in (high, -low))
        highest = -(-above).logsumexp(dim=1)
        lowest = -(-below).logsumexp(dim=0)
        return -lowest.logsumexp(dim=0)[None], highest.logsumexp(dim=0)[None]


class LastState(Head):
    """Gives the normalised last hidden state (batch, hidden) itself."""

    def __init__(self, network: RewardNetwork, *, output: int | slice = 0):
        pass

    @staticmethod
    def fits(shapes: Shapes) -> bool:
        return False  # no checkpoint asks for it

    def read(self, final: Tensor, context: Tensor | None) -> Tensor:
        return final


class StatesNetwork(RewardNetwork):
    """A decoder without its head."""

    base_model_prefix = "backbone"
    reward_output = 0
    assistant_opening = ()

    def __init__(self, network: nn.Module):
        super().__init__()
        whole = network.causal if isinstance(network, LanguageNetwork) else network
        self.whole, self.config = whole, cast(PreTrainedConfig, whole.config)
        self.eval()

    @property
    def backbone(self) -> nn.Module:
        return backbone_in(self.whole)

    def get_input_embeddings(self) -> nn.Module:
        return self.backbone.get_input_embeddings()  # type: ignore[operator]

    def make_head(self) -> LastState:
        return LastState(self)


def load_base(spec: CheckpointSpec, folder: Path, *, dtype: Dtype, rows: int) -> StatesNetwork:
    """The network in a folder without any head, on the CPU.

    Args:
        spec: of the base, for its name and how it is loaded.
        rows: ids that it is to be asked: those of the reward's tokenizer.

    Raises:
        ModelError: it cannot be loaded, or has fewer rows in its embedding.
    """
    network = load_language_network(spec, folder, dtype=dtype, kind=AutoModel)
    embedding = cast(nn.Embedding, network.get_input_embeddings())
    if len(embedding.weight) < rows:
        counts = f"model.base_path={spec.name} has {len(embedding.weight)} tokens, not {rows}"
        raise ModelError(f"{counts}: give what reward training began from, or states=false")
    return StatesNetwork(network)
