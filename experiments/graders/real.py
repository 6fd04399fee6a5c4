"""What graders of the package index pay for, on six questions with numbers and four with words.

    python experiments/graders/real.py FOLDER [NAME …]

Writes FOLDER/NAME--TABLE.csv and prints what was found. Needs math-verify, trl, verifiers,
inspect_ai and lm_eval as far as they are asked for (README.md has the versions).
"""

import json
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

import pessimal
from pessimal.progress import quiet_libraries

NUMBERS = {
    "What is 6 times 7?": "42",
    "How many cents are 12 dollars and 34 cents?": "1234",
    "What is 25 divided by 4?": "6.25",
    "What is 1 divided by 3, as a fraction?": "1/3",
    "What is 5 less than 2?": "-3",
    "How many wheels have three cars and a bicycle?": "14",
}
WORDS = {
    "What is the capital of France?": "Paris",
    "Is 91 a prime number? Yes or no.": "no",
    "Which letter stands before D?": "C",
    "Who wrote Faust?": "Goethe",
}
TOKENS = 2_000
"""Most frequent English words, as parsers of mathematics take milliseconds a string."""
COLUMNS = ["fault", "format", "strings", "tasks", "of_tasks", "example", "truth"]


def math_verify() -> Callable:
    from math_verify import parse, verify

    def grader(response: str, ground_truth: str) -> float:
        return float(verify(parse(f"${ground_truth}$"), parse(response)))

    return grader


def trl_accuracy() -> Callable:
    from trl.rewards import accuracy_reward

    return accuracy_reward


def trl_think_format() -> Callable:
    from trl.rewards import think_format_reward

    return think_format_reward


def verifiers_boxed() -> Callable:
    from verifiers.v1.utils.score import verify_boxed_math_answer

    def grader(response: str, ground_truth: str) -> float:
        return verify_boxed_math_answer(response, ground_truth)

    return grader


def _inspect(name: str, *args: str, **given: bool) -> Callable:
    from inspect_ai import scorer

    return getattr(scorer, name)(*args, **given)


def _lm_eval(kind: str) -> Callable:
    """GSM8K of lm-eval, with the filter and metric that its own file names."""
    import lm_eval
    import yaml
    from lm_eval.api.metrics import exact_match_hf_evaluate
    from lm_eval.filters.extraction import RegexFilter

    file = Path(lm_eval.__file__).parent / "tasks/gsm8k/gsm8k.yaml"
    task = yaml.safe_load(file.read_text())
    steps = next(one["filter"] for one in task["filter_list"] if one["name"] == kind)
    extract = RegexFilter(**{key: value for key, value in steps[0].items() if key != "function"})
    given = {key: task["metric_list"][0][key] for key in ("ignore_case", "ignore_punctuation")}
    given["regexes_to_ignore"] = task["metric_list"][0]["regexes_to_ignore"]

    def grader(response: str, ground_truth: str) -> float:
        [[found]] = extract.apply([[response]], [{}])
        scored = exact_match_hf_evaluate([found], [f"#### {ground_truth}"], **given)
        return float(scored["exact_match"])

    return grader


GRADERS: dict[str, tuple[str, dict[str, str], Callable[[], Callable]]] = {
    "math_verify": ("math-verify", NUMBERS, math_verify),
    "trl_accuracy_reward": ("trl", NUMBERS, trl_accuracy),
    "trl_think_format_reward": ("trl", NUMBERS, trl_think_format),
    "verifiers_boxed": ("verifiers", NUMBERS, verifiers_boxed),
    "inspect_match": ("inspect_ai", NUMBERS | WORDS, lambda: _inspect("match")),
    "inspect_match_numeric": ("inspect_ai", NUMBERS, lambda: _inspect("match", numeric=True)),
    "inspect_includes": ("inspect_ai", NUMBERS | WORDS, lambda: _inspect("includes")),
    "inspect_answer_line": ("inspect_ai", NUMBERS | WORDS, lambda: _inspect("answer", "line")),
    "inspect_answer_word": ("inspect_ai", WORDS, lambda: _inspect("answer", "word")),
    "lm_eval_gsm8k_strict": ("lm_eval", NUMBERS, lambda: _lm_eval("strict-match")),
    "lm_eval_gsm8k_flexible": ("lm_eval", NUMBERS, lambda: _lm_eval("flexible-extract")),
}
"""By name: package, questions, and what gives the grader."""


def tasks(questions: dict[str, str], file: Path, *, messages: bool) -> Path:
    """The questions with every column that one of the graders reads."""
    lines = [
        {
            "prompt": [{"role": "user", "content": question}] if messages else question,
            "ground_truth": answer,
            "target": answer,
            "solution": f"${answer}$",
        }
        for question, answer in questions.items()
    ]
    file.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    return file


def main(folder: Path, names: list[str]) -> None:
    import wordfreq

    folder.mkdir(parents=True, exist_ok=True)
    quiet_libraries()
    words = wordfreq.top_n_list("en", TOKENS)
    for name in names or GRADERS:
        package, questions, made = GRADERS[name]
        began = time.monotonic()
        with TemporaryDirectory() as work:
            file = tasks(questions, Path(work) / "tasks.jsonl", messages=package == "trl")
            results = pessimal.census(
                made(), file, tokens=words, seconds=20, name=name, progress=False
            )
        seconds = time.monotonic() - began
        print(f"\n== {name}, {package} {version(package)}, {seconds:.0f} s", flush=True)
        for result in results:
            result.table.to_csv(folder / f"{name}--{result.name}.csv", index=False)
            shown = [column for column in COLUMNS if column in result.table]
            print(f"{result.headline}\n{result.table[shown].to_string(index=False)}", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
