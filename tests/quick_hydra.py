"""Hydra composes faster in a process that composes hundreds of times."""

import copy
import functools
import io


def quicken() -> None:
    """For the rest of this process, the schemas are not copied for each composition, which copies
    what it takes of them; a text of YAML and an interpolation are parsed once; and files of this
    repository that were composed once are copied, whatever values are typed in their place."""
    import omegaconf
    from hydra._internal import defaults_list
    from hydra._internal.config_loader_impl import ConfigLoaderImpl
    from hydra._internal.config_repository import ConfigRepository
    from hydra.core.config_store import ConfigStore

    from pessimal.catalogue import CONF

    parse_yaml = omegaconf.OmegaConf.load
    configuration = functools.cache(lambda text: parse_yaml(io.StringIO(text)))

    def load(file):
        if not hasattr(file, "read"):
            return parse_yaml(file)
        return copy.deepcopy(configuration(file.read()))

    ConfigStore.__deepcopy__ = lambda self, _: self
    omegaconf.OmegaConf.load = staticmethod(load)
    omegaconf.base.parse = functools.cache(omegaconf.base.parse)

    read, merge = ConfigRepository.load_config, ConfigLoaderImpl._compose_config_from_defaults_list
    map_all_choices = defaults_list._create_interpolation_map
    files, mergers = {}, {}

    def sources_of(repo):
        """Names of the sources, or None where one is a folder that a test may write to."""
        names = tuple((source.scheme(), source.path) for source in repo.get_sources())
        is_ours = all(scheme != "file" or path == str(CONF) for scheme, path in names)
        return names if is_ours else None

    def read_once(self, config_path):
        if (sources := sources_of(self)) is None:
            return read(self, config_path)
        key = (config_path, sources)
        if key not in files:
            files[key] = read(self, config_path)
        return files[key]

    def merge_once(self, defaults, repo):
        sources = sources_of(repo)
        key = (repr(defaults), sources)
        if key not in mergers or sources is None:
            repo.cache = copy.deepcopy(repo.cache)  # a merger takes the nodes of what it merges
            mergers[key] = merge(self, defaults, repo)
        return copy.deepcopy(mergers[key])

    def map_choices(overrides, defaults, self_added):
        """Choices that a default may name; no file's defaults are made of them in most cases."""
        if any(default.is_interpolation() for default in defaults):
            return map_all_choices(overrides, defaults, self_added)

    ConfigRepository.load_config = read_once
    defaults_list._create_interpolation_map = map_choices
    ConfigLoaderImpl._compose_config_from_defaults_list = merge_once
