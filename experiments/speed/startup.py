"""How long the front door takes to answer, as whole processes.

python experiments/speed/startup.py
"""

import statistics
import subprocess
import sys
import time

COMMANDS = (["--help"], ["scan", "--help"], ["scan", "--cfg", "job"], ["scan", "model=nothing"])
TURNS = 5


def main() -> None:
    """Print one line a command."""
    for command in COMMANDS:
        seconds = []
        for _ in range(TURNS):
            started = time.perf_counter()
            subprocess.run([sys.executable, "-m", "pessimal", *command], capture_output=True)
            seconds.append(time.perf_counter() - started)
        print(
            f"Start-up: pessimal {' '.join(command):18} {statistics.median(seconds):.2f} s (median "
            f"of {TURNS})"
        )


if __name__ == "__main__":
    main()
