"""Effect of optimising each reward on a policy, and on everything that is known of what it says:
exactly, over the policy's one-token answers or a list of items; over longer answers that were drawn
from it, as far as these reach.

Says nothing of what a training that stops short of its optimum does.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from pessimal.analyses.analysis import Needs, Options, analysis, note_errors
from pessimal.analyses.optimised import (
    LEAST_SUPPORT,
    Optimised,
    Optimising,
    change_error,
    mean_of,
    turning_error,
)
from pessimal.errors import TableError, did_you_mean
from pessimal.plots import Forest, Lines, TokenTable
from pessimal.tables import ScoreTable
from pessimal.tables.result import Effect, Result
from pessimal.tables.score_table import LOG_PROBABILITY, drawn_from
from pessimal.tables.table_set import TableSet, labels_of
from pessimal.tables.word_lists import spelled
from pessimal.texts import WORD, literal

AT = 1.0
"""Nats at which changes are drawn and named first."""
SPENT = 2.0
"""Nats at which tokens are named."""
ELO = "people's Elo"
OTHER, ITSELF = "reward of ", "the reward itself"
TERMS = "terms of "
MIXED = 0.5
"""Weight of the other reward where two are mixed."""
LEAST_READ = 0.5
"""Share of the policy that candidates with states must carry, and of the reward's variance among
these that a head on the states must give, for a projection of the states to say anything."""


def policy_tables(tables: TableSet, name: str) -> dict[str, ScoreTable]:
    """The log-probabilities of a policy by prompt, those of this candidate set before others.

    Raises:
        TableError: there are none.
    """
    everything = [*tables.tables, *tables.other_tables]
    language = [t for t in everything if t.provenance.score == LOG_PROBABILITY]
    labels = labels_of(language)
    by_prompt: dict[str, ScoreTable] = {}
    for table in language:
        if name in (table.provenance.model, labels[table.provenance.model]):
            by_prompt.setdefault(table.provenance.prompt, table)
    if not by_prompt:
        choices = f"{', '.join(labels) or 'no model'}.{did_you_mean(name, [*labels])}"
        raise TableError(
            f"policy={name!r}: no log-probabilities of it; there are some of: {choices} To make "
            f"them: pessimal scan {name} model.kind=log_probability"
        )
    return by_prompt


def joined(policy: ScoreTable, reward: ScoreTable) -> pd.DataFrame:
    """The policy's candidates with a reward each: by id where both have the same, else by text.

    Returns:
        The rows of the policy's table that the other has, with log_p (nats) and reward.

    Raises:
        TableError: fewer than 3, or another question under one key.
    """
    mine, other = policy.provenance, reward.provenance
    if mine.prompt_text and other.prompt_text and mine.prompt_text != other.prompt_text:
        raise TableError(f"the reward was asked something else under this key: {other.question!r}")
    rows = policy.rows.rename(columns={"reward": "log_p"})
    key, rewards = _match_by_key(policy, reward)
    columns = ["reward", *(c for c in ("elo",) if c in rewards and c not in rows)]
    rows = rows.join(rewards[columns], on=key, how="inner")
    if len(rows) < 3:
        raise TableError(
            f"{mine.model} and {other.model} share {len(rows)} candidates. Score what the policy "
            f"can say: pessimal scan REWARD policy={mine.model}"
        )
    return rows.reset_index(drop=True)


def _match_by_key(policy: ScoreTable, other: ScoreTable) -> tuple[str, pd.DataFrame]:
    """The key that matches candidates of the two, and the other's rows by it, without
    duplicates."""
    same = policy.provenance.candidates_digest == other.provenance.candidates_digest
    key = "candidate_id" if same else "text"
    return key, other.rows.drop_duplicates(key, keep=False).set_index(key)


def features(
    rows: pd.DataFrame, options: Options, *, prompt_text: str | None = None
) -> dict[str, np.ndarray]:
    """Known features of each candidate, by name; not a number where it is not known.

    Ratings and frequency are of the word that a candidate spells; groups, kinds and spellings are 1
    for its members and 0 for others.

    Args:
        rows: text and kind; elo and survives where there are.
    """
    words = spelled(pd.Index(rows["text"]))
    unique = sorted({word for word in words.tolist() if word})
    columns: dict[str, Any] = {ELO: rows["elo"]} if "elo" in rows else {}
    for name, valence in options.lexicons.items():
        columns[f"valence, {name}"] = words.map(valence)
    if options.frequencies is not None:
        columns["Zipf frequency"] = words.map(options.frequencies.zipf(unique))
    for axis, terms in options.identity.items():
        columns[f"{TERMS}{axis}"] = words.isin(set(terms.terms))
    bare = [text.strip() for text in rows["text"].tolist()]
    prompt = set(WORD.findall((prompt_text or "").lower()))
    is_word = words.notna().to_numpy()
    columns |= {"characters": [len(text) for text in bare], "words": is_word}
    capitals = [float(text[:1].isupper()) for text in bare]
    columns["words with a capital"] = np.where(is_word, capitals, np.nan)
    columns["words of the prompt"] = [text.lower() in prompt for text in bare]
    columns["special tokens"] = rows["kind"].isin(("special", "unused"))
    columns["nothing to see"] = [not text.isprintable() or not text for text in bare]
    if rows["survives"].notna().any():
        survives = rows["survives"].astype("Float64").to_numpy(dtype=float, na_value=np.nan)
        columns["read otherwise as text"] = 1 - survives
    arrays = {name: np.asarray(values, dtype=float) for name, values in columns.items()}
    return {name: values for name, values in arrays.items() if _varies(values)}


def _varies(values: np.ndarray) -> bool:
    return len(np.unique(values[np.isfinite(values)])) > 1


def drift(before: Optimising, columns: dict[str, np.ndarray], *, confidence: float) -> pd.DataFrame:
    """Drift of each feature as the policy is optimised.

    Means are over the candidates that a feature is known of; the unit of a change is their standard
    deviation under the policy. Intervals say how much of it other candidates of the same kind would
    share; there is none where fewer than `LEAST_SUPPORT` candidates carry the mass.

    Returns:
        A row a feature and KL above 0: feature, kl, strength, before, mean, change, low, high,
            best_of_n (the change at the same KL), turns_at, turns_low, turns_high, n,
            support, mass.
    """
    from scipy import stats

    reach = float(stats.norm.ppf((1 + confidence) / 2))
    rows = []
    for name, values in columns.items():
        inside = np.isfinite(values)
        mass = float(before.p[inside].sum())
        start = mean_of(before.p, values, inside)
        spread = np.sqrt(mean_of(before.p, (values - start) ** 2, inside))
        if not spread > 0:
            continue
        turn = before.turning(values, inside)
        turned = reach * turning_error(before, turn, values, inside) if turn else np.nan
        turns_at = turn.kl if turn else np.nan
        best = {at.kl: mean_of(at.q, values, inside) for at in before.bests}
        for at in before.tilts[1:]:
            mean = mean_of(at.q, values, inside)
            change = (mean - start) / spread
            support = before.support(at.q, inside)
            error = np.nan
            if support >= LEAST_SUPPORT:
                error = reach * change_error(before, at, values, inside) / spread
            rows.append(
                {"feature": name, "kl": at.kl, "strength": at.strength}
                | {"before": start, "mean": mean, "change": change}
                | {"low": change - error, "high": change + error}
                | {"best_of_n": (best.get(at.kl, np.nan) - start) / spread, "turns_at": turns_at}
                | {"turns_low": max(turns_at - turned, 0.0), "turns_high": turns_at + turned}
                | {"n": before.units(inside), "support": support, "mass": mass}
            )
    return pd.DataFrame(rows)


def mitigated(
    before: Optimising,
    columns: dict[str, np.ndarray],
    rewards: dict[str, np.ndarray],
    option: str,
    states: np.ndarray | None = None,
) -> Optimising:
    """The policy beside another reward: `without:FEATURE`, what is left of it when the feature is
    known (its line under the policy taken away); `null_space:AXIS`, what is left when the direction
    of an axis's terms is projected out of the states (`identity`: those of all axes); or
    `mix:MODEL`, half of each, in standard deviations.

    Args:
        states: (n, d) of the candidates; not a number where a candidate has none.

    Raises:
        TableError: it is none of these, or the feature or the model is not there; or see
            `without_directions`.
    """
    kind, _, name = option.partition(":")
    axes = {name.removeprefix(TERMS): [name] for name in columns if name.startswith(TERMS)}
    if axes:
        axes["identity"] = [f"{TERMS}{axis}" for axis in axes]
    names_by_kind: dict[str, dict[str, Any]] = {
        "without": columns,
        "null_space": axes,
        "mix": rewards,
    }
    if name not in names_by_kind.get(kind, {}):
        choices = [f"{kind}:{name}" for kind, names in names_by_kind.items() for name in names]
        guess = did_you_mean(option, choices)
        raise TableError(f"mitigations: {option!r}; there are {', '.join(choices)}.{guess}")
    if kind == "null_space":
        if states is None:
            raise TableError(f"{option}: no states of words are kept; scan with states=true")
        terms = np.column_stack([columns[feature] for feature in axes[name]])
        return replace(before, reward=without_directions(before, states, terms, option=option))
    values, p = (columns | rewards)[name], before.p
    inside = np.isfinite(values)
    centred = np.where(inside, values - mean_of(p, values, inside), 0.0)
    variance = p @ centred**2
    if kind == "without":
        scores = before.scores - (p @ (before.scores * centred)) / variance * centred
    else:
        scores = (1 - MIXED) * before.scores + MIXED * centred / np.sqrt(variance)
    return replace(before, reward=scores)


def without_directions(
    before: Optimising, states: np.ndarray, groups: np.ndarray, *, option: str
) -> np.ndarray:
    """(n,) the reward less what its least-squares head on the states (n, d) has from the directions
    in which the means of the groups' members (n, groups) lie off the mean of all: the groups' mean
    rewards are then alike. Candidates without states keep theirs.

    Raises:
        TableError: the states are of too little of the policy, or give too little of the reward.
    """
    inside = np.isfinite(states).all(axis=1)
    mass, scores = before.p[inside].sum(), before.scores.copy()
    held = states[inside] - states[inside].mean(axis=0)
    centred = scores[inside] - scores[inside].mean()
    head = np.linalg.lstsq(held, centred, rcond=None)[0]
    read = 1 - np.var(centred - held @ head) / np.var(centred)
    groups = groups[inside] - groups[inside].mean(axis=0)
    if min(mass, read) < LEAST_READ or not groups.any(axis=0).all():
        raise TableError(
            f"{option}: states are kept of {100 * mass:.0f}% of what the policy says, and a head "
            f"on them gives {100 * read:.0f}% of the reward's variance; it takes "
            f"{100 * LEAST_READ:.0f}% of both, and terms among them. States of the reward model "
            "itself say more: scan it without model.base_path"
        )
    directions = np.linalg.qr(held.T @ groups)[0]
    scores[inside] -= held @ directions @ (directions.T @ head)
    return scores


def forecast(
    policy: ScoreTable | None,
    reward: ScoreTable,
    options: Options,
    *,
    peers: dict[str, ScoreTable] | None = None,
) -> dict[str, pd.DataFrame]:
    """Effects of optimising one reward on one policy under one prompt.

    Args:
        policy: its log-probabilities; None where the reward's candidates are answers that it wrote.
        peers: other rewards on the same prompt, by name: they are features too.

    Returns:
        By result: `forecast` (a row a way of optimising and KL), `forecast_drift` (see `drift`),
            `forecast_tokens` (those that gain and lose the most), and `forecast_mitigations` where
            some are asked for.

    Raises:
        TableError: see `joined`, `Optimising` and `mitigated`.
    """
    draws = None
    if policy is None:
        policy, draws = reward, reward.rows["drawn"].to_numpy(float)
        rows = reward.rows.assign(log_p=np.log(draws / draws.sum()))
    else:
        rows = joined(policy, reward)
    before = Optimising(rows["log_p"].to_numpy(float), rows["reward"].to_numpy(float), draws)
    if not before.tilts:
        raise TableError(
            f"{before.units(before.p > 0)} answers of the policy: a forecast from what it wrote "
            f"needs {LEAST_SUPPORT}; scan with answers=1000"
        )
    columns = features(rows, options, prompt_text=policy.provenance.prompt_text)
    rewards = {name: _reward_of(rows, policy, other) for name, other in (peers or {}).items()}
    rewards = {name: values for name, values in rewards.items() if _varies(values)}
    columns |= {f"{OTHER}{name}": values for name, values in rewards.items()}
    mass = float(np.exp(rows["log_p"].to_numpy(float)).sum())
    highest = (reward.measured.get("ceiling") or {}).get("high")
    ceiling = np.nan if highest is None else highest
    ways = {"tilt": before.tilts, "best of n": before.bests}
    unseen: dict[str, Callable[[Optimised], float]] = {
        "tilt": lambda at: before.unseen(at, ceiling),
        "best of n": lambda at: 1 - (1 - before.missing) ** at.strength,
    }
    path = pd.DataFrame(
        {"way": way, "kl": at.kl, "strength": at.strength}
        | {"reward": float(at.q @ before.reward), "gain": float(at.q @ before.scores)}
        | {"deviation": float(np.sqrt(at.q @ (before.scores - at.q @ before.scores) ** 2))}
        | {"support": before.support(at.q), "likeliest": rows["text"].iat[int(at.q.argmax())]}
        | {"likeliest_mass": float(at.q.max()), "policy_deviation": before.deviation}
        | {"unseen": unseen[way](at), "n": before.units(np.ones(len(rows), bool)), "mass": mass}
        for way, points in ways.items()
        for at in points
    )
    moved = {"forecast": path}
    moved["forecast_drift"] = drift(before, columns, confidence=options.confidence)
    moved["forecast_tokens"] = pd.concat(_moved(rows, before, options.top), ignore_index=True)
    if options.mitigations:
        states = _states_of(rows, reward)
        policies = {"none": before}
        for name in options.mitigations:
            policies[name] = mitigated(before, columns, rewards, name, states)
        drifts = [
            drift(policy, columns, confidence=options.confidence).assign(mitigation=name)
            for name, policy in policies.items()
        ]
        moved["forecast_mitigations"] = pd.concat(drifts).query("kl == @AT")
    return moved


def _reward_of(rows: pd.DataFrame, policy: ScoreTable, other: ScoreTable) -> np.ndarray:
    key, rewards = _match_by_key(policy, other)
    return rewards["reward"].reindex(rows[key]).to_numpy(dtype=float)


def _states_of(rows: pd.DataFrame, reward: ScoreTable) -> np.ndarray | None:
    """(n, d) last states of the candidates; of a vocabulary by the words that its tokens spell."""
    if reward.states is None:
        return None
    held, texts = reward.states.rows, pd.Index(rows["text"])
    of_words = reward.provenance.candidates == "vocabulary"
    place = held.index.get_indexer(spelled(texts) if of_words else texts)
    vectors = held.to_numpy()[:, : held.shape[1] // reward.states.spaces].astype(float)
    return np.where(place[:, None] < 0, np.nan, vectors[place])


def _moved(rows: pd.DataFrame, before: Optimising, top: int) -> Iterator[pd.DataFrame]:
    """Tokens that gain and lose most mass at `SPENT` nats, or at the last KL before it."""
    at = [at for at in before.tilts if at.kl <= SPENT][-1]
    gain = at.q - before.p
    for end, sign in (("top", -1), ("bottom", 1)):
        places = np.argsort(sign * gain, kind="stable")[: min(top, len(rows))]
        places = places[-sign * gain[places] > 0]
        yield pd.DataFrame(
            {"end": end, "rank": range(1, len(places) + 1), "kl": at.kl}
            | {"text": rows["text"].to_numpy()[places], "before": before.p[places]}
            | {"after": at.q[places], "gain": gain[places], "reward": before.reward[places]}
        )


@analysis("forecast", Needs(policy=True), place=25)
def analyse(tables: TableSet, options: Options) -> list[Result]:
    """Every reward model's forecast for the policy, prompt by prompt.

    Tables:
        forecast: What optimising each reward makes of a policy, by how far it is optimised. See
            [Methods](methods.md).
            - as everywhere: model, prompt, n, candidates
            - policy: the language model that is optimised
            - way: `tilt` (the optimum of reward less a penalty on the KL) or `best of n`
            - kl: KL divergence from the policy, in nats
            - strength: λ of a tilt, per standard deviation of the reward; n of best of n
            - reward: mean reward
            - gain: the same, in standard deviations under the policy from the policy's mean
            - deviation: standard deviation of the reward there, in those under the policy
            - support: effective number of candidates, 1 / Σ q²; of answers that the policy wrote,
                of these
            - likeliest: the candidate with the most mass
            - likeliest_mass: its mass
            - unseen: largest share that answers which the policy did not write could have, by the
                ceiling of the reward (95 %); of best of n without it; missing without draws or a
                ceiling
            - policy_deviation: standard deviation of the reward under the policy, in the reward's
                unit
            - mass: what the policy gives to the candidates
        forecast_drift: How everything that is known of the candidates moves as the policy is
            optimised.
            - as everywhere: model, prompt, low, high, n, candidates
            - policy: the language model that is optimised
            - feature: what is known of the candidates
            - kl: KL divergence from the policy, in nats
            - strength: λ of the tilt, per standard deviation of the reward
            - before: mean under the policy, over the candidates that it is known of
            - mean: the same when it is optimised
            - change: the difference, in standard deviations under the policy
            - best_of_n: change of best of n at the same KL
            - turns_at: KL from which on more reward moves it back; missing where it does not turn
                up to 10 nats
            - turns_low: lower end of its interval
            - turns_high: upper end
            - support: effective number of candidates, or of answers that the policy wrote, among
                those that it is known of; no interval below 50
            - mass: what the policy gives to the candidates that it is known of
        forecast_mitigations: The same at 1 nat, beside rewards with a bias taken out or another
            reward mixed in.
            - as in forecast_drift
            - mitigation: `none`, `without:FEATURE`, `null_space:AXIS` or `mix:MODEL`
        forecast_gold: The reward and what is held to be good, people's Elo and other models'
            rewards, by how far it is optimised.
            - as everywhere: model, prompt, low, high, n, candidates
            - policy: the language model that is optimised
            - feature: the reward itself, or what is held against it
            - kl: KL divergence from the policy, in nats
            - change: change of its mean, in standard deviations under the policy
            - turns_at: KL from which on more reward moves it back
            - turns_low: lower end of its interval
            - turns_high: upper end
        forecast_tokens: The candidates that gain and that lose the most mass at 2 nats.
            - as everywhere: end, text, model, prompt, candidates
            - rank: 1 gains, or loses, the most
            - policy: the language model that is optimised
            - kl: KL divergence from the policy, in nats
            - before: mass under the policy
            - after: mass when it is optimised
            - gain: the difference
            - reward: its reward
    """
    assert options.policy is not None
    written = tables.candidates == drawn_from(options.policy)
    policies = {} if written else policy_tables(tables, options.policy)
    pieces: dict[str, list[pd.DataFrame]] = {}
    notes: list[str] = []
    for prompt in tables.prompts:
        members = tables.by_prompt[prompt]
        if not written and prompt not in policies:
            notes.append(f"{prompt}: {options.policy} has no log-probabilities on it")
            continue
        for table in members:
            model = table.provenance.model
            other_tables = {t.provenance.model: t for t in members if t is not table}
            where = {"model": model, "prompt": prompt, "policy": options.policy}
            with note_errors(notes, f"{tables.labels[model]} on {prompt}"):
                parts = forecast(policies.get(prompt), table, options, peers=other_tables)
                for name, part in parts.items():
                    piece = part.assign(**where, candidates=tables.candidates)
                    pieces.setdefault(name, []).append(piece)
    if not pieces:
        raise TableError("; ".join(notes) or "no reward model was scanned on a prompt")
    if written:
        notes.append("answers that the policy wrote; said as far as 50 of them carry the mass")
    tables_by_name = {name: pd.concat(parts, ignore_index=True) for name, parts in pieces.items()}
    first, *rest = _results(tables_by_name, tables)
    return [replace(first, notes=tuple(notes)), *rest]


def _results(frames: dict[str, pd.DataFrame], tables: TableSet) -> Iterator[Result]:
    path, moves, tokens = (frames[f"forecast{name}"] for name in ("", "_drift", "_tokens"))
    gain = Effect("gain", "reward (SD under the policy)", null=0.0, of=tables.things, unit="SD")
    first = path[(path["way"] == "tilt") & (path["kl"] <= SPENT)]
    ends = first.sort_values("kl", kind="stable").groupby(["model", "prompt"], sort=False).tail(1)
    row = ends.loc[ends["likeliest_mass"].idxmax()]
    label = tables.labels[row["model"]]
    headline = f"At a KL of {row['kl']:g} "
    if tables.candidates == drawn_from(row["policy"]):
        headline += f"the mean reward of what {row['policy']} writes to {row['prompt']} is "
        headline += f"{row['gain']:.1f} SD higher, for {label}."
    else:
        headline += f"for {label}, {literal(row['likeliest'])} takes "
        headline += f"{100 * row['likeliest_mass']:.0f}% of what {row['policy']} answers to "
        keys = ["model", "prompt"]
        turns = moves[(moves["feature"] == ELO) & (moves[keys] == row[keys]).all(axis=1)]
        turn = turns["turns_at"].min()
        headline += row["prompt"]
        headline += f"; people's Elo turns at {turn:.1f}." if pd.notna(turn) else "."
    several = path["model"].nunique() > 1
    plot = Lines(
        x="kl",
        y="gain",
        group="model" if several else "way",
        where={"way": "tilt"} if several else {},
        marks=True,
        xlabel="KL from the policy, nats",
        ylabel="reward, SD under the policy",
    )
    yield Result.of_row(
        row,
        "forecast",
        path,
        gain,
        headline,
        plot=plot,
        method="forecast",
        size=float(row["likeliest_mass"]),
        summary={
            f"{r.prompt}/forecast_gain/{r.model}/{r.kl:g}": float(r.gain) for r in ends.itertuples()
        },
    )
    change = Effect(
        "change",
        f"change at {AT:g} nat (SD under the policy)",
        "low",
        "high",
        null=0.0,
        of=tables.things,
        unit="SD",
    )
    xlabel = f"change at {AT:g} nat of KL, SD under the policy"
    forest = Forest.of(change, row="feature", group="model", where={"kl": AT}, xlabel=xlabel)
    at = moves[moves["kl"] == AT]
    if at.empty:
        yield Result("forecast_drift", moves, plot=None, method="forecast", effect=change)
    else:
        row = at.loc[at["change"].abs().idxmax()]
        headline = f"What moves most at a KL of {AT:g} is {row['feature']} "
        headline += f"({row['change']:+.1f} SD, {tables.labels[row['model']]} on {row['prompt']})."
        yield Result.of_row(
            row,
            "forecast_drift",
            moves,
            change,
            headline,
            plot=forest,
            method="forecast",
            share=0.5,
        )
    yield from _compare_with_gold(path, moves, tables.labels)
    token = tokens.loc[tokens["gain"].idxmax()]
    headline = f"At a KL of {token['kl']:g}, {literal(token['text'])} goes from "
    headline += f"{100 * token['before']:.1f}% to {100 * token['after']:.1f}% of the answers to "
    headline += f"{token['prompt']}, for {tables.labels[token['model']]}."
    listed = TokenTable(value="gain", ends=("gain most", "lose most"))
    yield Result("forecast_tokens", tokens, headline, listed, "forecast")
    other = frames.get("forecast_mitigations", pd.DataFrame())
    if len(other):
        where = ["model", "prompt", "feature"]
        plain = other[other["mitigation"] == "none"].set_index(where)["change"].rename("plain")
        compared = other.join(plain, on=where)
        rises = compared["change"].abs() - compared["plain"].abs()
        row = compared.iloc[int(rises.to_numpy().argmax())]
        headline = f"With {row['mitigation']}, {row['feature']} moves by {row['change']:+.1f} SD "
        headline += f"at a KL of {AT:g}, by {row['plain']:+.1f} without "
        headline += f"({tables.labels[row['model']]} on {row['prompt']})."
        forest = replace(forest, group="mitigation", tabs=("prompt", "model"))
        yield Result.of_row(
            row,
            "forecast_mitigations",
            other,
            change,
            headline,
            plot=forest,
            method="forecast",
            share=0.5,
        )


def _compare_with_gold(
    path: pd.DataFrame, moves: pd.DataFrame, labels: Mapping[str, str]
) -> Iterator[Result]:
    """The reward and what is held to be good, against KL; nothing where nothing is."""
    held = moves[(moves["feature"] == ELO) | moves["feature"].str.startswith(OTHER)]
    if held.empty:
        return
    tilt = path[path["way"] == "tilt"].rename(columns={"gain": "change"})
    began = held.drop_duplicates(["model", "prompt", "feature"])
    began = began.assign(kl=0.0, change=0.0, low=0.0, high=0.0)
    table = pd.concat([tilt.assign(feature=ITSELF), began, held], ignore_index=True)
    columns = ["model", "prompt", "policy", "candidates", "feature", "kl", "change", "low", "high"]
    if held["turns_at"].notna().any():
        row = held.loc[held["turns_at"].idxmin()]
        headline = f"{row['feature']} turns at a KL of {row['turns_at']:.1f}"
    else:
        row = held.loc[held["kl"].idxmax()]
        headline = f"{row['feature']} does not turn up to a KL of {row['kl']:g}"
    table = table[[*columns, "turns_at", "turns_low", "turns_high", "n"]]
    plot = Lines(
        x="kl",
        y="change",
        tabs=("prompt", "model"),
        marks=True,
        group="feature",
        low="low",
        high="high",
        reference=0.0,
        xlabel="KL from the policy, nats",
        ylabel="change, SD under the policy",
    )
    headline += f" ({labels[row['model']]} on {row['prompt']})."
    yield Result("forecast_gold", table, headline, plot, "forecast")
