"""Training progress as log lines, for logs and for trainings side by side."""

import logging

from pytorch_lightning import Callback

log = logging.getLogger(__name__)

LINES = 4


class StepLines(Callback):
    """A few lines over a training, instead of a bar."""

    def __init__(self, name: str):
        self.name = name

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        done, total = trainer.global_step, trainer.num_training_batches
        if done % max(total // LINES, 1) == 0:
            loss = float(trainer.callback_metrics.get("train/loss", float("nan")))
            log.info("training %s: step %d of %d, loss %.3f", self.name, done, total, loss)
