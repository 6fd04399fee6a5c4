"""The results that the verdicts of an audit rest on, collected part by part: a part that a reward
does not allow leaves the others standing; and how much of it fits into a budget, reckoned
before."""

import contextlib
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from pessimal.analyses.identity_terms import MATCHED
from pessimal.auditing.verdicts import Verdict, answer_step, main_measure
from pessimal.errors import TableError, UserError
from pessimal.plots import Forest
from pessimal.scoring.trust import SAMPLE, noise_sample
from pessimal.tables.result import Effect, Result
from pessimal.tables.score_table import ScoreTable
from pessimal.texts import literal

log = logging.getLogger(__name__)


@dataclass
class Evidence:
    """Results of the other verbs, and what could not be measured."""

    results: list[Result] = field(default_factory=list)
    left_out: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Reason, and the command that would measure it, by check that was not measured."""
    scope: dict[str, str] = field(default_factory=dict)
    """The inputs of each part, in words."""
    tables: list[ScoreTable] = field(default_factory=list)
    """Score tables of the prompts."""
    inputs: list[str] = field(default_factory=list)
    """References of the input artifacts."""
    skipped: dict[str, str] = field(default_factory=dict)

    @property
    def results_by_name(self) -> dict[str, Result]:
        """The results by name."""
        return {result.name: result for result in self.results}

    @contextlib.contextmanager
    def measure(self, *checks: str) -> Iterator[None]:
        """A part that this reward may not allow, such as answers longer than it reads: its checks
        are then not measured, and the others stay."""
        try:
            yield
        except UserError as error:
            log.warning("%s: not measured: %s", ", ".join(checks), error)
            self.left_out |= dict.fromkeys(checks, (str(error), ""))


WORDS = 10
"""Words or tokens in a figure, the best first."""
FIELDS = {
    "one_word": ("text", "least", "lowest reward over the prompts (SD above the mean token)"),
    "preferences": ("category", "accuracy", "share of pairs ranked as labelled (solid: chance)"),
    "identity": ("axis", "d", f"words for groups less {MATCHED} (SD)"),
    "additions": ("text", "effect", "added to the reward of real answers (SD of their rewards)"),
}
"""By result that decides a check: the columns of rows and of numbers, and the name of the axis."""


def draw_limits(results: Sequence[Result], checks: Sequence[Verdict]) -> list[Result]:
    """The results, those that decide a check with a figure of its number and its limit; without the
    map of identity terms by axis, as the figure has these."""
    by_name, plots = {result.name: result for result in results}, {}
    for name, limit in ((check.result, check.threshold.limit) for check in checks):
        if name in FIELDS:
            rows, at_limit = _rows(name, by_name, limit)
            columns = zip(("row", "estimate", "xlabel"), FIELDS[name], strict=True)
            fields: dict[str, Any] = dict(columns)
            p = "p_corrected" if "p_corrected" in rows else None
            fields |= {"p": p, "data": rows, "limit": at_limit, "tabs": ()}
            plots[name] = Forest(reference=0.5 * (name == "preferences"), **fields)
    slopes = by_name.get("frequency")
    if slopes and slopes.estimate and isinstance(plot := slopes.plot, Forest):
        # Only the row of the headline, by which the verdict goes.
        rows = slopes.table[slopes.table["slope_sd"] == slopes.estimate.value]
        names: dict[str, Any] = {"row": "prompt", "group": None, "panel": None, "where": {}}
        plots["frequency"] = replace(plot, data=rows, **names)
    rest = [result for result in results if result.name != "identity_axes"]
    return [replace(result, plot=plots.get(result.name, result.plot)) for result in rest]


def _rows(
    name: str, results: Mapping[str, Result], limit: float | None
) -> tuple[pd.DataFrame, float | None]:
    """The rows of a figure, and the limit in the unit of its axis."""
    table = results[name].table
    if name == "identity":
        rows = main_measure(table)
        ends = {end: rows[end] / rows["reward_sd"] for end in ("low", "high")}
        return rows.assign(**ends), limit
    if limit is None or name == "preferences":
        return table, limit
    if name == "additions":
        spread = results["additions_halves"].table["sd"].iloc[0]
        step, _ = answer_step(results.get("preferences"), spread)
        ordinary = table[table["kind"].isin(("normal", "item")) & ~table["end_of_turn"]]
        return ordinary.sort_values("low", ascending=False, kind="stable").head(WORDS), limit * step
    # The best word may stand as many expected gaps above the next as the limit says.
    (best, runner_up), gaps = table["least"].iloc[:2], table["ahead"].iloc[0]
    at_limit = runner_up + limit * (best - runner_up) / gaps if gaps else None
    words = table[["text", "least"]].head(WORDS)
    return words.assign(text=words["text"].str.strip()), at_limit


TAIL = 50
"""Words behind the best one whose distances say how fast the tail falls off."""
SHOWN = 20
CONFIDENCE = 0.95


def least_scores(tables: Sequence[ScoreTable]) -> pd.DataFrame:
    """Words of one model by the reward that they have on every prompt at least, the best first.

    Args:
        tables: one a prompt, of the same candidates.

    Returns:
        word (lower case, bare), text (the spelling that counts), least: standard deviations above
        the mean of all ordinary tokens, on the prompt where that is least. Of the spellings of a
        word the best counts.

    Raises:
        TableError: the tables have fewer words than a tail needs, or rewards that do not differ.
    """
    first = tables[0].rows.set_index("candidate_id")
    ordinary = first.index[first["kind"].isin(("normal", "item"))]
    columns = [t.rows.set_index("candidate_id")["reward"].reindex(ordinary) for t in tables]
    rewards = np.column_stack([column.to_numpy(dtype=float) for column in columns])  # (t, prompts)
    spread = rewards.std(axis=0)
    if not (spread > 0).all():  # not a number, too
        raise TableError("the rewards of all tokens are the same, or some are missing")
    lowest = ((rewards - rewards.mean(axis=0)) / spread).min(axis=1)
    texts = first.loc[ordinary, "text"]
    words = texts.str.strip().str.casefold()
    table = pd.DataFrame({"word": words.to_numpy(), "text": texts.to_numpy(), "least": lowest})
    table = table[table["word"] != ""].sort_values("least", ascending=False, kind="stable")
    table = table.drop_duplicates("word", ignore_index=True)
    if len(table) < TAIL + 2:
        raise TableError(f"{len(table)} words; a tail needs {TAIL + 2}")
    return table


def one_word(tables: Sequence[ScoreTable], *, of: int | None = None) -> Result:
    """The lead of the best word over the next one, in mean steps of the tail behind it.

    Args:
        tables: one a prompt, of the same candidates.
        of: tokens of the whole vocabulary, where not all may have been scanned.

    Behind a threshold, distances between neighbours of an exponential tail, times their rank, are
    independent and exponential: the first over the mean of the next `TAIL` has an F distribution
    with 2 and 2 × TAIL degrees of freedom. The interval is for the tail's mean step.

    Raises:
        TableError: see `least_scores`.

    Source: Sukhatme 1937; Weissman 1978.
    """
    words = least_scores(tables)
    minima = words["least"].to_numpy()[: TAIL + 2]
    steps = -np.diff(minima) * np.arange(1, len(minima))
    mean, df = steps[1:].mean(), 2 * TAIL
    if not mean > 0:
        raise TableError("the best words have the same reward: there is no tail to compare with")
    ahead = steps[0] / mean
    ends = [stats.chi2.ppf(q, df) / df for q in ((1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2)]
    table = words.head(SHOWN).assign(rank=range(1, min(SHOWN, len(words)) + 1))
    numbers = {"ahead": ahead, "low": ahead * ends[0], "high": ahead * ends[1]}
    first = pd.DataFrame(numbers | {"p": stats.f.sf(ahead, 2, df)}, index=table.index[:1])
    table = table.join(first)  # of the first row alone
    table = table.assign(n=len(words), prompts=", ".join(t.provenance.prompt for t in tables))
    best, runner_up = (literal(text.strip()) for text in words["text"].iloc[:2])
    top = all(_is_top(table, words["word"].iloc[0]) for table in tables)
    on = "on every prompt" if len(tables) > 1 else f'on "{tables[0].provenance.prompt}"'
    effect = Effect(
        *("ahead", "gap to the next word, over the expected gap", "low", "high", "p"),
        null=1.0,
        of="words",
    )
    place = f'By the lowest score of each word over the prompts "{best}" is best'
    place = f'"{best}" is the top word {on}' if top else place
    headline = f'{place}. Its lead over the next, "{runner_up}", is {ahead:.1f} times what the '
    headline += "spacing of the words behind them predicts"
    if not (whole := of is None or len(tables[0].rows) >= of):
        headline += f"; {of - len(tables[0].rows):,} tokens were not scanned"
    return Result.of_row(
        *(table.iloc[0], "one_word", table, effect, f"{headline}."),
        method="one_word",
        share=0.1,
        summary={"one_word/whole": whole},
    )


def _is_top(table: ScoreTable, word: str) -> bool:
    """Whether a spelling of this word has the highest reward of all ordinary tokens of a table."""
    rows = table.rows[table.rows["kind"].isin(("normal", "item"))]
    return bool(rows.loc[rows["reward"].idxmax(), "text"].strip().casefold() == word)


# --- How much fits into a budget.


SAMPLES, SCANS = (64, 16, 8), (None, 20_000, 5_000, 2_000)
ADDITIONS = (*SCANS, 500)
"""Tokens that are checked, scanned and added to real answers, the most first (None: all)."""
PAIRS, MIN_EVALUATIONS = (None, 500, 200, 100, 50), 2_000
"""Labelled pairs that are asked, the most first (None: all); evaluations of the smallest search."""
CHECK_PASSES = 12
"""Times that a check runs whole inputs, in batches or one by one; loading is reckoned with it."""
SCAN_PASSES = 2
"""Whole inputs that a scan runs for each of its sample before the first token: the trust check and
a judge's answers; of many tokens those of the numerical error come on top."""
POLICY_TEXTS = 50_000
"""Texts that a policy's vocabulary is reckoned as."""
ANALYSIS_SECONDS, PAGE_SECONDS = 4e-4, 8.0
"""Measured seconds that analyses take per scanned token and prompt; figures and the page."""
NEEDS = {
    "check": ("read",),
    "pairs": ("prefers",),
    "scan": ("one_word", "frequency", "identity"),
    "additions": ("additions",),
    "push": ("push",),
    "forecast": ("forecast",),
}
"""Checks and facts that a part is needed for, in the order in which parts are served from the
budget: the core checks first."""
SHARES = (0.1, 0.4, 0.6, 0.8, 0.9, 1.0)
"""Share of the time left that each part may take."""


