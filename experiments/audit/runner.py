"""One audit in this process: what `pessimal audit` does and writes, without its page and W&B. Loading
the libraries takes longer than an audit."""

import json
import os
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

from pessimal.api import audit
from pessimal.config.compose import build, composed
from pessimal.errors import IncompleteError, VerdictError
from pessimal.verbs.audit import run

NETWORK_CHECKS = ("read", "prefers", "one_word", "frequency", "identity", "additions")
"""What these audits measure."""


def audited(root: str | Path, name: str, *options: str, before=None, parts=None) -> dict:
    """`audit.json` of an audit, made or found in the registry below `root`.

    Args:
        options: as on the command line.
        before: called with the configuration before the audit, to change what no option does.
        parts: what is measured, of check, pairs, scan, additions, push; all where None.
    """
    fixed = ["task=audit", f"paths.root={root}", f"name={name}", "tracking=off", "page=false"]
    config = build(composed([*fixed, "progress=false", *options]))
    if before is not None:
        before(config)
    fit_budget = audit.fit_budget

    def some(*args, **keywords):
        scope = fit_budget(*args, **keywords)
        scope.sizes.update(dict.fromkeys(scope.sizes.keys() - set(parts or scope.sizes), 0))
        return scope

    audit.fit_budget = some
    try:
        run(config.resolve())
    except (VerdictError, IncompleteError) as error:
        print(error)
    finally:
        audit.fit_budget = fit_budget
    folder = max((Path(root) / "registry/audit" / name).glob("v*"), key=os.path.getmtime)
    return json.loads((folder / "audit.json").read_text("utf-8"))
