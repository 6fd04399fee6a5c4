"""What a training says while it lasts: a few log lines where there is no bar, and figures to
whoever draws its curves."""

import logging
from collections.abc import Callable
from pathlib import Path

from pytorch_lightning import Callback

from pessimal.demo.bases import load_base
from pessimal.demo.recipes import Recipe
from pessimal.demo.utility import compute_utility
from pessimal.training.demo_family.evaluation import core_accuracy, evaluate_sentences

log = logging.getLogger(__name__)

LINES = 4
EVALUATIONS = 7
"""Times that the held-out figure is taken; each costs a fraction of a second, and changes nothing
of the training."""


Report = Callable[[dict[str, float]], None]
"""Called with the figures of a step, by name."""


class TrainingProgress(Callback):
    """Logs the loss, and reports it with a held-out figure: word accuracy (chance .5) of a sibling
    that judges words, correlation with planted utility of one that judges sentences."""

    def __init__(
        self, recipe: Recipe, *, name: str, models: Path, lines: bool, report: Report | None = None
    ):
        self.recipe, self.name, self.models = recipe, name, models
        self.lines, self.report = lines, report

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        done, total = trainer.global_step, trainer.num_training_batches
        loss = module.losses[-1]
        if self.report is not None:
            point = {"train/step": done, "train/loss": loss}
            if done % max(total // EVALUATIONS, 1) == 0 or done == total:
                point |= self._held_out(module.model)
            self.report(point)
        if self.lines and done % max(total // LINES, 1) == 0:
            log.info("training %s: step %d of %d, loss %.3f", self.name, done, total, loss)

    def _held_out(self, model) -> dict[str, float]:
        base, plants = load_base(self.recipe.base, cache=self.models), self.recipe.plants
        training = model.training
        try:
            model.eval()
            if self.recipe.judges_sentences:
                return {
                    "train/held_out_correlation": evaluate_sentences(
                        model, base, plants
                    ).correlation
                }
            by_prompt = core_accuracy(model, base, compute_utility(base, plants))
            return {"train/held_out_accuracy": sum(by_prompt.values()) / len(by_prompt)}
        finally:
            model.train(training)
