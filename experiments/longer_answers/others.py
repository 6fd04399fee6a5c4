"""What the search finds beside the released nanoGCG and TROPT, at equal evaluations.

    python experiments/longer_answers/others.py PYTHON_OF_NANOGCG PYTHON_OF_TROPT [SEEDS [CASE …]]

Cases are as in `stages.py`. Lays out each reward as both can read it, has `others_search.py` search
it in the environment of each, and gives what was found to pessimal's own forward: all rewards here
are that, in float32, with the goal's sign. All may use the same tokens, in the same place of the
same conversation; whether ids survive as text is not asked. A gradient counts as 3 evaluations. The
search pays for its noise samples and its certificate out of the budget; the others need not.

↓ marks what is below pessimal by more than two standard errors of the difference, ↑ what is above
it; the rest is level.
"""

import json
import math
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from safetensors.torch import save_file
from stages import context_of

from pessimal.searching.context import SearchContext
from pessimal.searching.objective import GRADIENT_COST
from pessimal.searching.run import run

CASES = (
    *("plain-bpe-0,4,optimal", "plain-bpe-0,4,pessimal"),
    *("alder-bpe-0,4,optimal", "alder-bpe-0,8,pessimal", "llama,4,optimal"),
)
BUDGETS = (2_000, 20_000)
SIZES = (
    *("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "rms_norm_eps"),
    *("num_attention_heads", "num_key_value_heads", "max_position_embeddings"),
)
AGREE = 1e-3
OWN = "pessimal"


class Found(NamedTuple):
    """What one run found."""

    case: str
    way: str
    budget: int
    reward: float


def lay_out(case: str, folder: Path) -> SearchContext:
    """Write the reward of a case for the others."""
    context = context_of(case, BUDGETS[0])
    [frame] = [frame for frames in context.frames.values() for frame in frames]
    network, sign = context.network(), context.spec.goal.sign
    config, bounds = network.config, context.bounds
    assert config.model_type == "llama"
    assert bounds.finite
    assert frame.suffix
    described = {
        "name": case,
        "geometry": {size: getattr(config, size) for size in SIZES},
        "gradient": GRADIENT_COST,
        "before": frame.prefix,
        "after": frame.suffix,
        "pad": config.pad_token_id,
        "length": context.spec.length,
        "allowed": context.mask.nonzero()[0].tolist(),
        "sign": sign,
        "bound": bounds.high if sign > 0 else -bounds.low,
    }
    folder.mkdir(parents=True)
    (folder / "case.json").write_text(json.dumps(described))
    weights = {name: weight.contiguous() for name, weight in network.state_dict().items()}
    save_file(weights, folder / "network.safetensors")
    return context


def found_by(python: str, package: str, folder: Path, seeds: int, contexts: dict) -> list[Found]:
    """What the ways of a package find, told by pessimal's own forward."""
    script = Path(__file__).with_name("others_search.py")
    command = [python, script, package, folder, seeds, *BUDGETS]
    lines = subprocess.run([*map(str, command)], stdout=subprocess.PIPE, text=True, check=True)
    found = []
    for line in map(json.loads, lines.stdout.splitlines()):
        context = contexts[line["case"]]
        [own] = context.spec.goal.sign * context.own_rewards(torch.tensor([line["ids"]]))
        assert abs(own - line["value"]) < AGREE, f"{line}: pessimal's own forward has {own}"
        assert context.mask[line["ids"]].all()
        found.append(Found(line["case"], line["way"], line["budget"], float(own)))
    return found


def found_here(case: str, budget: int, seed: int) -> Found:
    """What pessimal finds."""
    context = context_of(case, budget, seed)
    result = run(context)
    assert result.evaluations <= budget
    [own] = context.own_rewards(torch.tensor([result.response]))
    return Found(case, OWN, budget, context.spec.goal.sign * float(own))


def verdict(here: np.ndarray, there: np.ndarray) -> str:
    """How the first stands to the second."""
    difference = here.mean() - there.mean()
    error = math.sqrt(sum(values.var(ddof=1) / len(values) for values in (here, there)))
    if abs(difference) <= 2 * error:
        return "level"
    return "ahead" if difference > 0 else "behind"


def show(found: list[Found], seeds: int) -> None:
    """Print the tables."""
    ways = list(dict.fromkeys([OWN, *(one.way for one in found)]))
    print(f"\nMean best reward ± standard deviation, {seeds} seeds\n")
    print("| case | evaluations | " + " | ".join(ways) + " |\n" + "|---" * (len(ways) + 2) + "|")
    counts = {way: {"ahead": 0, "level": 0, "behind": 0} for way in ways[1:]}
    for case, budget in dict.fromkeys((one.case, one.budget) for one in found):
        ends = {
            way: np.array([r for c, w, b, r in found if (c, w, b) == (case, way, budget)])
            for way in ways
        }
        assert {len(values) for values in ends.values()} == {seeds}
        best = max(values.mean() for values in ends.values())
        cells = []
        for way, values in ends.items():
            cell = f"{values.mean():.3f} ± {values.std(ddof=1):.3f}"
            if way != OWN:
                stands = verdict(ends[OWN], values)
                counts[way][stands] += 1
                cell += " ↑" * (stands == "behind") + " ↓" * (stands == "ahead")
            cells.append(f"**{cell}**" if values.mean() == best else cell)
        print(f"| {case.replace(',', ', ')} | {budget:,} | " + " | ".join(cells) + " |")
    print("\n| pessimal is | " + " | ".join(counts) + " |\n" + "|---" * (len(counts) + 1) + "|")
    for stands in ("ahead", "level", "behind"):
        print(f"| {stands} | " + " | ".join(str(one[stands]) for one in counts.values()) + " |")


def main(nanogcg: str, tropt: str, seeds: str = "3", *cases: str) -> None:
    """Search and print."""
    began, found = time.monotonic(), []
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        asked = cases or CASES
        contexts = {case: lay_out(case, Path(folder, str(n))) for n, case in enumerate(asked)}
        for package, python in {"nanogcg": nanogcg, "tropt": tropt}.items():
            found += found_by(python, package, Path(folder), int(seeds), contexts)
            print(f"{package}: {time.monotonic() - began:.0f} s so far", flush=True)
    each = ((case, budget) for case in contexts for budget in BUDGETS)
    found += [found_here(*one, seed) for one in each for seed in range(int(seeds))]
    show(found, int(seeds))
    print(f"\n{time.monotonic() - began:.0f} s in all")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        raise SystemExit(__doc__)
    main(*sys.argv[1:])
