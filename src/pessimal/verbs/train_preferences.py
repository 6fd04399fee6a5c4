"""`pessimal train recipe=human_elo`: a reward model from a language model and people's preferences
between items."""

import csv
import hashlib
import json
import logging
import shutil
import sys
import time
from dataclasses import asdict
from pathlib import Path

from peft.utils import ModulesToSaveWrapper
from rich.table import Table
from rich.text import Text

from pessimal.config.models import spec_of
from pessimal.config.plain import config_hash
from pessimal.config.schema import TrainConfig
from pessimal.errors import ModelError
from pessimal.rewards.checkpoint_files import load_tokenizer
from pessimal.rewards.digests import weights_digest
from pessimal.rewards.spec import Kind
from pessimal.tracking.mirror import Mirror
from pessimal.training.answers import Answers
from pessimal.training.callback import PessimalCallback
from pessimal.training.fit import fit, new_network
from pessimal.training.obtain import fetch
from pessimal.training.preferences import digest_of, read_preferences, split
from pessimal.training.spec import PreferenceRecipe
from pessimal.verbs.common import registry_of, tracked
from pessimal.verbs.publish import print_path, show

log = logging.getLogger(__name__)

REPORT, WATCHED = "training.json", "watched.csv"
LOOK_EVERY = 15
"""Steps between two turns of what is watched. Fewer would leave a turn less time than the smallest
sample takes."""
SPLIT_SEED = 0
"""Which items are held out does not depend on the training's seed."""
CARD = """---
base_model: {base}
pipeline_tag: text-classification
---
# {name}

A reward model of people's preferences: Bradley-Terry on {n} items with human Elo, from {base} (weights sha256 {digest}).
{weights}

Question: *{question}*

Of pairs of {held_n} items that it was never trained on, it puts {accuracy:.3f} into people's order (95 % interval {low:.3f} to
{high:.3f}). It has seen items of one to a few words as answers to one question, and nothing else.

`adapter/` is the PEFT adapter (LoRA, rank {rank}, upper {layers} layers) with the head, `steps/` the adapters during training,
`training.json` recipe, losses and figures, `watched.csv` the best and worst tokens seen while it was trained. Made with pessimal: `pessimal train recipe=human_elo`.
"""


