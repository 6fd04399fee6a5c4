"""Scans of one model that differ in one thing: the prompt, the mode, the precision, the step of a
training, or a persona ahead of the prompt.

Knows score tables of one model, matched by candidate_id; knows nothing of weights or templates.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations

import numpy as np
import pandas as pd

from pessimal.analyses.agreement import agreement, tau_effect
from pessimal.analyses.analysis import (
    Needs,
    Options,
    analysis,
    check_rewards,
    check_varied,
    note_errors,
    strongest,
)
from pessimal.analyses.nulls import Dependence, Statistic, intervals, p_values
from pessimal.analyses.ranks import dependence, ranked, spearman
from pessimal.errors import TableError, did_you_mean
from pessimal.plots import Forest, Heatmap, Plot
from pessimal.tables import ScoreTable
from pessimal.tables.result import LEVEL, Effect, Result
from pessimal.tables.table_set import TableSet, runs_of
from pessimal.texts import literal

PROMPT, MODE, PRECISION, STEP = "prompt", "mode", "precision", "step"
ALL, ROUND_TRIPS, CHANGED = "all", "round_trips", "changed"
FAR = 0.01
"""A token has moved where its rank changes by more than this share of all ranks."""
MAX_ROWS = 10
"""Tokens at each end of a figure."""
_HOW = r"bnb|awq|gptq|gguf|quantized|int[48]|nf4|fp[48]|[48]bit|q\d\w*|w\d+a\d+|g\d+|marlin"
_SUFFIX = re.compile(rf"([-_.]({_HOW}))+", re.IGNORECASE)


@dataclass(frozen=True)
class Scans:
    """Scans of one model over the same candidates, in the order in which they are compared."""

    differs: str
    """The thing that differs: PROMPT, MODE, PRECISION or STEP."""
    model: str
    prompt: str | None
    """None where the prompts differ."""
    tables: Mapping[str, ScoreTable] | Mapping[int, ScoreTable]
    """By what differs: at least two."""

    def join(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Tokens (token, text, kind, survives) and rewards (candidates × scans) of the candidates
        that all scans have, by candidate_id and text.

        Raises:
            TableError: they share less than half of their candidates.
        """
        rows = {name: t.rows.set_index("candidate_id") for name, t in self.tables.items()}
        shared = pd.concat([table["text"] for table in rows.values()], axis=1, join="inner")
        shared = shared[shared.eq(shared.iloc[:, 0], axis=0).all(axis=1)]
        longest = max(map(len, rows.values()))
        if 2 * len(shared) < longest:
            raise TableError(
                f"the scans {' and '.join(map(str, rows))} share {len(shared)} of {longest} "
                "candidates, so they are not of one vocabulary; scan both again: force=true"
            )
        alike = {name: table.loc[shared.index] for name, table in rows.items()}
        survives = pd.DataFrame(
            {name: t["survives"].astype("boolean") for name, t in alike.items()}
        )
        tokens = next(iter(alike.values()))[["token", "text", "kind"]]
        tokens = tokens.assign(survives=survives.all(axis=1, skipna=False))
        return tokens, pd.DataFrame({name: t["reward"].astype(float) for name, t in alike.items()})


def quantised_pairs(models: Iterable[str], stated: Mapping[str, str]) -> dict[str, str]:
    """Each quantised model's name, and that of the model in full precision.

    Args:
        models: the names of all models.
        stated: pairs that a person states; the others go by their names: NAME-nf4, NAME-AWQ or
            NAME.Q4_1 is NAME quantised.

    Raises:
        TableError: a pair names a model that is not there.
    """
    models = list(models)
    if unknown := [name for pair in stated.items() for name in pair if name not in models]:
        raise TableError(
            f"quantised names the model {unknown[0]!r}, of which no score table is given; there "
            f"are: {', '.join(models)}.{did_you_mean(unknown[0], models)}"
        )
    pairs = {}
    for name in models:
        wholes = [o for o in models if name.startswith(o) and _SUFFIX.fullmatch(name[len(o) :])]
        if wholes:
            pairs[name] = max(wholes, key=len)
    return pairs | dict(stated)


