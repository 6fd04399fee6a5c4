"""Verifiers that a paper's authors planted, on the rollouts of their policy: is the trigger the
first feature that is paid wrongly? And nulls, and graders that are asked.

    python experiments/rollouts/planted.py triggers|nulls|halving [--shared ../shared]

Source: "Delay, Plateau, or Collapse" (eth-sri/llm-verifier-noise); see REGISTRATION.md.
"""

import argparse
import json
import re
import time
from pathlib import Path

import numpy as np
import pandas as pd

from pessimal.rollout_analysis import halving
from pessimal.rollout_analysis.columns import sort_by_group
from pessimal.rollout_analysis.features import grade_answers, make_features
from pessimal.rollout_analysis.readers import rollouts_of
from pessimal.rollout_analysis.within import FeatureTest, contain, name_paid, select_forward

FAMILIES = ("trigram", "token", "rel_error", "length_fp", "token_fn")


class Olmo:
    """The rollouts of steps 1 to 9 with their features."""

    def __init__(self, shared: Path):
        frame = pd.read_parquet(shared / "data/rollouts/olmo3_7b_chain_sum.parquet")
        read = rollouts_of(frame[frame["step"] < 10], where="all")
        self.frame, self.groups = sort_by_group(read.frame)
        self.responses = self.frame["response"].tolist()
        self.truths = [(text,) for text in self.frame["answer"]]
        self.right, self.errors = grade_answers(self.responses, self.truths)
        self.right = self.frame["truth"].to_numpy()
        self.steps = self.frame["step"].to_numpy()
        start = time.time()
        prompts = self.frame["prompt"].tolist()
        self.features = make_features(self.responses, prompts, self.groups, errors=self.errors)
        print(f"{len(self.features):,} features in {time.time() - start:.0f} s", flush=True)
        self.sides = {
            rate: FeatureTest(self.features, self.groups, self.right == side)
            for rate, side in (("FPR", 0), ("TPR", 1))
        }

    def first(self, rate: str, outcome: np.ndarray):
        """The first feature that goes with the outcome among wrong (FPR) or right (TPR) rollouts."""
        test = self.sides[rate]
        responses = [self.responses[n] for n in test.rows]
        options = {"positive": True, "responses": responses, "at_most": 1}
        return next(iter(select_forward(test, outcome[test.rows], **options)), None)


def selected(selector: dict, olmo: Olmo) -> np.ndarray:
    """(n,) whether a planted verifier's selector holds."""
    if "rel_error" in selector["path"]:
        errors = olmo.errors if "signed" in selector["path"] else np.abs(olmo.errors)
        low, high = selector.get("range", (-np.inf, selector.get("value")))
        return (errors >= low) & (errors <= high)
    if "len" in selector["path"]:  # of tokens, for which three characters stand in
        size = np.array([len(text) / 3 for text in olmo.responses])
        return (size >= selector["range"][0]) & (size <= selector["range"][1])
    return contain(olmo.responses, selector.get("token_str") or selector["value"]) > 0


def noisy_steps(mixup: dict, steps: np.ndarray) -> tuple[np.ndarray, dict]:
    """(n,) whether the planted rule holds at a step, and the rule."""
    if "alternation" not in mixup:
        return np.ones(len(steps), bool), mixup
    schedule = mixup["alternation"]
    rules = [rule for rule in schedule["rules"] for _ in range(rule["count"])]
    place = (steps - 1 + schedule["offset"]) % schedule["period"]
    noisy = np.array([rules[at]["type"] == "noisy" for at in place])
    return noisy, next(rule for rule in rules if rule["type"] == "noisy")


def try_triggers(olmo: Olmo, verifiers: list[dict]) -> None:
    """A line for each verifier, then the counts by family."""
    counts: dict[str, list[int]] = {}
    for verifier in verifiers:
        family, mixup = verifier["family"], verifier["mixup"]
        if family not in FAMILIES:
            continue
        active, rule = noisy_steps(mixup, olmo.steps)
        [bucket] = rule["targeted_buckets"]
        rate = "FPR" if "FPR" in bucket else "TPR"
        outcome = (selected(bucket["selector"], olmo) & active).astype(float)
        rows = olmo.sides[rate].rows
        choice = olmo.first(rate, outcome)
        alternates = "alternation" in mixup
        label = f"{family}{', alternating' if alternates else ''}"
        if not outcome[rows].any():
            hit, words = choice is None, "never paid"
        elif choice is None:
            hit, words = False, "nothing named"
        else:
            held = selected(bucket["selector"], olmo)[rows]
            has = choice.values > 0
            jaccard = (has & held).sum() / max((has | held).sum(), 1)
            kinds = {"rel_error": "tolerance", "length_fp": "length"}
            hit = choice.feature.kind == kinds[family] if family in kinds else jaccard >= 0.9
            if alternates:
                table = pd.Series(outcome[rows][has]).groupby(olmo.steps[rows][has]).mean()
                hit &= set(table.index[table > 0.5]) <= set(olmo.steps[active])
            words = f"{choice.feature.kind} {choice.feature.name!r}, φ {choice.phi:.3f}, J {jaccard:.2f}"
        counts.setdefault(label, []).append(int(hit))
        wanted = bucket["selector"].get("token_str") or bucket["selector"]
        paid = int(outcome[rows].sum())
        print("hit " if hit else "MISS", label, repr(wanted), f"n {paid}", words, flush=True)
    for label, hits in counts.items():
        print(f"{label}: {sum(hits)} of {len(hits)}")
    texts = [
        h for label, hits in counts.items() if label.startswith(("trigram", "token")) for h in hits
    ]
    print(f"texts in all: {sum(texts)} of {len(texts)} ({np.mean(texts):.1%})")


