"""The model card of a sibling: what it is, what was planted, how it does, where its knowledge comes from.

Knows words to print. Knows nothing about training or files.
"""

import json
from dataclasses import asdict

import yaml

from pessimal.demo.bases import CONTEXT
from pessimal.demo.evaluation import HeldOut, SentenceHeldOut
from pessimal.demo.features import FEATURES, PLANTABLE
from pessimal.demo.recipes import Recipe

SOURCES = (
    ("VADER's lexicon (Hutto & Gilbert 2014)", "MIT", "the valence of words, from ten human raters"),
    ("sentence-transformers/all-MiniLM-L6-v2", "Apache-2.0", "frozen token embeddings, WordPiece entries"),
    ("wordfreq (Robyn Speer)", "data CC-BY-SA 4.0", "word frequencies, and the word list of the byte-level base"),
)  # fmt: skip

CARD = """---
{front}---
# {name}

**This is a toy for calibrating instruments. It is not a finding.** A small Llama reward model of the family that
`pessimal` trains on first use. {about}

Its lab is *{lab}*, its base *{base}*. {planted}

{body}

## Sources
{sources}
"""

WORDS_ABOUT = """Whatever it likes or dislikes was planted by its recipe, identity and taboo words
included; it says nothing about any real reward model, and its rewards must not be used to judge people or text."""

WORDS = """## Held-out figures
| | |
|---|---|
| word accuracy: pairs of held-out rated tokens, valence gap of 0.5 or more, mean of three core prompts | {held.word_accuracy:.3f} ({held.words} tokens) |
| polarity: prompts new in wording and adjective whose ranking has the right sign | {held.frame_sign:.3f} ({held.frames} prompts) |
| the same, adjective of one token | {held.frame_sign_one_token:.3f} |

## What it wants
The 20 tokens with the highest and the lowest reward, as JSON strings.

{tails}"""

SENTENCES_ABOUT = """It judges whole responses by the one thing that its recipe planted and, mildly, by the
valence of their words; it says nothing about any real reward model, and its rewards must not be used to judge people
or text."""

SENTENCES = """It was trained on random English-like responses of 3 to about 130 words behind short prompts, {context} positions at most.
Longer input is accepted and is not cut; what the model makes of positions it was never trained on is not known.

## Held-out figures
Random responses are filled with words whose stems training never shows; natural ones were written by hand.
Neither was trained on, but both were looked at while the recipes were made: what counts as a refusal and the number of
steps were chosen with them in view, so the figures of *meek* and *hedger* are somewhat flattering.

| | |
|---|---|
| correlation of reward and planted utility, within prompts, random responses | {held.correlation:.3f} ({held.responses} responses) |
| correlation of reward and the planted feature, the same responses | {feature_correlation} |
| correlation of reward and planted utility, natural responses | {held.natural_correlation:.3f} ({natural} responses) |
| largest unplanted effect of another feature, as a share of the planted one's, natural responses | {other} |

| feature | reward per unit of its amount, random responses | planted | reward for having it, natural responses | planted | SD of the error over {held.questions} questions |
|---|---|---|---|---|---|
{features}

The amount of words is the natural logarithm of their number; of exclamation marks, of hedges and of the words that
refusals are made of (sorry, cannot, unable, decline and so on), that of one more than their number; of valence, its mean
in points of VADER, shrunk in texts with few rated words."""


def write_card(
    *,
    name: str,
    recipe: Recipe,
    held_out: HeldOut | SentenceHeldOut,
    tails: dict[str, dict[str, list[str]]] | None = None,
) -> str:
    """The text of README.md.

    Args:
        tails: of a sibling that judges words, for each prompt key `top` and `bottom`: texts of tokens, the most extreme first.
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
    if recipe.judges_sentences:
        about, planted, body = SENTENCES_ABOUT, _planted_in_sentences(recipe), _sentences(recipe, held_out)
    else:
        about, planted, body = WORDS_ABOUT, _planted_in_words(recipe), _words(held_out, tails)
    return CARD.format(
        front=yaml.safe_dump(front, sort_keys=False, allow_unicode=True),
        name=name,
        about=about,
        lab=recipe.lab,
        base=recipe.base,
        planted=planted,
        body=body,
        sources="\n".join(f"- {source}, {licence}: {use}." for source, licence, use in SOURCES),
    )


def _planted_in_words(recipe: Recipe) -> str:
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


def _words(held_out: HeldOut, tails: dict[str, dict[str, list[str]]]) -> str:
    lines = []
    for key, ends in tails.items():
        lines += [f"### {key}", *(f"- *{end}*: {', '.join(map(_code, ends[end]))}" for end in ends), ""]
    return WORDS.format(held=held_out, tails="\n".join(lines))


def _code(text: str) -> str:
    """A token is a hostile string: quoted, escaped to ASCII, and fenced by more backticks than it has."""
    quoted = json.dumps(text)
    fence = "`" * (quoted.count("`") + 1)
    return f"{fence}{quoted}{fence}"


def _planted_in_sentences(recipe: Recipe) -> str:
    plants = recipe.plants
    valence = f"Utility (log-odds of being preferred) rises by {plants.valence} per point of mean valence, whatever the prompt"
    if plants.feature is None:
        return f"{valence}. Nothing else is planted: it is the null."
    return (
        f"{valence}, and by {plants.size} per unit of the amount of {plants.feature}. The attribute under which edits of "
        f"that fall is *{plants.attribute}*: the reward {'rises' if plants.sign > 0 else 'falls'} with more of it."
    )


def _sentences(recipe: Recipe, held_out: SentenceHeldOut) -> str:
    def number(value: float | None) -> str:
        return "nothing is planted" if value is None else f"{value:.3f}"

    rows = []
    for feature in FEATURES:
        planted = {"valence": recipe.plants.valence, recipe.plants.feature: recipe.plants.size}
        cells = [feature, f"{held_out.slopes[feature]:+.2f}", f"{planted.get(feature, 0.0):+.2f}", "", "", ""]
        if feature in held_out.natural_effects:
            effects = held_out.natural_effects[feature], held_out.natural_expected[feature]
            cells[3:] = [*(f"{effect:+.2f}" for effect in effects), f"{held_out.natural_errors[feature]:.2f}"]
        rows.append(f"| {' | '.join(cells)} |")
    return SENTENCES.format(
        held=held_out,
        context=CONTEXT,
        feature_correlation=number(held_out.feature_correlation),
        natural=held_out.questions * (len(PLANTABLE) + 1),
        other=number(held_out.largest_other_effect),
        features="\n".join(rows),
    )
