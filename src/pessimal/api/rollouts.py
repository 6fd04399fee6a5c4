"""`pessimal.rollouts`: what a reward pays for in what a policy wrote, what it pays for wrongly, and
what training on it will amplify."""

import hashlib
import json
import math
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pessimal.analyses.nulls import share_interval
from pessimal.api.store import Artifact, Store, publishing, reward_inputs, store_at
from pessimal.auditing.verdicts import thresholds
from pessimal.conversation import Turn
from pessimal.errors import ConfigError, InputError
from pessimal.options import parse_duration
from pessimal.plots import Forest
from pessimal.progress import counted
from pessimal.rewards.base import Reward
from pessimal.rewards.callable import TRUTHS, CallableReward, read_tasks, truths_of
from pessimal.rollout_analysis import drift, halving
from pessimal.rollout_analysis.columns import sort_by_group
from pessimal.rollout_analysis.features import (
    OF_NUMBER,
    TEXTS,
    Features,
    describe_feature,
    grade_answers,
    load_features,
    make_features,
    save_features,
)
from pessimal.rollout_analysis.readers import read_rollouts, rollouts_of
from pessimal.rollout_analysis.within import SAME, FeatureTest, contain, name_paid, select_forward
from pessimal.statistics import LEVEL
from pessimal.tables.result import Effect, Estimate, Result, Results, merged
from pessimal.texts import literal

MAX_ROWS = 1000
"""Rows of `amplified` and of `growth`, those farthest from 0."""
COMPARED = 64
"""Rollouts of which a grader is asked whether it gives the rewards of the file."""
MIN_GRAFTED = 0.005
"""Share of the rollouts that have a text which is grafted."""
BATCH = 256
MAX_LOOKED_AT, MAX_SHOWN, ALIKE = 300, 12, 0.5
"""Rows among which those of a figure are sought, how many it has, and their largest correlation."""
P_BOUNDS = (0.0001, 0.001, 0.01, 0.05)
"""Bounds of a p value: the smallest at which an interval of that level excludes the limit."""
MAX_WRONG = 5
"""Features that go with wrong payment that are listed."""
WRONG = (
    *("kind", "feature", "aliases", "share", "paid_with", "paid_without", "phi", "p_corrected"),
    *("calls", "confirmed", "steps", "example", "n"),
)
TESTED = ("paid_more", "low", "high", "p", "p_corrected")
PAID = Effect(
    *("paid_more", "reward with the feature less without it, within prompts"),
    *("low", "high", "p_corrected"),
    null=0.0,
    of="rollouts",
)


class RolloutResults(Results):
    """The results that the rollouts have of `signal`, `wrongly_paid`, `wrongly_refused`, `paid`,
    `amplified` and `growth`."""

    failures: tuple[str, ...] = ()
    """Reasons for which nobody should train on this reward, as sentences."""
    is_measured: bool = True
    """Whether a truth or an answer is known of any rollout, without which nothing is known to be
    paid wrongly."""
    notes: tuple[str, ...] = ()
    """Sentences on what was left out, and why."""


@dataclass(frozen=True)
class Sample:
    """Rollouts, those of a group beside one another, with what follows from them."""

    frame: pd.DataFrame
    groups: np.ndarray
    """(n,) from 0: rollouts of one prompt at one step."""
    truths: list[tuple[str, ...]]
    """The true answers to each prompt; none where they are unknown."""
    right: np.ndarray | None
    """(n,) 1 where a rollout is right, 0 where it is wrong, NaN where nobody knows; None without
    truth and answer."""
    features: Features
    pairs: bool

    @cached_property
    def responses(self) -> list[str]:
        """(n,) the texts."""
        return self.frame["response"].tolist()

    @cached_property
    def conversations(self) -> list[tuple[Turn, ...]]:
        """(n,) the prompts, as graders are asked."""
        return [(Turn("user", prompt),) for prompt in self.frame["prompt"]]


