"""Options of `pessimal check`."""

from dataclasses import dataclass, field

from omegaconf import MISSING

from pessimal.config.schema.shared import Strategy, TaskConfig, TrainerSpec, demo_recipe
from pessimal.config.schema.values import at_least
from pessimal.errors import ConfigError
from pessimal.models.spec import Dtype, ModelSpec


@dataclass
class CheckConfig(TaskConfig):
    """`pessimal check`: is a model's score the same whatever the batch, the padding, the path and the precision?"""

    model: ModelSpec = MISSING
    prompts: dict[str, str] = field(default_factory=dict)
    """The user turn; the first where several are given."""
    trainer: TrainerSpec = field(default_factory=TrainerSpec)
    sample: int = 64
    """Random tokens of the vocabulary that are asked as responses; a quarter as many longer ones come on top."""
    batch_size: int = 16
    """Responses of a batch, where batches are compared with one by one."""
    dtypes: list[Dtype] = field(default_factory=lambda: list(Dtype))
    """Precisions compared with float32, which must be among them; the model is loaded once for each. [] for none."""
    strict: bool = False
    """Exit with 1 where a check fails. Otherwise a failed check is a finding, and the exit code is 0."""

    def __post_init__(self):
        self.model.check_gives_rewards()
        if not next(iter(self.prompts.values()), "").strip():
            raise ConfigError("no prompt given, or an empty one; type for example prompts=greatest")
        at_least(8, sample=self.sample)
        at_least(2, batch_size=self.batch_size)
        if self.dtypes and Dtype.float32 not in self.dtypes:
            names = ",".join(dtype.value for dtype in self.dtypes)
            raise ConfigError(
                f"dtypes=[{names}]: precisions are compared with float32, which is missing. Type "
                f"dtypes=[float32,{names}], or dtypes=[] to leave this out"
            )
        alone = self.trainer.devices * self.trainer.num_nodes == 1
        if not alone or self.trainer.strategy is not Strategy.auto:
            raise ConfigError(
                f"trainer.devices={self.trainer.devices} trainer.num_nodes={self.trainer.num_nodes} "
                f"trainer.strategy={self.trainer.strategy.value}: check runs on one device of one machine; leave them out"
            )
        if self.model.recipe is not None:
            demo_recipe(self.model)
