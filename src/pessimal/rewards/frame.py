"""Conversations as token ids: whole ones, and the chat frame, what stands before and after a
response.

Knows a tokenizer's chat template. Does not know vocabularies or rewards.
"""

import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from pessimal.errors import FrameError
from pessimal.tables.score_table import storable

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from pessimal.rewards.spec import JudgeSpec

SENTINEL = "qzxjkvw"
# Different first and last characters, so that what they share is the template's and not theirs.
_FITTING = ("love", "Wisdom", "a", "9", "Kindness!", "truth?", "(evil)", "z Q")
_CHECKING = ("Music", "hope and peace", "7 stars", "it is good.")
PLAIN_WORDS = (("love", "Wisdom", "a", "truth", "kind"), ("Music", "hope and peace"))
"""Responses that no tokenizer ties to punctuation or a line's end around them."""


@dataclass(frozen=True)
class Frame:
    """Token ids around the response slot: prefix | response | suffix, for one prompt.

    Decoders get it from the chat template, encoders from the pair [CLS] prompt [SEP] response
    [SEP].
    """

    prompt: str
    """The user turn."""
    prefix: tuple[int, ...]
    """Ids before the response, BOS included where the template writes one."""
    suffix: tuple[int, ...]
    """Ids after the response; the reward is read at the last of them (at the response's last where
    there are none)."""
    typed: bool = False
    """Whether the model marks prompt (0) and response (1) by token types, as BERT does."""

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


def takes_pairs(tokenizer: "PreTrainedTokenizerBase") -> bool:
    """Whether conversations are pairs of texts: an encoder's tokenizer, with a separator and no
    chat template."""
    return not tokenizer.chat_template and tokenizer.sep_token is not None


@dataclass(frozen=True)
class Templated:
    """Conversations in a tokenizer's own chat template; encoders without one take a prompt and a
    response as a pair."""

    round_trips: ClassVar[bool] = True

    tokenizer: "PreTrainedTokenizerBase"
    closing: tuple[int, ...] = ()
    """Ids that the model wants after the conversation."""

    def ids(
        self, prompt: str, responses: Sequence[str], *, double_bos: bool = False
    ) -> list[list[int]]:
        """The whole input for each response, as the template makes it of the texts.

        `double_bos` tokenises the templated *string* with special tokens added again, as the
        published code of Christian et al. (2025) does.
        """
        tokenizer: Any = self.tokenizer  # what it gives depends on the options
        conversations = [_turns(prompt, response) for response in responses]
        if takes_pairs(tokenizer):
            prompts = [prompt] * len(responses)
            inputs = tokenizer(prompts, list(responses), return_attention_mask=False)["input_ids"]
        elif double_bos:
            texts = tokenizer.apply_chat_template(conversations, tokenize=False)
            inputs = tokenizer(texts, add_special_tokens=True, return_attention_mask=False)[
                "input_ids"
            ]
        else:
            inputs = tokenizer.apply_chat_template(conversations, tokenize=True, return_dict=False)
        return [[*ids, *self.closing] for ids in inputs] if self.closing else inputs

    def frame(self, prompt: str, *, double_bos: bool = False) -> Frame:
        """What stands before and after the response (see `find_frame`)."""
        pairs = takes_pairs(self.tokenizer)
        if pairs and double_bos:
            raise FrameError(
                "mode=paper doubles the token that begins a chat template; this model takes a pair "
                "of texts and has none. Type mode=text"
            )
        if not pairs:
            tokenizer: Any = self.tokenizer
            check_written_once(
                lambda response: tokenizer.apply_chat_template(
                    _turns(prompt, response), tokenize=False
                )
            )
        typed = pairs and "token_type_ids" in self.tokenizer.model_input_names
        make = functools.partial(self.ids, prompt, double_bos=double_bos)
        return find_frame(make, self.tokenizer, prompt, typed=typed)

    def encode(self, conversation: "Conversation") -> "Encoded":
        """The ids of a conversation of several turns.

        Raises FrameError where the template refuses it, and where an encoder that takes one prompt
        and one response is given more.
        """
        if not takes_pairs(self.tokenizer):
            messages = messages_of(conversation)
            ids = rendered(self.tokenizer, messages, tokenize=True, return_dict=False)
            return Encoded((*ids, *self.closing), None)
        pair: Any = self.tokenizer(*prompt_and_response(conversation), return_token_type_ids=True)
        typed = "token_type_ids" in self.tokenizer.model_input_names
        types = tuple(pair["token_type_ids"]) if typed else None
        return Encoded((*pair["input_ids"], *self.closing), types)