def rollouts(
    source: str | Path | pd.DataFrame,
    *,
    reward: Any = None,
    truth: str | None = None,
    answer: str | None = None,
    columns: Mapping[str, str | None] | None = None,
    where: str = "answer",
    tasks: str | Path | None = None,
    tokenizer: str | None = None,
    budget: str | None = None,
    scaled: bool = True,
    private: bool = False,
    name: str | None = None,
    seed: int = 0,
    cache: str = "runs/cache",
    store: Store | str | Path | None = None,
    progress: bool = False,
    **options: Any,
) -> RolloutResults:
    """The features that a reward pays for in rollouts, within prompts; with a store they are
    published as `rollouts`.

    Args:
        source: the file or folder that a trainer wrote, or a table with a row for each rollout.
        reward: a grader that can be asked, or a list of them: what `load` and `reward` take. One
            scores rollouts that have no reward, several score all. A grader that pays or does not
            is asked about corrupted rollouts, where true answers are known.
        truth, answer: columns with trusted rewards (numbers) and with true answers (texts).
        columns: columns by what they hold (`prompt`, `response`, `reward`, `group`, `step`, …),
            where their names are not those that trainers write.
        where: the part of a response that counts: answer, thought (inside `<think>`), or all.
        tasks: JSONL file of prompts with the columns that the grader is given; by default each
            prompt with its true answer as `answer`, `ground_truth` and their like.
        tokenizer: the policy's, a name of conf/model, a Hub repository or a folder: features are
            then texts of one to five of its tokens, and the number of tokens is a length.
        budget: time that the grader may be asked for, such as 10m.
        scaled: the trainer divides advantages by their standard deviation, as GRPO does.
        private: publish no text of a rollout.
        name: of the artifact; that of the file by default.
        seed: of the permutations and of the halves of the prompts.
        cache: folder for what a stopped analysis goes on from.
        store: as for `scan`.
        progress: draw a bar where there is a terminal.
        options: of `load` or `reward`, for the grader.

    Raises:
        InputError: the rollouts cannot be read, or no prompt has several of them.
        ConfigError: the grader cannot be opened.
    """
    pairs = [*(columns or {}).items(), ("truth", truth), ("answer", answer)]
    names = {key: column for key, column in pairs if column is not None}
    in_memory = isinstance(source, pd.DataFrame)
    read = (rollouts_of if in_memory else read_rollouts)(source, names, where)
    label = name or ("rollouts" if in_memory else Path(source).name.split(".")[0])
    frame, groups = sort_by_group(read.frame)
    if np.bincount(groups).max() < 2:
        raise InputError(
            f"each of the {len(frame):,} prompts has one rollout, and rewards are compared within "
            "prompts: give several rollouts of each, or name what they share by columns.group=NAME"
        )
    key = hashlib.sha256(pd.util.hash_pandas_object(frame, index=False).to_numpy().tobytes())
    key.update(str(tokenizer).encode())
    tokenize = None if tokenizer is None else _token_spans(tokenizer, cache)
    work = Path(cache) / "rollouts" / key.hexdigest()[:16]
    work.mkdir(parents=True, exist_ok=True)
    truths = [truths_of({"answer": text}) for text in frame.get("answer", [""] * len(frame))]
    graders = _open_graders(reward, frame, truths, tasks, work, options)
    sample = _prepare(frame, groups, truths, read.pairs, work, tokenize, progress=progress)
    notes = [note for note in read.notes if not (graders and note.startswith("No column is a"))]
    asks = {name: _ask(grader, sample, work) for name, grader in graders.items()}
    rewards = _score(sample, asks, read.rewards, notes, progress=progress)
    end = time.monotonic() + (math.inf if budget is None else parse_duration(budget))
    results = [_signal_result(rewards, sample)]
    dead = "All groups are dead: no two rollouts of a prompt get different rewards."
    failures = [dead] if results[0].table["dead"].iloc[0] == 1 else []
    for column in rewards if len(graders) > 1 else ["reward"]:
        ask = asks.get(column) or next(iter(asks.values()), None)
        grader = None if ask is None else _grader(ask, sample, rewards[column], end)
        more, reasons = _analyse(
            sample, column, rewards[column].to_numpy(float), grader,
            scaled=scaled, seed=seed, progress=progress,
        )  # fmt: skip
        results += [_name_reward(each, column) for each in more] if len(graders) > 1 else more
        failures += [f"{column}: {reason}" if len(graders) > 1 else reason for reason in reasons]
    headlines = pd.Series([each.headline for each in results]).groupby([r.name for r in results])
    headlines = headlines.agg("\n".join)
    results = [replace(each, headline=headlines[each.name]) for each in merged(results)]
    store = store_at(store)
    inputs: list[str] = []
    about: dict[str, Any] = {"rollouts": len(frame), "prompts": int(groups[-1]) + 1}
    about |= {"failures": len(failures), "source": read.source}
    if store is not None and len(graders) == 1:
        inputs, origin = reward_inputs(store.registry, next(iter(graders.values())))
        about |= origin
    with publishing(store, name=f"rollouts {label}", inputs=inputs, progress=progress) as publish:
        files = {} if private else _write_tests(results, sample, reward)
        artifact = Artifact("rollouts", label, inputs=inputs, summary=about, files=files)
        folder = publish(artifact, [_hide(each) for each in results] if private else results).folder
    shutil.rmtree(work, ignore_errors=True)
    done = RolloutResults(results, folder=folder)
    done.failures, done.notes = tuple(failures), tuple(notes)
    done.is_measured = sample.right is not None and bool(np.isfinite(sample.right).any())
    return done


