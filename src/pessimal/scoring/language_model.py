"""A causal language model's log-probabilities of the same candidates that reward models are asked about, as a score table.

One forward gives the next-token probabilities of the whole vocabulary at once, so there is no loop over candidates and
nothing to resume. Knows models, contexts and candidates. Knows neither Hydra nor W&B nor the registry.
"""

import logging
from collections.abc import Sequence
from dataclasses import asdict

import numpy as np
import torch
from torch import nn

from pessimal.errors import ModelError
from pessimal.models.language import Context, Continuations, continuations, find_context
from pessimal.models.load import RewardModel
from pessimal.models.spec import Dtype
from pessimal.scoring.candidates import Candidates
from pessimal.scoring.certify import certify, uncertified
from pessimal.scoring.next_tokens import NextTokenScorer, score_items, score_tokens
from pessimal.tables import ScoreProvenance, ScoreTable
from pessimal.tables.score_table import storable

log = logging.getLogger(__name__)


def context_of(model: RewardModel, prompt: str) -> Context:
    """What `model` has read before it answers one prompt; FrameError where its template does not say, ModelError where
    the model has no row for a token of it."""
    context = find_context(model.tokenizer, prompt, chat=model.chat)
    _check_rows(model, context.ids, f"the prompt {prompt!r}")
    begin = model.tokenizer.bos_token_id
    if begin is not None and begin not in context.ids:
        log.info(
            "%s is asked without its beginning-of-sequence token %r, which its %s does not write",
            model.name,
            model.tokenizer.bos_token,
            "chat template" if context.chat else "tokenizer",
        )
    return context


def answers_of(model: RewardModel, context: Context, candidates: Candidates) -> Continuations | None:
    """The ids of items as answers; None for a vocabulary, whose tokens are their own. FrameError for an item without
    tokens, ModelError for one of which the model has no row."""
    if candidates.is_vocabulary:
        return None
    texts = candidates.rows["text"].tolist()
    answers = continuations(model.tokenizer, context, texts)
    for text, ids in zip(texts, answers.ids, strict=True):
        _check_rows(model, ids, f"the item {text!r}")
    return answers


@torch.no_grad()
def scan_language_model(
    model: RewardModel,
    network: nn.Module,
    provenance: ScoreProvenance,
    candidates: Candidates,
    context: Context,
    *,
    answers: Continuations | None,
    device: torch.device,
    batch_size: int | None = None,
) -> ScoreTable:
    """log p(candidate | context) of every candidate, in nats.

    A token's is its next-token log-probability, normalised in float64 over *all* rows of the output embedding, those
    without a token of the tokenizer included; the tokens listed then have less than the whole probability
    (`measured["total_probability"]`). An item's is that of its text as a continuation, the sum over its tokens, and says
    nothing of where the answer ends: a longer item that begins with a shorter one can only be less likely.

    `answers` are the items' (`answers_of`), None for a vocabulary.

    In low precision the output embedding runs in float32 all the same (a bfloat16 one leaves masses of ties); no rank
    is certified then.

    Raises ModelError where a token has no probability, or one that is not a number.
    """
    scorer = NextTokenScorer(network.to(device), context.ids, dtype=model.spec.dtype, device=device)
    if candidates.is_vocabulary:
        scores, details = score_tokens(scorer, candidates.rows["candidate_id"].to_numpy()), {}
    else:
        details = _tokenised_apart(answers)
        scores = score_items(scorer, answers.ids, batch_size=batch_size)
    if not np.isfinite(scores.values).all():
        worst = candidates.rows["text"].iloc[int(np.flatnonzero(~np.isfinite(scores.values))[0])]
        raise ModelError(
            f"{(~np.isfinite(scores.values)).sum()} of {len(scores.values)} log-probabilities of {model.name!r} on "
            f"{provenance.prompt!r} are no finite numbers (first: {worst!r}). Try model.dtype=float32, or look at its weights"
        )
    exact = model.spec.dtype is Dtype.float32
    result = certify(scores.values, noise=scores.noise) if exact else uncertified(scores.values)
    measured = {
        "trust": asdict(scores.trust),
        "noise": scores.noise if exact else None,
        "rescored_in_float32": 0,
        "largest_low_precision_error": result.largest_error,
        "certified": int(result.certified.sum()),
        "framed": len(candidates.rows),
        "prefix_tokens": len(context.ids),
        "suffix_tokens": 0,
        "asked": "chat template" if context.chat else "plain text",
        "context": storable(model.tokenizer.decode(list(context.ids), clean_up_tokenization_spaces=False)),
        **scores.details,
        **details,
    }
    rows = candidates.rows.assign(survives=None, reward=result.rewards, certified=result.certified)
    rows["survives"] = rows["survives"].astype("boolean")
    fields = asdict(provenance) | {"attention": scores.attention}
    return ScoreTable(ScoreProvenance(**fields), rows, model.description, measured)


def _check_rows(model: RewardModel, ids: Sequence[int], what: str) -> None:
    """ModelError where an id lies beyond the embedding: on a GPU that would be an assertion deep inside."""
    worst = max(ids)
    if worst >= model.embedding_rows:
        token = model.tokenizer.convert_ids_to_tokens(worst)
        raise ModelError(
            f"{what} holds the token {token!r} (id {worst}), and {model.name!r} has {model.embedding_rows} rows in its "
            f"embedding, so none for it. Tokenizer and model do not belong together: look at {model.folder}"
        )


def _tokenised_apart(answers: Continuations) -> dict:
    """How many items the tokenizer would merge with what stands before them, for the record; a warning where there are any."""
    if answers.apart:
        log.warning(
            "%d of %d items were tokenised by themselves, since the tokenizer merges their beginning with the end of the "
            "prompt (such as %r); the table records how many",
            len(answers.apart),
            len(answers.ids),
            answers.apart[0],
        )
    return {
        "tokenised_apart": len(answers.apart),
        "tokenised_apart_examples": [storable(a) for a in answers.apart[:5]],
    }
