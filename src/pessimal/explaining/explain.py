"""Explains a model's preferences: every response is changed along every attribute, rewarded again,
measured, and the changes made as small and as large as they can be.

Knows a scorer, a perturber and a judge, handed in. Does not know configurations, registries or
Weights & Biases.
"""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd

from pessimal.errors import InputError, WorkError
from pessimal.explaining.analyses.flips import MOVED
from pessimal.explaining.analyses.fluency import RATIO, Perplexities
from pessimal.explaining.attribute import ANY_WAY, OVERALL, PLACEBO, Attribute, Direction
from pessimal.explaining.comparison import Comparison
from pessimal.explaining.edits.distances import locality, semantic, syntactic
from pessimal.explaining.edits.smallest import Grown, Margins, Shrunk, grow, shrink
from pessimal.explaining.outcomes import (
    CHOSEN,
    COUNTERFACTUAL,
    SEMIFACTUAL,
    Rewards,
    Scorer,
    against_polarity,
    chosen_response,
    outcomes,
    requests_for,
    reward_sd,
)
from pessimal.explaining.perturbation import Perturber, Request, Status
from pessimal.rewards.frame import Turn
from pessimal.tables.score_table import storable

CONTROLS = (PLACEBO, OVERALL)
"""Arms that are no attribute."""
NEUTRAL = Attribute(
    name=PLACEBO,
    description="It says the same in other words: spelling, punctuation and function words are "
    "changed, nothing else.",
    polarity=1,
)
NAMED = [
    "model",
    "perturber",
    "comparison",
    "response",
    "side",
    "attribute",
    "direction",
    "amount",
    "seed",
]
NAMED += ["original", "margin"]
"""Columns that name an edit in the tables of smallest and largest changes."""
Begin = Callable[[str, int | None], None]
"""Called before each part of the work, with its name and how many rewards there will be in all,
where that is known."""


@dataclass(frozen=True, kw_only=True)
class Explained:
    """An explanation before it is summarised."""

    model: str
    perturber: str  # who made the edits along attributes
    comparisons: dict[str, Comparison]  # those that the model can read, by key
    rewards: Rewards
    table: pd.DataFrame
    """Outcomes, with distances, compliance and moves where they were measured; some edit along an
    attribute came about."""
    smallest: pd.DataFrame | None
    """The least of each counterfactual that still flips; None where it was not looked for."""
    largest: pd.DataFrame | None  # the most of each response that may be changed without a flip
    too_long: Sequence[str]
    tie: float  # margins up to this are ties, in units of reward
    left_out: Mapping[str, int] = field(default_factory=dict)
    """Comparisons left out while they were read: how many by what they are ("with an empty
    text")."""
    provenance: Mapping[str, object] = field(default_factory=dict)
    """What pins the model and its path down: a row of the table `provenance`."""

    @property
    def decided(self) -> list[str]:
        """Keys of the comparisons in which the model prefers one response."""
        return [
            key
            for key, both in self.rewards.items()
            if chosen_response(both, tie=self.tie) is not None
        ]

    @property
    def undecided(self) -> list[str]:
        """Keys of the ties: no side is chosen, so they are not explained."""
        return [
            key for key, both in self.rewards.items() if chosen_response(both, tie=self.tie) is None
        ]

    @property
    def reward_sd(self) -> float:
        """Standard deviation of the rewards of all responses as they stand."""
        return reward_sd(self.rewards)

    @property
    def edits(self) -> pd.DataFrame:
        """Outcomes of the edits along attributes that came about."""
        return self.table[self.table["edited"].notna() & ~self.table["attribute"].isin(CONTROLS)]


