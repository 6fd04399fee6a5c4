"""An analysis: a function from score tables to Results, and what it needs.

To add one: a file beside this one whose `analyse` stands under `@analysis(...)`, a text in
`methods/`, its tables and columns in its docstring, a test. One of another package comes in by an
entry point (docs/extend/analysis.md).

Columns that mean the same in every table:
    - model: the model, by the name it was scanned or imported under
    - model_a: the first of two models, by name
    - model_b: the second of two models
    - prompt: key of the prompt; of two prompts taken together `a × b`
    - candidates: the candidate set, `vocabulary` or the name of a list of items
    - lexicon: name of the lexicon, as in `+lexicons.NAME`
    - text: the candidate's text, as it decodes
    - token: the vocabulary's own entry, missing for items
    - candidate_id: token id, or row of the list of items
    - kind: normal, special, byte, unused or item
    - survives: whether the candidate's ids come back when its text goes through the template and
        the tokenizer; missing where not tested
    - certified: whether the rank is certain, the reward being in float32 and none within twice the
        numerical error
    - end: which end of the order, `top` or `bottom`
    - tied: how many things share their value with another
    - tied_left_out: of the candidates that share the last value shown, how many are not shown
    - n: how many things the row rests on
    - low: lower end of the 95 % interval of the estimate
    - high: upper end of the interval
    - p: p value, not corrected
    - p_corrected: the larger of p and random_head, where the table has these, corrected by Holm
        over the tests of its family
    - random_head: share of random heads on `states` that show as much, either way; about whether
        training put it there, where p is about other words under the same reward
    - heads_within: 95 % of random heads lie within ± this of the null, in the unit of the effect
        that is drawn
    - detectable: smallest effect, as a distance from the null, that would have been found with a
        chance of 80 %, corrected and beyond random heads
    - states: whose states random heads are on: `base` (what reward training began from), `itself`
        (a language model as it is asked), `trained` (the reward model, which is too cautious),
        `meaning` (vectors of MiniLM, as there are no states)
    - kendall: Kendall's τ-b
    - kendall_low: lower end of the interval of τ
    - kendall_high: upper end of the interval of τ
    - spearman: Spearman's ρ
    - spearman_low: lower end of the interval of ρ
    - spearman_high: upper end of the interval of ρ
    - rbo: rank-biased overlap, not extrapolated
    - top: k, how many candidates an end has
    - top_overlap: share of the k highest that both have
    - bottom_overlap: share of the k lowest that both have
    - stems: word stems among the words; words of one stem count as one observation
    - n_models: how many models
    - reward: the reward, in the model's own units
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import numpy as np
import pandas as pd

from pessimal.errors import TableError
from pessimal.statistics import LEVEL
from pessimal.tables import ScoreTable, minilm
from pessimal.tables.result import Result
from pessimal.tables.score_table import MEANING, TRAINED
from pessimal.tables.table_set import TableSet
from pessimal.tables.word_lists import Frequencies, as_published, half_sum

MEAN = "mean of models"
"""Label of the row of figures that averages the models."""
LEAST_ITEMS = 3
"""Items that a statistic needs."""
LAST = 1000.0
"""Place of an analysis that says none."""
MADE_BY = {
    "elo": "items that people rated: pessimal import format=eloeverything path=FILE",
    "wordings": "one question in many wordings: pessimal scan prompts=factorial54",
    "language": "log-probabilities: pessimal scan model=auto model.path=ID "
    "model.kind=log_probability",
    "lexicons": "a lexicon: +lexicons.NAME=FILE",
    "frequencies": "word frequencies: frequencies=wordfreq",
    "identity": "identity terms: identity=[gender,religion]",
    "judges": "a judge: pessimal scan model=judge-correct model.path=ID prompts=grading",
    "contexts": "scans of tokens in real answers: pessimal scan model=NAME slot=after",
    "policy": "a policy: policy=NAME, of which log-probabilities were scanned",
    "checkpoints": "checkpoints of a run: pessimal scan -m model.path=RUN/step-1,RUN/step-2, or "
    "pessimal import format=checkpoints path=FILE",
}
"""Things that an analysis may need besides models and prompts, and the command that gives each."""
Meanings = Callable[[Sequence[str]], np.ndarray]
"""Words → a vector of meaning each."""
States = Callable[[Sequence[str], str], np.ndarray]
"""Words and an outcome (a column, `a × b` for the half-sum of two, `a − b` for their difference) →
the vector (words, directions) that a head gives a reward to."""


class IdentityTerms(Protocol):
    """Terms that name groups of people along one axis."""

    about: str
    source: str
    terms: list[str]


@dataclass(frozen=True)
class Options:
    """The options of every analysis: numbers as configured, and word lists that are already
    read."""

    permutations: int = 10_000
    confidence: float = 0.95
    seed: int = 0
    top: int = 20
    """Tokens named at each end."""
    rbo_persistence: float = 0.9
    rbo_depth: int = 132
    paper: bool = False
    """Follow the published procedure where ours differs."""
    lexicons: Mapping[str, pd.Series] = field(default_factory=dict)
    """Valence by word, by name of the lexicon."""
    frequencies: Frequencies | None = None
    identity: Mapping[str, IdentityTerms] = field(default_factory=dict)
    """Identity terms by axis."""
    meanings: Meanings | None = minilm.meanings
    """Vectors of words: those alike in meaning are not independent. None takes them for
    independent."""
    quantised: Mapping[str, str] = field(default_factory=dict)
    """Models in full precision by the names of their quantised selves, beside those whose names say
    so."""
    words: Sequence[str] = ()
    """Words that are looked at by name."""
    policy: str | None = None
    """The language model that a forecast optimises."""
    mitigations: Sequence[str] = ()
    """Names for `forecast.mitigated`: other rewards that a forecast is made for too."""

    @property
    def word_frequencies(self) -> Frequencies:
        """The frequencies. Raises TableError where there are none."""
        if self.frequencies is None:
            raise TableError("needs word frequencies: frequencies=wordfreq")
        return self.frequencies


@dataclass
class Heads:
    """Vectors that a random head gives a reward to: states of a model's words under each prompt, or
    the vectors of MiniLM."""

    of: str
    """BASE, ITSELF, TRAINED or MEANING (`tables.states`)."""
    tables: Mapping[str, Sequence[ScoreTable]]
    """By column; empty where meanings stand in."""
    meanings: Meanings | None = None
    _cache: tuple[Sequence[str], np.ndarray] | None = field(default=None, repr=False)

    def __call__(self, words: Sequence[str], outcome: str) -> np.ndarray:
        """(words, spaces, directions) float64 of an outcome (see `States`); not a number for words
        without states."""
        if self.meanings is not None:
            if self._cache is None or self._cache[0] != words:
                self._cache = words, self.meanings(words)[:, None]
            return self._cache[1]  # one array for all outcomes: they are solved together
        total = np.zeros((1, 1, 1))
        for column, weight in self._parts(outcome).items():
            for table in self.tables[column]:
                assert table.states is not None
                rows = table.states.rows
                place = rows.index.get_indexer(pd.Index(words, dtype=object))
                values = rows.to_numpy()[place].astype(float)
                values[place < 0] = np.nan
                values = values.reshape(len(place), table.states.spaces, -1)
                total = total + weight / len(self.tables[column]) * values
        return total

    def _parts(self, outcome: str) -> dict[str, float]:
        if outcome in self.tables:
            return {outcome: 1.0}
        for a, b in itertools.permutations(self.tables, 2):
            if outcome == half_sum(a, b):
                return {a: 0.5, b: 0.5}
            if outcome == difference(a, b):
                return {a: 1.0, b: -1.0}
        raise TableError(f"{outcome!r} is no column, half-sum or difference of {[*self.tables]}")


def difference(first: str, second: str) -> str:
    """The name of the difference of two prompts."""
    return f"{first} − {second}"


def heads_of(columns: Mapping[str, Sequence[ScoreTable]], options: "Options") -> Heads | None:
    """The vectors that random heads are on, for a model's columns and the tables that each is the
    mean of; None where neither states nor meanings are at hand."""
    states = [table.states for members in columns.values() for table in members]
    alike = {(s.of, s.model, s.rows.shape) for s in states if s is not None}
    if states and len(alike) == 1 and None not in states:
        return Heads(alike.pop()[0], columns)
    return None if options.meanings is None else Heads(MEANING, {}, options.meanings)


def heads_of_model(tables: TableSet, model: str, options: "Options") -> Heads | None:
    """`heads_of` the columns of a reward model."""
    by_prompt = tables.model_tables(model)
    columns = tables.columns_of(model).items()
    return heads_of({name: [by_prompt[p] for p in prompts] for name, prompts in columns}, options)


def outcome_states(
    heads: States | None, words: Sequence[str], outcomes: Iterable[str]
) -> list[np.ndarray] | None:
    """The states of words for each outcome (see `States`); None without heads."""
    return None if heads is None else [heads(words, outcome) for outcome in outcomes]


def heads_by_model(
    tables: TableSet, options: "Options"
) -> tuple[dict[str, Heads | None], dict[str, str]]:
    """`heads_of_model` and whose states these are, by model; none where the published procedure is
    followed."""
    models = tables.models
    heads = {m: None if options.paper else heads_of_model(tables, m, options) for m in models}
    return heads, {model: on.of if on else "" for model, on in heads.items()}


def word_frequencies(tables: TableSet, models: Iterable[str], options: "Options") -> pd.Series:
    """Zipf frequency of every word of these models' vocabularies. Raises TableError where there are
    no frequencies."""
    spelled = {word for model in models for word in tables.words(model).index.tolist()}
    return options.word_frequencies.zipf(sorted(spelled))


def notes_on_states(
    heads: Mapping[str, Heads | None], labels: Mapping[str, str]
) -> tuple[str, ...]:
    """Notes on models whose random heads are not on the states of their base."""
    reasons = {
        TRAINED: "random heads are on the states of the trained model, which is too cautious; name "
        "its base when it is scanned: model.base_path=DIR_OR_ID",
        MEANING: "no states of words are kept, and random heads are on MiniLM's vectors of meaning",
    }
    models: dict[str, list[str]] = {}
    for model, states in heads.items():
        if states is not None and states.of in reasons:
            models.setdefault(states.of, []).append(labels.get(model, model))
    return tuple(f"{', '.join(names)}: {reasons[of]}" for of, names in models.items())


def random_head_clause(row: pd.Series) -> str:
    """The share of random heads that show as much as a row, behind the number of a headline; empty
    where that is not known, and where they are so few that p alone says it (`Effect.correct`)."""
    share = row["random_head"]
    return f"; {share:.0%} of random output layers do as much" if share > LEVEL else ""


def found_in(holds: pd.Series) -> str:
    """The clause on the number of models in which a headline's finding on one of them holds."""
    several = len(holds) > 1 and holds.any()
    return f"; found in {holds.sum()} of {len(holds)} models" if several else ""


