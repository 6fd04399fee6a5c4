"""Models by what a person types for them in one word: a name of `conf/model`, a folder, or a Hub
repository."""

from dataclasses import fields

from omegaconf import OmegaConf

from pessimal.catalogue import is_folder, is_named, model_entry
from pessimal.rewards.spec import ModelSpec


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
        return ModelSpec(path=name, **changes)  # type: ignore[arg-type]
    known = {field.name for field in fields(ModelSpec)}
    entry = {key: value for key, value in model_entry(name).items() if key in known}
    merged = OmegaConf.merge(OmegaConf.structured(ModelSpec), entry | changes)
    spec = OmegaConf.to_object(merged)
    assert isinstance(spec, ModelSpec)
    return spec