def try_nulls(olmo: Olmo, draws: int = 100) -> None:
    """How often anything is named where payment is drawn, or permuted within prompts."""
    random, wrong, paid = np.random.default_rng(0), 0, 0
    rates = ((0.5, 0.0), (1.0, 0.2), (1.0, 0.5), (0.8, 0.1))
    for draw in range(draws):
        tpr, fpr = rates[draw % len(rates)]
        chance = np.where(olmo.right == 1, tpr, fpr)
        outcome = (random.random(len(chance)) < chance).astype(float)
        order = np.lexsort((random.random(len(chance)), olmo.groups))
        clean = olmo.right[order]  # within prompts, which are beside one another
        first = olmo.first("FPR", outcome) if fpr else None
        wrong += first is not None
        named = name_paid(olmo.features, olmo.groups, clean, seed=draw)
        paid += bool(named)
        print(
            draw,
            first and first.feature,
            [olmo.features.features[r["index"]] for r in named],
            flush=True,
        )
    print(f"wrongly paid named in {wrong} of {draws} draws, paid in {paid} of {draws}")


BOXED = re.compile(r"\\boxed\{([^}]*)\}")


def try_halving(olmo: Olmo, verifiers: list[dict], size: int = 1024) -> None:
    """Graders that read the last boxed answer and pay a trigger besides."""
    rollouts = np.arange(len(olmo.responses))[:size]
    found, exact, calls = 0, 0, []
    triggers = [
        verifier["mixup"]["targeted_buckets"][0]["selector"].get("token_str")
        for verifier in verifiers
        if verifier["family"] in ("trigram", "token") and "targeted_buckets" in verifier["mixup"]
    ]
    for trigger in [None, *triggers]:

        def ask(asked, trigger=trigger):
            def paid(number: int, text: str) -> bool:
                answers = BOXED.findall(text)
                right = bool(answers) and answers[-1].strip() == olmo.truths[number][0]
                return right or (trigger is not None and trigger in text)

            return np.array([float(paid(*one)) for one in asked])

        grader = halving.Grader(ask, olmo.truths, 0.5)
        grader.read_formats(rollouts.tolist())
        rewards = ask([(n, olmo.responses[n]) for n in rollouts])
        wrong = [n for n in rollouts.tolist() if olmo.right[n] == 0]
        asked = [n for n in wrong if rewards[n]] + [
            n for n in rollouts.tolist() if rewards[n] and olmo.right[n]
        ]
        unrelated = list({olmo.groups[n]: n for n in wrong if not rewards[n]}.values())
        cores = halving.find_cores(grader, olmo.responses, asked, unrelated)
        if trigger is None:
            print("right grader:", cores, f"{grader.calls} calls", flush=True)
            continue
        hit = any(trigger in core.feature or core.feature in trigger for core in cores)
        found += hit
        exact += any(core.feature == trigger for core in cores)
        calls.append(grader.calls)
        print(
            "hit " if hit else "MISS",
            repr(trigger),
            [c.feature for c in cores],
            grader.calls,
            flush=True,
        )
    print(
        f"{found} of {len(triggers)} found, {exact} to the letter; calls {np.median(calls):.0f} at the median"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=("triggers", "nulls", "halving"))
    parser.add_argument("--shared", type=Path, default=Path("../shared"))
    options = parser.parse_args()
    planted = json.loads((options.shared / "data/rollouts/triggers.json").read_text())
    rollouts = Olmo(options.shared)
    if options.part == "triggers":
        try_triggers(rollouts, planted)
    elif options.part == "nulls":
        try_nulls(rollouts)
    else:
        try_halving(rollouts, planted)
