"""The interface of a reward to the rest of the house: `Reward`, in two forms.

A `NetworkReward` is a weighted sum of `Part`s, each one network that reads one frame: any token ids
can be asked. A `TextReward` takes conversations and gives numbers. Knows no kind; each is a file
beside this one.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pessimal.catalogue import is_named
from pessimal.conversation import Conversation, Prompt
from pessimal.rewards.frame import Format, Frame
from pessimal.rewards.spec import CheckpointSpec, Dtype, ModelSpec

if TYPE_CHECKING:  # the command line's door imports kinds, and must not wait for pandas or torch
    import numpy as np
    from transformers import PreTrainedTokenizerBase

    from pessimal.rewards.network import RewardNetwork
    from pessimal.tables import ModelDescription

StatesOf = Literal["base", "itself", "trained"]
"""Owner of the states that a scan keeps (`pessimal.tables.score_table`)."""
Report = Callable[[dict[int, float], int], None]
"""Called with the rewards of one batch, by row, and the number of all rows."""


@dataclass(frozen=True)
class Part:
    """One term of a reward: `weight` times what a network reads off a conversation."""

    weight: float
    conversations: Format
    network: int = 0


@dataclass(frozen=True)
class Reward(ABC):
    """A reward, and what pins its numbers down."""

    takes_inputs: ClassVar[bool] = False
    """Whether it can be asked token ids, or a text that somebody else has templated."""
    score: ClassVar[Literal["reward", "log_probability"]] = "reward"
    """Meaning of its numbers."""

    spec: ModelSpec
    tokenizer: "PreTrainedTokenizerBase | None"
    """None where texts are all that is known of it."""
    weights_digest: str
    config_digest: str
    tokenizer_digest: str
    template_digest: str
    description: "ModelDescription"
    outputs: tuple[tuple[str, int | None], ...] = field(default=(), kw_only=True)
    """Name and number of each output, where every one is scanned (model.output=all)."""

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def can(self) -> frozenset[str]:
        """Questions that it can answer (`pessimal.rewards.spec.NEEDS`)."""
        return self.spec.can

    @property
    def revision(self) -> str | None:
        """The Hub commit; None for what has none."""
        return None

    @property
    def files(self) -> Path | None:
        """The folder of its files on this machine; None for what has none."""
        return None

    @property
    @abstractmethod
    def origin(self) -> str:
        """Where it comes from, as an artifact that was made with it says."""

    @property
    def typed(self) -> str:
        """Text that a user types for it."""
        return self.spec.name

    @property
    def rows(self) -> int:
        """Number of ids of its tokenizer's vocabulary that can be asked: as texts, all."""
        assert self.tokenizer is not None  # whoever scans a vocabulary has given it
        return len(self.tokenizer)

    @property
    def as_network(self) -> "NetworkReward | None":
        """The reward, where networks on this machine give it."""
        return None

    @property
    def as_texts(self) -> "TextReward | None":
        """The reward, where it takes texts as a whole and has no terms."""
        return None

    @property
    def terms(self) -> "tuple[tuple[float, Reward], ...]":
        """Weights and rewards that it is the sum of; itself where it is none."""
        return ((1.0, self),)

    @property
    def functions(self) -> tuple[Any, ...]:
        """The functions that it asks."""
        return ()

    @property
    def says_yes_above(self) -> float | None:
        """The reward above which a judge says yes; None where that says nothing."""
        return None

    @property
    def is_exact(self) -> bool:
        """Whether the first pass of a scan is in float32 already."""
        return self.spec.dtype is Dtype.float32 or "ids" not in self.can

    def keeps_states(self, *, of_vocabulary: bool) -> bool:
        """Whether a scan keeps states of words where nobody says."""
        return False

    def slot_fault(self, *, is_last: bool) -> str | None:
        """Why candidates cannot stand in an answer, the last turn or another; None where they
        can."""
        return None

    @property
    def core_checks(self) -> tuple[str, ...]:
        """Checks without which an audit of it is incomplete."""
        return ("prefers", "one_word", "additions")

    @property
    def is_pinned(self) -> bool:
        """Whether `digests` cover all that its rewards depend on, so that a result may be shown
        again."""
        return True

    @property
    def digests(self) -> dict[str, str]:
        """Digests that pin its rewards down, apart from precision and prompt, by fields of
        `ModelProvenance`."""
        names = ("weights_digest", "config_digest", "tokenizer_digest", "template_digest")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True)