def train_preferences(config: TrainConfig) -> None:
    """Train `recipe` from `base` on `data`, unless the registry has it; a training that was cut off
    goes on."""
    recipe, registry = config.recipe, registry_of(config)
    without = _words(recipe.without)
    items = read_preferences(Path(config.data).expanduser(), without=without)
    trained, held_out = split(items, held_out=recipe.held_out, seed=SPLIT_SEED)
    spec = spec_of(config.base, kind=Kind.log_probability)
    base = fetch(spec, cache=config.paths.cache, progress=config.progress)
    digest = weights_digest(base)
    what = asdict(recipe) | {
        "without": None,
        "watch": None,
    }  # the words are in the digest of the items
    said = {"recipe": what, "base": digest, "items": digest_of(items), "seed": config.seed}
    key = hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()
    name = f"{recipe.name}-{spec.name}-{config.seed}"
    published = registry.find("reward-model", key)
    if published and not config.force:
        log.info("%s is trained already: %s (force=true trains it again)", name, published[0])
        _print(name, json.loads((published[0] / REPORT).read_text()))
        return print_path(published[0])
    tokenizer = load_tokenizer(spec, base)
    pad = _padding(tokenizer, recipe.question, spec.name)
    scratch = Path(config.paths.cache) / "training" / f"{name}-{key[:16]}"
    if config.force:
        shutil.rmtree(scratch, ignore_errors=True)
    network, started = new_network(base, recipe, seed=config.seed, pad=pad), time.perf_counter()
    with tracked(config, name=f"train {name}") as mirror:
        watching = _watching(recipe, tokenizer, mirror)
        found = fit(
            network,
            recipe,
            tokenizer,
            trained,
            held_out,
            seed=config.seed,
            folder=scratch,
            accelerator=config.trainer.accelerator,
            progress=config.progress and sys.stderr.isatty(),
            report=_reporter(mirror, name, recipe.steps),
            callbacks=watching,
        )
        report = {
            "name": name,
            "base": spec.name,
            "base_weights": digest,
            "seed": config.seed,
            "recipe": asdict(recipe),
            "items": {
                "trained": len(trained.names),
                "held_out": len(held_out.names),
                "sha256": said["items"],
            },
            "seconds": round(time.perf_counter() - started, 1),
            **found,
            "watched": [
                {"turns": w.history["step"].nunique(), "share_of_time": round(w.share_taken, 5)}
                for w in watching
            ],
        }
        package = spec.package
        source = package.source if package else spec.name if spec.local else spec.path
        card = CARD.format(
            name=name,
            base=source,
            digest=digest,
            n=len(trained.names),
            question=recipe.question,
            weights=f"The base has {package.weights} weights." if package else "",
            held_n=len(held_out.names),
            rank=recipe.rank,
            layers=recipe.layers,
            **{k: report["held_out"][k] for k in ("accuracy", "low", "high")},
        )

        def fill(staging: Path) -> None:
            network.save_pretrained(staging / "adapter")
            tokenizer.save_pretrained(staging / "adapter")
            merged = network.merge_and_unload(safe_merge=True)
            if isinstance(merged.score, ModulesToSaveWrapper):
                merged.score = merged.score.modules_to_save["default"]
            merged.save_pretrained(staging)
            tokenizer.save_pretrained(staging)
            for step in scratch.glob("step-*"):
                shutil.copytree(step, staging / "steps" / step.name)
            for watched in watching:
                watched.history.to_csv(staging / WATCHED, index=False, quoting=csv.QUOTE_NONNUMERIC)
            (staging / "README.md").write_text(card, encoding="utf-8")
            (staging / REPORT).write_text(json.dumps(report, indent=1), encoding="utf-8")

        summary = {"seconds": report["seconds"]} | {
            f"held_out_{k}": v for k, v in report["held_out"].items()
        }
        artifact, manifest = registry.publish(
            "reward-model",
            name,
            fill,
            key=key,
            config_hash=config_hash(config),
            run_id=mirror.run_id,
            summary=summary,
        )
        mirror.summary(summary)
        mirror.artifact(artifact, manifest, summary)
    shutil.rmtree(scratch, ignore_errors=True)
    _print(name, report)
    print_path(artifact)


def _words(path: str | None) -> frozenset[str]:
    if path is None:
        return frozenset()
    lines = Path(path).expanduser().read_text(encoding="utf-8").splitlines()
    return frozenset(line.strip().lower() for line in lines if line.strip())


def _padding(tokenizer, question: str, name: str) -> int:
    """The id that fills up a batch: transformers reads the reward at the last that is another.
    ModelError where there is none."""
    closing = Answers.of(tokenizer, question, ["love"]).own[0][-1]
    for pad in (tokenizer.pad_token_id, tokenizer.eos_token_id):
        if pad is not None and pad != closing:
            return pad
    raise ModelError(
        f"the chat template of {name!r} ends a conversation with the token {closing}, which is "
        f"also the only one to fill up a "
        "batch with: transformers would read the reward before it. Give the tokenizer a pad_token "
        "of its own"
    )


def _watching(recipe: PreferenceRecipe, tokenizer, mirror: Mirror) -> list[PessimalCallback]:
    if not recipe.watch:
        return []

    question = {"question": recipe.question}
    return [PessimalCallback(question, tokenizer, every=LOOK_EVERY, report=mirror.metrics)]


def _reporter(mirror: Mirror, name: str, steps: int):
    def report(point: dict) -> None:
        mirror.metrics(point)
        if "train/held_out_accuracy" in point:
            log.info(
                "training %s: step %d of %d, loss %.3f, held-out accuracy %.3f",
                name,
                point["train/step"],
                steps,
                point["train/loss"],
                point["train/held_out_accuracy"],
            )

    return report


def _print(name: str, report: dict) -> None:
    table = Table(
        title=Text(name), title_justify="left", box=None, pad_edge=False, show_header=False
    )
    for what, found in (
        ("held-out items", report["held_out"]),
        ("items trained on", report["trained"]),
    ):
        table.add_row(
            f"pairs of {found['n']} {what} in people's order (chance .5)",
            f"{found['accuracy']:.3f} ({found['low']:.3f} to {found['high']:.3f})",
        )
    table.add_row("minutes", f"{report['seconds'] / 60:.1f}")
    show(table)
