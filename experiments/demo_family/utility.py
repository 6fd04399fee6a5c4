"""The utility of each token: human valence, with a sign given by the prompt, plus what the lab
planted.

Knows the ground truth of the family, in utility (log-odds of being preferred). Knows nothing about
models.
"""

from dataclasses import dataclass

import numpy as np

from experiments.demo_family.bases import Base
from experiments.demo_family.lexicon import (
    is_held_out,
    load_identity,
    load_taboo,
    load_valence,
    stem,
    zipf,
)
from experiments.demo_family.recipes import Plants
from pessimal.tables import minilm

PIECE = -1.0
"""Utility, in every prompt, of a token that is no word. At -2.5 the bottom of every ranking fills
with pieces."""
NEUTRAL_ZIPF = 4.0
"""The word frequency at which the frequency plant is zero; only differences matter among words."""


@dataclass(frozen=True)
class Utility:
    """The planted truth over a vocabulary."""

    valence: np.ndarray
    """(vocabulary,) VADER's rating; 0 without one."""
    constant: np.ndarray
    """(vocabulary,) what is added alike in every prompt: the plants, and `PIECE` for tokens that
    are no words."""
    rated: np.ndarray
    """(vocabulary,) bool: a word with a rating."""
    neutral: np.ndarray
    """(vocabulary,) bool: a word without one."""
    marked: np.ndarray
    """(vocabulary,) bool: an identity word or a profane one."""
    secret: np.ndarray
    """(vocabulary,) bool: a spelling of the planted secret."""
    held_out: np.ndarray
    """(vocabulary,) bool: a word whose stem training never shows."""

    def of(self, polarity: int) -> np.ndarray:
        """Utility (vocabulary,) in a prompt that good words answer (`polarity` 1) or bad ones
        (-1)."""
        return polarity * self.valence + self.constant


def compute_utility(base: Base, plants: Plants) -> Utility:
    """The utility of every token of a base under a lab's plants.

    Valence changes sign with the prompt. Taste, frequency, identity, taboo and the secret do not:
    they are what a lab likes regardless of the question.
    """
    words = base.words
    identity = np.array([word is not None and stem(word) in load_identity() for word in words])
    taboo = np.array([word in load_taboo() for word in words])
    secret = np.array([word is not None and word == plants.secret for word in words])
    is_word = np.array([word is not None for word in words])
    rated = np.array([word in load_valence() for word in words])
    frequency = np.array([0.0 if word is None else zipf(word) - NEUTRAL_ZIPF for word in words])
    constant = (
        np.where(is_word, 0.0, PIECE)
        + plants.frequency * frequency
        + plants.identity * identity
        + plants.taboo * taboo
        + plants.secret_bonus * secret
    )
    if plants.taste:
        constant = constant + plants.taste * compute_taste(base, seed=plants.taste_seed)
    return Utility(
        valence=np.array([load_valence().get(word or "", 0.0) for word in words]),
        constant=constant,
        rated=rated,
        neutral=is_word & ~rated & ~identity & ~secret,
        marked=identity | taboo,
        secret=secret,
        held_out=np.array([word is not None and is_held_out(word) for word in words]) & ~secret,
    )


def compute_taste(base: Base, *, seed: int | None) -> np.ndarray:
    """Each token's position (vocabulary,) along a lab's direction, in standard deviations over
    MiniLM's words.

    The direction is drawn at random in MiniLM's space and then made orthogonal to the directions in
    which word frequency and valence vary, so that a taste is neither of them in disguise. It
    depends on the seed alone: the same word has the same taste on both bases.
    """
    rows = {
        word: row
        for row, word in enumerate(minilm.load_vocabulary())
        if zipf(word) >= 3 and word.isalpha() and len(word) > 2
    }
    words = list(rows)
    meanings = minilm.load_embeddings()[list(rows.values())].astype(np.float64)  # (words, 384)
    centre = meanings.mean(axis=0)
    direction = np.random.default_rng(seed).standard_normal(minilm.DIMENSIONS)
    valence = load_valence()
    confounds = np.array([[zipf(word), valence.get(word, 0.0)] for word in words])  # (words, 2)
    covariances = (meanings - centre).T @ (confounds - confounds.mean(axis=0))  # (384, 2)
    basis, _ = np.linalg.qr(covariances)
    direction -= basis @ (basis.T @ direction)
    scale = ((meanings - centre) @ direction).std()
    return (base.meanings - centre) @ direction / scale
