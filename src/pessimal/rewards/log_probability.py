"""log p(response | prompt) in nats, of a causal language model: the sum over the response's tokens.

Without a closing token, a token of the vocabulary is its next-token probability, and one forward
gives them all.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic.dataclasses import dataclass as options_dataclass

from pessimal.errors import ConfigError, ModelError
from pessimal.rewards.base import NetworkReward, Part
from pessimal.rewards.formats import Continued, is_chat
from pessimal.rewards.spec import CheckpointSpec, Dtype, Mode

if TYPE_CHECKING:
    from pessimal.rewards.base import Reward
    from pessimal.rewards.checkpoint_files import Checkpoint
    from pessimal.rewards.language import SequenceNetwork


@options_dataclass
class ContinuedSpec(CheckpointSpec):
    """A language model whose probabilities of whole responses are read."""

    can_be_sharded: ClassVar[bool] = False

    chat: bool | None = None
    """true asks inside the chat template, false after the prompt's plain text; null takes the
    template where the tokenizer has one, as those of instruction-tuned models do, and those of some
    base models too: for these type false."""

    def check_scan(self, mode: Mode, *, of_vocabulary: bool) -> None:
        """ConfigError where a scan cannot put its candidates into the response slot in this
        mode."""
        super().check_scan(mode, of_vocabulary=of_vocabulary)
        wanted = Mode.ids if of_vocabulary else Mode.text
        if mode is not wanted:
            raise ConfigError(f"mode={mode.value}: of model.kind={self.kind} mode={wanted.value}")

    def check_text_search(self) -> None:
        """ConfigError where no text gives exactly the ids of a response that is searched."""
        if self.chat is False:
            raise ConfigError("model.chat=false: no text gives exactly the ids: type mode=ids")


@options_dataclass
class LogProbabilitySpec(ContinuedSpec):
    """log p(response | prompt) in nats, of a causal language model."""

    is_reward: ClassVar[bool] = False

    kind: str = "log_probability"

    def open(self, folder: Path | None, *, cache: str) -> "Reward":
        """The language model in a folder. ModelError where it is none, FrameError where its chat
        template cannot be asked."""
        from pessimal.rewards.checkpoint_files import read_checkpoint  # torch

        assert folder is not None
        return open_log_probability(self, read_checkpoint(self, folder))


@dataclass(frozen=True)
class LogProbability(NetworkReward):
    """The log-probabilities of a causal language model on this machine's disk."""

    spec: ContinuedSpec

    @property
    def conversations(self) -> Continued:
        """How it is asked."""
        conversations = self.parts[0].conversations
        assert isinstance(conversations, Continued)
        return conversations

    @property
    def score(self) -> Literal["log_probability"]:
        """Log-probabilities are no rewards."""
        return "log_probability"

    def keeps_states(self, *, of_vocabulary: bool) -> bool:
        """Of a vocabulary one forward gives all, and states would take one a word."""
        return not of_vocabulary

    def slot_fault(self, *, is_last: bool) -> str | None:
        """Why candidates cannot stand in an answer."""
        return "a log-probability is the answer's, and no reward of a conversation"

    def network(self, dtype: Dtype | None = None, which: int = 0) -> "SequenceNetwork":
        from pessimal.rewards.language import (
            SequenceNetwork,
            load_language_network,  # torch
            output_embedding,
        )

        causal = load_language_network(self.spec, self.folder, dtype=dtype or self.spec.dtype)
        rows = len(output_embedding(causal).weight)
        # A model with code of its own may name it so that its files do not show this.
        if rows < self.embedding_rows:
            ids = f"its tokenizer has ids up to {self.embedding_rows - 1}"
            raise ModelError(f"{type(causal).__name__} has {rows} outputs, and {ids}")
        return SequenceNetwork(causal)


def open_log_probability(spec: ContinuedSpec, checkpoint: "Checkpoint") -> LogProbability:
    """The language model in a checkpoint. ModelError where it is none, FrameError where its
    chat template cannot be asked."""
    from pessimal.rewards.language import (  # torch
        check_is_language_model,
        context_digest,
        listed_rows,
    )

    check_is_language_model(spec, checkpoint.config, checkpoint.shapes)
    tokenizer = checkpoint.tokenizer
    chat = is_chat(tokenizer, chat=spec.chat, name=spec.name)
    rows = listed_rows(checkpoint.config, checkpoint.shapes)
    conversations = Continued(tokenizer, chat, rows)
    if chat:  # one that does not open the assistant's turn is refused, for whole conversations too
        conversations.context("Why?")
    return LogProbability(
        embedding_rows=rows,
        parts=(Part(1.0, conversations),),
        template_digest=context_digest(tokenizer, chat=chat),
        **checkpoint.fields(),
    )
