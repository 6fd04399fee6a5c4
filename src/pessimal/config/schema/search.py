"""Options of `pessimal search`."""

from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

from annotated_types import Ge, Interval, Lt
from omegaconf import MISSING

from pessimal.config.schema.shared import Strategy, TaskConfig, TrainerSpec, demo_recipe
from pessimal.config.schema.values import Count, Options, Prompts, Share, existing_file, listed
from pessimal.errors import ConfigError, did_you_mean
from pessimal.rewards.spec import Kind, Mode, ModelSpec
from pessimal.searching import Filter, Goal, Method

LONGEST = 16
Whole = Annotated[int, Ge(0)]


@dataclass
class SearchSpec(Options):
    """The search itself. Budgets are counted in candidate evaluations; a gradient counts as
    three."""

    _prefix: ClassVar[str] = "search"

    length: Annotated[int, Interval(ge=1, le=LONGEST)] = 4
    """Tokens of the response, 1 to 16."""
    goal: Goal = Goal.optimal
    """optimal (the highest reward) or pessimal (the lowest)."""
    method: Method = Method.auto
    """auto, or exhaustive: every response of two tokens, whatever it costs."""
    evaluations: Count = 250_000
    """Budget of the whole search: start, gradient, random changes and polish. Where it pays for all
    responses, all are tried. Certificate and baselines come on top."""
    allowed: list[Filter] = field(default_factory=lambda: [Filter.no_special])
    """Which tokens are allowed: no_special, ascii, words; [] allows every token."""
    allowed_path: str | None = None
    """A file of allowed tokens, one a line, as they are decoded or as the vocabulary writes them;
    or token ids."""
    baselines: int | bool = 20_000
    """Evaluations of each baseline (random changes, coordinate ascent, beam); 0 or false for none,
    true for as many as the search took."""
    check_gradient: bool = False
    """Check the gradient too: does it alone find the best single token, and how does it rank the
    single changes of a random response?"""
    from_registry: bool = True
    """Begin from the best response that the registry holds for the same model, prompts, goal,
    length, mode and tokens; false for searches that know nothing of one another."""
    restarts: Count = 8
    """Starts of greedy coordinate gradient: the registry's best, beam winners, the best token
    repeated, random ones."""
    polish: Count = 8
    """How many of the best responses are polished by exhaustive coordinate sweeps, as far as the
    budget goes."""
    gradient_share: Share = 0.1
    """Share of the budget for greedy coordinate gradient."""
    random_share: Share = 0.6
    """Share of the budget for random single changes."""
    beam_width: Whole = 4
    """Responses kept at each length by the beam that gives the first starts, as far as a tenth of
    the budget goes; 0 leaves it out."""
    pairs: Whole = 300
    """m: for two tokens, the pruned look is at the m best first by the m best second tokens, as far
    as a third of the budget goes; 0 leaves it out."""
    search_width: Count = 128
    """Candidates evaluated a step."""
    top_k: Count = 256
    """Candidates kept for each position by the gradient."""
    step_size: Count = 2
    """Positions that one step replaces, at the beginning; 1 after `step_size_until` of the
    budget."""
    step_size_until: Share = 0.8
    """Share of the budget after which one position is replaced a step."""
    momentum: Annotated[float, Ge(0), Lt(1)] = 0.9
    """Share of the earlier gradients kept in the running mean, 0 to below 1."""
    buffer_size: Whole = 4
    """Best responses kept as points to go on from, where nothing new is left near the best; 0 goes
    on from the best candidate of the last step."""
    keep: Count = 1000
    """How many of the best and of the worst pairs an exhaustive search keeps."""

    def check(self) -> None:
        """Baselines are a number or a switch; shares leave something to polish; only pairs are
        exhausted."""
        if not isinstance(self.baselines, int) or self.baselines < 0:
            raise ConfigError(
                f"search.baselines={self.baselines!r}: give the evaluations of each baseline, such "
                f"as search.baselines=20000, "
                "or true (as many as the search took) or false"
            )
        if self.gradient_share + self.random_share > 1:
            raise ConfigError(
                f"search.gradient_share={self.gradient_share} and "
                f"search.random_share={self.random_share} are more than the "
                "whole budget together"
            )
        if self.method is Method.exhaustive and self.length != 2:
            raise ConfigError(
                f"search.method=exhaustive goes through every response of two tokens, not of "
                f"{self.length}; type "
                "search.length=2. (One token is always exhaustive: it is the scan)"
            )
        if self.allowed_path is not None:
            existing_file("search.allowed_path", self.allowed_path)