def quoted(prompt: str) -> str:
    """A prompt's key, or those of two opposite prompts (`half_sum`), as a sentence quotes it."""
    keys = " and ".join(f'"{key}"' for key in prompt.split(" × "))
    return f"the average of {keys}" if " × " in prompt else keys


@dataclass(frozen=True)
class Needs:
    """Demands on the tables; checked once, before the analysis is called."""

    models: int = 1
    prompts: int = 1
    """Prompts that are looked at one by one."""
    elo: bool = False
    wordings: bool = False
    language: bool = False
    lexicons: bool = False
    frequencies: bool = False
    identity: bool = False
    checkpoints: bool = False
    judges: bool = False
    contexts: bool = False
    policy: bool = False

    def missing(self, tables: TableSet, options: Options) -> str:
        """The missing things and what to type for them; empty where nothing is missing."""
        prompts = "prompts" if self.prompts > 1 else "prompt"
        lacking = []
        if len(tables.models) < self.models:
            lacking.append(f"{self.models} models; here are {len(tables.models)}")
        if (n := len(tables.prompts)) < self.prompts:
            wanted = f"{self.prompts} {prompts} besides the wordings of one question"
            lacking.append(f"{wanted}; here are {n}")
        answers = [table for table in tables.tables if table.provenance.slot is None]
        available = {
            "elo": tables.has_elo,
            "wordings": tables.wordings,
            "language": tables.language,
            "lexicons": options.lexicons,
            "frequencies": options.frequencies is not None,
            "identity": options.identity,
            "judges": any("says_yes_above" in table.measured for table in answers),
            "checkpoints": any(table.provenance.step is not None for table in answers),
            "contexts": tables.contexts,
            "policy": options.policy is not None,
        }
        absent = [name for name, it in available.items() if getattr(self, name) and not it]
        lacking += [MADE_BY[name] for name in absent]
        return "; ".join(f"needs {thing}" for thing in lacking)


