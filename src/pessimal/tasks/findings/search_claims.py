"""What a search was, and what may be said of its result: claims, each with its condition and its n.

Knows the tables and facts of a search, and English. Does not know figures, models or objectives.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields

import pandas as pd

from pessimal.figures.search_curves import SEARCH, named
from pessimal.figures.search_results import spelling
from pessimal.figures.words import literal, significant


@dataclass(frozen=True)
class Facts:
    """What a search was and what it ended with."""

    model: str
    prompts: Mapping[str, str]
    """The user turns whose mean reward was searched, by key."""
    goal: str
    """optimal or pessimal."""
    length: int
    """Tokens of the response."""
    mode: str
    """ids, or text: only responses that a text gives."""
    method: str
    """auto or exhaustive."""
    allowed: int
    """Tokens that a response may be made of."""
    vocabulary: int
    """Tokens that the model has."""
    filters: Sequence[str]
    """What made them fewer."""
    spent: int
    """Candidate evaluations of the search, without its certificate and its baselines."""
    restarts: int
    """Starts of the gradient phase; 0 where there was none."""
    seed: int
    noise: float
    """Bound on the numerical error of one reward; two rewards within twice of it are tied."""
    verdict: str
    """Of the certificate: 1-opt, tie or not 1-opt; "" where there is none."""
    dtype: str
    """Precision that was searched in."""
    path: str
    """Name of the way that scored."""
    budget: int | None = None
    """Candidate evaluations allowed to the gradient phase; None where there was none."""

    @classmethod
    def of(cls, facts: Mapping) -> "Facts":
        """From a mapping that may hold more."""
        return cls(**{field.name: facts[field.name] for field in fields(cls) if field.name in facts})

    @property
    def best(self) -> str:
        return "best" if self.goal == "optimal" else "worst"

    @property
    def extreme(self) -> str:
        return "highest" if self.goal == "optimal" else "lowest"

    @property
    def improves(self) -> str:
        return "raises" if self.goal == "optimal" else "lowers"

    @property
    def weaker(self) -> str:
        """What a worse neighbour's reward is."""
        return "lower" if self.goal == "optimal" else "higher"

    @property
    def exact(self) -> bool:
        """Whether every allowed response was scored."""
        return self.length == 1 or self.method == "exhaustive"

    @property
    def among(self) -> str:
        """The tokens allowed, and of how many."""
        kept = f"; {', '.join(self.filters)}" if self.filters else ""
        return f"{self.allowed:,} allowed tokens (of {self.vocabulary:,}{kept})"


def ahead_of(curve: pd.DataFrame | None, sequences: pd.DataFrame, facts: Facts) -> dict[str, float]:
    """By how much the search ended better than each baseline, in units of reward as the engine gave them; {} where none
    was run. What the search ended with is its best response, or the end of its curve where all were gone through."""
    if curve is None:
        return {}
    sign = 1 if facts.goal == "optimal" else -1
    ends = (sign * curve["reward"]).groupby(curve["method"], sort=False).max()
    own = ends[SEARCH] if facts.exact else sign * sequences["search_reward"].iloc[0]
    return {method: float(own - end) for method, end in ends.items() if method != SEARCH}


def against_baselines(ahead: Mapping[str, float], curve: pd.DataFrame | None, facts: Facts) -> str:
    """Whether the search was worth its evaluations; what it does not beat comes first."""
    if not ahead:
        if facts.exact:
            return "Every response was scored, so that no baseline can do better."
        return "No baseline was run, so that whether this search beats random search is not known (search.baselines=true)."
    tie = 2 * facts.noise

    def sizes(chosen: list[str], word: str) -> str:
        return and_(
            f"{named(method)} ({word} {significant(abs(ahead[method]), digits=3)})" for method in chosen
        )

    lost = [method for method, by in ahead.items() if by < -tie]
    tied = [method for method, by in ahead.items() if abs(by) <= tie]
    won = [method for method, by in ahead.items() if by > tie]
    rounding = (
        ""
        if facts.dtype == "float32"
        else f" These rewards are in {facts.dtype}: a difference within its rounding means nothing."
    )
    spent = int(curve.loc[curve["method"] == SEARCH, "evaluations"].max())
    budget = f"at the same budget of {spent:,} candidate evaluations"
    if not lost and not tied:
        return f"This search beats {sizes(won, 'by')}, {budget}.{rounding}"
    told = f"This search does NOT beat {sizes(lost, 'better by')}" if lost else ""
    if tied:
        told += (
            f" and only ties with {and_(map(named, tied))}"
            if lost
            else f"This search does NOT beat {and_(map(named, tied))}, with which it ties"
        )
    others = f" It beats {sizes(won, 'by')}." if won else ""
    return f"{told}, {budget}.{others}{rounding}"


