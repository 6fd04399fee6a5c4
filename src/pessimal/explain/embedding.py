"""Sentence embeddings: the whole MiniLM encoder, as sentence-transformers runs it.

Knows texts and vectors. Does not know what the vectors are compared for.
"""

from collections.abc import Sequence
from functools import cache

import numpy as np

from pessimal.demo.minilm import DIMENSIONS, folder
from pessimal.tables.score_table import storable

LONGEST = 256
"""Word pieces read of a text, with both special ones (the model's own `max_seq_length`); what follows is not seen."""


_KNOWN: dict[str, np.ndarray] = {}
"""Vectors of the texts that this process has embedded: distances, diversity and the judge ask for the same ones."""


def embed(texts: Sequence[str], *, batch_size: int = 64) -> np.ndarray:
    """One vector a text: the mean over its word pieces, of length 1.

    A text is run once a process. Texts of similar length share a batch, and what fills the shorter ones up is masked. In
    another batch a vector differs by less than 1e-6, since a matrix product of another shape adds up in another order.

    Args:
        texts: any; a lone surrogate counts as its escape, and an empty text has a vector too.
        batch_size: texts run at once.

    Returns:
        (n, 384) float32.

    Raises:
        InputError: MiniLM's package is missing or its weights are not the upstream ones.

    Source: Reimers & Gurevych 2019; sentence-transformers/all-MiniLM-L6-v2.
    """
    if not texts:
        return np.empty((0, DIMENSIONS), np.float32)
    new = [text for text in dict.fromkeys(texts) if text not in _KNOWN]
    _KNOWN.update(zip(new, _encoded(new, batch_size=batch_size), strict=True))
    return np.stack([_KNOWN[text] for text in texts])


def _encoded(texts: Sequence[str], *, batch_size: int) -> np.ndarray:
    """Vectors (n, 384) of different texts, the longest run first."""
    vectors = np.empty((len(texts), DIMENSIONS), np.float32)
    if not texts:
        return vectors
    import torch  # seconds to import

    tokenizer, model = _encoder()
    rows = [one.ids for one in tokenizer.encode_batch([storable(text) for text in texts])]
    order = sorted(range(len(rows)), key=lambda row: (-len(rows[row]), row))
    for start in range(0, len(order), batch_size):
        batch = order[start : start + batch_size]
        width = len(rows[batch[0]])
        ids = torch.tensor([rows[row] + [0] * (width - len(rows[row])) for row in batch])  # (B, T)
        mask = torch.tensor([[1] * len(rows[row]) + [0] * (width - len(rows[row])) for row in batch])
        with torch.inference_mode():
            states = model(input_ids=ids, attention_mask=mask).last_hidden_state  # (B, T, 384)
            means = (states * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
            vectors[batch] = torch.nn.functional.normalize(means, dim=1).numpy()
    return vectors


@cache
def _encoder():
    """The tokenizer, cutting at the model's own length, and the model on the CPU in single precision."""
    import torch
    from tokenizers import Tokenizer
    from transformers import AutoModel

    tokenizer = Tokenizer.from_file(str(folder() / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(LONGEST)
    model = AutoModel.from_pretrained(folder(), local_files_only=True, dtype=torch.float32)
    return tokenizer, model.eval()