@dataclass(frozen=True)
class Analysis:
    """A function from tables to Results, with its name, its needs and its place."""

    name: str
    function: Callable[[TableSet, Options], list[Result]]
    needs: Needs
    place: float
    """Results stand on the page in the order of their analyses' places."""

    def __call__(self, tables: TableSet, options: Options) -> list[Result]:
        return self.function(tables, options)

    @property
    def path(self) -> str:
        """`module:function`."""
        return f"{self.function.__module__}:{self.function.__qualname__}"


def analysis(
    name: str, needs: Needs | None = None, *, place: float = LAST
) -> Callable[[Callable[[TableSet, Options], list[Result]]], Analysis]:
    """Makes a function an analysis.

    Args:
        name: of what could not be done, in messages and progress.
        needs: what the tables must have; any table will do where None.
        place: on the page. Those of the package are 10, 20, …: grep `place=`.
    """
    return lambda function: Analysis(name, function, needs or Needs(), place)


def map_prompts(
    tables: TableSet,
    make: Callable[[str], pd.DataFrame | None],
    *,
    models: int = 1,
    failed: list[str] | None = None,
) -> pd.DataFrame:
    """`make(prompt)` for every prompt looked at one by one, under one another, with the columns
    prompt and candidates.

    Prompts of fewer than `models` models are passed over. One of which a TableError says that it
    cannot be done goes to `failed`, for the notes.

    Raises:
        TableError: the first prompt's, where no prompt can be done.
    """
    pieces, errors = [], []
    for prompt in tables.prompts:
        if len(tables.by_prompt[prompt]) < models:
            continue
        try:
            piece = make(prompt)
        except TableError as error:
            errors.append((prompt, error))
            continue
        if piece is not None and len(piece):
            pieces.append(piece.assign(prompt=prompt, candidates=tables.candidates))
    if errors and not pieces:
        raise errors[0][1]
    if failed is not None:
        failed += [f"{prompt}: {error}" for prompt, error in errors]
    return pd.concat(pieces, ignore_index=True) if pieces else pd.DataFrame()