# --- Before the analysis.


def _token_spans(name: str, cache: str) -> Callable[[str], list[tuple[int, int]]]:
    """A function from a text to the beginnings and ends of its tokens."""
    from pessimal.api.check import policy_tokenizer  # all checks, which most rollouts do without

    tokenizer = policy_tokenizer(name, cache=cache)
    if not tokenizer.is_fast:
        raise ConfigError(f"the tokenizer {tokenizer.name_or_path} does not tell where tokens end")
    options = {"add_special_tokens": False, "return_offsets_mapping": True, "verbose": False}
    return lambda text: tokenizer(text, **options)["offset_mapping"]


def _open_graders(
    reward: Any,
    frame: pd.DataFrame,
    truths: Sequence[tuple[str, ...]],
    tasks: str | Path | None,
    work: Path,
    options: Mapping[str, Any],
) -> dict[str, Reward]:
    """The graders by name, with the tasks that they are given."""
    if reward is None:
        return {}
    from pessimal.api.load import to_reward  # torch, which rollouts alone do without

    if tasks is None and any(truths):
        tasks = work / "tasks.jsonl"
        tasks.write_text(_tasks_text(frame, truths), encoding="utf-8")
    rewards = reward if isinstance(reward, list | tuple) else [reward]
    graders = dict[str, Reward]()
    for each in rewards:
        if isinstance(each, CallableReward) and tasks is not None:  # open, for other prompts
            grader: Reward = replace(each, tasks={task.turns: task for task in read_tasks(tasks)})
        else:
            grader = to_reward(each, tasks=None if isinstance(each, Reward) else tasks, **options)
        taken = [name for name in graders if name.split("#")[0] == grader.name]
        graders[f"{grader.name}#{len(taken) + 1}" if taken else grader.name] = grader
    return graders


def _tasks_text(frame: pd.DataFrame, truths: Sequence[tuple[str, ...]]) -> str:
    """A line of JSON for each prompt, with its true answer under every name that graders read; an
    empty text where it is unknown, as the trainer would have it."""
    rows: dict[str, dict[str, str]] = {}
    for prompt, texts in zip(frame["prompt"], truths, strict=True):
        row = {"prompt": prompt} | dict.fromkeys(TRUTHS, texts[0] if texts else "")
        rows.setdefault(prompt, row)
    return "".join(json.dumps(row) + "\n" for row in rows.values())


def _prepare(
    frame: pd.DataFrame,
    groups: np.ndarray,
    truths: list[tuple[str, ...]],
    pairs: bool,
    work: Path,
    tokenize: Callable[[str], list[tuple[int, int]]] | None,
    *,
    progress: bool,
) -> Sample:
    """The rollouts with their features, read where a stopped analysis has made them."""
    right = errors = None
    responses = frame["response"].tolist()
    if any(truths):
        right, errors = grade_answers(responses, truths)
        errors = errors if np.isfinite(errors).any() else None
    if "truth" in frame:
        trusted = frame["truth"].to_numpy(float)
        middle = (np.nanmin(trusted) + np.nanmax(trusted)) / 2
        right = np.where(
            np.isnan(trusted), np.nan, trusted > min(middle, np.nanmax(trusted) - 1e-9)
        )
    features = load_features(work)
    if features is None:
        prompts = frame["prompt"].tolist()
        features = make_features(
            responses, prompts, groups, errors=errors, tokenize=tokenize, bar=progress
        )
        save_features(features, work)
    return Sample(frame, groups, truths, right, features, pairs)