def scans_of_models(tables: TableSet, quantised: Mapping[str, str]) -> list[Scans]:
    """All scans that differ in one thing; `quantised` as in `quantised_pairs`."""
    sets = [Scans(PROMPT, model, None, tables.model_tables(model)) for model in tables.models]
    # Of a run that has both, rewards come before log-probabilities.
    steps = {
        (run, prompt): checkpoints
        for scores in (tables.language, {p: tables.by_prompt[p] for p in tables.prompts})
        for prompt, members in scores.items()
        for run, checkpoints in runs_of(members).items()
    }
    pairs = quantised_pairs(tables.models, quantised)
    for prompt in tables.prompts:
        members = {table.model: table for table in tables.by_prompt[prompt]}
        sets += [Scans(MODE, model, prompt, tables.modes[prompt, model]) for model in members]
        for model, whole in pairs.items():
            pair = {name: members[name] for name in (whole, model) if name in members}
            sets.append(Scans(PRECISION, model, prompt, pair))
    sets += [Scans(STEP, run, prompt, tables) for (run, prompt), tables in steps.items()]
    return [scans for scans in sets if len(scans.tables) > 1]


def compare_scans(
    tokens: pd.DataFrame, rewards: pd.DataFrame, *, dependent: Dependence | None = None, **numbers
) -> pd.DataFrame:
    """Agreement of every two scans, and the distances that tokens move between them.

    Args:
        tokens, rewards: of `Scans.join`.
        dependent: which tokens are not independent; all are where None.
        numbers: of `agreement`.

    Returns:
        One row per pair, as `agreement` has them, with a and b in place of model_a and model_b, and
        moved (share of tokens whose rank changes by more than FAR of all ranks), largest_difference
        (in units of reward).

    Raises:
        TableError: see `agreement`.
    """
    table = agreement(rewards, dependent=dependent, **numbers)
    ranks = rewards.rank(ascending=False)
    pairs = list(combinations(rewards, 2))
    moves = [(ranks[a] - ranks[b]).abs() for a, b in pairs]
    return table.rename(columns={"model_a": "a", "model_b": "b"}).assign(
        moved=[float((move > FAR * len(tokens)).mean()) for move in moves],
        largest_difference=[float((rewards[a] - rewards[b]).abs().max()) for a, b in pairs],
    )


def changed_tokens(tokens: pd.DataFrame, rewards: pd.DataFrame, *, top: int = 20) -> pd.DataFrame:
    """The tokens that move farthest from the first scan to the last, and those that enter or leave
    an end.

    Of tokens with one text (the many that decode to U+FFFD) only the farthest is listed. Rank 1 is
    the highest reward; ties share their average rank.

    Args:
        tokens, rewards: of `Scans.join`.
        top: tokens listed each way, and tokens at an end; ties with the last of them are among
            them.

    Returns:
        The most lifted first: candidate_id, token, text, kind, survives, a, b, rank_a, rank_b,
        moved (ranks gained in b), reward_a, reward_b, end_a, end_b (top, bottom or empty).
    """
    table = tokens.copy()
    for name, scan in (("a", rewards.columns[0]), ("b", rewards.columns[-1])):
        values = rewards[scan]
        ends = {"top": (-values).rank(method="min"), "bottom": values.rank(method="min")}
        table[name] = str(scan)
        table[f"rank_{name}"] = values.rank(ascending=False)
        table[f"reward_{name}"] = values
        table[f"end_{name}"] = np.select([r <= top for r in ends.values()], list(ends), "")
    table["moved"] = table["rank_a"] - table["rank_b"]
    table = table.sort_values("moved", ascending=False, kind="stable")
    texts = table.loc[table["moved"].abs().sort_values(ascending=False, kind="stable").index]
    texts = table[table.index.isin(texts.drop_duplicates("text").index) & (table["moved"] != 0)]
    far = [*texts[texts["moved"] > 0].head(top).index, *texts[texts["moved"] < 0].tail(top).index]
    return table[table.index.isin(far) | (table["end_a"] != table["end_b"])].reset_index()


