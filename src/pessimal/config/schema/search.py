"""Options of `pessimal search`."""

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from omegaconf import MISSING

from pessimal.config.schema.shared import Strategy, TaskConfig, TrainerSpec, demo_recipe
from pessimal.config.schema.values import at_least, existing_file
from pessimal.errors import ConfigError
from pessimal.models.spec import ModelSpec
from pessimal.scoring.mode import Mode
from pessimal.search.filter import Filter
from pessimal.search.goal import Goal

LONGEST = 16


class Method(Enum):
    """How the best response is looked for."""

    auto = "auto"
    """The scan for one token; greedy coordinate gradient with exhaustive polish for more, beside the exact search over the
    best tokens' pairs for two."""
    exhaustive = "exhaustive"
    """Every response of two tokens."""


@dataclass
class SearchSpec:
    """The search itself. Budgets are counted in candidate evaluations; a gradient counts as three."""

    length: int = 4
    """Tokens of the response, 1 to 16."""
    goal: Goal = Goal.optimal
    """optimal (the highest reward) or pessimal (the lowest)."""
    method: Method = Method.auto
    """auto, or exhaustive: every response of two tokens."""
    allowed: list[Filter] = field(default_factory=lambda: [Filter.no_special])
    """Which tokens are allowed: no_special, ascii, words; [] allows every token."""
    allowed_path: str | None = None
    """A file of allowed tokens, one a line, as they are decoded or as the vocabulary writes them; or token ids."""
    evaluations: int = 20_000
    """Budget of greedy coordinate gradient, over all restarts."""
    restarts: int = 8
    """Starts of greedy coordinate gradient: beam winners, the best token repeated, random ones."""
    search_width: int = 128
    """Candidates evaluated a step."""
    top_k: int = 256
    """Candidates kept for each position by the gradient."""
    step_size: int = 2
    """Positions that one step replaces, at the beginning; 1 after `step_size_until` of the budget."""
    step_size_until: float = 0.8
    """Share of the budget after which one position is replaced a step."""
    momentum: float = 0.9
    """Share of the earlier gradients kept in the running mean, 0 to below 1."""
    buffer_size: int = 4
    """Best responses kept as points to go on from, where nothing new is left near the best; 0 goes on from the best
    candidate of the last step."""
    beam_width: int = 4
    """Responses kept at each length by the beam that gives the first starts; 0 leaves it out."""
    polish: int = 4
    """How many of the restarts' best responses are polished by exhaustive coordinate sweeps."""
    baselines: bool = True
    """Run random search, coordinate ascent and beam search at the budget that the search spent."""
    pairs: int = 300
    """m: for two tokens, the exact search is over the m best first tokens by the m best second ones (`experiments/LOG.md`
    says why not more)."""
    keep: int = 1000
    """How many of the best and of the worst pairs an exhaustive search keeps."""

    def __post_init__(self):
        at_least(
            1,
            **{
                "search.length": self.length,
                "search.evaluations": self.evaluations,
                "search.restarts": self.restarts,
                "search.search_width": self.search_width,
                "search.top_k": self.top_k,
                "search.step_size": self.step_size,
                "search.polish": self.polish,
                "search.pairs": self.pairs,
                "search.keep": self.keep,
            },
        )
        at_least(0, **{"search.buffer_size": self.buffer_size, "search.beam_width": self.beam_width})
        if self.length > LONGEST:
            raise ConfigError(
                f"search.length={self.length}: responses of 1 to {LONGEST} tokens are searched; type search.length={LONGEST}"
            )
        if not 0 <= self.momentum < 1:
            raise ConfigError(
                f"search.momentum={self.momentum}: the share of earlier gradients that is kept, 0 to below 1"
            )
        if not 0 <= self.step_size_until <= 1:
            raise ConfigError(f"search.step_size_until={self.step_size_until}: a share of the budget, 0 to 1")
        if self.method is Method.exhaustive and self.length != 2:
            raise ConfigError(
                f"search.method=exhaustive goes through every response of two tokens, not of {self.length}; type "
                "search.length=2. (One token is always exhaustive: it is the scan)"
            )
        if self.allowed_path is not None:
            existing_file("search.allowed_path", self.allowed_path)