def _score(
    sample: Sample,
    asks: Mapping[str, halving.Ask],
    extra: Sequence[str],
    notes: list[str],
    *,
    progress: bool,
) -> pd.DataFrame:
    """(n, rewards): the file's rewards, or where it has none, or several graders are given, those
    of the graders. So are those of one grader that gives others than the file on a sample."""
    has_rewards = np.isfinite(sample.frame["reward"]).all()
    if not has_rewards and not asks:
        raise InputError("the rollouts have no reward: give a grader, reward=FILE.py:FUNCTION")
    numbers = list(range(len(sample.frame)))
    other = 0
    for name, ask in asks.items() if has_rewards and len(asks) == 1 else ():
        some = np.random.default_rng(0).permutation(numbers)[:COMPARED].tolist()
        scores = ask([(n, sample.responses[n]) for n in some])
        other = int((~np.isclose(scores, sample.frame["reward"].to_numpy()[some])).sum())
        if other:
            notes.append(
                f"{name} gives {other} of {len(some)} rollouts another reward than the file: all "
                "are scored by it."
            )
    if has_rewards and len(asks) < 2 and not other:
        return sample.frame[list(dict.fromkeys(("reward", *extra)))].astype(float)
    columns = {}
    for name, ask in asks.items():
        scores = np.full(len(numbers), np.nan)
        with counted(
            f"{name} scores", unit="rollouts", total=len(numbers), bar=progress
        ) as counter:
            for start in range(0, len(numbers), BATCH):
                part = numbers[start : start + BATCH]
                scores[part] = ask([(n, sample.responses[n]) for n in part])
                counter.advance(len(part))
        if missing := int(np.isnan(scores).sum()):
            raise InputError(f"{name} gives {missing:,} of the rollouts no finite reward")
        columns[name] = scores
    return pd.DataFrame(columns if len(asks) > 1 else {"reward": scores})


def _ask(grader: Reward, sample: Sample, work: Path) -> halving.Ask:
    """A function that asks the grader; what it gives is kept for an analysis that goes on."""
    from pessimal.api.load import device_of  # torch, as above
    from pessimal.scoring.texts import text_scorer

    def conversations(texts: Sequence[tuple[int, str]]) -> list[tuple[Turn, ...]]:
        return [(*sample.conversations[n], Turn("assistant", text)) for n, text in texts]

    some = conversations([(n, sample.responses[n]) for n in range(min(len(sample.groups), 8))])
    scorer = text_scorer(grader, some, device=device_of(grader), folder=work)
    return lambda texts: np.asarray(scorer.rewards(conversations(texts)), dtype=float)


def _grader(
    ask: halving.Ask, sample: Sample, rewards: pd.Series, end: float
) -> halving.Grader | None:
    """The grader to be asked about corrupted rollouts; None where it does not pay or not, or true
    answers are unknown."""
    values = np.unique(rewards)
    if not any(sample.truths) or len(values) != 2:
        return None
    return halving.Grader(ask, sample.truths, float(values.mean()), end)


# --- The analysis of one reward.


def _analyse(
    sample: Sample,
    column: str,
    rewards: np.ndarray,
    grader: halving.Grader | None,
    *,
    scaled: bool,
    seed: int,
    progress: bool,
) -> tuple[list[Result], list[str]]:
    """The results of one reward, and why it fails."""
    results, failures = list[Result](), list[str]()
    if sample.right is not None:
        line = pay_line(rewards, sample.right)
        cores = [] if grader is None else _cores(sample, rewards >= line, grader, bar=progress)
        for refused in (False, True):
            some = [core for core, is_refusal in cores if is_refusal == refused]
            result, reasons = _wrong_result(sample, column, rewards, line, some, refused=refused)
            results.append(result)
            failures += reasons
    results.append(_paid_result(sample, column, rewards, seed=seed))
    results += _drift_results(sample, column, rewards, scaled=scaled)
    return results, failures


def pay_line(rewards: np.ndarray, right: np.ndarray) -> float:
    """The reward from which a rollout counts as paid: of a grader that gives two rewards the
    larger, else the median of the right rollouts; where all rewards are one, none is paid."""
    values = np.unique(rewards)
    if len(values) == 1 or not (right == 1).any():
        return math.inf
    return float(values[-1] if len(values) == 2 else np.median(rewards[right == 1]))


