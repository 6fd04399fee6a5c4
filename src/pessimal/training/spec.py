"""The options of training a reward model on preferences. Imports no torch."""

from typing import Annotated, ClassVar

from annotated_types import Ge, Gt
from pydantic.dataclasses import dataclass

from pessimal.options import Count, Options, Share, Text, existing_file


@dataclass
class PreferenceRecipe(Options):
    """Options of a training on people's preferences between items (`pessimal.training`)."""

    _prefix: ClassVar[str] = "recipe"

    name: str = "human_elo"
    """The name of reward models of this recipe, ahead of their base and seed."""
    question: Text = "What, in one word, is the greatest thing ever?"
    """The user turn that every item answers."""
    held_out: Share = 0.15
    """Share of the items that are not trained on; the same for every seed."""
    without: str | None = None
    """File of words, one a line: items of these names are left out of training and of what is held
    out."""
    layers: Count = 12
    """Upper layers that adapters are trained on; those below stay as they are."""
    rank: Count = 16
    """Rank of the adapters (LoRA); their alpha is twice as much."""
    steps: Count = 150
    """Steps of the optimiser."""
    items: Annotated[int, Ge(2)] = 64
    """Items of a step; every two of them are compared."""
    batch_size: Count = 16
    """Items that go through the network at once; those of like length are together."""
    learning_rate: Annotated[float, Gt(0)] = 1e-3
    """Peak of the learning rate."""
    weight_decay: Annotated[float, Ge(0)] = 0.01
    """The weight decay of AdamW."""
    every: Count = 50
    """Steps between two looks at what is held out. The adapters are kept then, and training can go
    on from there."""
    watch: bool = True
    """Follow the best and worst tokens while it trains, in at most 1 % of its time."""

    def check(self) -> None:
        if self.without is not None:
            existing_file("recipe.without", self.without)