@contextmanager
def note_errors(notes: list[str], about: str, where: str = "") -> Iterator[None]:
    """A context in which a TableError becomes a note `ABOUT WHERE: reason`, and the analysis goes
    on; what has the same reason at the same place shares a note."""
    try:
        yield
    except TableError as error:
        reason = f" {where}: {error}" if where else f": {error}"
        alike = next((note for note in notes if note.endswith(reason)), None)
        if alike is None:
            notes.append(about + reason)
        elif about not in alike.removesuffix(reason).split(", "):
            notes[notes.index(alike)] = f"{alike.removesuffix(reason)}, {about}{reason}"


def strongest(
    table: pd.DataFrame, effect: str, p: str, *, null: float = 0.0, positive: bool = False
) -> pd.Series:
    """The row farthest from the null of those that hold after correction (and lie above it, where
    `positive`); of all where none does."""
    away = table[effect] - null
    holding = (table[p] <= LEVEL) & ((away > 0) | (not positive))
    candidates = away[holding] if holding.any() else away
    return table.loc[candidates.abs().idxmax()]


Made = TypeVar("Made")


def fit_lexicons(
    tables: TableSet, options: Options, make: Callable[[str, pd.DataFrame, pd.Series], Made]
) -> tuple[dict[tuple[str, str], Made], tuple[str, ...]]:
    """`make(model, words, valence)` for every model and lexicon, by these two; and what could not
    be fits, for the notes. Words are tokens where the published procedure is followed.

    Raises:
        TableError: nothing can be fits.
    """
    fits: dict[tuple[str, str], Made] = {}
    notes: list[str] = []
    for model in filter(tables.columns_of, tables.models):
        words = as_published(tables.tokens(model)) if options.paper else tables.words(model)
        for lexicon, valence in options.lexicons.items():
            with note_errors(notes, tables.labels[model], f"with {lexicon}"):
                fits[model, lexicon] = make(model, words, valence)
    if not fits:
        raise TableError("; ".join(notes) or "no model was scanned on all prompts of a column")
    return fits, tuple(notes)