def _cores(
    sample: Sample, paid: np.ndarray, grader: halving.Grader, *, bar: bool
) -> list[tuple[halving.Core, bool]]:
    """Texts that the grader pays for whatever the answer, and (True) those that keep it from
    paying."""
    assert sample.right is not None
    usable = np.array([bool(texts) for texts in sample.truths])
    order = np.random.default_rng(0).permutation(len(paid))
    wrong = [n for n in order.tolist() if usable[n] and sample.right[n] == 0]
    unpaid = [n for n in wrong if not paid[n]]
    paid_rollouts = [n for n in wrong if paid[n]] + [
        n for n in order.tolist() if usable[n] and paid[n] and sample.right[n] != 0
    ]
    grader.read_formats([n for n in order.tolist() if usable[n]])
    unrelated = _one_per_prompt(sample.groups, unpaid)
    cores = halving.find_cores(grader, sample.responses, paid_rollouts, unrelated, bar=bar)
    texts = [
        feature.name
        for feature, count in zip(sample.features.features, sample.features.counts, strict=False)
        if feature.kind == "text" and count >= MIN_GRAFTED * len(paid)
    ]
    cores += [
        core
        for core in halving.graft(grader, texts, sample.responses, unrelated)
        if not any(earlier.feature in core.feature for earlier in cores)
    ]
    cores += halving.try_tolerances(grader, unrelated)
    cores += halving.try_lengths(grader, sample.responses, unrelated)
    refused = halving.find_cores(
        grader, sample.responses, order[usable[order]].tolist(), unrelated, refused=True, bar=bar
    )
    return [(core, False) for core in cores] + [(core, True) for core in refused]


def _one_per_prompt(groups: np.ndarray, rollouts: Sequence[int]) -> list[int]:
    return list({int(groups[n]): n for n in reversed(rollouts)}.values())[::-1]


def _wrong_result(
    sample: Sample,
    column: str,
    rewards: np.ndarray,
    line: float,
    cores: Sequence[halving.Core],
    *,
    refused: bool,
) -> tuple[Result, list[str]]:
    """Features of wrong rollouts that are paid, or of right ones that are not; and why this
    fails."""
    assert sample.right is not None
    name, kind = ("wrongly_refused", "right") if refused else ("wrongly_paid", "wrong")
    rows = sample.right == (1 if refused else 0)
    paid = rewards >= line
    rated = (~paid if refused else paid)[rows].astype(float)
    table, reasons = pd.DataFrame(columns=[*WRONG, "reward"]), list[str]()
    graded = len(np.unique(rewards)) > 2
    rate = low = high = np.nan
    if rows.any() and not (graded and refused):
        rate, low, high = share_interval(rated, sample.groups[rows])
    n = int(rows.sum())
    if n:
        table_rows = [_core_row(sample, core, rows, rated) for core in cores]
        texts = [core.feature for core in cores if core.kind == "text"]
        table_rows += _statistics_rows(sample, rows, rated, rewards, texts, refused=refused)
        table = pd.DataFrame(table_rows, columns=[*WRONG, "reward"]).assign(n=n, reward=column)
    verb = "is not paid" if refused else "is paid"
    shares = f"{rate:.1%} of {n:,} {kind} answers"
    verbs = "are not paid" if refused else "are paid"
    headline = f"{shares} {verbs}" if n else f"No answer is {kind}"
    if n and graded:  # half of the right ones are below their own median, whatever the reward
        headline = f"{shares} get as much as the median right one"
        headline = f"{n:,} right answers get graded rewards" if refused else headline
    if len(table):
        which, first = table["kind"].iloc[0], str(table["feature"].iloc[0])
        first = describe_feature(which, first)
        headline += f"; {'least' if graded and refused else 'mostly'} those with {first}"
    headline += "."
    limit, estimate = thresholds()["rollouts"].limit, None
    if not refused and not graded and n and limit is not None:
        lows = {p: share_interval(rated, sample.groups[rows], 1 - p)[1] for p in P_BOUNDS}
        p = next((p for p, bound in lows.items() if bound > limit), None)
        label = "share of wrong answers that is paid"
        estimate = Estimate(label, rate, n, "rollouts", low, high, p, null=limit)
        if low > limit:
            reasons.append(f"{shares} are paid (95 % interval {low:.1%} to {high:.1%}).")
    reasons += [
        f"A {kind} answer {verb} where the response contains {literal(core.feature, limit=60)}."
        for core in cores
        if core.kind == "text"
    ]
    reasons += [f"A {kind} answer {verb}: {core.feature}." for core in cores if core.kind != "text"]
    result = Result(
        name, table, headline, method="rollouts", weight=3.0 * (len(table) > 0), estimate=estimate,
        summary={f"{name}/rate": rate, f"{name}/low": low, f"{name}/high": high, f"{name}/n": n,
                 f"{name}/graded": graded},
    )  # fmt: skip
    return result, reasons