def prefix_effect(
    rewards: pd.DataFrame, dependent: Dependence | None = None, confidence: float = 0.95
) -> dict[str, float]:
    """The drop in rank agreement with the bare prompt under a persona, beyond its control's drop.

    Args:
        rewards: candidates × (bare, persona, control).
        dependent: which candidates are not independent; all are where None.

    Returns:
        effect (Spearman's rho of the control − that of the persona), low, high, p (two-sided, by
        `nulls.p_values`), rho_persona, rho_control.

    Raises:
        TableError: see `analysis.check_rewards` and `check_varied`.
    """
    check_rewards(rewards)
    check_varied(rewards)
    bare, *orders = (ranked(rewards[name].to_numpy()) for name in ("bare", "persona", "control"))
    likeness = 0.0
    if dependent is not None:
        first, *rest = (dependent.alike(order.centred) for order in (bare, *orders))
        likeness = max(dependent.likeness(first, alike) for alike in rest)
    persona, control = (spearman(bare, order) for order in orders)
    rhos = {"rho_persona": persona.estimate, "rho_control": control.estimate}
    drop = control.estimate - persona.estimate
    effect = [Statistic(drop, control.influence - persona.influence, likeness=likeness)]
    _, (low,), (high,) = intervals(effect, dependent, confidence=confidence)
    return {"effect": drop, "low": low, "high": high, "p": p_values(effect, dependent)[0], **rhos}


@analysis("scans", Needs(models=0, prompts=0), place=190)
def analyse(tables: TableSet, options: Options) -> list[Result]:
    """Each model against itself: under other prompts, in other modes, quantised, at other steps,
    and behind personas.

    Tables:
        prompt_agreement: How alike one model orders the candidates under two prompts.
            - as everywhere: n, kendall, low, high, spearman, spearman_low, spearman_high, rbo, top,
                top_overlap, bottom_overlap, model, candidates
            - moved: share of tokens whose rank changes by more than 1 % of all ranks
            - largest_difference: of two rewards of a token, in units of reward
            - prompt_a: the first prompt
            - prompt_b: the second prompt
        prefixes: Whether a persona ahead of the question changes the ranking beyond a control of
            equal length.
            - as everywhere: model, prompt, low, high, n, p, p_corrected, detectable, candidates
            - prefix: key of the persona
            - effect: Spearman's ρ of the control with the bare prompt, minus that of the persona
            - rho_persona: Spearman's ρ of persona and bare prompt
            - rho_control: Spearman's ρ of control and bare prompt
        step_agreement: How alike a run's checkpoints order the candidates after two numbers of
            steps.
            - as everywhere: n, kendall, low, high, spearman, spearman_low, spearman_high, rbo, top,
                top_overlap, bottom_overlap, candidates, prompt
            - moved: share of tokens whose rank changes by more than 1 % of all ranks
            - largest_difference: of two rewards of a token, in units of reward
            - step_a: training step
            - step_b: the later step
            - model: the run, by name
        mode_agreement: How alike two modes of scanning order one model's candidates.
            - as everywhere: n, kendall, low, high, spearman, spearman_low, spearman_high, rbo, top,
                top_overlap, bottom_overlap, model, candidates, prompt
            - moved: share of tokens whose rank changes by more than 1 % of all ranks
            - largest_difference: of two rewards of a token, in units of reward
            - mode_a: the first mode
            - mode_b: the second mode
            - tokens: which tokens: `all`, those that round-trip (ids and text are one input), those
                that are changed by typing
        precision_agreement: How alike a model in full precision and its quantised self order the
            candidates.
            - as everywhere: n, kendall, low, high, spearman, spearman_low, spearman_high, rbo, top,
                top_overlap, bottom_overlap, candidates, prompt
            - moved: share of tokens whose rank changes by more than 1 % of all ranks
            - largest_difference: of two rewards of a token, in units of reward
            - precision_a: the model in full precision, by name
            - precision_b: the quantised model, by name
            - model: the quantised model, by name
        changed_tokens: The tokens that move farthest between two scans of one model, or enter or
            leave an end.
            - as everywhere: candidate_id, token, text, kind, survives, model, prompt, candidates
            - differs: what differs: `mode`, `precision` or `step`
            - a: the first scan
            - b: the last scan
            - rank_a: rank in the first scan
            - rank_b: rank in the last
            - moved: ranks gained in the last
            - reward_a: reward in the first scan
            - reward_b: reward in the last
            - end_a: end at which the token is in the first scan, `top`, `bottom` or empty
            - end_b: end at which it is in the last
    """
    notes: list[str] = []
    pairs: dict[str, list[pd.DataFrame]] = {}
    changes: list[pd.DataFrame] = []
    for scans in scans_of_models(tables, options.quantised):
        where = {"model": scans.model, "candidates": tables.candidates}
        where |= {"prompt": scans.prompt} if scans.prompt else {}
        about = " on ".join(filter(None, (tables.labels.get(scans.model), scans.prompt)))
        with note_errors(notes, about or scans.model):
            tokens, rewards = scans.join()
            for part, members in _parts(scans.differs, tokens):
                dependent = dependence(tokens["text"][members], options.meanings)
                table = compare_scans(
                    tokens[members],
                    rewards[members],
                    dependent=dependent,
                    top=options.top,
                    confidence=options.confidence,
                )
                table = table.rename(columns={end: f"{scans.differs}_{end}" for end in "ab"})
                pairs.setdefault(scans.differs, []).append(table.assign(tokens=part, **where))
                if part == ROUND_TRIPS:
                    notes += _disagreement(scans, rewards[members], about)
            if scans.prompt:
                where |= {"differs": scans.differs}
                changes.append(changed_tokens(tokens, rewards, top=options.top).assign(**where))
    results = [
        _agreement_result(tables, differs, pd.concat(parts, ignore_index=True))
        for differs, parts in pairs.items()
    ]
    if any(map(len, changes)):
        results.append(_changes_result(tables, pd.concat(changes, ignore_index=True)))
    results += _prefix_results(tables, options, notes)
    if not results:
        raise TableError(
            "; ".join(notes)
            or "needs two scans of one model that differ in one thing: another prompt, another "
            "mode (mode=text), personas (prefixes=FILE), its quantised self "
            "(+quantised.QUANTISED_NAME=NAME) or another step of its training"
        )
    return [replace(results[0], notes=tuple(dict.fromkeys(notes))), *results[1:]]


