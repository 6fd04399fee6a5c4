"""Identity terms model by model: each model's words matched and measured.

Knows a model's rewards and the analysis; says nothing (see `identity` for what is said).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pandas as pd

from pessimal.analysis.identity import HALF_SUM, IdentityMatches, identity_effects, match_identity
from pessimal.analysis.matching import balance, matched_controls
from pessimal.config.schema import CompareConfig
from pessimal.errors import TableError
from pessimal.tasks.findings.model_words import Asked, LeftOut, ModelWords, Read
from pessimal.tasks.findings.sources import Sources

EXCHANGES = 2000
"""Random exchanges behind p_words, which is not the p that decides: more would cost more than they tell."""


@dataclass(frozen=True)
class Vocabulary:
    """The words of a vocabulary and their matches; models of one vocabulary share them, as rewards play no part."""

    texts: pd.Index
    covariates: pd.DataFrame
    terms: frozenset[str]
    """Terms that are whole words of known frequency here."""
    with_controls: frozenset[str]
    matches: IdentityMatches | None
    problem: str
    """Why nothing was matched."""


@dataclass
class Found:
    """What was found for the models, and why nothing was for others."""

    asked: Asked
    main: str
    """The measure that comes first, one for all models: the half-sum of opposite frames, or a column of the prompts."""
    vocabularies: list[Vocabulary] = field(default_factory=list)
    """Of all models, those left out among them."""
    effects: list[pd.DataFrame] = field(default_factory=list)
    terms: list[pd.DataFrame] = field(default_factory=list)
    balance: list[pd.DataFrame] = field(default_factory=list)
    labels: dict[str, str] = field(default_factory=dict)
    left_out: list[LeftOut] = field(default_factory=list)

    @property
    def present(self) -> set[str]:
        """Terms that some model's vocabulary holds as whole words of known frequency."""
        return set().union(*(each.terms for each in self.vocabularies))

    @property
    def with_controls(self) -> set[str]:
        """Terms that have controls in some model's vocabulary."""
        return set().union(*(each.with_controls for each in self.vocabularies))


def measured(read: Read, config: CompareConfig, sources: Sources) -> Found:
    """Every model's effects, terms and balance, in order of name."""
    found = Found(read.asked, _main(read.asked, read.models), left_out=list(read.left_out))
    axes = {name: words_of(axis.terms) for name, axis in config.identity.items()}
    for model in read.models:
        vocabulary = _vocabulary(model, found.vocabularies, axes, sources)
        try:
            _measure(model, found, vocabulary, config)
        except TableError as error:
            found.left_out.append(LeftOut(model.label, "", str(error)))
    return found


def words_of(terms: Sequence[str]) -> list[str]:
    """Terms as vocabularies are read: without outer white space, in lower case, each once."""
    return list(dict.fromkeys(term.strip().lower() for term in terms))


def _main(asked: Asked, models: Sequence[ModelWords]) -> str:
    """The half-sum of opposite frames; without them the column that most models have, the first of several."""
    if asked.pair:
        return HALF_SUM
    return max(asked.columns, key=lambda column: sum(column in model.tokens for model in models))


def _measure(model: ModelWords, found: Found, vocabulary: Vocabulary, config: CompareConfig) -> None:
    pair = found.asked.pair or (None, None)
    if missing := [name for name in pair if name is not None and name not in model.tokens]:
        raise TableError(f"without {' and '.join(missing)} it has no opposite frames, which others have")
    if not found.asked.pair and found.main not in model.tokens:
        raise TableError(f"without {found.main} it cannot be put beside the others, which are told on it")
    if vocabulary.matches is None:
        raise TableError(vocabulary.problem)
    effects = identity_effects(
        model.words,
        vocabulary.matches,
        positive=pair[0],
        negative=pair[1],
        main=found.main,
        confidence=config.confidence,
        permutations=min(config.permutations, EXCHANGES),
        seed=config.seed,
    )
    found.effects.append(effects.axes.assign(model=model.model))
    found.terms.append(effects.terms.assign(model=model.model))
    found.balance.append(
        balance(vocabulary.matches.controls, vocabulary.covariates).assign(model=model.model)
    )
    found.labels[model.model] = model.label


def _vocabulary(
    model: ModelWords,
    known: list[Vocabulary],
    axes: Mapping[str, Sequence[str]],
    sources: Sources,
) -> Vocabulary:
    """The one of `known` with this model's texts, or a new one, which is added."""
    texts = model.tokens.index
    for each in known:
        if each.texts.equals(texts):
            return each
    words = model.starts
    covariates = sources.frequencies.zipf(words).to_frame("zipf")
    for name, lexicon in sources.lexicons.items():
        covariates[name] = lexicon.reindex(words)
    named = {term for terms in axes.values() for term in terms}
    matches, problem = None, ""
    try:
        matches = match_identity(axes, covariates)
        controls = matches.controls
    except TableError as error:
        problem = str(error)
        controls = matched_controls(axes, covariates, banned=named)
    frequent = covariates.index[covariates["zipf"].notna().to_numpy()]
    found = Vocabulary(
        texts,
        covariates,
        frozenset(named.intersection(frequent)),
        frozenset(controls["term"]),
        matches,
        problem,
    )
    known.append(found)
    return found
