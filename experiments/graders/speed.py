"""How long the census of a grader of 20 µs takes: 49,152 strings and what is asked besides, 50 tasks.

python experiments/graders/speed.py
"""

import json
import os
import resource
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import pessimal

STRINGS, TASKS, SECONDS = 49_152, 50, 20e-6


def grader(response: str, ground_truth: str) -> float:
    """Whether the response is the answer, after 20 µs."""
    until = time.perf_counter() + SECONDS
    while time.perf_counter() < until:
        pass
    return float(response.strip() == ground_truth)


def main() -> None:
    lines = [
        json.dumps({"prompt": f"What is {n} times 7?", "ground_truth": str(7 * n)})
        for n in range(TASKS)
    ]
    with TemporaryDirectory() as folder:
        file = Path(folder) / "tasks.jsonl"
        file.write_text("\n".join(lines), encoding="utf-8")
        began = time.monotonic()
        results = pessimal.census(
            grader, file, tokens=[f"t{n}" for n in range(STRINGS)], progress=False
        )
        wall = time.monotonic() - began
    own, workers = (
        resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    cpu = [one.ru_utime + one.ru_stime for one in (own, workers)]
    print(f"{wall:.0f} s wall; CPU {cpu[0]:.0f} s of the census, {cpu[1]:.0f} s of its workers")
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    print(*(result.headline for result in results), sep="\n")


if __name__ == "__main__":
    main()
