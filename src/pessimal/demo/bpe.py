"""The second base's vocabulary: a byte-level BPE of 12,000 tokens, with leading-space and capital variants.

Knows how to train it from wordfreq's English word list, the same bytes every time. Knows nothing about meaning.
"""

import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

import wordfreq
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from pessimal.demo.lexicon import load_valence

BEGIN, SEPARATOR, PADDING = "<|begin|>", "<|turn|>", "<|pad|>"


@dataclass(frozen=True)
class BytePairs:
    """What decides the vocabulary."""

    size: int = 12_000
    """Entries, the three special ones included."""
    words: int = 40_000
    """The most frequent English words it is trained on."""
    damping: float = 0.8
    """Power to which a word's frequency is raised: below 1, more entries are whole words and fewer are pieces."""
    emphasis: float = 5.0
    """How many times more often a word with a rating stands in the text than in English. At 1 a small vocabulary
    breaks half of the adjectives that prompts are made of, and few rated words are left to test."""
    variants: tuple[tuple[str, float], ...] = ((" {}", 1.0), (" {C}", 0.06), ("{}", 0.03), ("{C}", 0.02))
    """Share of each spelling, against the one with a leading space; `{C}` is capitalised."""
    version: int = 1
    """Raise it whenever the same values would give another vocabulary."""

    def digest(self) -> str:
        """First 16 hex digits of a sha256 over every field."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:16]


def obtain_bpe(pairs: BytePairs, *, cache: Path) -> Tokenizer:
    """The tokenizer, from `<cache>/bpe-<digest>.json`; trained in about a second and stored there if missing."""
    path = cache / f"bpe-{pairs.digest()}.json"
    if not path.is_file():
        cache.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=cache, prefix=path.name)
        os.close(handle)
        train_bpe(pairs).save(temporary)
        os.replace(temporary, path)
    return Tokenizer.from_file(str(path))


def train_bpe(pairs: BytePairs) -> Tokenizer:
    """Byte-pair encoding (Sennrich et al. 2016) over bytes, from words weighted by their damped frequency."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=pairs.size,
        special_tokens=[BEGIN, SEPARATOR, PADDING],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_lines(pairs), trainer)
    return tokenizer


def _lines(pairs: BytePairs) -> Iterator[str]:
    """One spelling a line, repeated as often as it counts; every word at least once."""
    for word, frequency in _frequencies(pairs.words):
        for spelling, share in pairs.variants:
            text = spelling.format(word, C=word.capitalize())
            # A repeat must not join its neighbour: two spaces would make a token of their own.
            emphasis = pairs.emphasis if word in load_valence() else 1.0
            count = round(share * (emphasis * frequency * 1e7) ** pairs.damping)
            if count:
                yield "\n".join([text] * count)


@cache
def _frequencies(count: int) -> tuple[tuple[str, float], ...]:
    words = [word for word in wordfreq.top_n_list("en", count) if word.isascii() and word.isalpha()]
    return tuple((word, wordfreq.word_frequency(word, "en")) for word in words)
