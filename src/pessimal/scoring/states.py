"""The states of words: what a reward's base, before training, has at the position that is read,
and what it is given.

Any head on these states, trained or not, shows slopes on frequency and valence; an analysis holds a
reward against the heads that nobody trained (`analyses.random_heads`).
"""

import logging
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import cast

import numpy as np
import pandas as pd
import torch
from torch import nn

from pessimal.progress import counted
from pessimal.rewards.frame import Frame
from pessimal.rewards.language import StatesNetwork
from pessimal.scoring.candidates import Candidates, Inputs, batches
from pessimal.scoring.engine import Decoder, FullForward, OwnForward
from pessimal.scoring.loop import Shards
from pessimal.scoring.scorer import FrameScorer
from pessimal.scoring.trainer import Lengths, find_batch_size
from pessimal.tables.score_table import States
from pessimal.tables.word_lists import common, spelled

log = logging.getLogger(__name__)

DIMENSIONS = 256
"""A wider network's states are projected to so many, by one random matrix for all prompts, so that
they can be added and subtracted between prompts. The spread of random heads is then off by 4 %
(standard deviation over projections of SmolLM2's states; 512 dimensions are no better, 128 are off
by 5 %: experiments/nulls/heads.py projection)."""
SAMPLE = 16
"""Words whose states an engine must give as the full forward does."""
TOLERANCE = {torch.float32: 1e-3, torch.float16: 2e-2, torch.bfloat16: 1e-1}
"""By how much of their length they may differ. Right engines of SmolLM2 differ by 1.1e-6, 2.7e-3
and 1.8e-2, by rounding; the states of two words by .10 at least and mostly by .6."""


def words_of(candidates: Candidates) -> pd.Series:
    """The row of every item, or of every common word's commonest spelling, by the text or word.

    Of the spellings of a word that which begins one and is in lower case counts as the commonest,
    then the one of the lowest id, which tokenizers give what occurs most.
    """
    rows = candidates.rows.reset_index(drop=True)
    if not candidates.is_vocabulary:
        return pd.Series(rows.index, index=pd.Index(rows["text"].tolist(), dtype=object))
    rows = rows[rows["kind"] == "normal"]
    rows = rows.assign(word=spelled(pd.Index(rows["text"])).to_numpy()).dropna(subset="word")
    names = rows["word"].unique()
    rows = rows[rows["word"].isin(names[common(names)])]
    plain = rows["text"] == " " + rows["word"]
    ordered = rows.assign(plain=~plain).sort_values(["plain", "candidate_id"], kind="stable")
    first = ordered.drop_duplicates("word").sort_values("word")
    return pd.Series(first.index, index=pd.Index(first["word"].tolist(), dtype=object))


