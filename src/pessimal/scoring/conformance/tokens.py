"""Checks of the tokenizer and its chat template; no network is needed."""

from collections.abc import Sequence

import numpy as np

from pessimal.models.frame import Frame, takes_pairs, templated
from pessimal.scoring.candidates import Candidates
from pessimal.scoring.conformance.check import Check, at_most, does_not_apply

AT_MOST = 4096
"""Tokens of the vocabulary that take the round trip; a random sample of a larger one."""

ONE_BOS = "A conversation has one BOS token, or none where the tokenizer adds none."
PAPER_BOS = "BOS tokens of a conversation in the published procedure (mode=paper)."
FRAME = "The ids before and after a response are the same for any text."
SURVIVES = "Share of tokens that decoding, template and tokenizer give back as themselves."


def beginnings(tokenizer, frame: Frame, *, closing: Sequence[int]) -> list[Check]:
    """BOS ids in a templated conversation, as scans have it and as published."""
    bos = tokenizer.bos_token_id
    if bos is None:
        why = "the tokenizer has no such token"
        return [
            does_not_apply(name, what, why, unit="BOS ids")
            for name, what in (("bos", ONE_BOS), ("bos_paper", PAPER_BOS))
        ]
    adds = tokenizer("love")["input_ids"][:1] == [bos]
    count = _beginnings(tokenizer, templated(tokenizer, frame.prompt, ["love"], closing=closing)[0])
    if count > 1:
        note = (
            f"The chat template writes {count} of them; rewards rest on an input that the model was hardly trained on. "
            "Remove one from tokenizer.chat_template, then tokenizer.save_pretrained(folder)"
        )
    else:
        note = (
            "The tokenizer begins texts with one and the chat template does not. If the model's card says otherwise, "
            "write {{ bos_token }} at the start of tokenizer.chat_template, then tokenizer.save_pretrained(folder)"
        )
    right = 1 if count or adds else 0
    one = Check(
        check="bos",
        what=ONE_BOS,
        passed=count == right,
        measured=float(count),
        allowed=float(right),
        unit="BOS ids",
        n=1,
        note="" if count == right else note,
    )
    if takes_pairs(tokenizer):
        return [
            one,
            does_not_apply("bos_paper", PAPER_BOS, "a pair of texts is tokenised once", unit="BOS ids"),
        ]
    published = templated(tokenizer, frame.prompt, ["love"], double_bos=True, closing=closing)[0]
    again = _beginnings(tokenizer, published)
    note = (
        f"mode=paper puts {again} before the conversation, mode=ids and mode=text {count}."
        if again != count
        else "mode=paper begins a conversation as mode=text does."
    )
    return [one, Check("bos_paper", PAPER_BOS, None, float(again), None, "BOS ids", 1, note)]


def round_trip(
    tokenizer,
    frame: Frame,
    words: Candidates,
    *,
    responses: Sequence[Sequence[int]],
    closing: Sequence[int],
    seed: int,
) -> list[Check]:
    """Whether texts keep the frame as it is, and which share of the vocabulary makes the round trip."""
    texts = tokenizer.batch_decode(list(responses), clean_up_tokenization_spaces=False)
    conversations = templated(tokenizer, frame.prompt, texts, closing=closing)
    tied = [text for text, ids in zip(texts, conversations, strict=True) if frame.inside(ids) is None]
    kept = at_most(
        "frame",
        FRAME,
        len(tied),
        0,
        n=len(texts),
        unit="texts",
        note=f"The template or tokenizer ties {len(tied)} of {len(texts)} random texts to what stands around them, first "
        f"{tied[:1]!r}. mode=ids is not affected; mode=text scores such a text with the ids that the template gives, "
        "and slower",
    )
    some = words.rows.iloc[np.random.default_rng(seed).permutation(len(words.rows))[:AT_MOST]]
    conversations = templated(tokenizer, frame.prompt, some["text"].tolist(), closing=closing)
    survives = [frame.inside(ids) == [i] for i, ids in zip(some["candidate_id"], conversations, strict=True)]
    share = Check(
        "survives",
        SURVIVES,
        None,
        float(np.mean(survives)),
        None,
        "share",
        len(some),
        "Only mode=ids, the default, scores the others as what they are.",
    )
    return [kept, share]


def _beginnings(tokenizer, ids: Sequence[int]) -> int:
    """BOS ids in a conversation; only those it begins with where the same token also ends turns."""
    bos = tokenizer.bos_token_id
    if bos != tokenizer.eos_token_id:
        return list(ids).count(bos)
    return next((i for i, token in enumerate(ids) if token != bos), len(ids))
