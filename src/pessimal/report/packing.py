"""Score tables in few bytes: exact ranks, rewards to a stated number of decimals, and what can be said of each row.

Knows arrays and bytes; `js/data.js` reads what is written here. Does not know models, prompts or HTML.
"""

import base64
import json
import math
import zlib
from dataclasses import dataclass

import numpy as np

from pessimal.tables.score_table import storable

STEPS_PER_SD = 5000
"""Rewards are rounded to a power of ten that is at most the standard deviation of the table over this."""
MOST_DECIMALS = 12
LARGEST = 2**50  # whole numbers that JavaScript holds exactly, with room to spare


@dataclass(frozen=True)
class Packed:
    """One score table's rewards, packed."""

    text: str
    """base64 of the deflated bytes."""
    decimals: int
    """Rewards are rounded to this many decimals."""
    bits: int
    """Bits that one candidate's row takes in the order."""


def packed(
    rewards: np.ndarray, *, certified: np.ndarray, survives: np.ndarray, survival_known: np.ndarray
) -> Packed:
    """Pack one table, rows in the order of its vocabulary.

    Inside: the rows from the highest reward to the lowest, each in `bits` bits, lowest bit first (equal rewards in the
    order of the vocabulary); the steps between neighbours' rounded rewards, as LEB128, the first from zero (and that
    one zigzag); then four sets of one bit a row: equal to its predecessor in that order, certified, survives, known
    whether it survives.

    Args:
        rewards: (n,) float, finite.
        certified, survives, survival_known: (n,) bool, by row.
    """
    rewards = np.asarray(rewards, dtype=np.float64)
    n, places = len(rewards), decimals(rewards)
    order = np.argsort(-rewards, kind="stable")
    falling = rewards[order]
    ties = np.zeros(n, dtype=bool)
    ties[1:] = falling[1:] == falling[:-1]
    rounded = np.rint(falling * 10.0**places).astype(np.int64)
    steps = np.empty(n, dtype=np.int64)
    if n:
        steps[0] = 2 * rounded[0] if rounded[0] >= 0 else -2 * rounded[0] - 1
        steps[1:] = rounded[:-1] - rounded[1:]
    bits = max(1, (n - 1).bit_length())
    pieces = [_in_bits(order, bits), _leb128(steps)]
    pieces += [
        np.packbits(flags, bitorder="little").tobytes()
        for flags in (ties, certified, survives, survival_known)
    ]
    return Packed(_deflated(b"".join(pieces)), places, bits)


def packed_document(document: object) -> str:
    """A JSON document as base64 of its deflated bytes: no text in it can become markup."""
    return _deflated(json.dumps(document, separators=(",", ":")).encode("ascii"))


def decimals(rewards: np.ndarray) -> int:
    """How many decimals tell rewards apart well enough, and can be held exactly (0 … MOST_DECIMALS)."""
    spread, largest = float(np.std(rewards)), float(np.max(np.abs(rewards), initial=0.0))
    if spread == 0 or not math.isfinite(spread):
        spread = largest or 1.0
    wanted = math.ceil(-math.log10(spread / STEPS_PER_SD))
    possible = math.floor(math.log10(LARGEST / largest)) if largest else MOST_DECIMALS
    return max(0, min(wanted, possible, MOST_DECIMALS))


def _in_bits(rows: np.ndarray, bits: int) -> bytes:
    """Whole numbers (n,) in `bits` bits each, lowest bit first."""
    each = ((rows[:, None] >> np.arange(bits)) & 1).astype(np.uint8)  # (n, bits)
    return np.packbits(each, bitorder="little").tobytes()


def _leb128(numbers: np.ndarray) -> bytes:
    """Whole numbers ≥ 0 in groups of seven bits, lowest first; the high bit says that another follows."""
    numbers = numbers.astype(np.uint64)
    widest = max(1, math.ceil(int(numbers.max(initial=0)).bit_length() / 7))
    groups = np.stack([(numbers >> np.uint64(7 * i)) & np.uint64(127) for i in range(widest)], axis=1)
    more = np.stack([(numbers >> np.uint64(7 * (i + 1))) > 0 for i in range(widest)], axis=1)
    used = np.concatenate([np.ones((len(numbers), 1), dtype=bool), more[:, :-1]], axis=1)
    return (groups.astype(np.uint8) | (more.astype(np.uint8) << 7))[used].tobytes()


def _deflated(data: bytes) -> str:
    # Level 9 takes sixteen times as long over rewards, for 0.4 % of the bytes.
    return base64.b64encode(zlib.compress(data, 6)).decode("ascii")


def plain(text: object) -> str:
    """A text as the page may hold it; what is missing is empty."""
    return storable(text) if isinstance(text, str) else ""
