"""The way of one command through the rooms: distinct calls from function to function, and how many
of them stay in a room, go down, or climb back up (a callback, a method of a room above).

    python experiments/walks/trace.py scan model=plain-bpe-0 prompts=greatest

Counted are pairs of functions of the package, by their files; a pair that calls a thousand times
counts once. Files are those in which at least one function ran; what importing runs (modules, the
bodies of classes) is none.
"""

import contextlib
import inspect
import re
import sys
import threading
import tomllib
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "src" / "pessimal"


def rooms() -> dict[str, int]:
    """The height of every room, of pyproject.toml's layers."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    layers = next(c["layers"] for c in contracts["contracts"] if c["type"] == "layers")
    names = [re.findall(r"pessimal\.(\w+)", layer) for layer in layers]
    return {name: -height for height, layer in enumerate(names) for name in layer}


def main() -> None:
    pairs: set[tuple] = set()

    def watch(frame, event, _):
        back = frame.f_back
        if event != "call" or back is None:
            return
        here, caller = frame.f_code, back.f_code
        if not here.co_flags & inspect.CO_NEWLOCALS or caller.co_name == "<module>":
            return
        if all(code.co_filename.startswith(str(SRC)) for code in (here, caller)):
            pairs.add((caller.co_filename, caller.co_qualname, here.co_filename, here.co_qualname))

    sys.argv = ["pessimal", *sys.argv[1:]]
    from pessimal.__main__ import main as run

    threading.setprofile(watch)
    sys.setprofile(watch)
    with contextlib.suppress(SystemExit):
        run()
    sys.setprofile(None)
    heights, ways, climbs = rooms(), Counter(), []

    def room(file: str) -> str:
        return Path(file).relative_to(SRC).parts[0].removesuffix(".py")

    for caller, calling, file, called in pairs:
        at, to = room(caller), room(file)
        if at not in heights or to not in heights:
            continue
        way = "stays" if at == to else "down" if heights[to] < heights[at] else "up"
        ways[way] += 1
        if way == "up":
            climbs.append(f"{at}.{calling} -> {to}.{called}")
    files = {file for pair in pairs for file in (pair[0], pair[2])}
    print(f"{dict(ways)}, {len(files)} files with a function that ran")
    print("\n".join(sorted(climbs)))


if __name__ == "__main__":
    main()
