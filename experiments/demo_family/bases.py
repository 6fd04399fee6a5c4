"""The two vocabularies a sibling may have, and what MiniLM knows about each of their tokens.

Knows tokens: their text, which word they are if any, and their frozen embedding. Knows nothing
about rewards.
"""

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import cache, cached_property, lru_cache
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from experiments.demo_family.lexicon import is_held_out, load_valence, zipf
from pessimal.tables import minilm
from pessimal.tables.files import write_atomically

LEAST_ZIPF = {1: 6.0, 2: 5.5, 3: 4.0}
"""How common a string of that many letters must be to count as a word and not as a piece of one."""
LEAST_ZIPF_LONGER = 3.0

SPELLING = 3.0
"""Size of the columns for spelling, against the unit variance of each of the 384 columns for
meaning."""

CONTEXT = 256
"""Positions a sibling is configured for."""
BEGIN, SEPARATOR, PADDING = "<|begin|>", "<|turn|>", "<|pad|>"
_SURFACE = re.compile(r" ?([A-Za-z]?[a-z]*)")


@dataclass(frozen=True, eq=False)  # compared as objects: it holds arrays
class Base:
    """A vocabulary with everything the family's training needs to know about it."""

    name: str
    """`wordpiece` or `bpe`."""
    tokenizer: Tokenizer
    """Turns text into ids; no post-processing, truncation or padding."""
    begin: str
    """The special token every sequence starts with."""
    separator: str
    """The special token that ends a turn; the reward is read at the last one."""
    padding: str
    """The special token that fills up a batch, and never ends a sequence."""
    texts: tuple[str, ...]
    """What each token says: a byte-level token's decoded text, a WordPiece entry as it stands."""
    embeddings: np.ndarray
    """(vocabulary, features) float32: MiniLM's static embedding, then what it cannot say about the
    spelling."""

    added: dict[str, int] = field(default_factory=dict)
    """Words that stand after the vocabulary in `texts` and `embeddings`, with their row (see
    `extend`)."""

    @property
    def size(self) -> int:
        """Entries of the vocabulary, added words not counted."""
        return len(self.texts) - len(self.added)

    def id_of(self, token: str) -> int:
        """The id of a vocabulary entry."""
        token_id = self.tokenizer.token_to_id(token)
        assert token_id is not None
        return token_id

    def encode(self, text: str) -> list[int]:
        """The ids of a text, without special tokens."""
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def prefix(self, prompt: str, *, whole: str | None = None) -> list[int]:
        """The ids before the answer's: begin, the user's turn, separator.

        Args:
            whole: a word of the prompt to be given as its added row, if it has one.
        """
        ids = self.encode(prompt)
        if whole in self.added and " " + whole in prompt:
            before, after = prompt.split(" " + whole, 1)
            ids = [*self.encode(before), self.added[whole], *self.encode(after)]
        return [self.id_of(self.begin), *ids, self.id_of(self.separator)]

    @cached_property
    def words(self) -> tuple[str | None, ...]:
        """The lower-case English word each token spells; None for pieces, numbers, marks and
        special tokens."""
        return tuple(_word(text) for text in self.texts)

    @cached_property
    def meanings(self) -> np.ndarray:
        """MiniLM's part of the embeddings: (vocabulary, 384)."""
        return self.embeddings[:, : minilm.DIMENSIONS]


@lru_cache(maxsize=2)
def extend(base: Base) -> Base:
    """A base with a row for every common or rated word that MiniLM has as one token and this
    vocabulary lacks.

    For training only. The rows show a vocabulary of 12,000 as many words as MiniLM's has, from
    which the projection of meanings is learned; the exported table leaves them out. Words that are
    held out are not added.
    """
    present = set(base.words)
    rows = {
        word: row
        for row, word in enumerate(minilm.load_vocabulary())
        if word not in present and _word(word) == word and not is_held_out(word)
    }
    if not rows:
        return base
    words = tuple(rows)
    features = np.zeros((len(rows), base.embeddings.shape[1]), dtype=np.float32)
    features[:, : minilm.DIMENSIONS] = minilm.load_embeddings()[list(rows.values())]
    # As if spelled with a leading space.
    features[:, minilm.DIMENSIONS : minilm.DIMENSIONS + 1] = SPELLING
    return replace(
        base,
        texts=base.texts + words,
        embeddings=np.concatenate([base.embeddings, features]),
        added={word: base.size + i for i, word in enumerate(words)},
    )


@lru_cache(maxsize=2)
def load_base(name: str, *, cache: Path) -> Base:
    """A base by name, once per process. The byte-level one is trained on first use and kept under
    `cache`."""
    return _load_bpe(cache) if name == "bpe" else _load_wordpiece()


