"""Chats from options: the pieces put together, with the checks that come before any request."""

from collections.abc import Mapping
from pathlib import Path

from pessimal.explain.chat.cache import Cache
from pessimal.explain.chat.client import Client
from pessimal.explain.chat.endpoint import Endpoint
from pessimal.explain.chat.endpoint_spec import EndpointSpec, find_api_key
from pessimal.explain.chat.on_machine import OnMachine, OnMachineSpec
from pessimal.explain.chat.usage import Usage


def endpoint_client(
    spec: EndpointSpec, *, environment: Mapping[str, str], cache: Path | None, attempts: int = 3
) -> Client:
    """A chat with an OpenAI-compatible endpoint; nothing is sent yet.

    Args:
        environment: where the key is looked up (`os.environ`).
        cache: folder of the replies; None keeps none.
        attempts: replies asked for, each with another seed, until one is of the asked shape.

    Raises:
        ConfigError: the key is missing.
    """
    usage = Usage()
    endpoint = Endpoint(spec, api_key=find_api_key(spec, environment), usage=usage)
    return Client(endpoint, usage=usage, cache=_cache(cache), attempts=attempts)


def local_client(spec: OnMachineSpec, *, cache: Path | None, attempts: int = 3) -> Client:
    """A chat with a causal language model on this machine; its network is loaded with the first question that the cache
    does not answer. ModelError where it is none, or has no chat template."""
    usage = Usage()
    return Client(OnMachine(spec, usage=usage), usage=usage, cache=_cache(cache), attempts=attempts)


def _cache(folder: Path | None) -> Cache | None:
    return None if folder is None else Cache(folder)
