"""β · (log π(y|x) − log π_ref(y|x)): what a model trained by direct preference optimisation rewards
(Rafailov et al. 2023).

Two networks, or one with its adapter on and off, asked in the same context; each is a
`SequenceNetwork`.
"""

from dataclasses import dataclass, replace
from hashlib import sha256

from pessimal.errors import ModelError
from pessimal.rewards.adapters import base_of
from pessimal.rewards.base import NetworkReward, Part
from pessimal.rewards.checkpoint_files import Checkpoint, read_checkpoint
from pessimal.rewards.hub import adapter_of, files_of
from pessimal.rewards.language import closing_of
from pessimal.rewards.log_probability import LogProbability, SequenceNetwork, open_log_probability
from pessimal.rewards.spec import Dtype, ImplicitSpec, Kind
from pessimal.tables.states import BASE


@dataclass(frozen=True)
class Implicit(NetworkReward):
    """The implicit reward of a policy and its reference, both on this machine's disk."""

    policy: LogProbability
    reference: LogProbability

    @property
    def states_of(self) -> tuple[int, str, str]:
        """The reference's."""
        return 1, BASE, f"{self.name} reference"

    def slot_fault(self, *, is_last: bool) -> str | None:
        """Why candidates cannot stand in an answer."""
        reads_on = "an implicit reward is the answer's: put the slot behind, before or into it"
        return super().slot_fault(is_last=is_last) if is_last else reads_on

    def network(self, dtype: Dtype | None = None, which: int = 0) -> SequenceNetwork:
        """π (0) or π_ref (1)."""
        return (self.policy, self.reference)[which].network(dtype or self.spec.dtype)


def open_implicit(checkpoint: Checkpoint) -> Implicit:
    """The implicit reward of the policy in a checkpoint.

    Raises:
        ModelError: one of the two is no causal language model, or their tokens differ.
    """
    spec, folder = checkpoint.spec, checkpoint.folder
    policy, options = open_log_probability(checkpoint), spec.implicit
    path, revision = spec.path, spec.revision
    if spec.package is None and (adapter := adapter_of(spec)) is not None:
        path, revision = base_of(spec, adapter)
    # It is asked in the policy's conversations, so it needs no template of its own: chat=False.
    other = replace(
        spec,
        path=path,
        revision=revision,
        kind=Kind.log_probability,
        implicit=ImplicitSpec(),
        name=f"{spec.name} reference",
        adapter=None,
        adapter_revision=None,
        chat=False,
        template_options=None,
    )
    if options.reference is not None:
        other = replace(
            other, path=options.reference, revision=options.revision, file=None, package=None
        )
        folder = files_of(other) or folder
    reference = open_log_probability(read_checkpoint(other, folder))
    _check_same_tokens(policy, reference)
    rows = min(policy.embedding_rows, reference.embedding_rows)
    chat = policy.conversations.chat
    closing = closing_of(policy.tokenizer, chat=chat) if options.closing else ()
    if options.closing and not closing:
        raise ModelError(
            f"the tokenizer of {spec.name!r} has no token that closes a response. Type "
            "model.implicit.closing=false"
        )
    conversations = replace(policy.conversations, rows=rows, closing=closing)
    both = sha256(f"{policy.weights_digest} {reference.weights_digest}".encode()).hexdigest()
    settings = f"{policy.config_digest} {reference.config_digest} {options.beta!r} {closing}"
    shared = ("tokenizer", "tokenizer_digest", "template_digest", "description", "folder")
    return Implicit(
        spec=spec,
        embedding_rows=rows,
        parts=(Part(options.beta, conversations), Part(-options.beta, conversations, network=1)),
        weights_digest=both,
        config_digest=sha256(settings.encode()).hexdigest(),
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
        example = (differing or missing)[0]
        raise ModelError(
            f"{policy.name!r} and its reference {reference.spec.path!r} have different tokens "
            f"({len(ours)} and {len(theirs)}; {example!r} has the ids {ours.get(example)} and "
            f"{theirs.get(example)}), so their log-probabilities are of different things. Give the "
            "model that training began from: model.implicit.reference=DIR_OR_ID"
        )
