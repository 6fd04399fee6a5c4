"""Log-probabilities as rewards: log p(response | prompt) of a causal language model in nats, summed
over the response's tokens; and β · (log π − log π_ref), what a model trained by direct preference
optimisation rewards (Rafailov et al. 2023).

Without a closing token, a token of the vocabulary is its next-token probability, and one forward
gives them all. π and π_ref are two networks, or one with its adapter on and off.
"""

from dataclasses import dataclass, field, fields, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic.dataclasses import dataclass as options_dataclass

from pessimal.errors import ConfigError, ModelError
from pessimal.options import Options
from pessimal.rewards.base import NetworkReward, Part, StatesOf
from pessimal.rewards.formats import Continued, closing_of, is_chat
from pessimal.rewards.obtain import adapter_of, files_of
from pessimal.rewards.spec import CheckpointSpec, Dtype, Mode
from pessimal.rewards.weights import base_of

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

    score: ClassVar[Literal["reward", "log_probability"]] = "log_probability"

    spec: ContinuedSpec

    @property
    def conversations(self) -> Continued:
        """The format in which it is asked."""
        conversations = self.parts[0].conversations
        assert isinstance(conversations, Continued)
        return conversations

    def keeps_states(self, *, of_vocabulary: bool) -> bool:
        """False for a vocabulary: one forward gives all, and states would take one per word."""
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


@options_dataclass
class ReferenceOptions(Options):
    """The reference of an implicit reward."""

    reference: str | None = None
    """Hub repository or local folder of π_ref; null takes π with its adapter off
    (`model.adapter`)."""
    revision: str | None = None
    """Commit, tag or branch of the reference's repository."""
    beta: float = 1.0
    """β: what the difference of log-probabilities is multiplied by; 0.1 was most models' in
    training."""
    closing: bool = True
    """Whether the response ends with the token that closes the assistant's turn, as it does in
    training."""


@options_dataclass
class ImplicitSpec(ContinuedSpec):
    """β · (log π(response | prompt) − log π_ref(response | prompt)): what direct preference
    optimisation rewards."""

    kind: str = "implicit"
    implicit: ReferenceOptions = field(default_factory=ReferenceOptions)

    def check(self) -> None:
        super().check()
        if self.implicit.reference is None and self.adapter is None:
            raise ConfigError("give model.implicit.reference=DIR_OR_ID or model.adapter=DIR_OR_ID")

    def open(self, folder: Path | None, *, cache: str) -> "Reward":
        """The implicit reward of the policy in a folder and its reference."""
        assert folder is not None
        return open_implicit(self, folder)


@dataclass(frozen=True)
class Implicit(NetworkReward):
    """The implicit reward of a policy and its reference, both on this machine's disk."""

    spec: ImplicitSpec
    policy: LogProbability
    reference: LogProbability

    @property
    def typed(self) -> str:
        """The policy, and the reference where it has one of its own."""
        reference = self.spec.implicit.reference
        return super().typed + f" model.implicit.reference={reference}" * (reference is not None)

    @property
    def states_of(self) -> tuple[int, StatesOf, str]:
        """The reference's."""
        return 1, "base", f"{self.name} reference"

    def slot_fault(self, *, is_last: bool) -> str | None:
        """Why candidates cannot stand in an answer."""
        reads_on = "an implicit reward is the answer's: put the slot behind, before or into it"
        return super().slot_fault(is_last=is_last) if is_last else reads_on

    def network(self, dtype: Dtype | None = None, which: int = 0) -> "SequenceNetwork":
        """π (0) or π_ref (1)."""
        return (self.policy, self.reference)[which].network(dtype or self.spec.dtype)


def open_implicit(spec: ImplicitSpec, folder: Path) -> Implicit:
    """The implicit reward of the policy in a folder.

    Raises:
        ModelError: one of the two is no causal language model, or their tokens differ.
    """
    from pessimal.rewards.checkpoint_files import read_checkpoint  # torch

    policy, options = open_log_probability(spec, read_checkpoint(spec, folder)), spec.implicit
    path, revision = spec.path, spec.revision
    if spec.package is None and (adapter := adapter_of(spec)) is not None:
        path, revision = base_of(spec, adapter)
    names = {field.name for field in fields(LogProbabilitySpec)} - {"kind"}
    settings = {name: getattr(spec, name) for name in names} | {"path": path, "revision": revision}
    settings |= {"name": f"{spec.name} reference", "adapter": None, "adapter_revision": None}
    # It is asked in the policy's conversations, so it needs no template of its own.
    settings |= {"chat": False, "template_options": None}
    if options.reference is not None:
        settings |= {"path": options.reference, "revision": options.revision}
        settings |= {"file": None, "package": None}
        folder = files_of(LogProbabilitySpec(**settings)) or folder
    other = LogProbabilitySpec(**settings)
    reference = open_log_probability(other, read_checkpoint(other, folder))
    _check_same_tokens(policy, reference)
    rows = min(policy.embedding_rows, reference.embedding_rows)
    chat = policy.conversations.chat
    closing = closing_of(policy.tokenizer, chat=chat) if options.closing else ()
    if options.closing and not closing:
        raise ModelError(f"no token closes {spec.name!r}'s responses: model.implicit.closing=false")
    conversations = replace(policy.conversations, rows=rows, closing=closing)
    weights = sha256(f"{policy.weights_digest} {reference.weights_digest}".encode()).hexdigest()
    digests = f"{policy.config_digest} {reference.config_digest} {options.beta!r} {closing}"
    shared = ("tokenizer", "tokenizer_digest", "template_digest", "description", "folder")
    return Implicit(
        spec=spec,
        embedding_rows=rows,
        parts=(Part(options.beta, conversations), Part(-options.beta, conversations, network=1)),
        weights_digest=weights,
        config_digest=sha256(digests.encode()).hexdigest(),
        policy=policy,
        reference=reference,
        **{name: getattr(policy, name) for name in shared},
    )


def _check_same_tokens(policy: LogProbability, reference: LogProbability) -> None:
    ours, theirs = (model.tokenizer.get_vocab() for model in (policy, reference))
    # A reference may lack tokens that training added for the template: they are then refused where
    # they occur.
    differing = sorted(token for token, i in ours.items() if token in theirs and theirs[token] != i)
    missing = sorted(set(ours) ^ set(theirs))
    if differing or len(missing) > len(ours) // 100:
        token = (differing or missing)[0]
        ids = f"{token!r} has the ids {ours.get(token)} and {theirs.get(token)}"
        advice = "Give what training began from: model.implicit.reference=DIR_OR_ID"
        raise ModelError(f"{policy.name!r}'s reference has different tokens: {ids}. {advice}")
