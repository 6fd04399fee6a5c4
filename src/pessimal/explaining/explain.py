"""Explains a model's preferences: every response is changed along every attribute, rewarded again,
measured, and the changes made as small and as large as they can be.

Knows a scorer, a perturber and a judge, handed in. Does not know configurations, registries or
Weights & Biases.
"""

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from pessimal.conversation import Conversation, Turn
from pessimal.errors import InputError, WorkError
from pessimal.explaining.attribute import ANY_WAY, OVERALL, PLACEBO, Attribute, Direction
from pessimal.explaining.distances import locality, semantic, syntactic
from pessimal.explaining.flips import MOVED
from pessimal.explaining.judges import Judge
from pessimal.explaining.metrics import RATIO
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
from pessimal.explaining.perturbers import Perturber, Request, Status
from pessimal.explaining.smallest import Grown, Margins, Shrunk, grow, shrink
from pessimal.rewards.frame import Encoded
from pessimal.tables.comparisons import Comparison
from pessimal.texts import storable

METHOD_VERSION = 3
"""A part of every explanation's key: raise it where the same rewards, perturbations and judgements
would give other outcomes, statistics, or smallest and largest edits."""
CONTROLS = (PLACEBO, OVERALL)
"""Arms that are no attribute."""
NEUTRAL = Attribute(
    name=PLACEBO,
    description="It says the same in other words: spelling, punctuation and function words are "
    "changed, nothing else.",
    polarity=1,
)
EDIT = ["model", "perturber", "comparison", "response", "side", "attribute", "direction", "amount"]
EDIT += ["seed", "original", "margin"]
"""Columns that name an edit in the tables of smallest and largest changes."""
Perplexities = Callable[[Sequence[Conversation]], np.ndarray]
"""Perplexities float64 (n,) of the responses of conversations, each after its prompt; NaN for what
is too long."""
Begin = Callable[[str, int | None], None]
"""Called before each part of the work, with its name and how many rewards there will be in all,
where that is known."""
MarginsOf = Callable[[pd.DataFrame], Margins]
"""From rows of outcomes to the margins of texts in the place of their responses."""


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
    """Columns that pin the model and its path down: a row of the table `provenance`."""

    @property
    def decided(self) -> list[str]:
        """Keys of the comparisons in which the model prefers one response."""
        ties = set(self.undecided)
        return [key for key in self.rewards if key not in ties]

    @property
    def undecided(self) -> list[str]:
        """Keys of the ties: no side is chosen, so they are not explained."""
        pairs = self.rewards.items()
        return [key for key, pair in pairs if chosen_response(pair, tie=self.tie) is None]

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
    judge: Judge | None = None,
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
    """Effects of changed responses on a model's preferences.

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
    readable = list(by_key.values())
    requests = requests_for(readable, rewards, attributes, range(seeds), tie, both_ways=both_ways)
    requests += requests_for(readable, rewards, [ANY_WAY], range(overall), tie)
    arms = [(perturber, requests)]
    if (null := perturber.placebo() if placebos else None) is not None:
        arms.append((null, requests_for(readable, rewards, [NEUTRAL], range(placebos), tie)))
    total = 2 * len(comparisons) + sum(len(of_arm) for _, of_arm in arms)
    begin("edits and their rewards", total)
    tables = [_outcomes(scorer, model, rewards, *arm, tie=tie) for arm in arms]
    _check_edits(tables[0])
    table = pd.concat(tables, ignore_index=True)
    smallest_table = largest_table = None
    if measured:
        begin("distances and judgements", None)
        table = _measured(table, by_key, attributes, judge)
        if perplexities is not None:
            begin("fluency", None)
            table[RATIO] = _perplexity_ratios(table, by_key, perplexities)
    if smallest:
        begin("smallest and largest edits", None)
        margins = partial(_margins, scorer, by_key, rewards)
        smallest_table = smallest_flips(table, margins, tie=tie, exact_hunks=exact_hunks)
        largest_table = largest_holds(table, margins, tie=tie)
    return Explained(
        model=model,
        perturber=perturber.name,
        comparisons=by_key,
        rewards=rewards,
        table=table,
        smallest=smallest_table,
        largest=largest_table,
        too_long=too_long,
        tie=tie,
    )


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


def smallest_flips(
    table: pd.DataFrame, margins: MarginsOf, *, tie: float, exact_hunks: int
) -> pd.DataFrame:
    """The least of each counterfactual that still flips: a row each, with the columns that name it
    in the table, and those of `Shrunk`."""
    rows = table[(table["outcome"] == COUNTERFACTUAL) & ~table["attribute"].isin(CONTROLS)]
    texts = list(zip(rows["original"], rows["edited"], strict=True))
    return _join(rows, shrink(texts, margins(rows), tie=tie, exact_hunks=exact_hunks), Shrunk)


def largest_holds(table: pd.DataFrame, margins: MarginsOf, *, tie: float) -> pd.DataFrame:
    """The most of each response that may be changed with the preference as it was, begun at the
    semifactual that changes most and grown with the other edits that speak against the preference:
    a row a response, with the columns that name the semifactual, and those of `Grown`."""
    of_attributes = table["edited"].notna() & ~table["attribute"].isin(CONTROLS)
    edits = table[of_attributes & against_polarity(table)]
    starts, semifactuals = [], []
    for _, group in edits.groupby(["perturber", "comparison", "response"], sort=False):
        held = group[group["outcome"] == SEMIFACTUAL]
        if held.empty:
            continue
        size = held["syntactic"] if "syntactic" in held else held["edited"].str.len()
        starts.append(size.idxmax())
        rest = group.drop(index=starts[-1])
        labelled = list(zip(rest["attribute"], rest["edited"], strict=True))
        semifactuals.append((*group.loc[starts[-1], ["original", "edited"]], labelled))
    rows = table.loc[starts]
    return _join(rows, grow(semifactuals, margins(rows), tie=tie), Grown)


def _join(rows: pd.DataFrame, results: Sequence[Any], kind: type) -> pd.DataFrame:
    """The columns that name edits, and beside them the fields of what became of each."""
    columns = pd.DataFrame(results, columns=[field.name for field in fields(kind)])
    return pd.concat([rows[EDIT].reset_index(drop=True), columns], axis=1)


def _preferences(
    scorer: Scorer, comparisons: Sequence[Comparison]
) -> tuple[dict[str, Comparison], dict[str, tuple[float, float]], tuple[str, ...]]:
    """The comparisons that the model can read and the rewards of both responses, by key; and the
    keys of those too long."""
    conversations = [each.conversation(text) for each in comparisons for text in each.responses]
    by_key, rewards, too_long = {}, {}, []
    pairs = scorer.rewards(conversations).reshape(-1, 2)  # (comparisons, 2)
    for comparison, (first, second) in zip(comparisons, pairs.tolist(), strict=True):
        if math.isfinite(first) and math.isfinite(second):
            by_key[comparison.key], rewards[comparison.key] = comparison, (first, second)
        else:
            too_long.append(comparison.key)
    return by_key, rewards, tuple(too_long)


def _check_decided(rewards: Rewards, too_long: Sequence[str], *, tie: float, model: str) -> None:
    """InputError where there is nothing to explain."""
    if not rewards:
        raise InputError(
            f"all {len(too_long)} comparisons are longer than {model!r} reads; give shorter ones"
        )
    largest = max(abs(a - b) for a, b in rewards.values())
    if largest <= tie:
        raise InputError(
            f"all {len(rewards)} comparisons are ties: the largest margin is {largest:.3g}, and "
            f"margins up to {tie:.3g} are ties (tie=… sets that): there is nothing to explain"
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
    """Outcomes of one perturber's changes; a text without a reward counts as failed."""
    changes = list(perturber.perturb(requests))
    texts = [(c.request.comparison, c.text) for c in changes if c.text is not None]
    conversations = [comparison.conversation(text) for comparison, text in texts]
    scores = iter(scorer.rewards(conversations).tolist())
    new_rewards = [None if change.text is None else next(scores) for change in changes]
    for number, reward in enumerate(new_rewards):
        if reward is not None and math.isnan(reward):
            note = "no reward: longer than the model reads, or a function that does not apply"
            changes[number] = replace(changes[number], status=Status.failed, text=None, note=note)
            new_rewards[number] = None
    return outcomes(model, rewards, changes, new_rewards, perturber=perturber.name, tie=tie)


