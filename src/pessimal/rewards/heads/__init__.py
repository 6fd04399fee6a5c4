"""Reward heads: how a scalar is read off a decoder's last hidden states, each with the arithmetic
that was published.

One file a head. A head says by which weights it is recognised (`fits`), which modules hold them
(`modules`, for checkpoints whose own class transformers does not have), and how the reward is read
(`read`), always in float32. To add one: write such a class, and name it in `heads`, or offer it
from a package of yours under the entry point `pessimal.heads`. docs: docs/extend/head.md.
"""

import functools

from pessimal import extensions
from pessimal.errors import ConfigError
from pessimal.rewards.heads.base import Head, Shapes
from pessimal.rewards.heads.gated import GatedHead
from pessimal.rewards.heads.linear import LinearHead, NormalizedHead

GROUP = "pessimal.heads"
"""Entry points under which other packages offer theirs."""


@functools.cache
def heads() -> tuple[type[Head], ...]:
    """Every head that pessimal knows, in the order in which they are asked whether they fit; those
    of installed packages come before those of pessimal.

    Raises:
        ConfigError: what a package offers cannot be imported or is no head.
    """
    offered = extensions.installed(GROUP)
    for path, value in offered.items():
        if not (isinstance(value, type) and issubclass(value, Head)):
            raise ConfigError(f"the entry point {GROUP}, {path}, is no class of Head")
    return (*offered.values(), GatedHead, LinearHead, NormalizedHead)


def head_for(names: Shapes) -> type[Head] | None:
    """The first head that fits a checkpoint's weights, by their names; None where pessimal knows
    none such."""
    return next((head for head in heads() if head.fits(names)), None)