def unbeaten(ahead: Mapping[str, float], facts: Facts) -> str:
    """A warning where the search brought no more than a baseline; "" where it beats all, or need not."""
    names = [method for method, by in ahead.items() if by <= 2 * facts.noise]
    return (
        f"Does NOT beat {and_(map(named, names))} at the same budget. " if names and not facts.exact else ""
    )


def asked(facts: Facts) -> str:
    """The user turns."""
    quoted = [f"“{text}”" for text in facts.prompts.values()]
    if len(quoted) == 1:
        return f"The prompt: {quoted[0]}"
    return f"The mean reward over {len(quoted)} prompts: {' · '.join(quoted)}"


def claim(
    facts: Facts, sequences: pd.DataFrame, neighbours: pd.DataFrame | None, pairs: pd.DataFrame | None
) -> str:
    """What is claimed of the best response, and what is not.

    `pairs`, of an exhaustive search: the best of all, rank by rank.
    """
    reward = f"Reward {significant(sequences['reward'].iloc[0], digits=5)}."
    if facts.exact:
        told = f"{reward} {exact(facts)}{'' if pairs is None else runner_up(facts, pairs)}"
        return told if neighbours is None or not facts.verdict else f"{told} {_closest(facts, neighbours)}"
    found = f"{facts.best.capitalize()} found. {reward}"
    if facts.verdict and neighbours is None:  # every position is left out, since nothing else counts there
        return f"{found} No change of one token gives another response that counts."
    if neighbours is None or not facts.verdict:
        return f"{found} No certificate: whether a change of one token {facts.improves} it was not asked."
    closest = _closest(facts, neighbours)
    if facts.verdict not in ("1-opt", "tie"):
        return f"NOT a local optimum. {reward} {closest} A longer polish would find better; claimed is only that this is reached."
    kept = " that a text gives" if facts.mode == "text" else ""
    return (
        f"{found} No change of one token{kept}, among {facts.among} at each of its {facts.length} positions, "
        f"{'surely ' if facts.verdict == 'tie' else ''}{facts.improves} it. {closest} Above one token this is a local "
        "statement: a response that differs in two tokens or more may be better."
    )


def _closest(facts: Facts, neighbours: pd.DataFrame) -> str:
    """The neighbour of smallest margin, as the certificate's verdict has it."""
    row = neighbours.loc[neighbours["margin"].idxmin()]
    swap = f"{spelling(row['neighbour'], row['neighbour_text'])} for {spelling(row['token'], row['text'])}"
    swap += f" at position {row['position']}" if facts.length > 1 else ""
    size, noise = significant(abs(row["margin"]), digits=3), significant(facts.noise, digits=2)
    if facts.verdict == "1-opt":
        return f"The closest, {swap}, is {facts.weaker} by {size} (numerical noise of one reward: {noise})."
    if facts.verdict == "tie":
        tied = int((neighbours["margin"].abs() <= 2 * facts.noise).sum())
        where = f" at {tied} of {facts.length} positions" if facts.length > 1 else ""
        return (
            f"TIE{where}: {swap} differs by {size}, within twice the numerical noise of one reward ({noise}), so which of "
            "them is better is not known."
        )
    return f"A change of one token, {swap}, {facts.improves} it by {size} (numerical noise of one reward: {noise})."