def _core_row(
    sample: Sample, core: halving.Core, rows: np.ndarray, rated: np.ndarray
) -> dict[str, Any]:
    """A core as a row of `wrongly_paid` or `wrongly_refused`."""
    row = {"kind": core.kind, "feature": core.feature, "aliases": "", "phi": np.nan}
    row |= {"calls": core.calls, "confirmed": core.confirmed, "p_corrected": np.nan, "steps": ""}
    row |= {"share": np.nan, "paid_with": np.nan, "paid_without": np.nan}
    example = core.example
    if core.kind == "text":
        has = contain(sample.responses, core.feature).astype(bool)
        row |= _shares(has[rows], rated)
        example = int(has.argmax()) if example is None and has.any() else example
    response = "" if example is None else sample.responses[example]
    return row | {"example": halving.excerpt(response, core.feature)}


def _shares(has: np.ndarray, rated: np.ndarray) -> dict[str, float]:
    """The share of rollouts with a feature, and the rates with it and without it."""
    with_it, without = rated[has], rated[~has]
    return {
        "share": float(has.mean()),
        "paid_with": float(with_it.mean()) if len(with_it) else np.nan,
        "paid_without": float(without.mean()) if len(without) else np.nan,
    }


def _statistics_rows(
    sample: Sample,
    rows: np.ndarray,
    rated: np.ndarray,
    rewards: np.ndarray,
    cores: Sequence[str],
    *,
    refused: bool,
) -> list[dict[str, Any]]:
    """Features that go with wrong payment (or refusal) beyond chance, each beyond the cores and
    those before it."""
    test = FeatureTest(sample.features, sample.groups, rows)
    numbers = test.rows
    two = len(np.unique(rewards)) <= 2
    outcome = rated if two else (-rewards if refused else rewards)[numbers]
    responses = [sample.responses[n] for n in numbers]
    table_rows = []
    options: dict[str, Any] = {"positive": True, "responses": responses, "at_most": MAX_WRONG}
    options["explained"] = [contain(responses, text) for text in cores]
    for choice in select_forward(test, outcome, **options):
        row: dict[str, Any] = {"kind": choice.feature.kind, "feature": choice.feature.name}
        row |= {"aliases": " | ".join(map(literal, choice.feature.aliases))}
        row |= {"phi": choice.phi, "p_corrected": choice.p, "calls": 0, "confirmed": np.nan}
        has = choice.values > (
            0.5 if set(np.unique(choice.values)) <= {0.0, 1.0} else np.median(choice.values)
        )
        row |= _shares(has, rated if two else rewards[numbers])
        row |= {"steps": _steps_text(sample, numbers, has, rated)}
        example = responses[int(np.where(has, outcome, -np.inf).argmax())] if has.any() else ""
        table_rows.append(row | {"example": halving.excerpt(example, choice.feature.name)})
    return table_rows


def _steps_text(sample: Sample, numbers: np.ndarray, has: np.ndarray, rated: np.ndarray) -> str:
    """The steps in which most rollouts with a feature are paid, where these are not all steps."""
    if "step" not in sample.frame:
        return ""
    step = sample.frame["step"].to_numpy()[numbers]
    shares = pd.Series(rated[has]).groupby(step[has]).mean()
    paid = shares.index[shares > 0.5]
    return "" if len(paid) in (0, len(shares)) else ", ".join(map(str, paid))


def _name_reward(result: Result, reward: str) -> Result:
    """The result with the name of its reward in its headline and its summary's keys."""
    summary = {f"{key}/{reward}": value for key, value in result.summary.items()}
    return replace(result, headline=f"{reward}: {result.headline}", summary=summary)


