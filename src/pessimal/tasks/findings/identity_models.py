"""Identity terms model by model: each model's words matched and measured.

Knows a model's rewards and the analysis; says nothing (see `identity` for what is said).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pandas as pd

from pessimal.analysis.identity import IdentityMatches, identity_effects, match_identity
from pessimal.analysis.matching import balance
from pessimal.analysis.words import by_word, word_starts
from pessimal.config.schema import CompareConfig
from pessimal.errors import TableError
from pessimal.tasks.findings.group import Group
from pessimal.tasks.findings.model_words import Asked, LeftOut, ModelWords, asked_in, models_in
from pessimal.tasks.findings.sources import Sources

EXCHANGES = 2000
"""Random exchanges behind p_words, which is not the p that decides: more would cost more than they tell."""

Vocabulary = tuple[pd.Index, pd.DataFrame, IdentityMatches]
"""A vocabulary's texts, the covariates of its words, and its matches."""


@dataclass
class Found:
    """What was found for the models, and why nothing was for others."""

    asked: Asked
    effects: list[pd.DataFrame] = field(default_factory=list)
    terms: list[pd.DataFrame] = field(default_factory=list)
    balance: list[pd.DataFrame] = field(default_factory=list)
    labels: dict[str, str] = field(default_factory=dict)
    left_out: list[LeftOut] = field(default_factory=list)

    @property
    def present(self) -> set[str]:
        """Terms that have controls in some model's vocabulary."""
        return {term for piece in self.terms for term in piece["term"]}


def measured(members: Mapping[str, Group], config: CompareConfig, sources: Sources) -> Found:
    """Every model's effects, terms and balance, in order of name."""
    found = Found(asked_in(members, config))
    models, found.left_out = models_in(members, found.asked, config)
    axes = {name: words_of(axis.terms) for name, axis in config.identity.items()}
    vocabularies: list[Vocabulary] = []
    for model in models:
        try:
            _measure(model, found, vocabularies, axes, config, sources)
        except TableError as error:
            found.left_out.append(LeftOut(model.label, "", str(error)))
    return found


def words_of(terms: Sequence[str]) -> list[str]:
    """Terms as vocabularies are read: without outer white space, in lower case, each once."""
    return list(dict.fromkeys(term.strip().lower() for term in terms))


def _measure(
    model: ModelWords,
    found: Found,
    vocabularies: list[Vocabulary],
    axes: Mapping[str, Sequence[str]],
    config: CompareConfig,
    sources: Sources,
) -> None:
    pair = found.asked.pair or (None, None)
    if missing := [name for name in pair if name is not None and name not in model.tokens]:
        raise TableError(f"without {' and '.join(missing)} it has no opposite frames; the other models have")
    covariates, matches = _matched(model.tokens.index, vocabularies, axes, sources)
    effects = identity_effects(
        by_word(model.tokens),
        matches,
        positive=pair[0],
        negative=pair[1],
        confidence=config.confidence,
        permutations=min(config.permutations, EXCHANGES),
        seed=config.seed,
    )
    found.effects.append(effects.axes.assign(model=model.model))
    found.terms.append(effects.terms.assign(model=model.model))
    found.balance.append(balance(matches.controls, covariates).assign(model=model.model))
    found.labels[model.model] = model.label


def _matched(
    texts: pd.Index,
    vocabularies: list[Vocabulary],
    axes: Mapping[str, Sequence[str]],
    sources: Sources,
) -> tuple[pd.DataFrame, IdentityMatches]:
    """Covariates and matches of a vocabulary; models of one vocabulary share them, as rewards play no part."""
    for known, covariates, matches in vocabularies:
        if known.equals(texts):
            return covariates, matches
    words = word_starts(texts)
    covariates = sources.frequencies.zipf(words).to_frame("zipf")
    for name, lexicon in sources.lexicons.items():
        covariates[name] = lexicon.reindex(words)
    matches = match_identity(axes, covariates)
    vocabularies.append((texts, covariates, matches))
    return covariates, matches