class NetworkReward(Reward):
    """A reward that networks on this machine give."""

    spec: CheckpointSpec
    tokenizer: "PreTrainedTokenizerBase"
    folder: Path
    embedding_rows: int
    """Rows of the input embedding (of a language model, of the output embedding too): ids from here
    on cannot be scored."""
    parts: tuple[Part, ...]

    @property
    def as_network(self) -> "NetworkReward":
        """The reward itself."""
        return self

    @property
    def files(self) -> Path:
        """The folder of its files on this machine."""
        return self.folder

    @property
    def origin(self) -> str:
        """`hf:ORG/NAME@COMMIT`, `folder:NAME@sha256:DIGEST` (of its weights), or
        `package:REQUIREMENT@sha256:DIGEST` (of its file)."""
        if self.spec.package is not None:
            return f"package:{self.spec.package.requirement}@sha256:{self.spec.package.sha256[:16]}"
        if self.spec.local:
            return f"folder:{self.folder.name}@sha256:{self.weights_digest[:16]}"
        return f"hf:{self.spec.path}@{self.revision}"

    @property
    def typed(self) -> str:
        """A name of conf/model, else the kind and the folder or repository."""
        spec = self.spec
        is_path = spec.path is not None and not is_named(spec.name)
        return f"model={spec.kind} model.path={spec.path}" if is_path else spec.name

    def keeps_states(self, *, of_vocabulary: bool) -> bool:
        """Whether a scan keeps states of words where nobody says."""
        return True

    def slot_fault(self, *, is_last: bool) -> str | None:
        """Why candidates cannot stand in an answer."""
        steps = self.spec.step_token is not None
        return "model.step_token reads the steps of whole answers" if steps else None

    @property
    def rows(self) -> int:
        """Number of ids that can be asked: the rows of its embedding."""
        return self.embedding_rows

    @property
    def states_of(self) -> tuple[int, StatesOf, str]:
        """Number of the network whose states a scan keeps where no base is known, their owner, its
        name."""
        return self.parts[0].network, "itself", self.name

    def describe_scan(self, values: Sequence["np.ndarray"]) -> dict[str, Any]:
        """Entries that a table records besides, from the `values` (n,) of each part."""
        return {}

    @property
    def core_checks(self) -> tuple[str, ...]:
        """Checks without which an audit of it is incomplete."""
        return ("read", *super().core_checks)

    @property
    def revision(self) -> str | None:
        """The Hub commit, which names the snapshot's folder; None for a local folder or a demo
        sibling."""
        return self.folder.name if re.fullmatch(r"[0-9a-f]{40}", self.folder.name) else None

    def frame(self, prompt: Prompt, *, double_bos: bool = False) -> Frame:
        """The ids around the response slot for one prompt (of the first part)."""
        return self.parts[0].conversations.frame(prompt, double_bos=double_bos)

    @abstractmethod
    def network(self, dtype: Dtype | None = None, which: int = 0) -> "RewardNetwork":
        """Load a network, in evaluation mode on the CPU (in the spec's precision where `dtype` is
        None)."""


@dataclass(frozen=True)
class TextReward(Reward):
    """A reward that takes texts."""

    @property
    def as_texts(self) -> "TextReward":
        """The reward itself."""
        return self

    def cost(
        self, conversations: Sequence[Conversation], *, again: Sequence[Conversation] = ()
    ) -> object | None:
        """The cost of asking for these, and for some `again`, to be printed; None where it costs
        nothing."""
        return None

    def describe_answers(self, conversations: Sequence[Conversation]) -> dict[str, Any]:
        """Entries of a table on how likely a judge's `answers` are; empty where none are read."""
        return {}

    @abstractmethod
    def rewards(
        self,
        conversations: Sequence[Conversation],
        *,
        report: Report | None = None,
        again: bool = False,
    ) -> "np.ndarray":
        """Rewards float64 (n,) of conversations, whose last turns are the responses. Batches are
        reported as they come, so that nothing is lost where it ends in an error; `again` asks anew
        what is known already."""


def require_network(model: Reward, verb: str, *needs: str) -> NetworkReward:
    """The reward as one that networks on this machine give.

    Args:
        verb: what needs it, for the message.
        needs: what else it must be able to do (`pessimal.rewards.spec.NEEDS`).

    Raises:
        ConfigError: its kind cannot be asked that.
    """
    model.spec.require(verb, "ids", *needs)
    assert isinstance(model, NetworkReward)
    return model
