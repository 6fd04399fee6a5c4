"""What graders and judges pay for in answers that were published with rewards.

    python experiments/rollouts/answers.py gsm|alpaca|rm_bench|judgebench [--shared ../shared]

What counts as found stands in REGISTRATION.md.
"""

import argparse
import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats

from pessimal import rollouts
from pessimal.rollout_analysis.columns import sort_by_group
from pessimal.rollout_analysis.features import make_features
from pessimal.rollout_analysis.readers import rollouts_of
from pessimal.rollout_analysis.within import difference, name_paid

NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")
MARKS = ("bold", "headers", "list items", "**", "#", "\n- ", "- **", "1.", "table", "\n")


def substring(completions, answer, **columns):
    return [float(truth in text) for text, truth in zip(completions, answer, strict=True)]


def last_number(completions, answer, **columns):
    numbers = [NUMBER.findall(text)[-1:] for text in completions]
    same = [n[0].replace(",", "") if n else "" for n in numbers]
    return [float(n == truth) for n, truth in zip(same, answer, strict=True)]


def try_gsm(folder: Path) -> None:
    """Natural rates of two graders on labelled solutions."""
    frame = pd.read_parquet(folder / "gsm_example_solutions.parquet")
    answers = frame["ground_truth"].str.rpartition("A: ")[2].str.replace(",", "").str.strip()
    frame = frame.assign(answer=answers).drop(columns="ground_truth")
    for grader in (substring, last_number):
        results = rollouts(frame, reward=grader, answer="answer", truth="is_correct")
        print(grader.__name__, dict(results["wrongly_paid"].summary))
        print(results["wrongly_paid"].table.drop(columns=["example", "aliases"]).to_string())
        print(results.failures, flush=True)


def paid_of(frame: pd.DataFrame, **columns: str):
    """Features, groups and rewards of pairs, and what they are named to pay for."""
    read = rollouts_of(frame, columns)
    rows, groups = sort_by_group(read.frame)
    features = make_features(rows["response"].tolist(), rows["prompt"].tolist(), groups)
    rewards = rows["reward"].to_numpy(float)
    return features, groups, rewards, name_paid(features, groups, rewards, pairs=read.pairs), rows


def try_alpaca(folder: Path) -> None:
    """GPT-4's preference: by family, by concise twin, and slopes beside the published ones."""
    judged = pd.read_parquet(folder / "alpaca_eval_gpt4_judge_16_generators.parquet")
    baseline = pd.read_parquet(folder / "alpaca_eval_baseline.parquet")
    print(judged.columns.tolist(), baseline.columns.tolist())
    key = "instruction"
    pairs = judged.merge(baseline.rename(columns={"baseline": "output_1"}), on=key)
    pairs = pairs.rename(columns={"answer": "output_2"})
    names = sorted(pairs["generator"].unique())
    families = {
        "family of alpaca-7b": [n for n in names if n.startswith("alpaca-7b")],
        "family of gpt-3.5-turbo": [n for n in names if n.startswith("gpt-3.5-turbo")],
    } | {n: [n] for n in names}
    slopes = {}
    for label, members in families.items():
        part = pairs[pairs["generator"].isin(members)].assign(prompt=lambda rows: rows[key])
        features, groups, rewards, named, _ = paid_of(
            part, preference="preference", prompt="prompt"
        )
        first = [
            (
                features.features[r["index"]].kind,
                features.features[r["index"]].name,
                round(r["paid_more"], 3),
            )
            for r in named[:3]
        ]
        place = features.flags + [*features.numbers.columns].index("characters")
        slope, error = difference(features.values(place), rewards, groups)
        if len(members) == 1:
            slopes[label] = slope
        print(
            f"{label} ({len(part)} pairs): {first}; log characters {slope:+.3f} ± {error:.3f}",
            flush=True,
        )
    published = pd.read_csv(folder / "alpaca_eval_published_length_coefficients.csv")
    print(published.to_string())
    column = published.select_dtypes("number").columns[0]
    name = published.select_dtypes(exclude="number").columns[0]
    both = (
        published.set_index(name)[column]
        .to_frame("published")
        .join(pd.Series(slopes, name="slope"), how="inner")
    )
    rho = stats.spearmanr(both["published"], both["slope"]).statistic
    random = np.random.default_rng(0)
    draws = [
        stats.spearmanr(*both.iloc[random.integers(0, len(both), len(both))].to_numpy().T).statistic
        for _ in range(2000)
    ]
    low, high = np.nanquantile(draws, [0.025, 0.975])
    print(
        f"ρ of slopes with published coefficients {rho:.2f} [{low:.2f}, {high:.2f}], n {len(both)}"
    )


def try_rm_bench(folder: Path) -> None:
    """Planted rewards on three layouts of each answer, and rewards drawn at random."""
    items = json.loads((folder / "rm_bench_chat.json").read_text())
    rows = [
        {"prompt": item["prompt"], "response": text, "group": f"{number} {side}"}
        for number, item in enumerate(items)
        for side in ("chosen", "rejected")
        for text in item[side]
    ]
    frame = pd.DataFrame(rows)
    size = frame["response"].str.len()
    marked = frame["response"].str.contains(
        r"\*\*|^#|^[-*] |^\d+\. ", regex=True, flags=re.MULTILINE
    )
    random = np.random.default_rng(0)
    features = None
    for label, reward in {"length": np.log(size), "markdown": marked.astype(float)}.items():
        rewarded = frame.assign(reward=reward + random.normal(0, 0.1, len(frame)))
        features, groups, _, named, _ = paid_of(rewarded, group="group")
        print(
            label,
            [(features.features[r["index"]], round(r["paid_more"], 3)) for r in named],
            flush=True,
        )
    count = 0
    for draw in range(100):
        named = name_paid(features, groups, random.normal(size=len(groups)), seed=draw)
        count += bool(named)
    print(f"nothing planted: something named in {count} of 100 draws")


def try_judgebench(folder: Path) -> None:
    """What five published reward models pay for, and nothing where signs are drawn."""
    frame = pd.read_parquet(folder / "judgebench_350_pairs_5_reward_models.parquet")
    print(frame.columns.tolist())
    stems = sorted(
        {c.rpartition(":")[0] for c in frame.columns if c.endswith((":a", ":b"))}
    ) or sorted({re.sub(r"[_:]?[abAB]$", "", c) for c in frame.columns if "score" in c.lower()})
    random = np.random.default_rng(0)
    for stem in stems:
        features, groups, rewards, named, _ = paid_of(frame, reward=stem)
        words = [(features.features[r["index"]], round(r["paid_more"], 2)) for r in named]
        place = features.flags + [*features.numbers.columns].index("characters")
        slope, error = difference(features.values(place), rewards, groups)
        count = 0
        for draw in range(20):
            signs = random.choice((-1.0, 1.0), int(groups.max()) + 1)[groups]
            means = (np.bincount(groups, rewards) / np.bincount(groups))[groups]
            count += bool(
                name_paid(features, groups, (rewards - means) * signs, pairs=True, seed=draw)
            )
        print(
            f"{stem}: {words}; log characters {slope:+.2f} ± {error:.2f}; signs drawn: named in {count} of 20",
            flush=True,
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=("gsm", "alpaca", "rm_bench", "judgebench"))
    parser.add_argument("--shared", type=Path, default=Path("../shared"))
    options = parser.parse_args()
    globals()[f"try_{options.part}"](options.shared / "data/scored_answers")
