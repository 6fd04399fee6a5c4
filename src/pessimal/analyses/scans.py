"""Scans of one model that differ in one thing: the prompt, the mode, the precision, the step of a
training, or a persona ahead of the prompt.

Knows score tables of one model, matched by candidate_id; knows nothing of weights or templates. The
measures of checkpoints beside people are those of the analyses of single models.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations

import numpy as np
import pandas as pd

from pessimal.analyses.agreement import agreement, tau_effect
from pessimal.analyses.analysis import Needs, Options, analysis, noted
from pessimal.analyses.checks import check_rewards, check_varied
from pessimal.analyses.identity_terms import ALL_AXES
from pessimal.analyses.ranks import (
    Dependence,
    Statistic,
    dependence,
    intervals,
    p_values,
    ranked,
    spearman,
)
from pessimal.errors import TableError, did_you_mean
from pessimal.plots import Forest, Heatmap, Lines
from pessimal.statistics import holm
from pessimal.tables import ScoreTable
from pessimal.tables.result import LEVEL, Effect, Result
from pessimal.tables.table_set import TableSet, runs_of
from pessimal.tables.word_lists import by_word
from pessimal.texts import literal

PROMPT, MODE, PRECISION, STEP = "prompt", "mode", "precision", "step"
ALL, ROUND_TRIPS, CHANGED = "all", "round_trips", "changed"
FAR = 0.01
"""A token has moved where its rank changes by more than this share of all ranks."""
TAU, ENDS_SHARED = "τ with the last step", "share of the last step's extremes"
KEYS = ["run", "measure", "prompt"]
TRAJECTORY = [*KEYS, "step", "estimate", "low", "high", "n", "settled_at"]
_PHRASES = {
    PROMPT: "on {} and {}",
    MODE: "in modes {} and {} on {}",
    PRECISION: "with and without quantisation on {2}",
    STEP: "at steps {} and {} on {}",
}
MAX_ROWS = 10
"""Tokens at each end of a figure."""
_LINES = Lines(x="step", y="estimate", marks=True, xlabel="training step")
_HOW = r"bnb|awq|gptq|gguf|quantized|int[48]|nf4|fp[48]|[48]bit|q\d\w*|w\d+a\d+|g\d+|marlin"
_SUFFIX = re.compile(rf"([-_.]({_HOW}))+", re.IGNORECASE)


@dataclass(frozen=True)
class Scans:
    """Scans of one model over the same candidates, in the order in which they are compared."""

    differs: str
    """PROMPT, MODE, PRECISION or STEP."""
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
        alike = [table.loc[shared.index] for table in rows.values()]
        tokens = alike[0][["token", "text", "kind"]].assign(
            survives=pd.concat([t["survives"].astype("boolean") for t in alike], axis=1).all(
                axis=1, skipna=False
            )
        )
        return tokens, pd.DataFrame(
            {name: t["reward"].astype(float) for name, t in zip(rows, alike, strict=True)}
        )


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


def scans_of_models(tables: TableSet, quantised: Mapping[str, str]) -> Iterator[Scans]:
    """All scans that differ in one thing; `quantised` as in `quantised_pairs`."""
    for model in tables.models:
        yield Scans(PROMPT, model, None, tables.of_model(model))
    for prompt in tables.prompts:
        members = {table.model: table for table in tables.by_prompt[prompt]}
        for model in members:
            yield Scans(MODE, model, prompt, tables.modes[prompt, model])
        for model, whole in quantised_pairs(tables.models, quantised).items():
            pair = {name: members[name] for name in (whole, model) if name in members}
            yield Scans(PRECISION, model, prompt, pair)
    # Of a run that has both, rewards come before log-probabilities.
    rewards = {prompt: tables.by_prompt[prompt] for prompt in tables.prompts}
    runs = {
        (run, prompt): steps
        for scores in (tables.language, rewards)
        for prompt, members in scores.items()
        for run, steps in runs_of(members).items()
    }
    for (run, prompt), steps in runs.items():
        yield Scans(STEP, run, prompt, steps)


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
        moved (share of tokens whose rank changes by more than FAR of all ranks), largest_move (in
        ranks), largest_difference (in units of reward).

    Raises:
        TableError: see `agreement`.
    """
    table = agreement(rewards, dependent=dependent, **numbers)
    ranks = rewards.rank(ascending=False)
    pairs = list(combinations(rewards, 2))
    moves = [(ranks[a] - ranks[b]).abs() for a, b in pairs]
    return table.rename(columns={"model_a": "a", "model_b": "b"}).assign(
        moved=[float((move > FAR * len(tokens)).mean()) for move in moves],
        largest_move=[float(move.max()) for move in moves],
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
        ends = {
            "top": values.rank(ascending=False, method="min"),
            "bottom": values.rank(method="min"),
        }
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
        `ranks.p_values`), rho_persona, rho_control.

    Raises:
        TableError: see `checks.check_rewards` and `check_varied`.
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
    and behind personas."""
    notes: list[str] = []
    pairs: dict[str, list[pd.DataFrame]] = {}
    changes = []
    sequences = [s for s in scans_of_models(tables, options.quantised) if len(s.tables) > 1]
    for scans in sequences:
        where = {"model": scans.model, "candidates": tables.candidates}
        where |= {"prompt": scans.prompt} if scans.prompt else {}
        about = " on ".join(
            filter(None, (tables.labels.get(scans.model, scans.model), scans.prompt))
        )
        with noted(notes, about):
            tokens, rewards = scans.join()
            for part, members in _parts(scans.differs, tokens):
                table = compare_scans(
                    tokens[members],
                    rewards[members],
                    dependent=dependence(tokens["text"][members], options.meanings),
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
    joined = {differs: pd.concat(parts, ignore_index=True) for differs, parts in pairs.items()}
    results = [_agreement_result(tables, differs, table) for differs, table in joined.items()]
    if changes and len(table := pd.concat(changes, ignore_index=True)):
        results.append(_changes_result(tables, table))
    results += _prefix_results(tables, options, notes)
    if STEP in joined:
        runs = [scans for scans in sequences if scans.differs == STEP]
        results.append(_trajectory_result(tables, runs, joined[STEP]))
        if options.words:
            results.append(_words_result(tables, runs, options.words, notes))
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
    pair = [table for mode, table in scans.tables.items() if mode in ("ids", "text")]
    error = sum(table.measured.get(name, np.nan) for table in pair for name in names)
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
    a, b = columns = f"{differs}_a", f"{differs}_b"
    table = table.drop(columns=[] if differs == MODE else "tokens")
    whole = table[table["tokens"] == ALL] if differs == MODE else table
    row = whole.loc[whole["kendall"].idxmin()]
    label = tables.labels.get(row["model"], row["model"])
    phrase = _PHRASES[differs].format(row[a], row[b], row.get("prompt"))
    effect = tau_effect(tables.things, null=0.0 if differs == PROMPT else 1.0)
    heatmap = partial(Heatmap, row=a, column=b, value="kendall", panel="model", across=5)
    tabs = ("prompt",) if differs == STEP else ()
    plot: Forest | Heatmap = heatmap(tabs=tabs, symmetric=True, diverging=True)
    summary = {}
    if differs in (MODE, PRECISION):
        pairs = whole.assign(scans=whole[a] + " and " + whole[b])
        plot = Forest.of(effect, data=pairs, group="scans", xlabel="Kendall's τ-b of two scans")
        keys = whole["prompt"] + "/" + whole["model"] + "/" + whole[a] + "-" + whole[b]
        summary = dict(zip(keys + "/kendall", map(float, whole["kendall"]), strict=True))
    weights = {"size": whole["kendall"].max() - row["kendall"], "share": 1 / 4}
    return Result.of_row(
        row,
        f"{differs}_agreement",
        table[[*columns, *table.columns.drop([*columns])]],
        effect,
        f"{label} orders {tables.things} least alike {phrase}: τ = {row['kendall']:.2f}; "
        f"{round(row['top_overlap'] * row['top'])} of the {row['top']} best are the same.",
        label="τ, lowest",
        plot=plot,
        method="scans",
        summary=summary,
        **(weights if differs in (PROMPT, STEP) else {}),
    )


def _changes_result(tables: TableSet, changes: pd.DataFrame) -> Result:
    """The tokens that change most; the headline has the farthest."""
    row = changes.loc[changes["moved"].abs().idxmax()]
    keys = changes.groupby(["differs", "model", "prompt"], sort=False)
    ends = (keys.cumcount() < MAX_ROWS) | (keys.cumcount(ascending=False) < MAX_ROWS)
    return Result(
        "changed_tokens",
        changes,
        headline=f"From {row['differs']} {row['a']} to {row['b']} on {row['prompt']}, "
        f"{tables.labels.get(row['model'], row['model'])} moves {literal(row['text'])} from rank "
        f"{row['rank_a']:,.0f} to {row['rank_b']:,.0f}.",
        plot=Forest(
            data=changes[ends],
            row="text",
            estimate="moved",
            low=None,
            high=None,
            tabs=("differs", "model", "prompt"),
            xlabel="ranks gained from the first scan to the last",
        ),
        method="scans",
    )


def _prefix_results(tables: TableSet, options: Options, notes: list[str]) -> list[Result]:
    """Each model, prompt and persona: paired with the prompt alone and with a control of as many
    words."""
    scans = {
        (t.model, t.provenance.mode, prompt): t
        for prompt, members in tables.by_prompt.items()
        for t in members
    }
    rows = []
    for (model, mode, key), table in scans.items():
        design = table.provenance.prefixed
        if design is None or design["control"]:
            continue
        about = f"{tables.labels[model]} on {key}"
        keys = {"bare": design["prompt"], "persona": key, "control": f"{key}_control"}
        members = {n: t for n, prompt in keys.items() if (t := scans.get((model, mode, prompt)))}
        if len(members) < len(keys):
            notes.append(f"{about}: the prompt alone or the control was not scanned")
            continue
        with noted(notes, about):
            tokens, rewards = Scans(PROMPT, model, None, members).join()
            dependent = dependence(tokens["text"], options.meanings)
            best = rewards.idxmax()
            ids = {name: table.measured.get("prefix_tokens") for name, table in members.items()}
            rows.append(
                {"model": model, "prompt": design["prompt"], "prefix": design["prefix"]}
                | prefix_effect(rewards, dependent, options.confidence)
                | {"n": len(tokens), "candidates": tables.candidates}
                | {"optimal_stays": best["persona"] == best["bare"]}
                | {"optimal_stays_control": best["control"] == best["bare"]}
                | {"tokens": ids["persona"], "tokens_control": ids["control"]}
            )
    if not rows:
        return []
    table = pd.DataFrame(rows)
    table.insert(table.columns.get_loc("p") + 1, "p_adjusted", holm(table["p"]).to_numpy())
    names = ("effect", "drop in Spearman's ρ beyond a control's", "low", "high", "p_adjusted", 0.0)
    effect = Effect(*names, of=tables.things)
    significant = table[(table["p_adjusted"] <= LEVEL) & (table["effect"] > 0)]
    row = (table if significant.empty else significant).sort_values("effect", key=abs).iloc[-1]
    headline = f"No persona was found to change how {tables.things} are ranked beyond its control."
    if len(significant):
        headline = (
            f"As {row['prefix']}, {tables.labels[row['model']]} ranks {tables.things} on "
            f"{row['prompt']} otherwise, beyond a control (ρ {row['rho_persona']:.2f} and "
            f"{row['rho_control']:.2f})."
        )
    plot = Forest.of(effect, xlabel="drop in Spearman's ρ with the bare prompt, beyond a control")
    return [Result.of_row(row, "prefixes", table, effect, headline, plot=plot, method="scans")]


def _trajectory_result(tables: TableSet, runs: list[Scans], pairs: pd.DataFrame) -> Result:
    """Measures of checkpoints by step, and when they settle; `pairs` are those of steps.

    Source: Christian et al. 2026 (arXiv 2601.20838), Figure 4.
    """
    rows = [(t.model, s.model, step) for s in runs for step, t in s.tables.items()]
    steps = pd.DataFrame(rows, columns=["model", "run", "step"]).drop_duplicates()
    pieces = []
    for measure in _measures(tables):
        # A merge keeps the order of the measure, and so of its prompts.
        by_step = measure.merge(steps, on="model").sort_values("step", kind="stable")
        by_step = by_step[by_step.groupby(KEYS)["step"].transform("size") > 1]
        for _, group in by_step.groupby(KEYS, sort=False):
            pieces.append(group.assign(settled_at=settled_at(group)))
    final = pairs.groupby(["model", "prompt"], sort=False)["step_b"].transform("max")
    pairs = pairs[pairs["step_b"] == final].rename(columns={"model": "run", "step_a": "step"})
    shared = pairs[["top_overlap", "bottom_overlap"]].mean(axis=1)
    pieces.append(pairs.assign(measure=TAU, estimate=pairs["kendall"]))
    pieces.append(pairs.assign(measure=ENDS_SHARED, estimate=shared, low=np.nan, high=np.nan))
    table = pd.concat(pieces, ignore_index=True).reindex(columns=TRAJECTORY)
    table = table.astype({"settled_at": "Int64"}).assign(candidates=tables.candidates)
    same = table[(table[["run", "measure"]] == table.loc[0, ["run", "measure"]]).all(axis=1)]
    contrast = same["prompt"].str.contains(" − ")
    row = same[contrast if contrast.any() else same["prompt"] == same["prompt"].iloc[0]].iloc[-1]
    # What each measure is compared with differs from measure to measure.
    effect = Effect("estimate", row["measure"], "low", "high", of="observations")
    when = "" if pd.isna(row["settled_at"]) else f"; it settles at step {row['settled_at']}"
    return Result.of_row(
        row,
        "trajectory",
        table,
        effect,
        f"{row['run']}: {row['measure']} on {row['prompt']} is {row['estimate']:.2f} at step "
        f"{row['step']}{when}.",
        share=1 / 2,
        plot=replace(_LINES, y="estimate", low="low", high="high", group="run", panel="measure"),
        method="scans",
    )


def settled_at(rows: pd.DataFrame) -> float:
    """The first step from which the estimate stays within the last step's interval; NaN where that
    has none.

    Args:
        rows: step, estimate, low and high of one measure, steps rising.
    """
    row = rows.iloc[-1]
    if np.isnan(row["low"]) or np.isnan(row["high"]):
        return np.nan
    outside = np.flatnonzero(~rows["estimate"].between(row["low"], row["high"]).to_numpy())
    return float(rows["step"].iloc[outside[-1] + 1 if len(outside) else 0])


def _measures(tables: TableSet) -> Iterator[pd.DataFrame]:
    """The estimates that the analyses of single models have of every model, where they were made:
    model, measure, prompt, estimate, low, high, n."""
    people, valence, identity = (
        tables.memo.get((name,), pd.DataFrame())
        for name in ("human_correlation", "valence", "identity")
    )
    if len(people):
        yield people.assign(estimate=people["spearman"], measure="ρ with people's Elo")
    if len(valence):  # of a model that has both, the rewards come first
        valence = valence.drop_duplicates(["model", "lexicon", "prompt"])
        yield valence.assign(estimate=valence["spearman"], measure="ρ with " + valence["lexicon"])
    if len(identity):
        rows = identity[
            (identity["axis"] == ALL_AXES) & identity["measure"].isin(list(tables.columns))
        ]
        in_sd = {name: rows[name] / rows["reward_sd"] for name in ("low", "high")}
        yield rows.assign(
            **in_sd, estimate=rows["d"], prompt=rows["measure"], measure="identity terms, SD"
        )


def _words_result(
    tables: TableSet, runs: list[Scans], words: Iterable[str], notes: list[str]
) -> Result:
    """Ranks of words by name at each step, among the words that every checkpoint of every run has.

    Source: Christian et al. 2026 (arXiv 2601.20838), Figure 5.
    """
    rows = []
    for prompt in dict.fromkeys(scans.prompt for scans in runs):
        steps = [(s.model, *step) for s in runs if s.prompt == prompt for step in s.tables.items()]
        ranks = by_word(tables.shared([table for *_, table in steps])).rank(ascending=False)
        where = {"words": len(ranks), "prompt": prompt, "candidates": tables.candidates}
        for word in (word.strip().lower() for word in words):
            if word not in ranks.index:
                notes.append(f"{word} on {prompt}: no word that all checkpoints share")
                continue
            rows += [
                {"run": run, "step": step, "word": word, "rank": ranks.loc[word, table.model]}
                | where
                for run, step, table in steps
            ]
    plot = replace(_LINES, y="rank", group="word", panel="run", falling=True)
    return Result("checkpoint_words", pd.DataFrame(rows), plot=plot, method="scans")
