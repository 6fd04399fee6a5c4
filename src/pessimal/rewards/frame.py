"""Conversations as token ids: whole ones, and the chat frame, what stands before and after a slot:
the whole response, or a place behind, before or inside a given one.

Knows a tokenizer's chat template. Does not know vocabularies or rewards.
"""

import functools
import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from pessimal.conversation import (
    Asked,
    Context,
    Conversation,
    Prompt,
    Turn,
    plain_text,
    turns_of,
)
from pessimal.errors import FrameError
from pessimal.rewards.rendering import ONE_TEXT, Messages, ids_of, rendered, template_variables
from pessimal.tables.score_table import storable

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from pessimal.rewards.spec import JudgeSpec

log = logging.getLogger(__name__)

SENTINEL = "qzxjkvw"
# Different first and last characters, so that what they share is the template's and not theirs.
_FITTING = ("love", "Wisdom", "a", "9", "Kindness!", "truth?", "(evil)", "z Q")
_CHECKING = ("Music", "hope and peace", "7 stars", "it is good.")
PLAIN_WORDS = (("love", "Wisdom", "a", "truth", "kind"), ("Music", "hope and peace"))
"""Responses that no tokenizer ties to punctuation or a line's end around them."""
_SPACED = ((" love", " Wisdom", " a", " truth", " kind"), (" Music", " hope and peace"))
"""What no tokenizer ties to an answer before it."""


@dataclass(frozen=True)
class Frame:
    """Token ids around the slot: prefix | candidate | suffix, for one prompt or context.

    Decoders get it from the chat template, encoders from the pair [CLS] prompt [SEP] response
    [SEP].
    """

    prompt: Prompt
    """The user turn, or the turns before the response."""
    prefix: tuple[int, ...]
    """Ids before the response, BOS included where the template writes one."""
    suffix: tuple[int, ...]
    """Ids after the response; the reward is read at the last of them (at the response's last where
    there are none)."""
    typed: bool = False
    """Whether the model marks prompt (0) and response (1) by token types, as BERT does."""
    answer: int = 0
    """How many of the prefix's last ids are of the answer that the slot is behind."""
    context: Context | None = None
    """What has the slot, where that is not the whole response."""

    @property
    def asked(self) -> Asked:
        """What the candidate is put into."""
        return self.context or self.prompt

    def around(self, response: Sequence[int]) -> list[int]:
        """The whole input for one response."""
        return [*self.prefix, *response, *self.suffix]

    def inside(self, ids: Sequence[int]) -> list[int] | None:
        """The response's ids in a templated conversation, or None where it does not start and end
        like the frame."""
        end = len(ids) - len(self.suffix)
        fits = (
            end >= len(self.prefix)
            and tuple(ids[: len(self.prefix)]) == self.prefix
            and tuple(ids[end:]) == self.suffix
        )
        return list(ids[len(self.prefix) : end]) if fits else None


class Conversations(Protocol):
    """How a prompt and a response are shown to a network, as token ids."""

    round_trips: ClassVar[bool]
    """Whether a scan says which tokens survive decoding and tokenising (it takes longer than
    scoring them)."""

    def ids(
        self, prompt: Prompt, responses: Sequence[str], *, double_bos: bool = False
    ) -> list[list[int]]:
        """The whole input for each response."""

    def encode(self, conversation: Conversation) -> "Encoded":
        """The whole input for a conversation of several turns, whose last is the response."""

    def frame(self, prompt: Prompt, *, double_bos: bool = False) -> Frame:
        """What stands before and after the response."""


def takes_pairs(tokenizer: "PreTrainedTokenizerBase") -> bool:
    """Whether conversations are pairs of texts: an encoder's tokenizer, with a separator and no
    chat template."""
    return not tokenizer.chat_template and tokenizer.sep_token is not None


def doubled_pair() -> FrameError:
    """The refusal of mode=paper for a model that reads a pair of texts."""
    return FrameError(
        "mode=paper doubles the token that begins a chat template; this model takes a pair of "
        "texts and has none. Type mode=text"
    )


