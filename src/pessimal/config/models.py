"""Models by what a person types for them in one word: a name of `conf/model`, a folder, or a Hub
repository."""

from dataclasses import fields

from omegaconf import OmegaConf

from pessimal.config import CONF
from pessimal.errors import ConfigError, did_you_mean
from pessimal.rewards.spec import ModelSpec, is_folder


def is_named(name: str) -> bool:
    """Whether a name stands for a file of conf/model: a folder of this name goes before it."""
    return not is_folder(name) and (CONF / "model" / f"{name}.yaml").is_file()


def spec_of(name: str, **changes: object) -> ModelSpec:
    """The model of a name such as `smollm2` (a file of conf/model), of a local folder, or of a Hub
    repository ORG/NAME.

    Args:
        name: as typed.
        changes: fields of the specification that are other than the file says.

    Raises:
        ConfigError: it is none of these.
    """
    if is_folder(name) or ("/" in name and not is_named(name)):
        return ModelSpec(path=name, **changes)
    if not is_named(name):
        names = [path.stem for path in (CONF / "model").glob("*.yaml")]
        raise ConfigError(
            f"{name!r} is no model: give a name of conf/model, a folder on this machine, or a Hub "
            f"repository ORG/NAME."
            f"{did_you_mean(name, names)}".removesuffix(".")
        )
    from hydra.core.global_hydra import GlobalHydra

    from pessimal.cli.compose import composed

    running = GlobalHydra.instance()
    job, running.hydra = running.hydra, None  # Hydra composes nothing else within a job
    try:
        entry = OmegaConf.to_container(composed(["task=scan", f"model={name}"]).model, resolve=True)
    finally:
        running.hydra = job
    own = {key: entry[key] for key in (field.name for field in fields(ModelSpec))}
    return OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(ModelSpec), own | changes))