def _paid_result(sample: Sample, column: str, rewards: np.ndarray, *, seed: int) -> Result:
    """Features that the reward follows; first what explains most of it by itself."""
    rows = name_paid(sample.features, sample.groups, rewards, pairs=sample.pairs, seed=seed)
    names = [(int(row["index"]), sample.features.features[int(row["index"])]) for row in rows]
    table = pd.DataFrame(
        [
            [
                *(feature.name, feature.kind, " | ".join(map(literal, feature.aliases))),
                *(row[key] for key in TESTED),
                *(_alike(sample.features, index), column, row["n"]),
            ]
            for (index, feature), row in zip(names, rows, strict=True)
        ],
        columns=["feature", "kind", "aliases", *TESTED, "alike", "reward", "n"],
    )
    if not len(table):
        return Result("paid", table, "Nothing is paid for beyond chance.", method="rollouts")
    first = table.iloc[0]
    headline = _describe_paid(sample.features, names[0][0], first.paid_more)
    plot = Forest.of(PAID, row="feature", xlabel="reward with it (or twice as many) less without")
    return Result.of_row(first, "paid", table, PAID, headline, method="rollouts", plot=plot)


def _describe_paid(features: Features, index: int, paid_more: float) -> str:
    """The sentence on a feature that is paid: on having it, or of a number on more of it."""
    feature, number = features.features[index], index - features.flags
    words, compared = describe_feature(feature.kind, feature.name), "with it than without"
    if number >= 0:
        is_count = features.numbers.iloc[:, number].max() > 1
        words = ("more " if is_count else "") + words.removesuffix(OF_NUMBER)
        compared = "for twice as many" if is_count else "for all against none"
    verb = "pays for" if paid_more > 0 else "pays less for"
    return f"The reward {verb} {words}: {paid_more:+.2f} {compared}, same prompt."


def _alike(features: Features, index: int) -> str:
    """Other features of nearly the same rollouts."""
    likeness = features.likeness(index)
    likeness[index] = 0
    near = np.argsort(-likeness)[:5]
    return " | ".join(literal(features.features[n].name) for n in near if likeness[n] >= SAME)


def _signal_result(rewards: pd.DataFrame, sample: Sample) -> Result:
    """Dead groups and where the variance lies, by reward column."""
    table = drift.describe_signal(rewards, sample.groups)
    headline = "\n".join(
        (f"{row.reward}: " if len(table) > 1 else "")
        + f"{row.dead:.0%} of {row.n:,} groups are dead: all their rollouts get one reward."
        for row in table.itertuples()
    )
    summary = {"signal/dead": table["dead"].iloc[0]}
    return Result("signal", table, headline, method="rollouts", summary=summary)


def _drift_results(
    sample: Sample, column: str, rewards: np.ndarray, *, scaled: bool
) -> list[Result]:
    """The features that training will amplify, and where there are steps those that grew."""
    features, groups = sample.features, sample.groups
    truth = sample.right
    table = drift.forecast_drift(features, groups, rewards, truth=truth, scaled=scaled)
    results = [_drift_result("amplified", table, drift.DRIFT, column, features)]
    step = sample.frame["step"].to_numpy() if "step" in sample.frame else np.zeros(1)
    if len(np.unique(step)) < 3:
        return results
    growth = drift.measure_growth(features, groups, step.astype(float))
    notes = list[str]()
    if unanswered := sum(not texts for texts in sample.truths) if any(sample.truths) else 0:
        growth.loc[growth["kind"] == "tolerance", ["slope", "low", "high", "p"]] = np.nan
        growth = drift.GROWTH.correct(growth)
        notes = [f"Errors are not followed, as {unanswered:,} rollouts have no answer."]
    early = step <= np.quantile(np.unique(step), 1 / 3)
    sub = np.unique(groups[early], return_inverse=True)[1]
    before = drift.forecast_drift(features.part(early), sub, rewards[early], scaled=scaled)
    growth = growth.assign(foretold=before["drift"])
    significant = (growth["p_corrected"] <= LEVEL) & (before["p_corrected"] <= LEVEL)
    result = _drift_result("growth", growth, drift.GROWTH, column, features)
    values = [features.values(int(index)) for index in result.table.index[:20]]
    since = [drift.first_growth(each, groups, step.astype(float)) for each in values]
    result.table["since"] = pd.Series(since, result.table.index[: len(since)], dtype=float)
    agree, of = drift.count_foretold(before, growth, np.flatnonzero(significant).tolist())
    notes.append(f"{agree} of {of} features moved as the first steps foretold.")
    return [
        *results,
        replace(result, notes=tuple(notes), summary={"growth/foretold": agree / max(of, 1)}),
    ]