def explain(
    scorer: Scorer,
    comparisons: Sequence[Comparison],
    attributes: Sequence[Attribute],
    perturber: Perturber,
    *,
    model: str = "model",
    judge=None,
    perplexities: Perplexities | None = None,
    measured: bool = True,
    both_ways: bool = True,
    seeds: int = 1,
    placebos: int = 4,
    overall: int = 0,
    tie: float = 0.0,
    smallest: bool = True,
    exact_hunks: int = 8,
    begin: Begin = lambda name, total: None,
) -> Explained:
    """What changes of the responses do to a model's preferences.

    Args:
        comparisons: each with a key of its own.
        attributes: along each of which both responses are changed.
        perturber: changes them; its `placebo()` makes the null.
        judge: says whether an edit did what was asked; None takes pessimal's detectors.
        perplexities: of responses under a language model, for the fluency of edits; None does not
            measure it.
        measured: also distances, what detectors saw move, and the judge's answers.
        both_ways: change each response to the better and to the worse, so that a model is found out
            that likes what polarity calls worse; else only against the preference of one that likes
            what is better.
        seeds: edits of each kind.
        placebos: edits that keep the meaning, for each response.
        overall: edits that make a response better or worse in whatever way, for each response.
        tie: margins no larger than this are ties, in units of reward.
        smallest: look for the least of each flip that still flips, and the largest change that does
            not.
        exact_hunks: of up to so many separate changes every subset is tried.

    Raises:
        InputError: no comparison is short enough for the model, or all are ties.
        ConfigError: `overall` edits of a perturber that knows only attributes.
        WorkError: no edit came about; or what the perturber raises.
    """
    begin("rewards", 2 * len(comparisons))
    by_key, rewards, too_long = _preferences(scorer, comparisons)
    _check_decided(rewards, too_long, tie=tie, model=model)
    known = [*by_key.values()]
    wanted = requests_for(known, rewards, attributes, range(seeds), tie, both_ways=both_ways)
    arms = [(perturber, wanted + requests_for(known, rewards, [ANY_WAY], range(overall), tie))]
    if (null := perturber.placebo() if placebos else None) is not None:
        arms.append((null, requests_for(known, rewards, [NEUTRAL], range(placebos), tie)))
    begin(
        "edits and their rewards", 2 * len(comparisons) + sum(len(requests) for _, requests in arms)
    )
    made = [_outcomes(scorer, model, rewards, *arm, tie=tie) for arm in arms]
    _check_edits(made[0])
    table = pd.concat(made, ignore_index=True)
    least = most = None
    if measured:
        begin("distances and judgements", None)
        table = _measured(table, by_key, attributes, judge)
        if perplexities is not None:
            begin("fluency", None)
            table[RATIO] = _perplexity_ratios(table, by_key, perplexities)
    if smallest:
        begin("smallest and largest edits", None)
        margins = _margins(scorer, by_key, rewards)
        least = smallest_flips(table, margins, tie=tie, exact_hunks=exact_hunks)
        most = largest_holds(table, margins, tie=tie)
    return Explained(
        model=model,
        perturber=perturber.name,
        comparisons=by_key,
        rewards=rewards,
        table=table,
        smallest=least,
        largest=most,
        too_long=too_long,
        tie=tie,
    )


def explain_pair(
    scorer: Scorer,
    prompt: str,
    chosen: str,
    rejected: str,
    attributes: Sequence[Attribute],
    perturber: Perturber,
    *,
    model: str = "model",
    tie: float = 0.0,
    seeds: int = 1,
) -> Explained:
    """One preference explained, in as little time as it takes: edits, flips and the smallest of
    them, nothing that needs more than one comparison. Which of the two the model prefers need not
    be the one that is called chosen. See `explain`."""
    one = [pair(prompt, chosen, rejected)]
    options = {"model": model, "seeds": seeds, "tie": tie}
    return explain(scorer, one, attributes, perturber, measured=False, placebos=0, **options)


def pair(prompt: str, chosen: str, rejected: str) -> Comparison:
    """One comparison; people's choice comes first. InputError for texts of which nothing can be
    explained."""
    prompt, chosen, rejected = map(storable, (prompt, chosen, rejected))
    for name, text in (("prompt", prompt), ("chosen", chosen), ("rejected", rejected)):
        if not text.strip():
            raise InputError(f"{name} is empty; give a prompt and two different responses")
    if chosen == rejected:
        raise InputError("chosen and rejected are the same text; give two different responses")
    return Comparison("pair", (Turn("user", prompt),), (chosen, rejected), preferred=0)


