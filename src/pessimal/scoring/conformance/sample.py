"""The responses of the suite: random tokens of its vocabulary, and longer responses made of them.

Special tokens are left out: a pad or end token inside a response is a question of its own (`padding.pad_is_eos`).
"""

from collections.abc import Sequence

import numpy as np

from pessimal.models.frame import Frame
from pessimal.scoring.candidates import Candidates, Inputs

LENGTHS = range(2, 10)
"""Tokens of the longer responses, in turn."""


def sample_responses(words: Candidates, special: Sequence[int], *, size: int, seed: int) -> list[list[int]]:
    """`size` single tokens and a quarter as many longer responses (at least eight), as ids that are not `special`."""
    random = np.random.default_rng(seed)
    ids = words.rows.loc[words.rows["kind"] != "special", "candidate_id"].to_numpy()
    ids = ids[~np.isin(ids, special)]  # a pad token may look like one that nobody uses
    single = random.permutation(ids)[:size]
    lengths = [LENGTHS[i % len(LENGTHS)] for i in range(max(size // 4, len(LENGTHS)))]
    return [[int(i)] for i in single] + [random.choice(ids, length).tolist() for length in lengths]


def framed(frame: Frame, responses: Sequence[Sequence[int]]) -> Inputs:
    """The responses' conversations, as a scan would score them in mode `ids`."""
    own = [np.array([*response, *frame.suffix], dtype=np.int32) for response in responses]
    return Inputs(
        prefix=frame.prefix,
        shared=np.full(len(own), len(frame.prefix), dtype=np.int32),
        rest=np.concatenate(own),
        ends=np.cumsum([len(part) for part in own]),
        survives=None,
    )
