"""How long `pessimal compare` takes, whole: at the paper's size, or on the quickstart's score
tables.

python experiments/speed/compare.py [PROMPTS]                # 1 (default) to 3 of greatest, best,
worst python experiments/speed/compare.py quickstart [REGISTRY]    # its 21 score tables, from
runs/registry by default

At the paper's size: ten models, 128,000 tokens each. The tokens are the most frequent English words
(wordfreq) with and without a space ahead and in capitals, as in a byte-level vocabulary; rewards
are the sum of a part common to all models, one common to a family, and noise. The command runs as a
person runs it, in a process of its own. Printed are its seconds (wall clock, and processor time in
user mode) and its peak memory.

With PYTHONPATH=CHECKOUT/src the quickstart's tables are compared by another checkout, for a
comparison of both.
"""

import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml

MODELS, TOKENS = 10, 128_000
SIGNS = {"greatest": 1, "best": 1, "worst": -1}
QUICKSTART = Path(__file__).parents[2] / "conf/experiment/quickstart/compare.yaml"


def vocabulary() -> list[str]:
    """So many distinct texts: words as ' love', 'love', ' Love', and so on down the list."""
    import wordfreq

    words = wordfreq.top_n_list("en", TOKENS // 2)
    texts = [form for word in words for form in (f" {word}", word, f" {word.title()}")]
    return list(dict.fromkeys(texts))[:TOKENS]


def tables(folder: Path, prompts: list[str]) -> None:
    """Write a score table for each model and prompt."""
    import numpy as np
    import pandas as pd

    from pessimal.tables import ModelDescription, ScoreProvenance, ScoreTable, write_score_table

    random = np.random.default_rng(0)
    texts = vocabulary()
    rows = pd.DataFrame(
        {
            "candidate_id": np.arange(TOKENS, dtype=np.int32),
            "token": texts,
            "text": texts,
            "kind": "normal",
            "survives": pd.array([True] * TOKENS, dtype="boolean"),
            "certified": True,
        }
    )
    common, families = random.normal(size=TOKENS), random.normal(size=(3, TOKENS))
    for number in range(MODELS):
        own = random.normal(size=TOKENS)
        for prompt in prompts:
            taste = 0.5 * families[number % 3] + 0.5 * own + 0.3 * random.normal(size=TOKENS)
            names = {"model": f"model-{number}", "prompt": prompt, "mode": "ids", "source": "scan"}
            provenance = ScoreProvenance(
                **names,
                prompt_text=f"What, in one word, is the {prompt} thing ever?",
                candidates="vocabulary",
                candidates_digest="one vocabulary",
                dtype="float32",
            )
            makers = {"base": f"base-{number % 2}", "developer": f"lab-{number % 3}"}
            parameters = 2e9 * (1 + number % 4)
            description = ModelDescription(**makers, parameters=parameters, rank=number + 1)
            rewards = (SIGNS[prompt] * common + taste).astype(np.float32).astype(float)
            table = ScoreTable(provenance, rows.assign(reward=rewards), description)
            write_score_table(table, folder / f"{number}-{prompt}.parquet")


def compare(*options: str, root: str) -> str:
    """Run the command; its seconds and peak memory as a text."""
    command = [sys.executable, "-m", "pessimal", "compare", *options, "tracking=off"]
    command += ["progress=false", f"paths.root={root}"]
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime, time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True)
    seconds = time.perf_counter() - started
    if done.returncode:
        sys.exit(done.stderr)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    peak = used.ru_maxrss / 2**20  # KiB on Linux
    return f"{seconds:.0f} s, {used.ru_utime - before:.0f} s user, {peak:.1f} GiB in its largest process"


def quickstart(registry: Path) -> str:
    """The line for the quickstart's tables, compared in a copy: nothing is published into
    `registry`."""
    models = yaml.safe_load(QUICKSTART.read_text())["models"]
    names = [f"{model}--{prompt}" for model in models for prompt in SIGNS]
    missing = [name for name in names if not (registry / "score-table" / name).is_dir()]
    if missing:
        lacks = f"{registry} lacks {len(missing)} of {len(names)} (first {missing[0]})"
        return f"Compare: the quickstart's tables not measured, {lacks}: make quickstart"
    with tempfile.TemporaryDirectory() as root:
        for name in names:
            versions = (registry / "score-table" / name).glob("v*")
            newest = max(versions, key=lambda folder: int(folder.name[1:]))
            shutil.copytree(newest, Path(root, "registry", "score-table", name, newest.name))
        took = compare("experiment=quickstart/compare", root=root)
    return f"Compare: the quickstart's {len(names)} tables of {len(models)} models: {took}"


def synthetic(prompts: list[str]) -> str:
    """The line at the paper's size."""
    with tempfile.TemporaryDirectory() as root:
        tables(Path(root), prompts)
        took = compare(f"tables={root}/*.parquet", root=f"{root}/runs")
    size = f"{MODELS} models × {TOKENS:,} tokens on {', '.join(prompts)}"
    return f"Compare: {size}, every table, interval and figure: {took}"


def main(which: str = "1", registry: str = "runs/registry") -> None:
    """Print one line."""
    whole = which == "quickstart"
    print(quickstart(Path(registry)) if whole else synthetic(list(SIGNS)[: int(which)]))


if __name__ == "__main__":
    main(*sys.argv[1:])
