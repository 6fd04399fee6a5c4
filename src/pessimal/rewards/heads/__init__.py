"""Reward heads: how a scalar is read off a decoder's last hidden states, each with the arithmetic
that was published.

One file a head. A head says by which weights it is recognised (`fits`), which modules hold them
(`modules`, for checkpoints whose own class transformers does not have), and how the reward is read
(`read`), always in float32. To add one: write such a class in a file here and name it in HEADS.
docs: README.md in this folder.
"""

from pessimal.rewards.heads.base import Head, Shapes
from pessimal.rewards.heads.checkpoint import closing_ids, is_pairrm, renamed
from pessimal.rewards.heads.gated import GatedHead
from pessimal.rewards.heads.linear import LinearHead
from pessimal.rewards.heads.named import NamedLinearHead
from pessimal.rewards.heads.normalized import NormalizedHead
from pessimal.rewards.heads.perceptron import PerceptronHead
from pessimal.rewards.heads.value import ValueHead

HEADS: tuple[type[Head], ...] = (
    GatedHead,
    ValueHead,
    LinearHead,
    PerceptronHead,
    NamedLinearHead,
    NormalizedHead,
)
"""Every head that pessimal knows; the first that fits is taken."""


def head_for(names: Shapes) -> type[Head] | None:
    """The head that a checkpoint's weights are of, by their names; None where pessimal knows none
    such."""
    return next((head for head in HEADS if head.fits(names)), None)


__all__ = ["HEADS", "Head", "Shapes", "closing_ids", "head_for", "is_pairrm", "renamed"]