@dataclass
class TuningSpec(Options):
    """A sweep of the search's options by Optuna (`pessimal search -m hparams_search=gcg`)."""

    _prefix: ClassVar[str] = "tuning"

    study: str | None = None
    """Name of the study; named by the sweeper (gcg-MODEL-GOAL-LENGTH) where null."""
    storage: str | None = None
    """The SQLite file that the study is kept in (FILE.db or sqlite:///FILE.db);
    paths.root/studies/NAME.db where null."""
    trial: int | None = None
    """Number of the trial that this job is, filled in by the sweeper; null in the job that
    concludes a study."""
    prompts: list[str] = field(default_factory=list)
    """Keys of the prompts that options are tuned on."""
    held_out: list[str] = field(default_factory=list)
    """Keys of the prompts that the tuned options are compared with the defaults on."""
    seeds: Count = 3
    """Random starts of each prompt; a trial's value is the median over prompts and seeds."""
    held_out_seeds: Count = 8
    """Random starts of each held-out prompt, other ones than in the trials."""
    evaluations: Count = 5_000
    """Candidate evaluations of each search: the same for every trial and for the defaults."""

    def check(self) -> None:
        """No prompt is both tuned on and held out."""
        if both := set(self.prompts) & set(self.held_out):
            raise ConfigError(
                f"tuning.held_out names {sorted(both)}, which options are tuned on: give other "
                f"prompts, or the comparison "
                "would flatter the tuned ones"
            )


@dataclass
class SearchConfig(TaskConfig):
    """`pessimal search`: the best or the worst response of a given length, with a certificate."""

    model: ModelSpec = MISSING
    prompts: Prompts = field(default_factory=dict)
    """The user turns that may be named, verbatim, by key."""
    prompt: Any = "greatest"
    """Key of the prompt; a list of keys maximises the mean reward over them."""
    search: SearchSpec = field(default_factory=SearchSpec)
    tuning: TuningSpec = field(default_factory=TuningSpec)
    trainer: TrainerSpec = field(default_factory=TrainerSpec)
    mode: Mode = Mode.ids
    """Which responses count: ids (any token ids), text (only those that a text gives: ids → text →
    template → ids)."""
    batch_size: Count | None = None
    """Candidates per batch; null finds it from the memory there is."""

    def check(self) -> None:
        """The prompts are there, and the search can be run as asked, on this kind of model and
        trainer."""
        for key in (*self.prompt_keys, *self.tuning.prompts, *self.tuning.held_out):
            if key not in self.prompts:
                known = ", ".join(self.prompts)
                raise ConfigError(
                    f"there is no prompt {key!r} here.{did_you_mean(key, self.prompts)} There are: "
                    f"{known}. Type prompt=KEY, or prompt=[KEY,KEY] for the "
                    f"mean reward over several; +prompts.{key}='the user turn' adds one"
                )
        if self.mode is Mode.paper:
            raise ConfigError(
                "mode=paper is a way to scan single tokens as published; a search takes mode=ids "
                "or mode=text"
            )
        exhaustive = self.search.method is Method.exhaustive
        if exhaustive and len(self.prompt_keys) > 1:
            raise ConfigError(
                f"search.method=exhaustive goes through all pairs of tokens on one prompt, not on "
                f"{self.prompt}; sweep them: "
                "-m prompt=greatest,best"
            )
        if self.trainer.strategy is Strategy.sharded:
            raise ConfigError(
                "trainer.strategy=sharded: a search needs gradients, and the network whole on each "
                "device; type trainer=gpu, "
                "or search.method=exhaustive with trainer=ddp"
            )
        if self.trainer.devices * self.trainer.num_nodes > 1 and not exhaustive:
            raise ConfigError(
                f"trainer.devices={self.trainer.devices} "
                f"trainer.num_nodes={self.trainer.num_nodes}: a search goes step by "
                "step on one device. Sweep over seeds, goals or prompts instead (-m "
                "search.goal=optimal,pessimal); "
                "search.method=exhaustive takes as many devices as there are"
            )
        self.model.require("search", "ids", "gradient")
        in_plain_text = (
            self.model.kind in (Kind.log_probability, Kind.implicit) and self.model.chat is False
        )
        if self.mode is Mode.text and in_plain_text:
            raise ConfigError(
                "mode=text with model.chat=false: after plain text a response begins with a space, "
                "so no text gives exactly the "
                "ids that are searched. Type mode=ids"
            )
        if exhaustive and self.model.summed:
            raise ConfigError(
                f"search.method=exhaustive goes through one network in one order; "
                f"model.kind={self.model.kind.value} is a sum of "
                "two here. Type search.method=gcg"
            )
        if self.model.recipe is not None:
            demo_recipe(self.model)

    @property
    def prompt_keys(self) -> list[str]:
        """The prompts whose mean reward is searched."""
        example = "a key, such as prompt=greatest, or several: prompt=[greatest,best]"
        return list(dict.fromkeys(listed("prompt", self.prompt, example=example)))