@dataclass(frozen=True)
class Work:
    """The request of an audit."""

    prompts: int
    pairs: int
    """Labelled pairs."""
    n_contexts: int
    """Real answers that tokens are added to."""
    vocabulary: int
    """Tokens or words that can be scanned."""
    length: int
    """Tokens of a searched response."""
    evaluations: int
    """Most evaluations of the search."""
    policy: bool = False
    """Whether optimising the reward is forecast for a policy."""


@dataclass(frozen=True)
class Scope:
    """The sizes of an audit's parts that fit into its budget."""

    sizes: dict[str, Any]
    """Tokens that are checked, pairs, tokens that are scanned on each prompt (and whether states of
    words are kept) and added to real answers (None for all); evaluations of the search; whether a
    policy is forecast; 0 for what does not fit."""
    seconds: dict[str, float]
    """Seconds of each part, or of the smallest size of it where it does not fit."""


def fit_budget(
    work: Work,
    budget: float,
    *,
    rate: float,
    whole: float,
    scans: Iterable[int | None] | None = None,
    is_scanned: bool = False,
    is_network: bool = True,
) -> Scope:
    """The sizes that fit into the budget; parts are served in the order of `NEEDS`.

    Args:
        work: what is asked.
        budget: seconds.
        rate: single tokens per second.
        whole: seconds of a whole input.
        scans: how many tokens may be scanned (None for all), the most first, if not SCANS.
        is_scanned: whether the registry has the scans of the whole vocabulary.
        is_network: whether it has states, which take a second forward, and can be searched.
    """

    def sizes_of(choices: Iterable[int | None], largest: int) -> dict[int | None, float]:
        sizes = dict.fromkeys(n if n and n < largest else None for n in choices)
        return {n: float(n or largest) for n in sizes}

    def setup(size: float) -> float:
        """Seconds of one scan before its first token."""
        n = noise_sample(int(size))
        return is_network * (SCAN_PASSES * SAMPLE + (n if n > SAMPLE else 0)) * whole

    prompts, searches = work.prompts, sorted({work.evaluations, MIN_EVALUATIONS}, reverse=True)
    analysis = prompts * ANALYSIS_SECONDS
    parts: dict[str, dict[Any, float]] = {}
    pairs = sizes_of(PAIRS, work.pairs)
    parts["pairs"] = {n: 2 * size * whole for n, size in pairs.items()}
    parts["scan"] = {
        (n, states): prompts * (not is_scanned) * (setup(size) + size * (1 + states) / rate)
        + size * analysis
        for n, size in sizes_of(scans or SCANS, work.vocabulary).items()
        for states in ((True, False) if is_network and n == min(SCANS[1:]) else (is_network,))
    }
    added = sizes_of(ADDITIONS, work.vocabulary)
    parts["additions"] = {
        n: work.n_contexts * (setup(size) + size / rate) for n, size in added.items()
    }
    if is_network:
        parts["check"] = {n: CHECK_PASSES * (n + max(n // 4, 8)) * whole for n in SAMPLES}
        searches = [n for n in searches if n <= work.evaluations]
        parts["push"] = {n: n * work.length / rate for n in searches}
    if work.policy and is_network:
        parts["forecast"] = {True: POLICY_TEXTS / rate}
    left, sizes, seconds = budget, {}, {}
    for part, share in zip(NEEDS, SHARES, strict=True):
        if part not in parts:
            continue
        choices = parts[part]
        fits = [choice for choice, cost in choices.items() if cost <= share * left]
        sizes[part] = fits[0] if fits else 0
        seconds[part] = choices[fits[0]] if fits else min(choices.values())
        left -= seconds[part] if fits else 0
    return Scope(sizes, seconds)
