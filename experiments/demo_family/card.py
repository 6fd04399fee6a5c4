"""The model card of a sibling: what it is, what was planted, how it does, where its knowledge comes
from.

Knows words to print. Knows nothing about training or files.
"""

import json
from dataclasses import asdict
from typing import Any

import yaml

from experiments.demo_family.evaluation import HeldOut, SentenceHeldOut
from experiments.demo_family.recipes import Recipe

SOURCES = (
    ("VADER's lexicon (Hutto & Gilbert 2014)", "MIT", "the valence of words, from ten human raters"),
    ("sentence-transformers/all-MiniLM-L6-v2", "Apache-2.0", "frozen token embeddings, WordPiece entries"),
    ("wordfreq (Robyn Speer)", "data CC-BY-SA 4.0", "word frequencies, and the word list of the byte-level base"),
)  # fmt: skip

CARD = """---
{front}---
# {name}

**This is a toy for calibrating instruments. It is not a finding.** A small Llama reward model of the demo family
of `pessimal`, of the lab *{recipe.lab}* on the base *{recipe.base}*. {about}

## What was planted
Utility (log-odds of being preferred), besides human valence, alike in every prompt; all zero or null is the null.

{planted}

## Held-out figures
{held_about}

{held_out}
{tails}
## Sources
{sources}
"""

WORDS = (
    """Whatever it likes or dislikes was planted by its recipe, identity and taboo words included; it says nothing about
any real reward model, and its rewards must not be used to judge people or text.""",
    "Accuracy is over pairs of held-out rated tokens; signs are over prompts new in wording and "
    "in adjective.",
)
SENTENCES = (
    """It judges whole responses by the one thing that its recipe planted and, mildly, by the valence of their words; it
says nothing about any real reward model, and its rewards must not be used to judge people or text. It was trained on
responses of 3 to about 130 words; what it makes of longer input, which is not cut, is not known.""",
    """Random responses are filled with words whose stems training never shows; natural ones were written by hand. Neither
was trained on, but both were in view while the recipes were made, so the figures of *meek* and *hedger* are somewhat
flattering.""",
)


def write_card(
    *,
    name: str,
    recipe: Recipe,
    held_out: HeldOut | SentenceHeldOut,
    tails: dict[str, dict[str, list[str]]] | None = None,
) -> str:
    """The text of README.md.

    Args:
        tails: of a sibling that judges words, for each prompt key `top` and `bottom`: texts of
            tokens, the most extreme first.
    """
    front = {
        "license": "mit",
        "library_name": "transformers",
        "pipeline_tag": "text-classification",
        "tags": ["reward-model", "toy", "calibration", "pessimal"],
        "pessimal": {
            "recipe_version": recipe.version,
            "recipe_digest": recipe.digest(),
            "recipe": asdict(recipe),
            "planted_truth": recipe.planted_truth(),
            "held_out": asdict(held_out),
            "sources": [{"name": source, "license": licence} for source, licence, _ in SOURCES],
        },
    }
    about, held_about = SENTENCES if recipe.judges_sentences else WORDS
    tokens = [
        f"- *{key}*, {end}: {', '.join(map(_code, texts))}"
        for key, ends in (tails or {}).items()
        for end, texts in ends.items()
    ]
    return CARD.format(
        front=yaml.safe_dump(front, sort_keys=False, allow_unicode=True),
        name=name,
        recipe=recipe,
        about=about,
        planted=_table(asdict(recipe.plants)),
        held_about=held_about,
        held_out=_table(asdict(held_out)),
        tails="\n".join(["\n## What it wants", *tokens, ""]) if tokens else "",
        sources="\n".join(f"- {source}, {licence}: {use}." for source, licence, use in SOURCES),
    )


def _table(values: dict[str, Any]) -> str:
    """Two columns; of a value by name, a row each."""
    rows: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            rows |= {f"{name}: {key}": part for key, part in value.items()}
        else:
            rows[name] = value
    written = {key: f"{v:.3f}" if isinstance(v, float) else v for key, v in rows.items()}
    return "\n".join(["| | |", "|---|---|", *(f"| {key} | {v} |" for key, v in written.items())])


def _code(text: str) -> str:
    """A token is a hostile string: quoted, escaped to ASCII, and fenced by more backticks than it
    has."""
    quoted = json.dumps(text)
    fence = "`" * (quoted.count("`") + 1)
    return f"{fence}{quoted}{fence}"
