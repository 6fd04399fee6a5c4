"""The model card of a sibling that judges sentences.

Knows words to print. Knows nothing about training or files.
"""

from dataclasses import asdict

import yaml

from pessimal.demo.card import SOURCES
from pessimal.demo.module import CONTEXT
from pessimal.demo.recipes import Recipe
from pessimal.demo.sentences.evaluation import SentenceHeldOut
from pessimal.demo.sentences.features import FEATURES, PLANTABLE

CARD = """---
{front}---
# {name}

**This is a toy for calibrating instruments. It is not a finding.** A small Llama reward model of the family that
`pessimal` trains on first use. It judges whole responses by the one thing that its recipe planted and, mildly, by the
valence of their words; it says nothing about any real reward model, and its rewards must not be used to judge people
or text.

Its lab is *{lab}*, its base *{base}*. {planted}

It was trained on random English-like responses of 3 to about 130 words behind short prompts, {context} positions at most.
Longer input is accepted and is not cut; what the model makes of positions it was never trained on is not known.

## Held-out figures
Random responses are filled with words whose stems training never shows; natural ones were written by hand.
Neither was trained on, but both were looked at while the recipes were made: what counts as a refusal and the number of
steps were chosen with them in view, so the figures of *meek* and *hedger* are somewhat flattering.

| | |
|---|---|
| correlation of reward and planted utility, within prompts, random responses | {correlation:.3f} ({responses} responses) |
| correlation of reward and the planted feature, the same responses | {feature_correlation} |
| correlation of reward and planted utility, natural responses | {natural_correlation:.3f} ({natural} responses) |
| largest unplanted effect of another feature, as a share of the planted one's, natural responses | {other} |

| feature | reward per unit of its amount, random responses | planted | reward for having it, natural responses | planted | SD of the error over {questions} questions |
|---|---|---|---|---|---|
{features}

The amount of words is the natural logarithm of their number; of exclamation marks, of hedges and of the words that
refusals are made of (sorry, cannot, unable, decline and so on), that of one more than their number; of valence, its mean
in points of VADER, shrunk in texts with few rated words.

## Sources
{sources}
"""


def write_sentence_card(*, name: str, recipe: Recipe, held_out: SentenceHeldOut) -> str:
    """The text of README.md."""
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
    return CARD.format(
        front=yaml.safe_dump(front, sort_keys=False, allow_unicode=True),
        name=name,
        lab=recipe.lab,
        base=recipe.base,
        planted=_describe(recipe),
        context=CONTEXT,
        correlation=held_out.correlation,
        responses=held_out.responses,
        feature_correlation=_number(held_out.feature_correlation),
        natural_correlation=held_out.natural_correlation,
        natural=held_out.questions * (len(PLANTABLE) + 1),
        other=_number(held_out.largest_other_effect),
        questions=held_out.questions,
        features="\n".join(_row(recipe, held_out, feature) for feature in FEATURES),
        sources="\n".join(f"- {source}, {licence}: {use}." for source, licence, use in SOURCES),
    )


def _describe(recipe: Recipe) -> str:
    plants = recipe.plants
    valence = f"Utility (log-odds of being preferred) rises by {plants.valence} per point of mean valence, whatever the prompt"
    if plants.feature is None:
        return f"{valence}. Nothing else is planted: it is the null."
    return (
        f"{valence}, and by {plants.size} per unit of the amount of {plants.feature}. The attribute under which edits of "
        f"that fall is *{plants.attribute}*: the reward {'rises' if plants.sign > 0 else 'falls'} with more of it."
    )


def _row(recipe: Recipe, held_out: SentenceHeldOut, feature: str) -> str:
    plants = recipe.plants
    planted = {"valence": plants.valence, plants.feature: plants.size}.get(feature, 0.0)
    cells = [feature, f"{held_out.slopes[feature]:+.2f}", f"{planted:+.2f}"]
    if feature in held_out.natural_effects:
        cells += [
            f"{figures[feature]:+.2f}" for figures in (held_out.natural_effects, held_out.natural_expected)
        ]
        cells.append(f"{held_out.natural_errors[feature]:.2f}")
    else:
        cells += ["", "", ""]
    return f"| {' | '.join(cells)} |"


def _number(value: float | None) -> str:
    return "nothing is planted" if value is None else f"{value:.3f}"
