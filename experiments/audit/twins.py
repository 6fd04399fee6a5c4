"""How much another seed of the same training changes what an audit compares with its baseline.

    python experiments/audit/twins.py REGISTRY MODEL,TWIN [MODEL,TWIN …]

Reads finished scans of the core prompts (`pessimal scan model=NAME prompts=core`) and prints every
change of each pair, and by kind the largest (of resemblances the least). The limits under `changes`
in src/pessimal/auditing/thresholds.yaml are set from this.
"""

import sys
from pathlib import Path

import pandas as pd

from pessimal.analyses import all_analyses, compare
from pessimal.api.compare import read_options, reading_of
from pessimal.auditing.changes import LEAST, metrics, resemblance
from pessimal.auditing.evidence import one_word
from pessimal.config.compose import configuration
from pessimal.tables import read_score_table
from pessimal.tables.table_set import table_sets
from pessimal.tracking.registry import Registry

PROMPTS = ("greatest", "best", "worst")


def audited(registry: Registry, model: str, *, tables=None):
    """A model's score tables of the core prompts, and what an audit measures on them."""
    tables = tables or [
        read_score_table(folder)
        for prompt in PROMPTS
        for folder, manifest in registry.latest("score-table")
        if (manifest.summary["model"], manifest.summary["prompt"]) == (model, prompt)
    ]
    options = configuration("compare")
    wanted = [one for one in all_analyses() if one.name in ("frequency", "identity_terms")]
    sets = table_sets(tables, reading_of(options))
    results, skipped = compare(sets, read_options(options), analyses=wanted)
    assert not skipped, skipped
    evidence = {result.name: result for result in [*results, one_word(tables)]}
    return tables, metrics(evidence, tables), evidence


def main(root: str, *pairs: str) -> None:
    registry, rows = Registry(Path(root)), []
    for pair in pairs:
        (first, now, _), (second, before, _) = (audited(registry, name) for name in pair.split(","))
        found = resemblance(first, second)
        found |= {name: abs(now[name] - before[name]) for name in now.keys() & before.keys()}
        rows += [(pair, name.partition("/")[0], name, change) for name, change in found.items()]
    table = pd.DataFrame(rows, columns=["pair", "kind", "number", "change"])
    print(table.pivot_table(index="number", columns="pair", values="change").round(3).to_string())
    for kind, some in table.groupby("kind"):
        which, end = ("least", "min") if kind in LEAST else ("most ", "max")
        print(f"{kind:12} {which} {some['change'].agg(end):.3f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
