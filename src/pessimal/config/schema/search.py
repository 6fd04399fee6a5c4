"""Options of `pessimal search`."""

from dataclasses import dataclass, field
from typing import Any

from omegaconf import MISSING

from pessimal.config.schema.shared import PromptedConfig
from pessimal.errors import ConfigError, did_you_mean
from pessimal.options import Count, listed
from pessimal.rewards.spec import Kind, Mode, ModelSpec
from pessimal.scoring.spec import Strategy, TrainerSpec
from pessimal.searching.spec import Method, SearchSpec
from pessimal.tuning.spec import TuningSpec


@dataclass
class SearchConfig(PromptedConfig):
    """`pessimal search`: the best or the worst response of a given length, with a certificate."""

    model: ModelSpec = MISSING
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
                    f"{known}. Type prompt=KEY, or prompt=[KEY,KEY] for the mean reward over "
                    f"several; +prompts.{key}='the user turn' adds one"
                )
        if self.mode is Mode.paper:
            raise ConfigError(
                "mode=paper is a way to scan single tokens as published; a search takes mode=ids "
                "or mode=text"
            )
        exhaustive = self.search.method is Method.exhaustive
        if exhaustive and len(self.prompt_keys) > 1:
            raise ConfigError(
                "search.method=exhaustive goes through all pairs of tokens on one prompt, not on "
                f"{self.prompt}; sweep them: -m prompt=greatest,best"
            )
        if self.trainer.strategy is Strategy.sharded:
            raise ConfigError(
                "trainer.strategy=sharded: a search needs gradients, and the network whole on each "
                "device; type trainer=gpu, or search.method=exhaustive with trainer=ddp"
            )
        if self.trainer.devices * self.trainer.num_nodes > 1 and not exhaustive:
            raise ConfigError(
                f"trainer.devices={self.trainer.devices} "
                f"trainer.num_nodes={self.trainer.num_nodes}: a search goes step by step on one "
                "device. Sweep over seeds, goals or prompts instead (-m "
                "search.goal=optimal,pessimal); search.method=exhaustive takes as many devices as "
                "there are"
            )
        self.model.require("search", "ids", "gradient")
        in_plain_text = (
            self.model.kind in (Kind.log_probability, Kind.implicit) and self.model.chat is False
        )
        if self.mode is Mode.text and in_plain_text:
            raise ConfigError(
                "mode=text with model.chat=false: after plain text a response begins with a space, "
                "so no text gives exactly the ids that are searched. Type mode=ids"
            )
        if exhaustive and self.model.summed:
            raise ConfigError(
                "search.method=exhaustive goes through one network in one order; "
                f"model.kind={self.model.kind.value} is a sum of two here. Type search.method=gcg"
            )

    @property
    def prompt_keys(self) -> list[str]:
        """The prompts whose mean reward is searched."""
        example = "a key, such as prompt=greatest, or several: prompt=[greatest,best]"
        return list(dict.fromkeys(listed("prompt", self.prompt, example=example, least=1)))
