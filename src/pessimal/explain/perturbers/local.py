"""Perturbations written by a causal language model on this machine: the two steps of `llm`, without an endpoint.

Knows how the pieces go together. Does not know wording or sampling.
"""

from collections.abc import Sequence
from pathlib import Path

from pessimal.explain.attribute import Attribute
from pessimal.explain.chat.connect import local_client
from pessimal.explain.chat.on_machine import OnMachineSpec
from pessimal.explain.perturbers.llm import Llm


class Local(Llm):
    """`Llm` over a Hub model or a local folder."""

    name = "local"

    def __init__(
        self,
        spec: OnMachineSpec,
        *,
        attributes: Sequence[Attribute],
        cache: Path | None,
        attempts: int = 3,
        min_locality: float = 0.0,
    ):
        """
        Args:
            attributes: as for `Llm`.
            cache: folder of the replies; None keeps none.
            attempts: replies asked for, each with another seed, until one is of the asked shape.
            min_locality: as for `Llm`.

        Raises:
            ModelError: no causal language model with a chat template.
        """
        chat = local_client(spec, cache=cache, attempts=attempts)
        super().__init__(chat, attributes=attributes, min_locality=min_locality)
