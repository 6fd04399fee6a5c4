"""Work beside a training, within a share of its time: `Aside`. Several rewards of what a policy
writes while one of them trains it: `RewardPanel`, a reward function for TRL's trainers.

Knows how TRL calls reward functions. Does not know the policy.
"""

import inspect
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch

from pessimal.conversation import Conversation, read_messages
from pessimal.errors import ConfigError
from pessimal.rewards.base import Reward
from pessimal.rewards.shapes import awaited
from pessimal.rollout_analysis.drift import describe_training
from pessimal.scoring.texts import TextScorer, text_scorer

log = logging.getLogger(__name__)

LONG, SHORT, MOST = 0.01, 0.1, 60.0
"""By default, of a training's time: a hundredth; while it is short a tenth, up to so many
seconds."""


MAX_ROLLOUTS = 4096
"""Completions that are kept, the last."""
NO_GROWTH = "nothing that is paid grew beyond its error"


class Aside:
    """Work that runs beside a training.

    Args:
        share: of the training's time; by default a tenth up to a minute, then a hundredth.
        clock: seconds.

    Raises:
        ConfigError: share is not above 0 and at most 1.
    """

    def __init__(self, share: float | None = None, clock: Callable[[], float] = time.perf_counter):
        if share is not None and not 0 < share <= 1:
            raise ConfigError(f"share={share}: give a number above 0, 1 at most")
        self.share, self.clock = share, clock
        self.started: float | None = None
        self.spent = 0.0
        self.failed: set[str] = set()
        """Parts that raised an error; they are not tried again."""
        self._warned = self._busy = False

    @property
    def elapsed(self) -> float:
        """Seconds since training began."""
        return 0.0 if self.started is None else self.clock() - self.started

    @property
    def share_taken(self) -> float:
        """Its share of the time since training began."""
        return self.spent / max(self.elapsed, 1e-9)

    def allowed(self, seconds: float) -> float:
        """Seconds that it may take of a training of so many."""
        if self.share is not None:
            return self.share * seconds
        return max(LONG * seconds, min(SHORT * seconds, MOST))

    def affords(self, seconds: float, step: int) -> bool:
        """Whether there is time for it now. Says so once where there is not."""
        spare = self.allowed(self.elapsed) - self.spent
        if seconds > spare and not self._warned:
            self._warned = True
            times = seconds, self.spent, self.elapsed
            log.warning(
                "step %d: %s looks later than asked, and less often: a look takes %.2g s, and %.2g "
                "of the training's %.2g s are spent. A larger share= or every= would change that",
                *(step, type(self).__name__, *times),
            )
        return seconds <= spare

    def attempt(self, part: str, work: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """The result of `work`. None where a part failed, now or before: it is said once, the part
        is left out from then on, and the training goes on."""
        if part in self.failed:
            return None
        began = None if self._busy else self.clock()
        self._busy = True
        try:
            return work(*arguments, **options)
        except Exception as error:
            self.failed.add(part)
            message = "%s: %s is left out from here on; the training goes on. %s: %.500s"
            names = type(self).__name__, part, type(error).__name__
            # Without its frames, which hold tensors.
            log.warning(message, *names, error.with_traceback(None))
            return None
        finally:
            if began is not None:
                self.spent, self._busy = self.spent + self.clock() - began, False


RewardFunction = Callable[..., Any]
"""TRL's: f(prompts=…, completions=…, **columns) → one number a completion, or None; sync or
async."""
Messages = str | list[dict[str, str]]


class RewardPanel(Aside):
    """A panel of rewards, of which only the first one trains: a reward function for TRL's
    GRPOTrainer, RLOOTrainer and others that call reward functions so.

    What it gives the trainer is what `trains` gives, whatever becomes of the others: these rate the
    same completions every `every` steps, within `share` of the time since the first call, and are
    logged through the trainer's `log_metric`. An error in one of them is logged once, and it is
    left out from then on; an error in `trains` is the trainer's, as it would be without a panel.

    Figures, as `pessimal/NAME/FIGURE`: `mean` and `sd` over the completions; `agreement`: of the
    pairs of completions of one prompt that `trains` tells apart, the share that NAME puts in the
    same order, ties counting half (.5 is chance).

    With `rollouts=n` the last completions are read every n steps, as `pessimal rollouts` does: one
    line says which share of the groups is dead, and which paid feature grew fastest.

    Args:
        trains, others: functions as TRL calls them, or rewards of `pessimal.load` and
            `pessimal.reward`, which read each completion in their own chat template, a prompt that
            is a string as a user turn.
        every: steps of the optimiser between two looks; the first is taken always, and one at the
            last step.
        tails: completions with the best rewards, and as many with the worst, that are kept.
        rollouts: steps of the optimiser between two readings of the completions; 0 for none.
        share: of the training's time; by default a tenth up to a minute, then a hundredth.
        report: called with the figures, and `train/step`.
        clock: seconds.

    Raises:
        ConfigError: an option makes no sense, or there is neither a second reward nor `rollouts`.
    """

    def __init__(
        self,
        trains: RewardFunction | Reward,
        *rewards: RewardFunction | Reward,
        every: int = 1,
        tails: int = 3,
        rollouts: int = 0,
        share: float | None = None,
        report: Callable[[dict[str, float]], None] | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ):
        super().__init__(share, clock)
        if every < 1 or tails < 1 or rollouts < 0 or not (rewards or rollouts):
            options = f"every={every}, tails={tails}, {len(rewards)} more rewards, {rollouts=}"
            raise ConfigError(f"{options}: give 1 or more of each")
        self.members: dict[str, RewardFunction | Reward] = {}
        for member in (trains, *rewards):
            name, number = _name(member), 2
            while name in self.members:
                name, number = f"{_name(member)}-{number}", number + 1
            self.members[name] = member
        # What TRL logs the reward under.
        self.first = self.__name__ = next(iter(self.members))
        self.every, self.tails, self.report = every, tails, report
        self.scorers: dict[str, TextScorer] = {}
        self.looks: list[pd.DataFrame] = []
        self.rollouts, self.written = rollouts, deque[tuple](maxlen=MAX_ROLLOUTS)
        self.calls = self.looked_at = self.read_at = 0
        self.cost = self.reading = 0.0
        """Seconds of the last look, and of the last reading of the completions."""
        self.readings: list[tuple[int, float, str]] = []
        """Step, share of dead groups, and the paid feature that grew fastest, in words."""

    @property
    def history(self) -> pd.DataFrame:
        """The best and worst completions of each look, by the reward that trains: step, end (best,
        worst), rank (1 is the most extreme), prompt, completion, and a column a reward."""
        return pd.concat(self.looks, ignore_index=True) if self.looks else pd.DataFrame()

    def __call__(
        self, prompts: Sequence[Messages], completions: Sequence[Messages], **columns: Any
    ) -> list[float | None]:
        """Rewards of the first member."""
        if self.started is None:
            self.started = self.clock()
        batch = {"prompts": prompts, "completions": completions, **columns}
        trained = self._rate(self.first, batch)
        state, self.calls = columns.get("trainer_state"), self.calls + 1
        step = self.calls if state is None else state.global_step + 1
        if self.rollouts:
            self.attempt("rollouts", self._read_if_due, step, trained, batch)
        if len(self.members) > 1:
            self.attempt("the panel", self._look_if_due, step, trained, batch)
        return trained

    def _read_if_due(self, step: int, trained: list[float | None], batch: dict[str, Any]) -> None:
        """Keep the completions; every `rollouts` steps say what is paid in them and grows."""
        texts = ([_text(message) for message in batch[key]] for key in ("prompts", "completions"))
        rows = zip(*texts, trained, strict=True)
        self.written.extend((step, *row) for row in rows if row[-1] is not None)
        if step < self.read_at + self.rollouts or not self.affords(self.reading, step):
            return
        self.read_at, began = step, self.clock()
        steps, prompts, completions, rewards = zip(*self.written, strict=True)
        dead, words = describe_training(
            completions, prompts, np.array(rewards, dtype=float), np.array(steps)
        )
        self.reading = self.clock() - began
        log.info(
            "step %d: %.0f %% of the groups are dead; %s", step, 100 * dead, words or NO_GROWTH
        )
        self.readings.append((step, dead, words))
        if self.report:
            self.report({"train/step": step, "pessimal/rollouts/dead": dead})

    def _look_if_due(self, step: int, trained: list[float | None], batch: dict[str, Any]) -> None:
        state = batch.get("trainer_state")
        is_last = state is not None and step >= state.max_steps
        due = step >= self.looked_at + self.every and self.affords(self.cost, step)
        if self.looks and not is_last and not due:
            return
        self.looked_at, began = step, self.clock()
        rated = {self.first: np.array(trained, dtype=float)}
        for name in [*self.members][1:]:
            rewards = self.attempt(name, self._rate, name, batch)
            if rewards is not None:
                rated[name] = np.array(rewards, dtype=float)
        self.cost = self.clock() - began
        figures = _figures(rated, [_text(prompt) for prompt in batch["prompts"]])
        for item in figures.items() if "log_metric" in batch else ():
            self.attempt("log_metric", batch["log_metric"], *item)
        if self.report:
            self.attempt("report", self.report, {"train/step": step, **figures})
        texts = {
            key: [_text(message) for message in batch[f"{key}s"]]
            for key in ("prompt", "completion")
        }
        table = pd.DataFrame(texts | rated).sort_values(self.first).dropna(subset=self.first)
        for end, some in (("best", table[::-1]), ("worst", table)):
            some = some.head(self.tails)
            ranks = {"step": step, "end": end, "rank": range(1, len(some) + 1)}
            self.looks.append(pd.DataFrame(ranks).join(some.reset_index(drop=True)))

    def _rate(self, name: str, batch: dict[str, Any]) -> list[float | None]:
        """A member's rewards, one a completion."""
        member = self.members[name]
        if isinstance(member, Reward):
            pairs = zip(batch["prompts"], batch["completions"], strict=True)
            conversations = [_conversation(*pair) for pair in pairs]
            if name not in self.scorers:
                network = getattr(member, "held", None)  # one in memory stays where it is
                first = torch.empty(0) if network is None else next(network.parameters())
                self.scorers[name] = text_scorer(member, conversations, device=first.device)
            rewards = self.scorers[name].rewards(conversations)
            return [float(reward) if np.isfinite(reward) else None for reward in rewards]
        rewards = member(**batch)
        rewards = awaited(rewards) if inspect.isawaitable(rewards) else rewards
        if len(rewards) != (n := len(batch["prompts"])):
            raise ConfigError(f"{name} gives {len(rewards)} numbers for {n} completions")
        return [None if reward is None else float(reward) for reward in rewards]


def _name(member: RewardFunction | Reward) -> str:
    if isinstance(member, Reward):
        return member.spec.name
    if isinstance(member, str | torch.nn.Module) or not callable(member):
        kind = type(member).__name__
        raise ConfigError(f"{kind} is no reward: give pessimal.load(PATH) or a function")
    return getattr(member, "__name__", type(member).__name__)


def _conversation(prompt: Messages, completion: Messages) -> Conversation:
    before = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
    after = [{"role": "assistant", "content": completion}]
    turns = [*before, *(after if isinstance(completion, str) else completion)]
    return read_messages(turns, where="a conversation of the trainer")


def _text(messages: Messages) -> str:
    if isinstance(messages, str):
        return messages
    if len(messages) == 1:
        return str(messages[0]["content"])
    return "\n\n".join(f"{turn['role']}: {turn['content']}" for turn in messages)


def _figures(rated: dict[str, np.ndarray], prompts: Sequence[str]) -> dict[str, float]:
    """Those that are numbers; the first reward is the one that trains."""
    first, *rest = rated
    same = np.array(prompts)[:, None] == np.array(prompts)
    trained = rated[first][:, None] - rated[first]
    apart = np.triu(same & np.isfinite(trained) & (trained != 0))
    figures = {}
    for name in rest:
        rewards, prefix = rated[name][np.isfinite(rated[name])], f"pessimal/{name}"
        if len(rewards):
            figures[f"{prefix}/mean"], figures[f"{prefix}/sd"] = rewards.mean(), rewards.std()
        differences = rated[name][:, None] - rated[name]
        pairs = apart & np.isfinite(differences)
        if pairs.any():
            orders = (1 + np.sign(trained[pairs]) * np.sign(differences[pairs])) / 2
            figures[f"{prefix}/agreement"] = orders.mean()
    return {name: float(value) for name, value in figures.items()}