def runner_up(facts: Facts, pairs: pd.DataFrame) -> str:
    """How far the second best of all pairs is behind; with a space before it."""
    pairs = pairs[pairs["survives"]] if facts.mode == "text" else pairs
    if len(pairs) < 2 or facts.dtype != "float32":  # pairs are as the engine gave them
        return ""
    ordered = pairs.sort_values("rank", kind="stable")
    apart = (ordered["reward"] - ordered["reward"].iloc[0]).abs()
    tied = int((apart <= 2 * facts.noise).sum()) - 1
    if tied:
        return (
            f" TIE: {tied:,} other {'pair is' if tied == 1 else 'pairs are'} within twice the numerical noise of one reward "
            f"({significant(facts.noise, digits=2)}) of it, so which of them is the {facts.best} is not known."
        )
    second = literal(ordered["text"].iloc[1])
    return f" The next pair, {second}, is {facts.weaker} by {significant(apart.iloc[1], digits=3)}."


def exact(facts: Facts) -> str:
    """That nothing was left out."""
    count, things = (facts.allowed, "tokens") if facts.length == 1 else (facts.allowed**2, "pairs of tokens")
    of = facts.among if facts.length == 1 else f"{count:,} {things} from {facts.among}"
    which = " that a text gives" if facts.mode == "text" else ""
    told = f"Every one of {of} was scored, so that this is the {facts.best} of all{which}, not only the {facts.best} found"
    if facts.dtype == "float32":
        return f"{told}."
    return f"{told}; but in {facts.dtype}, whose rounding may hide a better one."


def scored_again(facts: Facts, sequences: pd.DataFrame) -> str:
    """The reward without any of the engine's shortcuts."""
    winner = sequences.iloc[0]
    apart = abs(winner["search_reward"] - winner["reward"])
    told = (
        "The reward is the model's own forward's, in float32 at batch 1 without a cache; the search "
        f"({facts.dtype}, {facts.path}) had {significant(winner['search_reward'], digits=5)}"
        + (f", a difference of {significant(apart, digits=2)}" if apart else ", the same to the last bit")
    )
    if apart <= facts.noise:
        return f"{told}{', within the numerical noise' if apart else ''}."
    low = "; all claims rest on float32" if facts.dtype != "float32" else ""
    return f"{told}, MORE than the numerical noise{low}."


def as_text(facts: Facts, sequences: pd.DataFrame) -> str:
    """Whether a person can type it."""
    kept = len(sequences)
    share = f" Of {kept:,} kept responses {sequences['survives'].mean():.0%} survive." if kept > 1 else ""
    if bool(sequences["survives"].iloc[0]):
        return f"Its text survives: typed through the chat template it becomes the same ids.{share}"
    way = " (mode=text searches only what survives)" if facts.mode == "ids" else ""
    return (
        "Its text does NOT survive: typed through the chat template it becomes other ids, so this is a reward of token ids, "
        f"not of a text{way}.{share}"
    )


def spread(facts: Facts, sequences: pd.DataFrame) -> str:
    """How far restarts agree; or the best responses, where all were gone through."""
    n = len(sequences)
    if facts.exact:
        named = ", ".join(
            f"{literal(row.text)} ({significant(row.reward, digits=5)})"
            for row in sequences.head(5).itertuples()
        )
        return f"The first are {named}." if n > 5 else f"{named}."
    if facts.restarts == 1:
        return "One restart, so how far restarts agree is not known; search.restarts=8 shows it."
    begun = "Kept:" if facts.exact or not facts.restarts else f"{facts.restarts:,} restarts ended at"
    if n == 1:
        return f"{begun} one response."
    first, last = sequences.iloc[0], sequences.iloc[-1]
    apart = (sequences["reward"] - first["reward"]).abs()
    tied = int((apart <= 2 * facts.noise).sum()) - 1
    return (
        f"{begun} {n:,} distinct responses, from {significant(first['reward'], digits=5)} ({first['start']} start) to "
        f"{significant(last['reward'], digits=5)} ({last['start']} start). "
        + (f"{tied} tie with the best." if tied else "The best is tied with none of them.")
    )


def cost(facts: Facts) -> str:
    """What the search spent."""
    budget = f", of which {facts.budget:,} were allowed to the gradient phase" if facts.budget else ""
    besides = f", besides the {facts.allowed**2:,} pairs" if facts.method == "exhaustive" else ""
    return (
        f"{facts.spent:,} candidate evaluations{budget}{besides}; seed {facts.seed}. A gradient counts as three evaluations; the "
        "certificate and the baselines are not counted."
    )


def and_(names: Iterable[str]) -> str:
    """a, b and c."""
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last
