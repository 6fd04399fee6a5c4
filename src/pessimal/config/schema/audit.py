"""Options of `pessimal audit`."""

import copy
from dataclasses import field
from typing import Annotated, Self

from annotated_types import Ge
from omegaconf import MISSING
from pydantic.dataclasses import dataclass

from pessimal.config.schema.scan import TrainerLoop
from pessimal.config.schema.shared import PromptedConfig
from pessimal.errors import ConfigError
from pessimal.options import Count, existing_file, parse_duration
from pessimal.rewards.server import ServerOptions
from pessimal.rewards.spec import ModelSpec
from pessimal.scoring.spec import Strategy, TrainerSpec


@dataclass
class AuditConfig(PromptedConfig):
    """`pessimal audit`: one command before a training, a verdict per check. Exit code 1 where a
    check fails, 3 where a core check could not be measured."""

    model: ModelSpec = MISSING
    name: str | None = None
    """Name of the artifact; the model's own where not given."""
    budget: str = "10m"
    """Time that it may take, as estimated before it begins: 90s, 10m, 2h. What does not fit is left
    out, and the command that would do it is printed."""
    pairs: str | None = None
    """File of labelled pairs of answers (.jsonl, .jsonl.gz, .json, .parquet) on which accuracy is
    measured: rows of HelpSteer2, HH-RLHF, RewardBench, RM-Bench or JudgeBench, or with prompt,
    chosen and rejected. null takes the 210 pairs that come with pessimal."""
    tasks: str | None = None
    """Of a grader: JSONL file of tasks with their true answers, which it is asked in place of
    pairs."""
    strict: bool = True
    """Exit with 3 where a core check could not be measured; false exits with 0."""
    url: str | None = None
    """Address of a server that should give this model's rewards."""
    endpoint: ServerOptions = field(default_factory=ServerOptions)
    """How this server is asked; its address is `url`."""
    loop: TrainerLoop | None = None
    """A trainer whose loop should have the model read what its template says; with `policy`."""
    policy: str | None = None
    """A language model: optimising the reward is forecast for it, and its tokenizer is the loop's,
    and that of a grader's census."""
    baseline: str | None = None
    """An earlier audit of the registry, audit/NAME or audit/NAME:vN: what changed since by more
    than another seed of one training changes it."""
    n_contexts: Annotated[int, Ge(6)] = 8
    """Real answers that tokens are added to."""
    evaluations: Count = 10_000
    """Most evaluations of the search."""
    length: Count = 3
    """Tokens of the response that is searched for."""
    trainer: TrainerSpec = field(default_factory=TrainerSpec)
    page: bool = True
    """Write the page, too: a `report` of the same name."""

    @property
    def seconds(self) -> float:
        """The budget."""
        return parse_duration(self.budget)

    def resolve(self) -> Self:
        """The same with the prompts of its tasks, which its function is given."""
        if self.tasks is None:
            return self
        from pessimal.rewards.callable import prompts_of, read_tasks  # which load pandas

        resolved = copy.copy(self)
        resolved.prompts = prompts_of(read_tasks(self.tasks))
        resolved.model = self.model.with_tasks(self.tasks)
        return resolved

    def check(self) -> None:
        _ = self.seconds
        kind, can = self.model.kind, self.model.can
        if self.tasks is not None and not self.model.grades_tasks:
            raise ConfigError(f"tasks= are asked of FILE.py:FUNCTION, not of model.kind={kind}")
        if self.pairs is not None:
            existing_file("pairs", self.pairs)
        if not self.model.is_reward:
            raise ConfigError("log-probabilities are no reward: type model.kind=judge, =implicit")
        if "gradient" not in can:
            takes = "tasks of a grader" if self.tasks is not None else f"model.kind={kind}"
            names = ("pairs",) if self.tasks is not None else ("policy",)
            for name in ("url", "loop", "baseline", *names):
                if getattr(self, name) is not None:
                    raise ConfigError(f"{name}= says nothing of {takes}: leave it out")
        if not self.resolve().prompts:
            raise ConfigError("no prompts given; type for example prompts=core")
        if "gradient" not in can:
            return
        if self.loop is not None and self.policy is None:
            raise ConfigError("loop goes with policy. Type for example loop=trl policy=org/name")
        if self.trainer.strategy is Strategy.sharded:
            raise ConfigError("trainer=sharded: an audit searches by gradients; type trainer=gpu")
        self.trainer.check_alone("audit runs on one device of one machine")
