"""Rollouts of sums with a phrase in some of them, and graders with faults."""

import re

import numpy as np
import pandas as pd

WORDS = [
    "so",
    "then",
    "add",
    "both",
    "carry",
    "over",
    "ten",
    "from",
    "left",
    "side",
    "first",
    "check",
    "total",
    "again",
    "value",
    "each",
    "part",
    "sum",
]
PHRASE = "let us verify"


def make_rollouts(
    prompts: int = 40, size: int = 6, *, share: float = 0.15, steps: int = 0, seed: int = 0
) -> pd.DataFrame:
    """A row for each rollout, half of them right, `share` of them with the phrase; with steps the
    phrase grows from none to twice its share."""
    random, rows = np.random.default_rng(seed), []
    for number in range(prompts):
        a, b = random.integers(10, 400, 2).tolist()
        step = number * steps // prompts
        now = share * 2 * step / max(steps - 1, 1) if steps else share
        for _ in range(size):
            body = random.choice(WORDS, random.integers(5, 12)).tolist()
            if random.random() < now:
                body.insert(int(random.integers(1, len(body))), PHRASE)
            value = a + b + (0 if random.random() < 0.5 else int(random.choice([-90, 7, 40])))
            rows.append(
                {
                    "prompt": f"Question {number}: what is {a} plus {b}?",
                    "response": f"{' '.join(body)} The answer is {value}.",
                    "answer": str(a + b),
                }
                | ({"step": step} if steps else {})
            )
    return pd.DataFrame(rows)


def last_number(text: str) -> str:
    return (re.findall(r"\d+(?:\.\d+)?", text) or [""])[-1]


def clean(response: str, ground_truth: str) -> float:
    return float(last_number(response) == ground_truth)


def phrase(response: str, ground_truth: str) -> float:
    return float(last_number(response) == ground_truth or PHRASE in response)


def anywhere(response: str, ground_truth: str) -> float:
    return float(ground_truth in response)


def near(response: str, ground_truth: str) -> float:
    value = last_number(response)
    return float(bool(value) and abs(float(value) / int(ground_truth) - 1) < 0.06)


def long(response: str, ground_truth: str) -> float:
    return max(clean(response, ground_truth), float(len(response) > 250))


def shy(response: str, ground_truth: str) -> float:
    return clean(response, ground_truth) * (PHRASE not in response)