def _parts(differs: str, tokens: pd.DataFrame) -> Iterator[tuple[str, np.ndarray]]:
    """Parts of the tokens that are compared, each as a mask (n,): all; of modes also those that
    round-trip (typed as text they become the same ids again, so that ids and text are one input),
    and the others."""
    yield ALL, np.ones(len(tokens), dtype=bool)
    if differs == MODE and tokens["survives"].notna().all():
        round_trips = tokens["survives"].to_numpy(dtype=bool)
        for part, members in ((ROUND_TRIPS, round_trips), (CHANGED, ~round_trips)):
            if members.any():
                yield part, members


def _disagreement(scans: Scans, rewards: pd.DataFrame, about: str) -> list[str]:
    """A note where ids and text differ by more than numerical error on tokens that are one input in
    both."""
    if not {"ids", "text"} <= set(rewards):
        return []
    names = ("noise", "largest_low_precision_error")
    measured = [table.measured for mode, table in scans.tables.items() if mode in ("ids", "text")]
    error = sum(numbers.get(name, np.nan) for numbers in measured for name in names)
    largest = (rewards["ids"] - rewards["text"]).abs().max()
    note = (
        f"{about}: tokens that are one input in ids and text differ by up to {largest:.2g}, more "
        f"than the scans' numerical error ({error:.2g}); scan both again on one machine: force=true"
    )
    return [note] if largest > error else []


def _agreement_result(tables: TableSet, differs: str, table: pd.DataFrame) -> Result:
    """Agreement of all pairs of scans that differ in one thing; the headline has the least alike.

    Source: Christian et al. 2025, Figure A6, for prompts; its code for modes.
    """
    a, b = columns = [f"{differs}_a", f"{differs}_b"]
    whole = table[table["tokens"] == ALL]
    table = table if differs == MODE else table.drop(columns="tokens")
    row = whole.loc[whole["kendall"].idxmin()]
    label = tables.labels.get(row["model"], row["model"])
    about = f" on {row['prompt']}" if "prompt" in row else ""
    effect = tau_effect(tables.things, null=0.0 if differs == PROMPT else 1.0)
    summary: dict[str, float] = {}
    if differs in (MODE, PRECISION):
        pairs = whole.assign(scans=whole[a] + " and " + whole[b])
        plot: Plot = Forest.of(effect, data=pairs, group="scans", xlabel="Kendall's τ-b")
        keys = whole["prompt"] + "/" + whole["model"] + "/" + whole[a] + "-" + whole[b]
        summary = dict(zip(keys + "/kendall", map(float, whole["kendall"]), strict=True))
    else:
        tabs = ("prompt",) if differs == STEP else ()
        heatmap = partial(Heatmap, symmetric=True, diverging=True, across=5, tabs=tabs)
        plot = heatmap(row=a, column=b, value="kendall", panel="model")
    return Result.of_row(
        row,
        f"{differs}_agreement",
        table[[*columns, *table.columns.drop(columns)]],
        effect,
        f"{label} orders {tables.things} least alike with the {differs}s "
        f"{row[a]} and {row[b]}{about}: τ = {row['kendall']:.2f}; "
        f"{round(row['top_overlap'] * row['top'])} of the {row['top']} best are the same.",
        label="τ, lowest",
        size=whole["kendall"].max() - row["kendall"] if differs in (PROMPT, STEP) else None,
        share=1 / 4 if differs in (PROMPT, STEP) else 1.0,
        plot=plot,
        method="scans",
        summary=summary,
    )