@dataclass(frozen=True)
class Templated:
    """Conversations in a tokenizer's own chat template; encoders without one take a prompt and a
    response as a pair."""

    round_trips: ClassVar[bool] = True

    tokenizer: "PreTrainedTokenizerBase"
    closing: tuple[int, ...] = ()
    """Ids that the model wants after the conversation."""
    end: str = ""
    """Token that its text ends in, line ends cut off, as OpenRLHF's trainer wrote it; empty where
    the template says how it ends."""

    def text(self, messages: Messages) -> str:
        """A conversation as the chat template writes it, with the end token."""
        text = str(rendered(self.tokenizer, messages))
        if not self.end:
            return text
        text = text.rstrip("\n")
        return text if text.endswith(self.end) else f"{text} {self.end}"

    def describe(self) -> str:
        """The input of a model, and the token at which its reward is, in words for people."""
        tokenizer = self.tokenizer
        first, second = (ids[-1] for ids in self.ids("Why?", ["love", "9 z"]))
        place = repr(str(tokenizer.decode([first]))) if first == second else "the response's last"
        if takes_pairs(tokenizer):
            return (
                "a prompt and a response as a pair of texts, with the tokenizer's special tokens. "
                "A classifier that was trained on one text is read with model.one_text=true"
            )
        if tokenizer.chat_template == ONE_TEXT:
            return f"prompt and response as one text, up to the token {place}"
        around = " and the tokenizer's special tokens" * self.adds_special
        end = "up to" if tokenizer.cls_token and tokenizer.sep_token else "its reward at"
        return f"a conversation in the chat template{around}, {end} the token {place}"

    @functools.cached_property
    def adds_special(self) -> bool:
        """Whether an encoder's special tokens are put around what its chat template writes."""
        text = self.text(with_response("Why?", "love"))
        [bare] = self.tokenizer([text], add_special_tokens=False)["input_ids"]
        return ids_of(self.tokenizer, [text]) != [bare]

    def ids(
        self, prompt: Prompt, responses: Sequence[str], *, double_bos: bool = False
    ) -> list[list[int]]:
        """The whole input for each response, as the template makes it of the texts.

        `double_bos` tokenises the templated *string* with special tokens added again, as the
        published code of Christian et al. (2025) does.
        """
        tokenizer: Any = self.tokenizer  # what it gives depends on the options
        conversations = [with_response(prompt, response) for response in responses]
        if takes_pairs(tokenizer):
            prompts = [one_text(prompt)] * len(responses)
            inputs = tokenizer(prompts, list(responses), return_attention_mask=False)["input_ids"]
        else:
            texts = [self.text(conversation) for conversation in conversations]
            if double_bos:
                inputs = tokenizer(texts, return_attention_mask=False)["input_ids"]
            else:
                inputs = ids_of(tokenizer, texts)
        return [[*ids, *self.closing] for ids in inputs] if self.closing else inputs

    def frame(self, prompt: Prompt, *, double_bos: bool = False) -> Frame:
        """What stands before and after the response (see `find_frame`)."""
        pairs = takes_pairs(self.tokenizer)
        if pairs and double_bos:
            raise doubled_pair()
        if not pairs:
            check_written_once(
                lambda response: rendered(self.tokenizer, with_response(prompt, response))
            )
        typed = pairs and "token_type_ids" in self.tokenizer.model_input_names
        make = functools.partial(self.ids, prompt, double_bos=double_bos)
        return find_frame(make, self.tokenizer, prompt, typed=typed)

    def encode(self, conversation: Conversation) -> "Encoded":
        """The ids of a conversation of several turns.

        Raises FrameError where the template refuses it, and where an encoder that takes one prompt
        and one response is given more.
        """
        if not takes_pairs(self.tokenizer):
            [ids] = ids_of(self.tokenizer, [self.text(messages_of(conversation))])
            return Encoded((*ids, *self.closing), None)
        pair: Any = self.tokenizer(*prompt_and_response(conversation), return_token_type_ids=True)
        typed = "token_type_ids" in self.tokenizer.model_input_names
        types = tuple(pair["token_type_ids"]) if typed else None
        return Encoded((*pair["input_ids"], *self.closing), types)


