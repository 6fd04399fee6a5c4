"""Where a loop runs: devices, processes, threads. Imports no torch, since a configuration names
these choices."""

import os
import sys
from enum import Enum
from typing import Annotated, ClassVar

from pydantic.dataclasses import dataclass

from pessimal.errors import ConfigError
from pessimal.options import Count, OneOf, Options


class Strategy(Enum):
    """The ways in which a scan's processes share the work."""

    auto = "auto"
    """One process for one device; `ddp` for more."""
    ddp = "ddp"
    """Every process holds the whole network and scores its share of the candidates."""
    sharded = "sharded"
    """Every process holds a part of every layer, for a network larger than one card."""


@dataclass
class TrainerSpec(Options):
    """Where the loop runs."""

    _prefix: ClassVar[str] = "trainer"

    accelerator: Annotated[str, OneOf(("cpu", "gpu", "cuda", "mps", "auto"))] = "cpu"
    """Kind of device."""
    devices: Count = 1
    """Devices of each node, one process each (on a CPU: processes)."""
    num_nodes: Count = 1
    """Machines; started by torchrun or a scheduler on each of them."""
    strategy: Strategy = Strategy.auto
    """The way in which the processes share the work."""
    threads: Count | None = None
    """OpenMP threads of a process; null lets a scan take one or all, whichever is faster here, and
    elsewhere leaves torch's choice."""

    @property
    def alone(self) -> bool:
        """One process on one device."""
        return self.devices * self.num_nodes == 1 and self.strategy is Strategy.auto

    def check_alone(self, reason: str) -> None:
        """ConfigError, saying `reason`, where more than one device is asked for."""
        if not self.alone:
            raise ConfigError(
                f"trainer.devices={self.devices} trainer.num_nodes={self.num_nodes} "
                f"trainer.strategy={self.strategy.value}: {reason}. Leave them out"
            )

    def check_here(self, *, sweep: bool) -> None:
        """ConfigError where this machine, or how the command was started, cannot be what is asked
        for; without torch, which alone knows the rest (`scoring.trainer`)."""
        linux_card = any(map(os.path.exists, ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")))
        if sys.platform == "linux" and self.accelerator in ("gpu", "cuda") and not linux_card:
            raise ConfigError(
                f"trainer.accelerator={self.accelerator!r}, but this machine has no GPU that its "
                "system knows of; type trainer=cpu"
            )
        started, slurm = os.environ.get("LOCAL_WORLD_SIZE"), "SLURM_JOB_ID" in os.environ
        if started is not None and int(started) != self.devices:
            raise ConfigError(
                f"torchrun started {started} processes on this node and "
                f"trainer.devices={self.devices}; give both the same"
            )
        if sweep and started is None and not slurm and self.devices > 1:
            raise ConfigError(
                f"trainer.devices={self.devices} in a sweep needs a launcher of processes: "
                "hydra/launcher=submitit_slurm; or give one command a job, without -m"
            )
        if self.num_nodes > 1 and "MASTER_ADDR" not in os.environ and not slurm:
            raise ConfigError(
                f"trainer.num_nodes={self.num_nodes} needs a launcher on each node. Type there: "
                f"torchrun --nnodes={self.num_nodes} --nproc-per-node={self.devices} "
                "--rdzv-backend=c10d --rdzv-endpoint=HOST:29500 -m pessimal "
                f"{' '.join(sys.argv[1:])}"
            )