def smallest_flips(table: pd.DataFrame, margins, *, tie: float, exact_hunks: int) -> pd.DataFrame:
    """The least of each counterfactual that still flips: a row each, with the columns that name it
    in the table, and those of `Shrunk`."""
    rows = table[(table["outcome"] == COUNTERFACTUAL) & ~table["attribute"].isin(CONTROLS)]
    pairs = list(zip(rows["original"], rows["edited"], strict=True))
    return _named(rows, shrink(pairs, margins(rows), tie=tie, exact_hunks=exact_hunks), Shrunk)


def largest_holds(table: pd.DataFrame, margins, *, tie: float) -> pd.DataFrame:
    """The most of each response that may be changed with the preference as it was, begun at the
    semifactual that changes most and grown with the other edits that speak against the preference:
    a row a response, with the columns that name the semifactual, and those of `Grown`."""
    edits = table[
        table["edited"].notna() & ~table["attribute"].isin(CONTROLS) & against_polarity(table)
    ]
    starts, semifactuals = [], []
    for _, group in edits.groupby(["perturber", "comparison", "response"], sort=False):
        held = group[group["outcome"] == SEMIFACTUAL]
        if len(held):
            start = (
                held["syntactic"] if "syntactic" in held else held["edited"].str.len()
            ).idxmax()
            others = group.drop(index=start)
            starts.append(start)
            labelled = list(zip(others["attribute"], others["edited"], strict=True))
            semifactuals.append((*group.loc[start, ["original", "edited"]], labelled))
    rows = table.loc[starts]
    return _named(rows, grow(semifactuals, margins(rows), tie=tie), Grown)


def _named(rows: pd.DataFrame, found: Sequence, kind: type) -> pd.DataFrame:
    columns = pd.DataFrame(found, columns=list(kind.__dataclass_fields__))
    return pd.concat([rows[NAMED].reset_index(drop=True), columns], axis=1)


def _preferences(
    scorer: Scorer, comparisons: Sequence[Comparison]
) -> tuple[dict[str, Comparison], Rewards, tuple[str, ...]]:
    """The comparisons that the model can read and the rewards of both responses, by key; and the
    keys of those too long."""
    conversations = [one.conversation(text) for one in comparisons for text in one.responses]
    found = scorer.rewards(conversations).reshape(-1, 2)  # (comparisons, 2)
    fits = np.isfinite(found).all(axis=1)
    kept = {one.key: one for one, fit in zip(comparisons, fits, strict=True) if fit}
    rewards = {key: (float(a), float(b)) for key, (a, b) in zip(kept, found[fits], strict=True)}
    return (
        kept,
        rewards,
        tuple(one.key for one, fit in zip(comparisons, fits, strict=True) if not fit),
    )


def _check_decided(rewards: Rewards, too_long: Sequence[str], *, tie: float, model: str) -> None:
    """InputError where there is nothing to explain."""
    if not rewards:
        raise InputError(
            f"all {len(too_long)} comparisons are longer than {model!r} is made for; give shorter "
            f"ones, or another model"
        )
    largest = max(abs(a - b) for a, b in rewards.values())
    if largest <= tie:
        raise InputError(
            f"all {len(rewards)} comparisons are ties: the largest margin is {largest:.3g}, and "
            f"margins up to {tie:.3g} are "
            "ties (tie=… sets that). The model prefers no response, so there is nothing to explain"
        )


def _outcomes(
    scorer: Scorer,
    model: str,
    rewards: Rewards,
    perturber: Perturber,
    requests: Sequence[Request],
    *,
    tie: float,
) -> pd.DataFrame:
    """What one perturber's changes do; a text that has become too long for the model counts as
    failed."""
    made = list(perturber.perturb(requests))
    changed = [number for number, one in enumerate(made) if one.text is not None]
    texts = [made[number].request.comparison.conversation(made[number].text) for number in changed]
    new = dict(zip(changed, scorer.rewards(texts).tolist(), strict=True))
    for number in [number for number, reward in new.items() if np.isnan(reward)]:
        made[number] = replace(
            made[number], status=Status.failed, text=None, note="longer than the model reads"
        )
    found = [None if one.text is None else new[number] for number, one in enumerate(made)]
    return outcomes(model, rewards, made, found, perturber=perturber.name, tie=tie)