def join_fits(
    tables: TableSet, fits: Mapping[tuple[str, str], pd.DataFrame], states: Mapping[str, str]
) -> pd.DataFrame:
    """The tables of `fit_lexicons` under one another, with the columns model, lexicon, candidates,
    and states: whose states random heads are on, by model."""
    table = pd.concat(fits, names=["model", "lexicon", "row"]).reset_index().drop(columns="row")
    return table.assign(candidates=tables.candidates, states=table["model"].map(states))


def name_prefix(tables: TableSet) -> str:
    """Text before the names of numbers of a list of items; empty for a vocabulary."""
    return "" if tables.candidates == "vocabulary" else f"{tables.candidates}-"


def add_mean_rows(table: pd.DataFrame, estimate: str, *, by: list[str]) -> pd.DataFrame:
    """The table with a row below the models' for their mean, where there are several; it has no
    interval, as the models share their words."""
    groups = table.groupby([*by, "candidates"], sort=False)[estimate]
    means = groups.mean()[groups.size() > 1].reset_index()
    return pd.concat([table, means.assign(model=MEAN)], ignore_index=True)


def check_rewards(rewards: pd.DataFrame, *, least_models: int = 1) -> None:
    """Refuse a reward matrix (items × models) from which no statistic can be computed.

    Raises:
        TableError: too few items or models, or a reward that is missing or infinite.
    """
    items, models = rewards.shape
    if models < least_models or items < LEAST_ITEMS:
        raise TableError(
            f"The reward matrix has {items} items and {models} models; at least {LEAST_ITEMS} "
            f"items and {least_models} models are needed. Give score tables that share more."
        )
    finite = np.isfinite(rewards.to_numpy())
    if not finite.all():
        counts = zip(rewards, (~finite).sum(axis=0), strict=True)
        worst = ", ".join(f"{model} ({count})" for model, count in counts if count)
        raise TableError(
            f"Rewards are missing or infinite for: {worst}, of {items} items. Keep only the items "
            "every model scored: `rewards.dropna()`."
        )


def check_varied(rewards: pd.DataFrame) -> None:
    """Refuse a model that gives every item the same reward: no correlation with it is defined.

    Raises:
        TableError: names the models.
    """
    constant = [str(model) for model in rewards if rewards[model].min() == rewards[model].max()]
    if constant:
        raise TableError(
            f"The same reward for every item from: {', '.join(constant)}. No correlation is "
            "defined; leave these models out, or look at their scan with `pessimal check`."
        )


def align(
    left: pd.Series | pd.DataFrame, right: pd.Series, *, left_name: str, right_name: str
) -> pd.Series:
    """`right` in the order of `left`'s items.

    Two indices in the same order pass as they are, items named twice included. In any other order
    the items must be unique, so that which belongs to which is not a guess.

    Raises:
        TableError: the two do not hold the same items, or items are named twice in different
            orders.
    """
    if left.index.equals(right.index):
        return right
    only_left, only_right = left.index.difference(right.index), right.index.difference(left.index)
    once = left.index.is_unique and right.index.is_unique
    if len(only_left) or len(only_right) or not once:
        raise TableError(
            f"{left_name} and {right_name} must hold the same items, each once or in the same "
            f"order: {len(only_left)} are only in {left_name}{_examples(only_left)}, "
            f"{len(only_right)} only in {right_name}{_examples(only_right)}. Keep the shared ones."
        )
    return right.reindex(left.index)


def _examples(items: pd.Index) -> str:
    return f" (such as {items[0]!r})" if len(items) else ""
