"""The chat frame: the token ids before and after a slot, which is the whole response, or a place
behind, before or inside a given one.

Knows what a format gives, and no template. Does not know vocabularies or rewards.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Protocol

from pessimal.conversation import Asked, Context, Conversation, Prompt
from pessimal.errors import FrameError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


SENTINEL = "qzxjkvw"
# Different first and last characters, so that what they share is the template's and not theirs.
_FITTING = ("love", "Wisdom", "a", "9", "Kindness!", "truth?", "(evil)", "z Q")
_CHECKING = ("Music", "hope and peace", "7 stars", "it is good.")
PLAIN_WORDS = (("love", "Wisdom", "a", "truth", "kind"), ("Music", "hope and peace"))
"""Responses that no tokenizer ties to punctuation or a line's end around them."""
_SPACED = ((" love", " Wisdom", " a", " truth", " kind"), (" Music", " hope and peace"))
"""Texts that no tokenizer ties to an answer before them."""


@dataclass(frozen=True)
class Frame:
    """Token ids around the slot: prefix | candidate | suffix, for one prompt or context.

    Decoders get it from the chat template, encoders from the pair [CLS] prompt [SEP] response
    [SEP].
    """

    prompt: Prompt
    prefix: tuple[int, ...]
    """Ids before the response, BOS included where the template writes one."""
    suffix: tuple[int, ...]
    """Ids after the response; the reward is read at the last of them (at the response's last where
    there are none)."""
    typed: bool = False
    """Whether the model marks prompt (0) and response (1) by token types, as BERT does."""
    answer: int = 0
    """Number of the prefix's last ids that are of the answer before the slot."""
    context: Context | None = None

    @property
    def question(self) -> Asked:
        """Prompt or context that the candidate is put into."""
        return self.context or self.prompt

    def around(self, response: Sequence[int]) -> list[int]:
        """The whole input for one response."""
        return [*self.prefix, *response, *self.suffix]

    def inside(self, ids: Sequence[int]) -> list[int] | None:
        """The response's ids in a templated conversation, or None where it does not start and end
        like the frame."""
        start, end = len(self.prefix), len(ids) - len(self.suffix)
        fits = tuple(ids[:start]) == self.prefix and tuple(ids[max(end, 0) :]) == self.suffix
        return list(ids[start:end]) if fits and end >= start else None


@dataclass(frozen=True)
class Encoded:
    """One conversation, ready for a network."""

    ids: tuple[int, ...]
    types: tuple[int, ...] | None
    """Token types, for encoders that mark prompt (0) and response (1) by them."""
    n_response: int = 0
    """Number of the last ids that are the response's, for readings that sum over these alone."""


class Format(Protocol):
    """The form in which a prompt and a response are shown to a network, as token ids."""

    @property
    def tokenizer(self) -> "PreTrainedTokenizerBase":
        """The tokenizer, which makes ids of texts."""

    round_trips: ClassVar[bool]
    """Whether a scan says which tokens survive decoding and tokenising (it takes longer than
    scoring them)."""

    def ids(
        self, prompt: Prompt, responses: Sequence[str], *, double_bos: bool = False
    ) -> list[list[int]]:
        """The whole input for each response."""

    def encode(self, conversation: Conversation) -> "Encoded":
        """The whole input for a conversation of several turns, whose last is the response."""

    def plain(self, conversation: Conversation) -> str | None:
        """The one text whose ids `encode` gives, with constant ones around them at most; None where
        a conversation is more than one text, or some of its ids are cut off."""

    def frame(self, prompt: Prompt, *, double_bos: bool = False) -> Frame:
        """Tokens before and after the response."""


def slot_ids(
    conversations: Format, prompt: Asked, texts: Sequence[str], *, double_bos: bool = False
) -> list[list[int]]:
    """The whole input for each text as the answer, or in the slot."""
    if isinstance(prompt, Context):
        return [list(conversations.encode(prompt.filled(text)).ids) for text in texts]
    return conversations.ids(prompt, texts, double_bos=double_bos)


def shared_ids(answer: str, frames: Sequence[tuple[Format, Frame]]) -> tuple[int, ...] | None:
    """The ids of an answer, if all conversations give it the same; None otherwise."""
    ids = {tuple(f.inside(slot_ids(form, f.question, [answer])[0]) or ()) for form, f in frames}
    return ids.pop() or None if len(ids) == 1 else None