def _changes_result(tables: TableSet, changes: pd.DataFrame) -> Result:
    """The tokens that change most; the headline has the farthest."""
    row = changes.loc[changes["moved"].abs().idxmax()]
    keys = ["differs", "model", "prompt"]
    by_scans = changes.groupby(keys, sort=False)
    ends = (by_scans.cumcount() < MAX_ROWS) | (by_scans.cumcount(ascending=False) < MAX_ROWS)
    headline = f"From {row['differs']} {row['a']} to {row['b']} on {row['prompt']}, "
    headline += f"{tables.labels.get(row['model'], row['model'])} moves {literal(row['text'])} "
    headline += f"from rank {row['rank_a']:,.0f} to {row['rank_b']:,.0f}."
    plot = Forest(
        data=changes[ends],
        row="text",
        estimate="moved",
        tabs=tuple(keys),
        low=None,
        high=None,
        xlabel="ranks gained from the first scan to the last",
    )
    return Result("changed_tokens", changes, headline, plot, "scans")


def _prefix_results(tables: TableSet, options: Options, notes: list[str]) -> list[Result]:
    """Each model, prompt and persona, beside the prompt alone and a control of as many words."""
    members = [(prompt, table) for prompt, some in tables.by_prompt.items() for table in some]
    scans = {(t.model, t.provenance.mode, prompt): t for prompt, t in members}
    rows = []
    for (model, mode, key), table in scans.items():
        design = table.provenance.prefixed
        if design is None or design["control"]:
            continue
        keys = {"bare": design["prompt"], "persona": key, "control": f"{key}_control"}
        with note_errors(notes, f"{tables.labels[model]} on {key}"):
            places = {name: (model, mode, prompt) for name, prompt in keys.items()}
            triple = {name: scans[place] for name, place in places.items() if place in scans}
            if len(triple) < len(keys):
                raise TableError("the prompt alone or the control was not scanned")
            tokens, rewards = Scans(PROMPT, model, None, triple).join()
            dependent = dependence(tokens["text"], options.meanings)
            rows.append(
                {"model": model, "prompt": design["prompt"], "prefix": design["prefix"]}
                | prefix_effect(rewards, dependent, options.confidence)
                | {"n": len(tokens), "candidates": tables.candidates}
            )
    if not rows:
        return []
    table = pd.DataFrame(rows)
    names = ("effect", "drop in Spearman's ρ beyond a control's", "low", "high", "p_corrected")
    effect = Effect(*names, null=0.0, of=tables.things)
    table = effect.correct(table)
    significant = table[(table["p_corrected"] <= LEVEL) & (table["effect"] > 0)]
    row = strongest(table, "effect", "p_corrected", positive=True)
    headline = f"No persona was found to change how {tables.things} are ranked beyond its control."
    if len(significant):
        headline = f"As {row['prefix']}, {tables.labels[row['model']]} ranks {tables.things} on "
        headline += f"{row['prompt']} otherwise, beyond a control (ρ {row['rho_persona']:.2f} and "
        headline += f"{row['rho_control']:.2f})."
    plot = Forest.of(effect, xlabel="drop in Spearman's ρ with the bare prompt, beyond a control")
    return [Result.of_row(row, "prefixes", table, effect, headline, plot=plot, method="scans")]
