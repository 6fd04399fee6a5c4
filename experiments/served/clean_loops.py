"""`pessimal check loop=` on pairs of tokenizers that a loop reads as the template writes them, 50 conversations each.

    python experiments/served/clean_loops.py [--n 50]

The pairs are those of tests/scoring/test_loop.py, which runs five conversations each.
"""

import argparse
import sys
import time
from pathlib import Path

TESTS = Path(__file__).resolve().parents[2] / "tests"
sys.path += [str(TESTS), str(TESTS / "scoring")]

from test_loop import checked, clean_pairs  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--n", type=int, default=50, help="conversations a pair")
    n = parser.parse_args().n
    started, alarms, pairs = time.time(), 0, list(clean_pairs())
    for number, (loop, policy, reads) in enumerate(pairs):
        found = checked(loop, policy, reads, n=n, seed=number)
        if found.different:
            alarms += 1
            first = found.different[0]
            template = repr(reads.chat_template)
            print(f"ALARM {number}: {found.counts} of {n}; {template} {first.difference}")
    seconds = time.time() - started
    print(f"{len(pairs)} clean pairs, {n} conversations each: {alarms} alarms, {seconds:.0f} s")


if __name__ == "__main__":
    main()