def slot_frame(
    conversations: Format,
    prompt: Asked,
    tokenizer: "PreTrainedTokenizerBase",
    *,
    double_bos: bool = False,
) -> Frame:
    """Tokens before and after the answer, or the slot. A given answer keeps its own ids; where its
    end is one token with what follows, those that it has with other words behind it.

    Raises:
        FrameError: the tokenizer ties what stands around the slot to what stands in it.
    """
    if not isinstance(prompt, Context):
        return conversations.frame(prompt, double_bos=double_bos)
    make = functools.partial(slot_ids, conversations, prompt)
    whole, [untouched] = conversations.frame(prompt.prompt), make([""])
    in_answer = prompt.turn == len(prompt.turns) - 1
    if whole.typed and not in_answer:
        raise FrameError("the slot is before the answer's turn: put it into the answer")
    if prompt.slot == "before":
        if whole.inside(untouched) is None:
            start = prompt.turns[-1].content[:40]
            raise FrameError(f"the tokenizer ties what stands before it to the answer {start!r}")
        return replace(whole, context=prompt, suffix=tuple(untouched[len(whole.prefix) :]))
    words = [word for group in _SPACED for word in group]
    samples = make(words)
    begins = len(shared_start([whole.prefix, untouched]))
    end = len(shared_start([untouched, *samples]))
    frame = replace(whole, prefix=tuple(untouched[:end]), suffix=tuple(untouched[end:]))
    insides = map(frame.inside, samples)
    if not all(_reads(tokenizer, *pair) for pair in zip(insides, words, strict=True)):
        frame = find_frame(make, tokenizer, whole.prompt, typed=whole.typed, words=_SPACED)
        if not str(tokenizer.decode(list(frame.prefix[-1:]))).strip():
            before = prompt.turns[prompt.turn].content[-40:]
            raise FrameError(f"the tokenizer ties the slot to {before!r}: end it otherwise")
    length = max(0, len(frame.prefix) - begins) if in_answer else 0
    return replace(frame, answer=length, context=prompt)


def find_frame(
    make: Callable[[Sequence[str]], list[list[int]]],
    tokenizer: "PreTrainedTokenizerBase",
    prompt: Prompt,
    *,
    typed: bool = False,
    words: tuple[tuple[str, ...], tuple[str, ...]] = (_FITTING, _CHECKING),
) -> Frame:
    """Find the ids before and after the response by making samples of conversations, and check them
    on others.

    Args:
        make: from responses to the ids of whole conversations.
        words: responses that the frame is found with, and those that it is checked on.

    Raises:
        FrameError: text around the response tokenises differently from response to response.
    """
    fitting, checking = words
    samples = make(fitting)
    prefix = shared_start(samples)
    suffix = shared_start([ids[len(prefix) :][::-1] for ids in samples])[::-1]
    frame = Frame(prompt=prompt, prefix=tuple(prefix), suffix=tuple(suffix), typed=typed)
    for response, ids in zip(checking, make(checking), strict=True):
        inside = frame.inside(ids)
        if inside is not None and tokenizer.unk_token_id in inside:
            reading = tokenizer.decode(inside)
            raise FrameError(f"the tokenizer does not know {response!r}: it reads {reading!r}")
        if not _reads(tokenizer, inside, response):
            reason = f"{ids} has not the prefix {prefix} and the suffix {suffix}"
            raise FrameError(f"the chat template ties its words to {response!r}: {reason}")
    return frame


def check_written_once(render: Callable[[str], str]) -> None:
    """FrameError where a template drops or repeats the response. `render` gives the text for a
    response."""
    text = render(SENTINEL)
    if text.count(SENTINEL) != 1:
        times = text.count(SENTINEL)
        raise FrameError(f"the chat template writes the response {times} times, not once: {text!r}")


def shared_start(sequences: Sequence[Sequence[int]]) -> list[int]:
    start = []
    for column in zip(*sequences, strict=False):
        if len(set(column)) > 1:
            break
        start.append(column[0])
    return start


def _reads(tokenizer: "PreTrainedTokenizerBase", ids: list[int] | None, text: str) -> bool:
    """Whether ids are those of a text: tokenizers change case and spaces, and no letters."""
    if ids is None:
        return False
    decoded, letters = ("".join(each.split()) for each in (str(tokenizer.decode(ids)), text))
    return decoded.casefold() == letters.casefold()
