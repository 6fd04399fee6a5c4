"""Audits of three graders of the package index, on six questions with numbers.

    python experiments/audit/graders.py RUNS

What `pessimal audit experiments/audit/graders.py:math_verify tasks=RUNS/numbers.jsonl` does, but
with the 500 most frequent English words as tokens, as parsers of mathematics take milliseconds a
string. Needs math-verify and trl.
"""

import sys
from pathlib import Path

TOKENS = 500


def math_verify(response: str, ground_truth: str) -> float:
    from math_verify import parse, verify

    return float(verify(parse(f"${ground_truth}$"), parse(response)))


def accuracy_reward(completions: list, solution: list, **columns) -> list:
    from trl.rewards import accuracy_reward

    return accuracy_reward(completions, solution, **columns)


def think_format_reward(completions: list, **columns) -> list:
    from trl.rewards import think_format_reward

    return think_format_reward(completions, **columns)


def main(root: str) -> None:
    import wordfreq
    from runner import audit, audited

    sys.path.append(str(Path(__file__).resolve().parents[1] / "graders"))
    from real import NUMBERS
    from real import tasks as write_tasks

    audit.grading.tokens_of = lambda reward: wordfreq.top_n_list("en", TOKENS)
    for grader in (math_verify, accuracy_reward, think_format_reward):
        file = Path(root).resolve() / f"{grader.__name__}.jsonl"
        write_tasks(NUMBERS, file, messages=grader is not math_verify)
        target = f"model.callable._target_={Path(__file__).resolve()}:{grader.__name__}"
        model = ("model=callable", target, f"model.name={grader.__name__}", f"tasks={file}")
        for one in audited(root, grader.__name__, *model)["verdicts"]:
            if one["check"].startswith("grader"):
                fields = ("check", "verdict", "value", "low", "high", "n", "evidence")
                print(f"| {grader.__name__} |", *(f"{one[field]} |" for field in fields))


if __name__ == "__main__":
    main(sys.argv[1])
