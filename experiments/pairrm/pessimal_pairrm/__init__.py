"""PairRM as a kind of reward: its options, which pessimal imports before it knows what is asked."""

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from pydantic.dataclasses import dataclass as options_dataclass

from pessimal.errors import ConfigError
from pessimal.rewards.spec import CheckpointSpec

if TYPE_CHECKING:
    from pessimal_pairrm.network import PairRM


@options_dataclass
class PairRMSpec(CheckpointSpec):
    """PairRM: by how much a response is better than one opponent, in both orders."""

    has_head: ClassVar[bool] = True

    kind: str = "pairrm"
    opponent: str | None = None
    """The other response, with which every response is compared."""

    def check(self) -> None:
        super().check()
        if self.opponent is None:
            raise ConfigError("PairRM compares two responses: model.opponent=TEXT is the other one")

    def open(self, folder: Path | None, *, cache: str) -> "PairRM":
        """PairRM in a folder. ModelError where its tokenizer lacks a marker."""
        from pessimal.rewards.checkpoint_files import read_checkpoint  # torch
        from pessimal_pairrm.network import open_pairrm

        return open_pairrm(read_checkpoint(self, folder), self.opponent)
