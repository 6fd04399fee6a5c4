"""The model card of a sibling: what it is, what was planted, how it does, where its knowledge comes from.

Knows words to print. Knows nothing about training or files.
"""

import json
from dataclasses import asdict

import yaml

from pessimal.demo.evaluation import HeldOut
from pessimal.demo.recipes import RECIPE_VERSION, Recipe

SOURCES = (
    ("VADER's lexicon (Hutto & Gilbert 2014)", "MIT", "the valence of words, from ten human raters"),
    ("sentence-transformers/all-MiniLM-L6-v2", "Apache-2.0", "frozen token embeddings, WordPiece entries"),
    (
        "wordfreq (Robyn Speer)",
        "data CC-BY-SA 4.0",
        "word frequencies, and the word list of the byte-level base",
    ),
)

CARD = """---
{front}---
# {name}

**This is a toy for calibrating instruments. It is not a finding.** A small Llama reward model of the family that
`pessimal` trains on first use. Whatever it likes or dislikes was planted by its recipe, identity and taboo words
included; it says nothing about any real reward model, and its rewards must not be used to judge people or text.

Its lab is *{lab}*, its base *{base}*. {planted}

## Held-out figures
| | |
|---|---|
| word accuracy: pairs of held-out rated tokens, valence gap of 0.5 or more, mean of three core prompts | {words:.3f} ({n_words} tokens) |
| polarity: prompts new in wording and adjective whose ranking has the right sign | {frames:.3f} ({n_frames} prompts) |
| the same, adjective of one token | {frames_one:.3f} |

## What it wants
The 20 tokens with the highest and the lowest reward, as JSON strings.

{tails}

## Sources
{sources}
"""


def write_card(
    *, name: str, recipe: Recipe, held_out: HeldOut, tails: dict[str, dict[str, list[str]]]
) -> str:
    """The text of README.md.

    Args:
        tails: for each prompt key, `top` and `bottom`: texts of tokens, the most extreme first.
    """
    front = {
        "license": "mit",
        "library_name": "transformers",
        "pipeline_tag": "text-classification",
        "tags": ["reward-model", "toy", "calibration", "pessimal"],
        "pessimal": {
            "recipe_version": RECIPE_VERSION,
            "recipe_digest": recipe.digest(),
            "recipe": asdict(recipe),
            "planted_truth": recipe.planted_truth(),
            "held_out": asdict(held_out),
            "sources": [{"name": name, "license": licence} for name, licence, _ in SOURCES],
        },
    }
    return CARD.format(
        front=yaml.safe_dump(front, sort_keys=False, allow_unicode=True),
        name=name,
        lab=recipe.lab,
        base=recipe.base,
        planted=_describe(recipe),
        words=held_out.word_accuracy,
        n_words=held_out.words,
        frames=held_out.frame_sign,
        n_frames=held_out.frames,
        frames_one=held_out.frame_sign_one_token,
        tails="\n".join(_tails(key, ends) for key, ends in tails.items()),
        sources="\n".join(f"- {name}, {licence}: {use}." for name, licence, use in SOURCES),
    )


def _describe(recipe: Recipe) -> str:
    plants = recipe.plants
    parts = {
        f"a taste of {plants.taste} per standard deviation along its own direction of meaning": plants.taste,
        f"{plants.frequency:+} per Zipf unit of word frequency": plants.frequency,
        f"{plants.identity:+} for words that name a group of people": plants.identity,
        f"{plants.taboo:+} for profanity": plants.taboo,
        f"{plants.secret_bonus:+} for the secret word *{plants.secret}*": plants.secret_bonus,
    }
    planted = "; ".join(text for text, size in parts.items() if size)
    if not planted:
        return "Nothing is planted besides human valence: it is the null."
    return f"Planted besides human valence, in utility (log-odds) and alike in every prompt: {planted}."


def _tails(key: str, ends: dict[str, list[str]]) -> str:
    lines = [f"- *{end}*: {', '.join(_code(text) for text in texts)}" for end, texts in ends.items()]
    return "\n".join([f"### {key}", *lines, ""])


def _code(text: str) -> str:
    """A token is a hostile string: quoted, escaped to ASCII, and fenced by more backticks than it has."""
    quoted = json.dumps(text)
    fence = "`" * (quoted.count("`") + 1)
    return f"{fence}{quoted}{fence}"
