"""Options of `pessimal search`."""

from dataclasses import field
from functools import cached_property
from typing import Any

from omegaconf import MISSING
from pydantic.dataclasses import dataclass

from pessimal.config.schema.shared import PromptedConfig
from pessimal.errors import ConfigError, did_you_mean
from pessimal.options import Count, existing_file, listed
from pessimal.rewards.named import language_model_of
from pessimal.rewards.spec import CheckpointSpec, Mode, ModelSpec
from pessimal.scoring.spec import Strategy, TrainerSpec
from pessimal.searching.spec import SearchSpec, Slot, TuningSpec


@dataclass
class SearchConfig(PromptedConfig):
    """`pessimal search`: the best or the worst response of a given length, with a certificate."""

    model: ModelSpec = MISSING
    prompt: Any = "greatest"
    """Key of the prompt; a list of keys maximises the mean reward over them."""
    contexts: str | None = None
    """JSONL file of real answers, as `scan contexts=` reads them: the mean reward over half of them
    is searched, in `search.slot` of each or where they have the mark {slot}; the others are held
    out."""
    n_contexts: Count | None = 20
    """Of contexts: how many, drawn at random by `seed`; null takes all."""
    held_out: list[str] = field(default_factory=list)
    """Keys of prompts that what is found is scored on besides."""
    policy: str | None = None
    """A language model, as typed for a model, of search.fluency."""
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
        for key in (*self.prompt_keys, *self.held_out, *self.tuning.prompts, *self.tuning.held_out):
            if key not in self.prompts:
                raise ConfigError(
                    f"there is no prompt {key!r} here.{did_you_mean(key, self.prompts)} There are: "
                    f"{', '.join(self.prompts)}; +prompts.{key}='the user turn' adds one"
                )
        if self.contexts is not None:
            existing_file("contexts", self.contexts)
            if self.search.answer is not None or self.search.slot is Slot.edit or self.held_out:
                raise ConfigError("contexts= goes without search.answer, slot=edit and held_out")
        elif self.search.slot is not None and self.search.answer is None:
            raise ConfigError("search.slot needs search.answer=TEXT or contexts=FILE")
        if self.tuning.prompts and self.contexts:
            raise ConfigError("a study tunes on prompts: leave out contexts")
        if (self.policy is None) == bool(self.search.fluency):
            raise ConfigError("search.fluency=β and policy=NAME go together")
        if self.mode is Mode.paper:
            raise ConfigError("mode=paper is of published scans; type mode=ids or mode=text")
        if self.trainer.strategy is Strategy.sharded:
            raise ConfigError("trainer=sharded has no gradients of a whole network: trainer=gpu")
        if self.trainer.devices * self.trainer.num_nodes > 1:
            raise ConfigError(f"trainer.devices={self.trainer.devices}: a search takes one device")
        self.model.require("search", "ids", "gradient")
        if self.mode is Mode.text:
            self.model.check_text_search()

    @cached_property
    def policy_spec(self) -> CheckpointSpec:
        """The policy as a model. ConfigError where there is none of this name."""
        return language_model_of(self.policy or "")

    @property
    def prompt_keys(self) -> list[str]:
        """The prompts whose mean reward is searched."""
        example = "a key, such as prompt=greatest, or several: prompt=[greatest,best]"
        return list(dict.fromkeys(listed("prompt", self.prompt, example=example, least=1)))
