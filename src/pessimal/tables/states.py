"""Last hidden states of the words that a network scored: what any head on it has to go by.

Knows the file beside a score table. Does not know how states are read, nor what is inferred.
"""

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from pessimal.errors import TableError

SUFFIX = ".states.safetensors"
"""Of the file beside a score table, in place of `.parquet`."""
BASE, ITSELF, TRAINED, MEANING = "base", "itself", "trained", "meaning"
"""Whose states: of the model that reward training began from; of a language model that is asked as
it is; of the trained reward model, which is too cautious a bound; or the vectors of MiniLM, where
there are no states."""


@dataclass(frozen=True)
class States:
    """What a word or item is to a network: the normalised last hidden state at the position that is
    read, and the mean input embedding of what follows the prompt, scaled to the states' spread."""

    of: str
    """BASE, ITSELF or TRAINED."""
    model: str
    """Whose they are."""
    width: int
    """Of the network, before the projection."""
    spaces: int
    """Into which the columns are cut alike: that of the last states, that of the embeddings."""
    held: pd.DataFrame | None = None
    """(words, dimensions) float16, index = text: those in memory."""
    file: Path | None = None
    """Where they are otherwise."""

    @cached_property
    def rows(self) -> pd.DataFrame:
        """(words, dimensions) float16, index = text.

        Raises:
            TableError: the file cannot be read.
        """
        if self.held is not None:
            return self.held
        try:
            with safe_open(self.file, "np") as tensors:
                texts = json.loads(tensors.get_tensor("texts").tobytes())
                return pd.DataFrame(tensors.get_tensor("states"), pd.Index(texts, dtype=object))
        except (OSError, SafetensorError, ValueError) as error:
            raise TableError(f"{self.file} cannot be read: {error}. Scan again") from error

    @property
    def about(self) -> dict[str, str | int]:
        """What a score table says of them."""
        words, dimensions = self.rows.shape
        return {
            "of": self.of,
            "model": self.model,
            "width": self.width,
            "spaces": self.spaces,
            "words": words,
            "dimensions": dimensions,
        }

    def write(self, table: Path) -> None:
        """Write them beside the file of a score table; equal states give equal bytes."""
        about = {name: self.about[name] for name in ("of", "model", "width", "spaces")}
        # No metadata, whose order differs from process to process.
        arrays = {
            "about": _encoded(about),
            "states": np.ascontiguousarray(self.rows.to_numpy()),
            "texts": _encoded(self.rows.index.tolist()),
        }
        table.with_suffix(SUFFIX).write_bytes(save(arrays))


def _encoded(value: object) -> np.ndarray:
    return np.frombuffer(json.dumps(value).encode(), dtype=np.uint8)


def states_beside(table: Path) -> States | None:
    """The states beside the file of a score table, not yet read; None where there are none.

    Raises:
        TableError: the file is damaged.
    """
    file = table.with_suffix(SUFFIX)
    if not file.is_file():
        return None
    try:
        with safe_open(file, "np") as tensors:
            about = json.loads(tensors.get_tensor("about").tobytes())
        sizes = int(about["width"]), int(about["spaces"])
        return States(about["of"], about["model"], *sizes, file=file)
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise TableError(f"{file} cannot be read: {error}. Scan again") from error
