"""One audit in this process: what `pessimal audit` does and writes, without its page, W&B and
forecast (which has no limit, and so never fails). Loading the libraries takes longer than an audit."""

import json
import os
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

from pessimal.config.compose import build, composed
from pessimal.errors import WorkError
from pessimal.verbs import audit

audit._policy = lambda config: None
NETWORK_CHECKS = ("read", "ceiling", "one_word", "frequency", "identity", "additions", "push")
"""What these audits measure."""


def audited(root: str | Path, name: str, *options: str, before=None, parts=None) -> dict:
    """`audit.json` of an audit, made or found in the registry below `root`.

    Args:
        options: as on the command line.
        before: called with the configuration before the audit, to change what no option does.
        parts: what is measured, of check, scan, additions, push; all where None.
    """
    fixed = ["task=audit", f"paths.root={root}", f"name={name}", "tracking=off", "page=false"]
    config = build(composed([*fixed, "progress=false", *options]))
    if before is not None:
        before(config)
    fitting = audit.fitting

    def some(*args, **keywords):
        scope = fitting(*args, **keywords)
        scope.sizes.update(dict.fromkeys(scope.sizes.keys() - set(parts or scope.sizes), 0))
        return scope

    audit.fitting = some
    try:
        audit.run(config)
    except WorkError as error:  # a check fails
        print(error)
    finally:
        audit.fitting = fitting
    folder = max((Path(root) / "registry/audit" / name).glob("v*"), key=os.path.getmtime)
    return json.loads((folder / "audit.json").read_text("utf-8"))