def log_reading(name: str, conversations: Conversations, tokenizer: Any) -> None:
    """Log what a model reads and where its reward is, and what its chat template reads beside the
    turns; nothing where the template fails, which is an error of whoever asks."""
    if (describe := getattr(conversations, "describe", None)) is None:
        return
    try:
        reading = describe()
    except FrameError:
        return
    variables = [f"{option}={value}" for option, value in template_variables(tokenizer).items()]
    pinned = f"; its template with {', '.join(variables)} (model.template_options)"
    log.info("%s reads %s%s", name, reading, pinned * bool(variables))


def messages_of(conversation: Sequence[Turn]) -> list[dict[str, str]]:
    """The turns as chat templates take them."""
    return [{"role": turn.role, "content": storable(turn.content)} for turn in conversation]


def with_response(prompt: Prompt, response: str) -> list[dict[str, str]]:
    """The messages of a prompt and the response to it."""
    return messages_of((*turns_of(prompt), Turn("assistant", response)))


def one_text(prompt: Prompt, *, takes: str = "this model takes one prompt and one response") -> str:
    """A prompt of a user's turn alone. FrameError for another: it has more than the model
    `takes`."""
    if isinstance(prompt, str):
        return prompt
    raise FrameError(
        f"{takes}, and a conversation has the turns "
        f"{', '.join(turn.role for turn in prompt)}, assistant. Give a prompt of one turn; of "
        "comparisons leave out those of several turns: comparisons.single_turn=true"
    )


def prompt_and_response(
    conversation: Conversation, *, takes: str = "this model takes one prompt and one response"
) -> tuple[str, str]:
    """The texts of a conversation of two turns. FrameError as `one_text`."""
    *before, response = conversation
    alone = before[0].content if [turn.role for turn in before] == ["user"] else tuple(before)
    return storable(one_text(alone, takes=takes)), storable(response.content)


def plain_prompt(conversation: Conversation) -> str:
    """What stands before the response: the user's text; of several turns all, each behind its
    role."""
    *before, _ = conversation
    return storable(plain_text(before[0].content if len(before) == 1 else tuple(before)))


_SLOT = re.compile(r"\{(prompt|response|opponent)\}")


def judge_question(
    judge: "JudgeSpec", prompt: Prompt, response: str, *, swapped: bool
) -> list[dict[str, str]]:
    """The turns that ask a judge about a response; `swapped` has it change places with the
    opponent."""
    both = (response, judge.opponent or "")
    first, second = both[::-1] if swapped else both
    slots = {"prompt": plain_text(prompt), "response": first, "opponent": second}
    # In one go: a response may hold "{prompt}".
    question = _SLOT.sub(lambda match: slots[match[1]], judge.template or "")
    system = [] if judge.system is None else [{"role": "system", "content": judge.system}]
    return [*system, {"role": "user", "content": question}]


def assistant_opening(tokenizer: "PreTrainedTokenizerBase") -> tuple[int, ...]:
    """The ids between the end of the user's turn and the response: what the frames of all prompts
    end with."""
    conversations = Templated(tokenizer)
    ends = [conversations.frame(prompt).prefix[::-1] for prompt in ("Why?", "Say it", "One of 2")]
    return tuple(_common_start(ends)[::-1])


def slot_ids(
    conversations: Conversations,
    asked: Asked,
    texts: Sequence[str],
    *,
    double_bos: bool = False,
) -> list[list[int]]:
    """The whole input for each text as the answer, or in the slot."""
    if isinstance(asked, Context):
        return [list(conversations.encode(asked.filled(text)).ids) for text in texts]
    return conversations.ids(asked, texts, double_bos=double_bos)


