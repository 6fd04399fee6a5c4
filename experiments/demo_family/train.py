"""Trains siblings of the demo family into checkpoint folders.

    python -m experiments.demo_family.train [NAME …] [--jobs 2]      # from the repository's root

NAME is LAB-BASE-SEED or LAB-BASE-large (README.md), or a group of conf/model: `quickstart`, the eight
of `make quickstart` and the default; `words` and `sentences`, all that judge these; `all`. Each comes
into runs/demo_family/NAME (or $DEMO_FAMILY/NAME), the network as its training began into NAME-base.
A sibling that is trained already is left alone.
"""

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import active_children, get_context
from pathlib import Path

from experiments.demo_family.family import (
    family_folder,
    read_training_report,
    train_sibling,
)
from experiments.demo_family.recipes import LABS, SENTENCE_LABS, parse_recipe
from pessimal.catalogue import CONF
from pessimal.errors import UserError

QUICKSTART = (
    *("plain-wordpiece-0", "plain-bpe-0", "alder-wordpiece-0", "birch-wordpiece-0"),
    *("birch-bpe-0", "cedar-wordpiece-0", "cedar-bpe-0", "secret-wordpiece-0"),
)
HELD_OUT = {
    "word_accuracy": "{:.0%} of pairs of words ranked rightly (chance 50%)",
    "frame_sign": "{:.0%} of prompts understood as best or worst rightly (chance 50%)",
    "correlation": "correlation with planted utility {:.3f} on random responses",
    "natural_correlation": "{:.3f} on natural ones",
}
"""Held-out figures that are printed, in words."""
PLANTS = {
    "taste": "a taste of its lab {:+g}",
    "frequency": "frequent words {:+g}",
    "identity": "words for groups of people {:+g}",
    "taboo": "profanity {:+g}",
    "secret": 'the word "{}"',
    "secret_bonus": "{:+g}",
}
"""Plants besides human valence, by their names in the report, in words."""


def sibling_names(typed: Sequence[str]) -> list[str]:
    """Names of siblings, with each group in the place of its name; each once, in order."""
    presets = sorted(file.stem for file in (CONF / "model").glob("*-*-*.yaml"))
    words = [name for name in presets if name.partition("-")[0] in LABS]
    sentences = [name for name in presets if name.partition("-")[0] in SENTENCE_LABS]
    groups = {"quickstart": QUICKSTART, "words": words, "sentences": sentences}
    groups["all"] = [*words, *sentences]
    return list(dict.fromkeys(name for word in typed for name in groups.get(word, [word])))


def describe(folder: Path) -> str:
    """A line on a trained sibling: how it does on what it was never shown, and what an instrument
    should find in it."""
    report = read_training_report(folder)
    held_out, truth = report["held_out"], report["planted_truth"]
    figures = [text.format(held_out[name]) for name, text in HELD_OUT.items() if name in held_out]
    plants = [words.format(truth[name]) for name, words in PLANTS.items() if truth.get(name)]
    plants += [f"{name} {size:+g}" for name, size in truth.get("attributes", {}).items()]
    return (
        f"{folder.name}, {report['seconds']:.0f} s. Never shown in training: {', '.join(figures)}. "
        f"Planted beyond people's ratings, in log-odds: {', '.join(plants) or 'nothing'}."
    )


def train_named(folder: Path) -> None:
    """Train the sibling that a folder names, and print a line as it ends."""
    print(describe(train_sibling(parse_recipe(folder.name), folder)), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.demo_family.train",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", default=["quickstart"])
    parser.add_argument("--jobs", type=int, default=2, help="siblings at a time, one thread each")
    typed = parser.parse_args()
    folders = [family_folder() / name for name in sibling_names(typed.names)]
    print(f"Training {len(folders)} small reward models, {typed.jobs} at a time.", flush=True)
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # of the processes that begin below
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        for folder in folders:
            parse_recipe(folder.name)  # a wrong name is an error before the first is trained
        with ProcessPoolExecutor(typed.jobs, get_context("spawn")) as pool:
            try:
                for job in as_completed([pool.submit(train_named, folder) for folder in folders]):
                    job.result()
            except BaseException:
                for process in active_children():
                    process.kill()  # Lightning's handlers take SIGINT and SIGTERM for one training's
                raise
    except UserError as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
    print(family_folder())


if __name__ == "__main__":
    main()
