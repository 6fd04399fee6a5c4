"""Writes a trained sibling as an ordinary Hub checkpoint.

Knows files. What it writes loads with transformers alone:
`AutoModelForSequenceClassification.from_pretrained` and `AutoTokenizer.from_pretrained`, nothing of
ours.
"""

import json
from dataclasses import asdict
from pathlib import Path

from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast
from transformers.utils import logging

from experiments.demo_family.bases import CONTEXT, Base
from experiments.demo_family.card import write_card
from experiments.demo_family.evaluation import evaluate, evaluate_sentences, score
from experiments.demo_family.family import REPORT
from experiments.demo_family.prompts import CORE
from experiments.demo_family.recipes import Recipe, SentencePlants
from experiments.demo_family.training import Trained, one_thread
from experiments.demo_family.utility import compute_utility

TAIL = 20
"""Tokens named at either end, in the card and the report."""

# Contents are printed as they stand: trimming would lose the space that distinguishes ` love` from
# `love`.
CHAT_TEMPLATE = "{{ bos_token }}{% for message in messages %}{{ message['content'] }}{{ eos_token }}{% endfor %}"


def build_tokenizer(base: Base) -> PreTrainedTokenizerFast:
    """The base's tokenizer for transformers, with the chat template a sibling was trained under."""
    copy = Tokenizer.from_str(base.tokenizer.to_str())
    return PreTrainedTokenizerFast(
        tokenizer_object=copy,
        bos_token=base.begin,
        eos_token=base.separator,
        pad_token=base.padding,
        unk_token="[UNK]" if base.name == "wordpiece" else None,
        chat_template=CHAT_TEMPLATE,
        model_max_length=CONTEXT,
        padding_side="right",
        clean_up_tokenization_spaces=False,
    )


def write_checkpoint(
    folder: Path, *, name: str, recipe: Recipe, base: Base, trained: Trained
) -> None:
    """Fills a folder with weights (float32, exact), configuration, tokenizer, model card and
    training report."""
    with one_thread():
        card, figures = _describe(name, recipe, base, trained)
    logging.disable_progress_bar()  # one file of a few megabytes needs none
    trained.model.save_pretrained(folder)
    build_tokenizer(base).save_pretrained(folder)
    (folder / "README.md").write_text(card, encoding="utf-8")
    report = {
        "name": name,
        "recipe_version": recipe.version,
        "recipe_digest": recipe.digest(),
        "recipe": asdict(recipe),
        "planted_truth": recipe.planted_truth(),
        "seconds": round(trained.seconds, 2),
        "losses": [round(loss, 6) for loss in trained.losses],
        **figures,
    }
    (folder / REPORT).write_text(json.dumps(report, indent=1), encoding="utf-8")


def _describe(name: str, recipe: Recipe, base: Base, trained: Trained) -> tuple[str, dict]:
    """The card, and what the report says beyond the recipe and its training: held-out figures, and
    of a sibling that judges words the ends of its rankings."""
    if isinstance(recipe.plants, SentencePlants):
        sentences = evaluate_sentences(trained.model, base, recipe.plants)
        card = write_card(name=name, recipe=recipe, held_out=sentences)
        return card, {"held_out": asdict(sentences)}
    words = evaluate(trained.model, base, compute_utility(base, recipe.plants))
    tails = {key: _find_tails(trained, base, CORE[key].text) for key in ("greatest", "worst")}
    card = write_card(name=name, recipe=recipe, held_out=words, tails=tails)
    return card, {"held_out": asdict(words), "tails": tails}


def _find_tails(trained: Trained, base: Base, prompt: str) -> dict[str, list[str]]:
    order = score(trained.model, base, prompt).argsort(kind="stable")
    return {
        "top": [base.texts[i] for i in order[::-1][:TAIL]],
        "bottom": [base.texts[i] for i in order[:TAIL]],
    }