@torch.no_grad()
def word_states(
    network: StatesNetwork,
    frame: Frame,
    inputs: Inputs,
    words: pd.Series,
    *,
    of: str,
    model: str,
    device: torch.device,
    label: str,
    folder: Path,
    again: bool = False,
    progress: bool = True,
) -> States | None:
    """The normalised last hidden state behind each word of `words_of`, and its input embedding:
    the mean of what follows the prompt, scaled to spread as the states do.

    Args:
        network: that reads.
        frame, inputs: of the candidates, as they were scored.
        words: of `words_of`.
        of: whose states these are (`tables.states`).
        model: its name.
        folder: of what an interrupted scan left, and leaves.
        again: read what it left anew.

    Returns:
        None where no engine runs the network without its head, which is said.
    """
    before = next(network.parameters()).device
    network.to(device)
    try:
        scorer = FrameScorer(network, frame, device=device)
        rows = words.to_numpy()
        _keep_the_exact(scorer, inputs, rows)
        if isinstance(scorer.engines[0], OwnForward) or not len(rows):
            log.warning(
                "%s: states of words are not kept, as pessimal does not know the layout of %s; "
                "inferences over words take the likeness of meanings in their place",
                label,
                type(network.backbone).__name__,
            )
            return None
        width = int(network.config.get_text_config().hidden_size)
        embedding = cast(nn.Embedding, network.get_input_embeddings())
        final = _projection(width).to(device)
        first = _projection(embedding.weight.shape[1]).to(device)
        columns = max(final.shape[1], first.shape[1])
        held = np.zeros((len(rows), 2, columns), dtype=np.float32)
        shards = Shards(folder / f"states-{sha256(f'{of} {model}'.encode()).hexdigest()[:12]}")
        place = pd.Series(np.arange(len(rows)), index=rows)
        longest = int((inputs.shared + inputs.lengths)[rows].max())
        lengths = Lengths(int(inputs.lengths[rows].max()), longest)
        batch_size = find_batch_size(network.config, lengths, device=device)
        size = int(shards.agree("batch_size", batch_size, insist=again))
        with counted(f"{label}, states", unit="words", total=len(rows), bar=progress) as counter:
            for number, some in enumerate(batches(inputs, size=size, rows=rows)):
                block = None if again else shards.read(number, some, width=(2, columns))
                if block is None:
                    ids = torch.from_numpy(inputs.batch(some)).to(device)
                    states = scorer.rewards(ids, shared=int(inputs.shared[some[0]]))
                    means = embedding(ids).mean(dim=1)
                    block = np.zeros((len(some), 2, columns), dtype=np.float32)
                    for space, (vectors, project) in enumerate(((states, final), (means, first))):
                        projected = (vectors.float() @ project).cpu().numpy()
                        block[:, space, : project.shape[1]] = projected
                    shards.write(number, some, block)
                held[place[some]] = block
                counter.advance(len(some))
        of_last, of_first = np.linalg.norm(held.std(axis=0), axis=1)
        held[:, 1] *= of_last / (of_first or 1.0)
        flat = pd.DataFrame(held.reshape(len(rows), -1).astype(np.float16), words.index)
        return States(of, model, width, 2, flat)
    finally:
        network.to(before)


def _projection(width: int) -> torch.Tensor:
    """(width, dimensions) float32; the same for all networks of a width."""
    if width <= DIMENSIONS:
        return torch.eye(width)
    matrix = np.random.default_rng(width).standard_normal((width, DIMENSIONS))
    return torch.from_numpy((matrix / np.sqrt(DIMENSIONS)).astype(np.float32))


def _keep_the_exact(scorer: FrameScorer, inputs: Inputs, rows: np.ndarray) -> None:
    """Drop the engines whose states differ from those of the full forward."""
    sample = rows[np.random.default_rng(0).permutation(len(rows))[:SAMPLE]]

    def states(engine: int) -> list[torch.Tensor]:
        runner = scorer.engines[engine]
        return [
            runner.rewards(
                torch.from_numpy(inputs.batch(row[None])).to(scorer.device),
                shared=int(inputs.shared[row]),
            )
            for row in sample
        ]

    tolerance = TOLERANCE.get(next(scorer.network.parameters()).dtype, TOLERANCE[torch.float32])
    while len(scorer.engines) > 2:  # a fast one, the full forward, the network's own
        pairs = zip(states(0), states(1), strict=True)
        if all(torch.dist(a, b) <= tolerance * torch.linalg.norm(b) for a, b in pairs):
            return
        log.warning("the %s engine gives other states; taking a slower one", scorer.attention)
        scorer.engines.pop(0)


@torch.no_grad()
def added_states(
    network: StatesNetwork, frames: Sequence[Frame], token: int, *, device: torch.device
) -> tuple[np.ndarray, np.ndarray] | None:
    """Last hidden states of real answers with a token in their slot, and as they are, float64
    (n, hidden) each; None where pessimal does not know the layout of the network."""
    decoder = Decoder.find(network.to(device))
    if decoder is None:
        return None
    engine = FullForward(decoder, torch.empty(0, dtype=torch.long, device=device))
    states = [
        engine.whole_rewards(
            torch.tensor([[*frame.prefix, *ids, *frame.suffix]], device=device), n_response=len(ids)
        )[0]
        for ids in ([token], [])
        for frame in frames
    ]
    rows = torch.stack(states).double().cpu().numpy()
    return rows[: len(frames)], rows[len(frames) :]