def messages_of(conversation: "Sequence[Turn]") -> list[dict[str, str]]:
    """The turns as chat templates take them."""
    return [{"role": turn.role, "content": storable(turn.content)} for turn in conversation]


def prompt_and_response(
    conversation: "Conversation", *, takes: str = "this model takes one prompt and one response"
) -> tuple[str, str]:
    """The texts of a conversation of two turns. FrameError for another: it has more than the model
    `takes`."""
    messages = messages_of(conversation)
    roles = [message["role"] for message in messages]
    if roles != ["user", "assistant"]:
        raise FrameError(
            f"{takes}, and a conversation has the turns {', '.join(roles)}. Leave out "
            "conversations of several turns: comparisons.single_turn=true"
        )
    return messages[0]["content"], messages[1]["content"]


def plain_prompt(conversation: "Conversation") -> str:
    """What stands before the response: the user's text; of several turns all, each behind its
    role."""
    *before, _ = messages_of(conversation)
    if len(before) == 1:
        return before[0]["content"]
    return "\n\n".join(f"{turn['role']}: {turn['content']}" for turn in before)


_SLOT = re.compile(r"\{(prompt|response|opponent)\}")


def judge_question(
    judge: "JudgeSpec", prompt: str, response: str, *, swapped: bool
) -> list[dict[str, str]]:
    """The turns that ask a judge about a response; `swapped` has it change places with the
    opponent."""
    both = (response, judge.opponent or "")
    first, second = both[::-1] if swapped else both
    slots = {"prompt": prompt, "response": first, "opponent": second}
    # In one go: a response may hold "{prompt}".
    question = _SLOT.sub(lambda match: slots[match[1]], judge.template or "")
    system = [] if judge.system is None else [{"role": "system", "content": judge.system}]
    return [*system, {"role": "user", "content": question}]


def rendered(
    tokenizer: "PreTrainedTokenizerBase", messages: list[dict[str, str]], **options: Any
) -> Any:
    """A conversation through the chat template, as text or ids; FrameError where that fails."""
    try:
        return tokenizer.apply_chat_template(messages, **options)
    except Exception as error:
        roles = ", ".join(message["role"] for message in messages)
        raise FrameError(
            f"the chat template fails on a conversation with the turns {roles}: {error}"
        ) from error


def _turns(prompt: str, response: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": prompt}, {"role": "assistant", "content": response}]


def assistant_opening(tokenizer: "PreTrainedTokenizerBase") -> tuple[int, ...]:
    """The ids between the end of the user's turn and the response: what the frames of all prompts
    end with."""
    conversations = Templated(tokenizer)
    ends = [conversations.frame(prompt).prefix[::-1] for prompt in ("Why?", "Say it", "One of 2")]
    return tuple(_common_start(ends)[::-1])


def find_frame(
    make: Callable[[Sequence[str]], list[list[int]]],
    tokenizer: "PreTrainedTokenizerBase",
    prompt: str,
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
        if inside is None or _plain(str(tokenizer.decode(inside))) != _plain(response):
            raise FrameError(
                "prefix + response + suffix does not equal the template's own ids for the response "
                f"{response!r}: the template gives {ids}, the frame has prefix {prefix} and suffix "
                f"{suffix}. Text around the response is tokenised together with it; this template "
                "cannot be scanned by token id."
            )
    return frame


def check_written_once(render: Callable[[str], str]) -> None:
    """FrameError where a template drops or repeats the response, or fails. `render` gives the text
    for a response."""
    try:
        text = render(SENTINEL)
    except Exception as error:
        raise FrameError(
            f"the chat template fails on a user turn followed by an assistant turn: {error}"
        ) from error
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
class Turn:
    """One message of a conversation."""

    role: str
    """user, assistant or system."""
    content: str
    """Its text."""


Conversation = tuple[Turn, ...]
"""Its turns in order; the last is the response that is rewarded."""


@dataclass(frozen=True)
class Encoded:
    """One conversation, ready for a network."""

    ids: tuple[int, ...]
    types: tuple[int, ...] | None
    """Token types, for encoders that mark prompt (0) and response (1) by them."""
    n_response: int = 0
    """How many of the last ids are the response's, for readings that sum over these alone."""