def _check_edits(table: pd.DataFrame) -> None:
    """WorkError where no edit came about: an explanation without any would be taken for one."""
    if table["edited"].notna().any():
        return
    reasons = Counter(zip(table["status"], table["note"], strict=True))
    reason, n = reasons.most_common(1)[0]
    raise WorkError(
        f"none of {len(table):,} edits came about, so there is nothing to publish; most often "
        f"({n:,}): {', '.join(filter(None, reason))}. Try another perturber or other attributes "
        "(contrast=[…])"
    )


def _measured(
    table: pd.DataFrame,
    comparisons: Mapping[str, Comparison],
    attributes: Sequence[Attribute],
    judge: Judge | None,
) -> pd.DataFrame:
    """The table with syntactic, semantic (distances of each edit), locality (the share of it inside
    the words identified), complied (whether an edit along an attribute did what was asked; missing
    where nobody says) and `moved/NAME` (see `flips.MOVED`): an LLM judge counts nothing, so the
    latter are always of pessimal's own detectors."""
    # An encoder and word lists, of which pairs need none.
    from pessimal.explaining.detectors import RuleJudge

    detectors, by_name = RuleJudge(), {attribute.name: attribute for attribute in attributes}
    rows = table[table["edited"].notna()]
    pairs = list(zip(rows["original"], rows["edited"], strict=True))
    prompts = [comparisons[key].prompt for key in rows["comparison"]]
    spans = [None if each is None else json.loads(each) for each in rows["spans"]]
    columns = {
        "syntactic": [syntactic(*pair) for pair in pairs],
        "semantic": semantic(pairs),
        "locality": [locality(*pair, words) for pair, words in zip(pairs, spans, strict=True)],
    }
    requests = zip(prompts, pairs, rows["attribute"], rows["direction"], strict=True)
    items = [
        (prompt, *pair, by_name[name], by_name[name].amount(Direction(direction)))
        for prompt, pair, name, direction in requests
        if name not in CONTROLS
    ]
    judged = rows.index[~rows["attribute"].isin(CONTROLS)]
    complied = pd.Series((judge or detectors).judge(items), index=judged, dtype=object)
    before, after = (
        detectors.amounts(rows[column].tolist(), prompts, attributes).set_axis(rows.index)
        for column in ("original", "edited")
    )
    first = table.index[~table.duplicated(["comparison", "response"])].intersection(rows.index)
    spread = before.loc[first].std(ddof=1)
    moved = ((after - before) / spread.where(spread > 0)).add_prefix(MOVED)
    measured = pd.DataFrame(columns, index=rows.index).assign(complied=complied)
    return table.join(measured).join(moved)


