"""Which responses have been seen: a set of 64-bit hashes, asked and filled a batch at a time.

The hash is the sum of one pseudo-random number for each token in each place (Zobrist 1970, with the mixing function of
splitmix64 instead of a table). Two responses share a hash by a chance of 2⁻⁶⁴; any two of n by n² · 2⁻⁶⁵: 10⁻¹¹ for
20,000 and 3 · 10⁻⁸ for a million. What it would cost is one response that is taken for seen, and never a wrong value.
"""

import numpy as np
import torch
from torch import Tensor

from pessimal.search.round_trip import Retokenizes

# splitmix64 (Steele, Lea & Flood 2014).
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_PLACE = np.uint64(32)  # token ids lie below, the place above


class Visited:
    """A set of responses."""

    def __init__(self):
        self._hashes = np.empty(0, dtype=np.uint64)  # ascending

    def __len__(self) -> int:
        return len(self._hashes)

    def new(self, responses: Tensor) -> Tensor:
        """bool (n,): which of `responses` (n, L) are not in the set, and the first of their kind in the batch."""
        hashes, first = np.unique(hashed(responses), return_index=True)
        place = np.searchsorted(self._hashes, hashes)
        known = self._hashes[np.minimum(place, len(self) - 1)] == hashes if len(self) else False
        new = torch.zeros(len(responses), dtype=torch.bool)
        new[torch.from_numpy(first[np.logical_not(known)])] = True
        return new

    def add(self, responses: Tensor) -> None:
        """Put `responses` (n, L) into the set; those that are there already change nothing."""
        # Put into their places: 0.2 ms for 512 among 20,000, 1.5 ms among a million. `np.union1d` took 4 ms and 860 ms.
        new = np.sort(hashed(responses[self.new(responses)]))
        self._hashes = np.insert(self._hashes, np.searchsorted(self._hashes, new), new)


def unseen(
    responses: Tensor,
    visited: Visited,
    *,
    retokenizes: Retokenizes | None = None,
    most: int | None = None,
) -> Tensor:
    """Those of `responses` (n, L) that are new and retokenize, each once, in their order, `most` of them.

    They are visited from now on, and so are the new ones that do not retokenize: these are not tried again.
    """
    new = responses[visited.new(responses)]
    if retokenizes is not None and len(new):
        good = retokenizes(new)
        visited.add(new[~good])
        new = new[good]
    visited.add(new[:most])
    return new[:most]


def hashed(responses: Tensor) -> np.ndarray:
    """uint64 (n,): a hash of each of `responses` (n, L)."""
    places = np.arange(responses.shape[1], dtype=np.uint64) << _PLACE
    with np.errstate(over="ignore"):  # modulo 2⁶⁴ is what is meant
        mixed = (responses.numpy().astype(np.uint64) + places + np.uint64(1)) * _GOLDEN
        mixed = (mixed ^ (mixed >> np.uint64(30))) * _FIRST
        mixed = (mixed ^ (mixed >> np.uint64(27))) * _SECOND
        return (mixed ^ (mixed >> np.uint64(31))).sum(axis=1, dtype=np.uint64)