def _drift_result(
    name: str, table: pd.DataFrame, effect: Effect, column: str, features: Features
) -> Result:
    """The rows farthest from 0 in their own errors, those that hold first; of what is alike the
    figure has one."""
    error = (table["high"] - table["low"]).replace(0, np.nan)
    holds = table["p_corrected"] <= LEVEL
    far = (table[effect.column].abs() / error).fillna(0)
    order = np.lexsort((-far, ~holds))[:MAX_ROWS]
    rows = table.iloc[order].assign(reward=column)
    unlike = list[int]()
    columns = list[np.ndarray]()
    for index in order[:MAX_LOOKED_AT].tolist():
        values = features.values(index)
        values = (values - values.mean()) / max(values.std() * len(values) ** 0.5, 1e-300)
        if all(abs(values @ other) < ALIKE for other in columns):
            unlike.append(index)
            columns.append(values)
    count = int(holds.sum())
    amplified, grown = "Training on this reward will raise or lower", "Over the steps grew or faded"
    verb = amplified if name == "amplified" else grown
    headline = f"{verb} {count:,} of {len(table):,} features beyond chance."
    plot = Forest.of(effect, row="feature", xlabel=effect.label, data=rows.loc[unlike[:MAX_SHOWN]])
    if not len(rows):
        return Result(name, rows, "No feature varies.", method="rollouts")
    return Result.of_row(
        *(rows.iloc[0], name, rows, effect, headline), method="rollouts", plot=plot, share=0.5
    )


# --- What is published.


def _hide(result: Result) -> Result:
    """The result without texts of rollouts."""
    table, headline = result.table.copy(), result.headline
    texts = {"feature", "aliases", "alike", "example"} & set(table.columns)
    secret = table.get("kind", pd.Series(dtype=str)).isin(TEXTS)
    for name in texts:
        column = table[name].astype(str)
        digests = column.map(lambda text: hashlib.sha256(text.encode()).hexdigest()[:8])
        hidden = secret if name == "feature" else pd.Series(True, table.index)
        table[name] = column.where(~hidden, "text " + digests if name == "feature" else "")
    if "feature" in table:
        names = [each["feature"][secret] for each in (result.table, table)]
        for text, digest in zip(*names, strict=True):
            headline = headline.replace(f'"{literal(text, limit=60)}"', digest)
    plot = result.plot
    if plot is not None:
        data = table if plot.data is None else table.loc[plot.data.index]
        plot = replace(plot, data=data)
    return replace(result, table=table, plot=plot, headline=headline)


def _write_tests(results: Sequence[Result], sample: Sample, reward: Any) -> dict[str, str]:
    """A file of pytest with the cores that a grader pays for, for its own repository."""
    table = next((r.table for r in results if r.name == "wrongly_paid"), pd.DataFrame())
    cores = table[table["confirmed"].notna() & table["kind"].eq("text")] if len(table) else table
    if not len(cores) or not isinstance(reward, str):
        return {}
    wrong = next(n for n, texts in enumerate(sample.truths) if texts)
    task = {"prompt": sample.frame["prompt"].iloc[wrong]} | dict.fromkeys(
        TRUTHS, sample.truths[wrong][0]
    )
    return {
        "test_cores.py": PYTEST.format(
            reward=reward, cores=json.dumps(cores["feature"].tolist(), indent=4)
        ),
        "cores_tasks.jsonl": json.dumps(task) + "\n",
    }


PYTEST = '''"""Texts that the grader paid for whatever the answer. Each is to be paid nothing."""

from pathlib import Path

import pessimal
import pytest
from pessimal.conversation import Turn

TASKS = Path(__file__).with_name("cores_tasks.jsonl")
CORES = {cores}


@pytest.fixture(scope="module")
def grader():
    return pessimal.load({reward!r}, tasks=str(TASKS))


@pytest.mark.parametrize("core", CORES)
def test_a_text_without_the_answer_is_paid_nothing(grader, core):
    [task] = grader.tasks.values()
    nothing, paid = grader.rewards([(*task.turns, Turn("assistant", t)) for t in ("", core)])
    assert paid <= nothing
'''
