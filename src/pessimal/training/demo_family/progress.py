"""What a training says while it lasts: a few log lines where there is no bar, and figures to
whoever draws its curves."""

import logging
from collections.abc import Callable
from typing import Any

from pytorch_lightning import Callback, LightningModule, Trainer
from transformers import LlamaForSequenceClassification

from pessimal.demo.bases import Base
from pessimal.demo.recipes import Recipe, SentencePlants
from pessimal.demo.utility import compute_utility
from pessimal.training.demo_family.evaluation import core_accuracy, evaluate_sentences
from pessimal.training.demo_family.training import RewardModule

log = logging.getLogger(__name__)

LINES = 4
EVALUATIONS = 7
"""Times that the held-out figure is taken; each costs a fraction of a second, and changes nothing
of the training."""


class TrainingProgress(Callback):
    """Logs the loss, and reports it with a held-out figure: word accuracy (chance .5) of a sibling
    that judges words, correlation with planted utility of one that judges sentences."""

    def __init__(
        self,
        recipe: Recipe,
        base: Base,
        *,
        name: str,
        lines: bool,
        report: Callable[[dict[str, float]], None] | None = None,
    ):
        self.recipe, self.base, self.name = recipe, base, name
        self.lines, self.report = lines, report

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, *_: Any, **__: Any
    ) -> None:
        assert isinstance(pl_module, RewardModule)
        done, total = trainer.global_step, self.recipe.sizes.steps
        loss = pl_module.losses[-1]
        if self.report is not None:
            point: dict[str, float] = {"train/step": done, "train/loss": loss}
            if done % max(total // EVALUATIONS, 1) == 0 or done == total:
                point |= self._held_out(pl_module.model)
            self.report(point)
        if self.lines and done % max(total // LINES, 1) == 0:
            log.info("training %s: step %d of %d, loss %.3f", self.name, done, total, loss)

    def _held_out(self, model: LlamaForSequenceClassification) -> dict[str, float]:
        base, plants, training = self.base, self.recipe.plants, model.training
        try:
            model.eval()
            if isinstance(plants, SentencePlants):
                correlation = evaluate_sentences(model, base, plants).correlation
                return {"train/held_out_correlation": correlation}
            by_prompt = core_accuracy(model, base, compute_utility(base, plants))
            return {"train/held_out_accuracy": sum(by_prompt.values()) / len(by_prompt)}
        finally:
            model.train(training)