@dataclass
class TuningSpec:
    """A sweep of the search's options by Optuna (`pessimal search -m hparams_search=gcg`)."""

    study: str | None = None
    """Name of the study; named by the sweeper (gcg-MODEL-GOAL-LENGTH) where null."""
    storage: str | None = None
    """Where the study is kept: a journal (FILE.log) or sqlite:///FILE.db; paths.root/studies/NAME.log where null."""
    trial: int | None = None
    """Number of the trial that this job is, filled in by the sweeper; null in the job that concludes a study."""
    prompts: list[str] = field(default_factory=list)
    """Keys of the prompts that options are tuned on."""
    held_out: list[str] = field(default_factory=list)
    """Keys of the prompts that the tuned options are compared with the defaults on."""
    seeds: int = 3
    """Random starts of each prompt; a trial's value is the median over prompts and seeds."""
    held_out_seeds: int = 8
    """Random starts of each held-out prompt, other ones than in the trials."""
    evaluations: int = 5_000
    """Candidate evaluations of each search: the same for every trial and for the defaults."""

    def __post_init__(self):
        at_least(
            1,
            **{
                "tuning.seeds": self.seeds,
                "tuning.held_out_seeds": self.held_out_seeds,
                "tuning.evaluations": self.evaluations,
            },
        )
        if both := set(self.prompts) & set(self.held_out):
            raise ConfigError(
                f"tuning.held_out names {sorted(both)}, which options are tuned on: give other prompts, or the comparison "
                "would flatter the tuned ones"
            )


@dataclass
class SearchConfig(TaskConfig):
    """`pessimal search`: the best or the worst response of a given length, with a certificate."""

    model: ModelSpec = MISSING
    prompts: dict[str, str] = field(default_factory=dict)
    """The user turns that may be named, verbatim, by key."""
    prompt: Any = "greatest"
    """Key of the prompt; a list of keys maximises the mean reward over them."""
    search: SearchSpec = field(default_factory=SearchSpec)
    tuning: TuningSpec = field(default_factory=TuningSpec)
    trainer: TrainerSpec = field(default_factory=TrainerSpec)
    mode: Mode = Mode.ids
    """Which responses count: ids (any token ids), text (only those that a text gives: ids → text → template → ids)."""
    batch_size: int | None = None
    """Candidates per batch; null finds it from the memory there is."""

    def __post_init__(self):
        for key in (*self.prompt_keys, *self.tuning.prompts, *self.tuning.held_out):
            if key not in self.prompts:
                known = ", ".join(self.prompts)
                raise ConfigError(
                    f"there is no prompt {key!r} here; there are: {known}. Type prompt=KEY, or prompt=[KEY,KEY] for the "
                    f"mean reward over several; +prompts.{key}='the user turn' adds one"
                )
        for key, text in self.prompts.items():
            if not text.strip():
                raise ConfigError(f"prompts.{key} is empty; a prompt is the question that the model is asked")
        if self.mode is Mode.paper:
            raise ConfigError(
                "mode=paper is a way to scan single tokens as published; a search takes mode=ids or mode=text"
            )
        if self.batch_size is not None:
            at_least(1, batch_size=self.batch_size)
        if self.search.method is Method.exhaustive and len(self.prompt_keys) > 1:
            raise ConfigError(
                f"search.method=exhaustive goes through all pairs of tokens on one prompt, not on {self.prompt}; sweep them: "
                "-m prompt=greatest,best"
            )
        self._check_trainer()
        self.model.check_gives_rewards()
        if self.model.recipe is not None:
            demo_recipe(self.model)

    def _check_trainer(self) -> None:
        if self.trainer.strategy is Strategy.sharded:
            raise ConfigError(
                "trainer.strategy=sharded: a search needs gradients, and the network whole on each device; type trainer=gpu, "
                "or search.method=exhaustive with trainer=ddp"
            )
        devices = self.trainer.devices * self.trainer.num_nodes
        if devices > 1 and self.search.method is not Method.exhaustive:
            raise ConfigError(
                f"trainer.devices={self.trainer.devices} trainer.num_nodes={self.trainer.num_nodes}: a search goes step by "
                "step on one device. Sweep over seeds, goals or prompts instead (-m search.goal=optimal,pessimal); "
                "search.method=exhaustive takes as many devices as there are"
            )

    @property
    def prompt_keys(self) -> list[str]:
        """The prompts whose mean reward is searched."""
        keys = [self.prompt] if isinstance(self.prompt, str) else self.prompt
        if not isinstance(keys, list) or not keys or not all(isinstance(key, str) for key in keys):
            raise ConfigError(
                f"prompt={self.prompt!r}: give a key, such as prompt=greatest, or several: prompt=[greatest,best]"
            )
        return list(dict.fromkeys(keys))
