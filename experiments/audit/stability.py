"""Do verdicts depend on what should not matter? Audits of the same models again and again.

    python experiments/audit/stability.py RUNS REPEATS [MODEL …]

Varied: the precision of the network (float32, bfloat16), the batch size and the number of threads
of a scan, each scanned anew; and for every repeat the seed of resampling and of the responses that
are checked, the batch size of the check, and the order of the texts in the score tables. Verdicts
of read, one_word, frequency and identity on the three core prompts; not of what is behind real
answers, the search and the forecast. Prints, by model and check, how often each verdict was given,
and the share of verdicts that differ from that check's most frequent one.
"""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from scipy import stats

from pessimal import scan
from pessimal.analyses import all_analyses, compare
from pessimal.api.compare import read_options, reading_of
from pessimal.auditing.evidence import one_word
from pessimal.auditing.verdicts import NOT_MEASURED, verdicts
from pessimal.checking.suite import CheckPlan, check, conformance_results
from pessimal.config.compose import build, composed, configuration
from pessimal.rewards.obtain import open_reward
from pessimal.tables.table_set import table_sets
from pessimal.verbs.common import store_of

MODELS = ("plain-bpe-0", "birch-bpe-0", "cedar-bpe-0")
SETTINGS = {
    "float32": (),
    "float32, batches of 17, two threads": ("batch_size=17", "trainer.threads=2"),
    "bfloat16": ("model.dtype=bfloat16",),
}
ANALYSES = ("frequency", "identity_terms")


def scans(root: Path, name: str, model: str, options: tuple[str, ...]):
    """The opened model, the prompt and the score tables; each setting has a registry of its own, so
    that nothing is taken from another's."""
    registry = root / "stability" / name.replace(", ", "-").replace(" ", "-")
    fixed = [f"paths.root={root}", f"paths.registry={registry}", "tracking=off", "progress=false"]
    config = build(composed(["task=scan", f"model={model}", "prompts=core", *fixed, *options]))
    reward = open_reward(config.model, cache=config.paths.cache)
    how = {"batch_size": config.batch_size, "trainer": config.trainer, "store": store_of(config)}
    tables = scan(reward, config.prompts, cache=config.paths.cache, progress=False, **how)
    return reward, config.prompts["greatest"], tables


def verdicts_of(reward, prompt, tables, *, seed: int) -> dict[str, str]:
    random = np.random.default_rng(seed)
    tables = [
        replace(t, rows=t.rows.sample(frac=1, random_state=seed, ignore_index=True)) for t in tables
    ]
    options = replace(configuration("compare"), seed=seed)
    wanted = [one for one in all_analyses() if one.name in ANALYSES]
    sets = table_sets(tables, reading_of(options))
    results, _ = compare(sets, read_options(options), analyses=wanted)
    plan = CheckPlan(16, int(random.integers(2, 33)), [], seed)
    suite = check(reward, prompt, plan, device=torch.device("cpu"), progress=False)
    evidence = [*results, one_word(tables), *conformance_results(suite, reward.name)]
    found = verdicts({one.name: one for one in evidence})
    return {one.check: one.verdict for one in found if one.verdict != NOT_MEASURED}


def main(root: str, repeats: str, *models: str) -> None:
    rows, seed = [], 0
    for model in models or MODELS:
        for name, options in SETTINGS.items():
            reward, prompt, tables = scans(Path(root).resolve(), name, model, options)
            for _ in range(int(repeats)):
                seed += 1
                found = verdicts_of(reward, prompt, tables, seed=seed)
                rows += [(model, name, seed, one, verdict) for one, verdict in found.items()]
            print(model, name, found, flush=True)
    table = pd.DataFrame(rows, columns=["model", "setting", "audit", "check", "verdict"])
    print(table.groupby(["model", "check"])["verdict"].value_counts().to_string())
    usual = table.groupby(["model", "check"])["verdict"].transform(lambda some: some.mode()[0])
    changed = table["verdict"] != usual
    low, high = stats.binomtest(int(changed.sum()), len(table)).proportion_ci()
    print(
        f"{changed.sum()} of {len(table)} verdicts of {table['audit'].nunique()} audits differ "
        f"from the most frequent one: {changed.mean():.4f} [{low:.4f}, {high:.4f}]"
    )
    print(table[changed].to_string(index=False))


if __name__ == "__main__":
    main(*sys.argv[1:])