def _check_edits(table: pd.DataFrame) -> None:
    """WorkError where no edit came about: an explanation without any would be taken for one."""
    if table["edited"].notna().any():
        return
    reasons = Counter(zip(table["status"], table["note"], strict=True))
    (status, note), n = reasons.most_common(1)[0]
    why = f"; most often ({n:,}): {status}, {note}" if note else f"; most often ({n:,}): {status}"
    raise WorkError(
        f"none of {len(table):,} edits came about, so there is nothing to publish{why}. Try "
        f"another perturber or other "
        "attributes (contrast=[…])"
    )


def _measured(
    table: pd.DataFrame,
    comparisons: Mapping[str, Comparison],
    attributes: Sequence[Attribute],
    judge,
) -> pd.DataFrame:
    """The table with syntactic, semantic (distances of each edit), locality (the share of it inside
    the words identified), complied (whether an edit along an attribute did what was asked; missing
    where nobody says) and `moved/NAME` (see `flips.MOVED`): an LLM judge counts nothing, so the
    latter are always of pessimal's own detectors."""
    from pessimal.explaining.judges.rules import (
        RuleJudge,
    )  # an encoder and word lists, of which pairs need none

    detectors, by_name = RuleJudge(), {attribute.name: attribute for attribute in attributes}
    rows = table[table["edited"].notna()]
    pairs = list(zip(rows["original"], rows["edited"], strict=True))
    prompts = [comparisons[key].prompt for key in rows["comparison"]]
    spans = [None if s is None else [tuple(span) for span in json.loads(s)] for s in rows["spans"]]
    found = pd.DataFrame(
        {
            "syntactic": [syntactic(*pair) for pair in pairs],
            "semantic": semantic(pairs),
            "locality": [locality(*pair, named) for pair, named in zip(pairs, spans, strict=True)],
        },
        index=rows.index,
    )
    asked = zip(prompts, pairs, rows["attribute"], rows["direction"], strict=True)
    items = [
        (prompt, *pair, by_name[name], by_name[name].amount(Direction(direction)))
        for prompt, pair, name, direction in asked
        if name not in CONTROLS
    ]
    judged = rows.index[~rows["attribute"].isin(CONTROLS)]
    found["complied"] = pd.Series((judge or detectors).judge(items), index=judged, dtype=object)
    amounts = [
        detectors.amounts(texts, prompts, attributes)
        for texts in map(list, zip(*pairs, strict=True))
    ]
    before, after = (each.set_axis(rows.index) for each in amounts)
    first = before.loc[
        table.index[~table.duplicated(["comparison", "response"])].intersection(rows.index)
    ]
    spread = first.std(ddof=1)
    return table.join(found).join(((after - before) / spread.where(spread > 0)).add_prefix(MOVED))


def _perplexity_ratios(
    table: pd.DataFrame, comparisons: Mapping[str, Comparison], perplexities: Perplexities
) -> pd.Series:
    """Perplexity of each edited response over that of the response as it stands; NaN without a
    text."""
    rows = table[table["edited"].notna()]
    keys = rows["comparison"]
    before, after = (
        [comparisons[key].conversation(text) for key, text in zip(keys, rows[column], strict=True)]
        for column in ("original", "edited")
    )
    found = perplexities([*before, *after]).reshape(2, -1)
    return pd.Series(found[1] / found[0], index=rows.index).reindex(table.index)


def _margins(scorer: Scorer, comparisons: Mapping[str, Comparison], rewards: Rewards):
    """From rows of outcomes to m′ of texts that stand in the place of their responses, as `shrink`
    and `grow` ask."""

    def of(rows: pd.DataFrame) -> Margins:
        keys, sides = rows["comparison"].tolist(), rows["side"].tolist()
        others = np.array(
            [rewards[key][1 - r] for key, r in zip(keys, rows["response"], strict=True)]
        )
        signs = np.array([1.0 if side == CHOSEN else -1.0 for side in sides])

        def margins(asked: list[tuple[int, str]]) -> np.ndarray:
            number = [i for i, _ in asked]
            new = scorer.rewards([comparisons[keys[i]].conversation(text) for i, text in asked])
            found = signs[number] * (new - others[number])
            return np.where(
                np.isnan(found), 0.0, found
            )  # what the model cannot read neither flips nor holds

        return margins

    return of
