"""How long a command says nothing: the longest gaps between what it prints.

python experiments/speed/silence.py pessimal scan ./folder prompts=greatest
"""

import subprocess
import sys
import time


def main() -> None:
    """Runs the command that is given; prints the gaps over 2 s, and what was printed after each."""
    began = last = time.monotonic()
    process = subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert process.stdout is not None
    gaps = []
    while some := process.stdout.read1():  # type: ignore[attr-defined]
        now = time.monotonic()
        gaps.append((now - last, now - began, some.decode(errors="replace").strip()[:80]))
        last = now
    gaps.append((time.monotonic() - last, time.monotonic() - began, "(end)"))
    for gap, at, what in gaps:
        if gap > 2:
            print(f"{gap:5.1f} s of silence, until {at:5.1f} s: {what!r}")
    print(f"longest {max(gaps)[0]:.1f} s of {gaps[-1][1]:.1f} s; exit code {process.wait()}")


if __name__ == "__main__":
    main()
