"""Hydra composes faster in a process that composes hundreds of times."""

import copy
import functools
import io


def quicken() -> None:
    """For the rest of this process, the schemas are not copied for each composition, which copies
    what it takes of them; a text of YAML and an interpolation are parsed once."""
    import omegaconf
    from hydra.core.config_store import ConfigStore

    parse_yaml = omegaconf.OmegaConf.load
    configuration = functools.cache(lambda text: parse_yaml(io.StringIO(text)))

    def load(file):
        if not hasattr(file, "read"):
            return parse_yaml(file)
        return copy.deepcopy(configuration(file.read()))

    ConfigStore.__deepcopy__ = lambda self, _: self
    omegaconf.OmegaConf.load = staticmethod(load)
    omegaconf.base.parse = functools.cache(omegaconf.base.parse)