def slot_frame(
    conversations: Conversations,
    asked: Asked,
    tokenizer: "PreTrainedTokenizerBase",
    *,
    double_bos: bool = False,
) -> Frame:
    """What stands before and after the answer, or the slot. A given answer keeps its own ids; where
    its end is one token with what follows, those that it has with other words behind it.

    Raises:
        FrameError: the tokenizer ties what stands around the slot to what stands in it.
    """
    if not isinstance(asked, Context):
        return conversations.frame(asked, double_bos=double_bos)
    whole, make = conversations.frame(asked.prompt), functools.partial(slot_ids, conversations)
    [untouched] = make(asked, [""])
    last = asked.turn == len(asked.turns) - 1
    if whole.typed and not last:
        raise FrameError(
            "the slot is before the answer's turn, and this model marks prompt and answer by token "
            "types: put it behind, before or into the answer"
        )
    if asked.slot == "before":
        if whole.inside(untouched) is None:
            raise FrameError(
                "the tokenizer ties the answer's beginning to what stands before it: no token can "
                f"stand between them, in {asked.turns[-1].content[:40]!r}"
            )
        return replace(whole, context=asked, suffix=tuple(untouched[len(whole.prefix) :]))
    words = [word for some in _SPACED for word in some]
    samples = make(asked, words)
    begins = len(_common_start([whole.prefix, untouched]))
    end = len(_common_start([untouched, *samples]))
    frame = replace(whole, prefix=tuple(untouched[:end]), suffix=tuple(untouched[end:]))
    insides = [frame.inside(ids) for ids in samples]
    if not all(
        inside is not None and _plain(str(tokenizer.decode(inside))) == _plain(word)
        for inside, word in zip(insides, words, strict=True)
    ):
        frame = find_frame(
            functools.partial(make, asked),
            tokenizer,
            whole.prompt,
            typed=whole.typed,
            words=_SPACED,
        )
        if not str(tokenizer.decode(list(frame.prefix[-1:]))).strip():
            raise FrameError(
                "the tokenizer ties what stands around the slot to what stands in it, in "
                f"{asked.turns[asked.turn].content[-40:]!r}: give a context that ends otherwise"
            )
    answer = max(0, len(frame.prefix) - begins) if last else 0
    return replace(frame, answer=answer, context=asked)


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
    prefix = _common_start(samples)
    suffix = _common_start([ids[len(prefix) :][::-1] for ids in samples])[::-1]
    frame = Frame(prompt=prompt, prefix=tuple(prefix), suffix=tuple(suffix), typed=typed)
    for response, ids in zip(checking, make(checking), strict=True):
        inside = frame.inside(ids)
        if inside is not None and tokenizer.unk_token_id in inside:
            raise FrameError(
                f"the tokenizer does not know the response {response!r}: it reads "
                f"{tokenizer.decode(inside)!r}. Is it the tokenizer of this model?"
            )
        if inside is None or _plain(str(tokenizer.decode(inside))) != _plain(response):
            raise FrameError(
                "prefix + response + suffix does not equal the template's own ids for the response "
                f"{response!r}: the template gives {ids}, the frame has prefix {prefix} and suffix "
                f"{suffix}. This template cannot be scanned by token id."
            )
    return frame


def check_written_once(render: Callable[[str], str]) -> None:
    """FrameError where a template drops or repeats the response. `render` gives the text for a
    response."""
    text = render(SENTINEL)
    if text.count(SENTINEL) != 1:
        raise FrameError(
            f"the chat template writes the response {text.count(SENTINEL)} times instead of once; "
            f"rendered: {text!r}"
        )


def _common_start(sequences: Sequence[Sequence[int]]) -> list[int]:
    start = []
    for column in zip(*sequences, strict=False):
        if len(set(column)) > 1:
            break
        start.append(column[0])
    return start


def _plain(text: str) -> str:
    """Tokenizers change case and spaces; the letters must be the response's."""
    return "".join(text.split()).casefold()


@dataclass(frozen=True)
class Encoded:
    """One conversation, ready for a network."""

    ids: tuple[int, ...]
    types: tuple[int, ...] | None
    """Token types, for encoders that mark prompt (0) and response (1) by them."""
    n_response: int = 0
    """How many of the last ids are the response's, for readings that sum over these alone."""