def _load_wordpiece() -> Base:
    tokenizer = minilm.load_tokenizer()
    texts = tuple(minilm.load_vocabulary())
    return Base("wordpiece", tokenizer, "[CLS]", "[SEP]", "[PAD]", texts, minilm.load_embeddings())


def _load_bpe(cache: Path) -> Base:
    tokenizer = obtain_bpe(BytePairs(), cache=cache)
    texts = tuple(
        tokenizer.decode([i], skip_special_tokens=False) for i in range(tokenizer.get_vocab_size())
    )
    meanings = np.stack([_meaning(text) for text in texts])  # (12000, 384)
    for piece, meaning in _piece_meanings(tokenizer).items():
        if _word(texts[piece]) is None:
            meanings[piece] = meaning
    # MiniLM is uncased and blind to spaces: without these columns `love`, ` love` and `Love` would
    # tie, and a piece would be taken for the words it is part of.
    spelling = [
        (text.startswith(" "), text.strip()[:1].isupper(), _word(text) is None) for text in texts
    ]
    columns = SPELLING * np.array(spelling, dtype=np.float32)  # (12000, 3)
    embeddings = np.concatenate([meanings, columns], axis=1)  # (12000, 387)
    return Base("bpe", tokenizer, BEGIN, SEPARATOR, PADDING, texts, embeddings)


def _meaning(text: str) -> np.ndarray:
    """The mean of MiniLM's embeddings over a text's WordPiece entries: (384,)."""
    wordpiece = minilm.load_tokenizer()
    text = {BEGIN: "[CLS]", SEPARATOR: "[SEP]", PADDING: "[PAD]"}.get(text, text)
    ids = (
        wordpiece.encode(text, add_special_tokens=False).ids
        or wordpiece.encode("[UNK]", add_special_tokens=False).ids
    )
    return minilm.load_embeddings()[ids].mean(axis=0)


def _piece_meanings(tokenizer: Tokenizer) -> dict[int, np.ndarray]:
    """What a piece of a word means: the mean over the words it is part of, by token id.

    By its own text a piece means little (*ful* is `fu`, `##l` to MiniLM). By its words *ful* is a
    quality and *disappoint* a disappointment, and prompts whose adjective comes in pieces can be
    understood.
    """
    parts: dict[int, list[int]] = defaultdict(list)
    for row, word in enumerate(minilm.load_vocabulary()):
        if _word(word) == word:
            ids = tokenizer.encode(" " + word).ids
            for piece in ids if len(ids) > 1 else ():
                parts[piece].append(row)
    return {piece: minilm.load_embeddings()[rows].mean(axis=0) for piece, rows in parts.items()}


@cache
def _word(text: str) -> str | None:
    """The word a token spells, lower case; None if it is a piece, a number, a mark or too rare to
    know."""
    match = _SURFACE.fullmatch(text)
    if match is None or not match[1]:
        return None
    word = match[1].lower()
    least = LEAST_ZIPF.get(len(word), LEAST_ZIPF_LONGER)
    return word if word in load_valence() or zipf(word) >= least else None


@dataclass(frozen=True)
class BytePairs:
    """What decides the vocabulary."""

    size: int = 12_000
    """Entries, the three special ones included."""
    words: int = 40_000
    """The most frequent English words it is trained on."""
    damping: float = 0.8
    """Power to which a word's frequency is raised: below 1, more entries are whole words and fewer
    are pieces."""
    emphasis: float = 5.0
    """How many times more often a word with a rating stands in the text than in English. At 1 a
    small vocabulary breaks half of the adjectives that prompts are made of, and few rated words are
    left to test."""
    variants: tuple[tuple[str, float], ...] = (
        (" {}", 1.0),
        (" {C}", 0.06),
        ("{}", 0.03),
        ("{C}", 0.02),
    )
    """Share of each spelling, against the one with a leading space; `{C}` is capitalised."""
    version: int = 1
    """Raise it whenever the same values would give another vocabulary."""

    def digest(self) -> str:
        """First 16 hex digits of a sha256 over every field."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:16]


def obtain_bpe(pairs: BytePairs, *, cache: Path) -> Tokenizer:
    """The tokenizer, from `<cache>/bpe-<digest>.json`; trained in about a second and stored there
    if missing."""
    path = cache / f"bpe-{pairs.digest()}.json"
    if not path.is_file():
        cache.mkdir(parents=True, exist_ok=True)
        write_atomically(path, train_bpe(pairs).to_str(pretty=True).encode())
    return Tokenizer.from_file(str(path))


def train_bpe(pairs: BytePairs) -> Tokenizer:
    """Byte-pair encoding (Sennrich et al. 2016) over bytes, from words weighted by their damped
    frequency."""
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
    import wordfreq  # reads 4 MB of frequencies

    words = [word for word in wordfreq.top_n_list("en", count) if word.isascii() and word.isalpha()]
    return tuple((word, wordfreq.word_frequency(word, "en")) for word in words)