def perplexities(
    scorer: Scorer, encode: Callable[[Conversation], Encoded], conversations: Sequence[Conversation]
) -> np.ndarray:
    """exp(−log p(response | prompt) / tokens of the response), float64 (n,); NaN for what is longer
    than the model reads.

    Args:
        scorer: gives log p(response | prompt), in nats, as rewards.
        encode: the ids of a conversation, with how many of them are the response's.

    Source: Nguyen et al. 2024 (CEval), who report the perplexity of the edited text under GPT-2.
    """
    counts = np.array([encode(each).n_response for each in conversations], dtype=float)
    return np.exp(-scorer.rewards(conversations) / counts)


def _perplexity_ratios(
    table: pd.DataFrame, comparisons: Mapping[str, Comparison], perplexities: Perplexities
) -> pd.Series:
    """Perplexity of each edited response over that of the response as it stands; NaN without a
    text."""
    rows = table[table["edited"].notna()]
    keys = [*rows["comparison"]] * 2
    texts = zip(keys, [*rows["original"], *rows["edited"]], strict=True)
    conversations = [comparisons[key].conversation(text) for key, text in texts]
    before, after = perplexities(conversations).reshape(2, -1)
    return pd.Series(after / before, index=rows.index).reindex(table.index)


def _margins(
    scorer: Scorer, comparisons: Mapping[str, Comparison], rewards: Rewards, rows: pd.DataFrame
) -> Margins:
    """From rows of outcomes to m′ of texts that stand in the place of their responses, as `shrink`
    and `grow` ask."""
    keys, responses = rows["comparison"].tolist(), rows["response"].tolist()
    other_rewards = np.array([rewards[key][1 - r] for key, r in zip(keys, responses, strict=True)])
    signs = np.where(rows["side"] == CHOSEN, 1.0, -1.0)

    def margins(texts: list[tuple[int, str]]) -> list[float]:
        numbers = [number for number, _ in texts]
        conversations = [comparisons[keys[number]].conversation(text) for number, text in texts]
        values = signs[numbers] * (scorer.rewards(conversations) - other_rewards[numbers])
        # What the model cannot read neither flips nor holds.
        return np.where(np.isnan(values), 0.0, values).tolist()

    return margins
