"""Formats: how a conversation becomes token ids, for each way in which a network reads one.

Knows tokenizers and their chat templates. Does not know vocabularies, networks or rewards.
"""

import contextlib
import functools
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, cast

from pessimal.conversation import Conversation, Prompt, turns_of
from pessimal.errors import FrameError, ModelError
from pessimal.rewards.frame import (
    PLAIN_WORDS,
    Encoded,
    Format,
    Frame,
    check_written_once,
    find_frame,
    shared_start,
)
from pessimal.rewards.question import QuestionOptions, judge_question
from pessimal.rewards.rendering import (
    ONE_TEXT,
    Messages,
    ids_of,
    messages_of,
    one_text,
    plain_prompt,
    prompt_and_response,
    rendered,
    response_messages,
    special_around,
    template_variables,
)
from pessimal.texts import storable

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

log = logging.getLogger(__name__)

PLAIN = "a"
"""A response without steps, to see what else is written."""
TAKES = "without a chat template, a language model takes one prompt and one response"


@dataclass(frozen=True)
class Templated:
    """Conversations in a tokenizer's own chat template; encoders without one take a prompt and a
    response as a pair."""

    round_trips: ClassVar[bool] = True

    tokenizer: "PreTrainedTokenizerBase"
    closing: tuple[int, ...] = ()
    """Ids that the model wants after the conversation."""
    end: str = ""
    """Token that its text ends in, line ends cut off, as OpenRLHF's trainer wrote it."""
    pad: int | None = None
    """Id that is cut off the end: a class that reads the last token but pads never sees it."""

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
        if takes_pairs(tokenizer):
            return "a prompt and a response as a pair of texts (model.one_text=true: as one text)"
        first, second = (ids[-1] for ids in self.ids("Why?", ["love", "9 z"]))
        place = repr(str(tokenizer.decode([first]))) if first == second else "the response's last"
        around = " and the tokenizer's special tokens" * self.adds_special
        form = "one text" if tokenizer.chat_template == ONE_TEXT else f"the chat template{around}"
        return f"a conversation as {form}, up to the token {place}"

    @functools.cached_property
    def adds_special(self) -> bool:
        """Whether an encoder's special tokens are put around what its chat template writes."""
        text = self.text(response_messages("Why?", "love"))
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
        if takes_pairs(tokenizer):
            prompts = [one_text(prompt)] * len(responses)
            inputs = tokenizer(prompts, list(responses), return_attention_mask=False)["input_ids"]
        else:
            texts = [self.text(response_messages(prompt, response)) for response in responses]
            inputs = tokenizer(texts)["input_ids"] if double_bos else ids_of(tokenizer, texts)
        return [self._close(ids) for ids in inputs]

    def frame(self, prompt: Prompt, *, double_bos: bool = False) -> Frame:
        """Tokens before and after the response (see `find_frame`)."""
        pairs = takes_pairs(self.tokenizer)
        if pairs and double_bos:
            raise doubled_pair()
        if not pairs:
            check_written_once(lambda r: rendered(self.tokenizer, response_messages(prompt, r)))
        typed = pairs and "token_type_ids" in self.tokenizer.model_input_names
        make = functools.partial(self.ids, prompt, double_bos=double_bos)
        return find_frame(make, self.tokenizer, prompt, typed=typed)

    def encode(self, conversation: Conversation) -> Encoded:
        """The ids of a conversation of several turns.

        Raises FrameError where the template refuses it, and where an encoder that takes one prompt
        and one response is given more.
        """
        if not takes_pairs(self.tokenizer):
            [ids] = ids_of(self.tokenizer, [self.text(messages_of(conversation))])
            return Encoded(tuple(self._close(ids)), None)
        pair: Any = self.tokenizer(*prompt_and_response(conversation), return_token_type_ids=True)
        typed = "token_type_ids" in self.tokenizer.model_input_names
        types = tuple(pair["token_type_ids"]) if typed else None
        return Encoded((*pair["input_ids"], *self.closing), types)

    def plain(self, conversation: Conversation) -> str | None:
        if takes_pairs(self.tokenizer) or self.pad is not None:
            return None
        return self.text(messages_of(conversation))

    def _close(self, ids: list[int]) -> list[int]:
        ids = [*ids, *self.closing]
        if self.pad is None or {*ids} == {self.pad}:
            return ids
        while ids[-1] == self.pad:
            ids.pop()
        return ids


@dataclass(frozen=True)
class Stepped(Templated):
    """Conversations whose response is written in steps, up to the token that closes the last."""

    closes: str = ""

    @functools.cached_property
    def step(self) -> int:
        """Its id."""
        return step_id(self.tokenizer, self.closes)

    def ids(
        self, prompt: Prompt, responses: Sequence[str], *, double_bos: bool = False
    ) -> list[list[int]]:
        """The whole input for each response. FrameError where the tokenizer ties a step's token to
        what stands before it."""
        texts = [self._close_steps(response) for response in responses]
        around, *inputs = super().ids(prompt, [PLAIN, *texts], double_bos=double_bos)
        n_around = around.count(self.step)
        return [self._cut(ids, text, n_around) for ids, text in zip(inputs, texts, strict=True)]

    def encode(self, conversation: Conversation) -> Encoded:
        """The ids of a conversation; `n_response` counts them from its first step's end."""
        *before, turn = conversation
        text = self._close_steps(turn.content)
        around, ids = (
            list(super(Stepped, self).encode((*before, replace(turn, content=content))).ids)
            for content in (PLAIN, text)
        )
        ids = self._cut(ids, text, around.count(self.step))
        ends = [place for place, token in enumerate(ids) if token == self.step]
        return Encoded(tuple(ids), None, len(ids) - ends[-text.count(self.closes)])

    def plain(self, conversation: Conversation) -> str | None:
        return None

    def _close_steps(self, response: str) -> str:
        """The response's paragraphs, each closed by the token; one that holds it is written in
        steps already."""
        if self.closes in response:
            return response if response.endswith(self.closes) else response + self.closes
        steps = [step for step in response.split("\n\n") if step] or [response]
        return "".join(step + self.closes for step in steps)

    @functools.cached_property
    def _closing_tokens(self) -> int:
        """Number of times that the template itself writes the token behind the response."""
        return Templated(self.tokenizer).frame("Why?").suffix.count(self.step)

    def _cut(self, ids: list[int], written: str, n_other: int) -> list[int]:
        """The ids up to the last step's end, of which `n_other` are no step's."""
        ends = [place for place, token in enumerate(ids) if token == self.step]
        if len(ends) != n_other + written.count(self.closes):
            place = f"{self.closes!r} to what stands before it, in {written[-40:]!r}"
            raise FrameError(f"the tokenizer ties {place}: give an added token, model.step_token=…")
        return ids[: ends[-1 - self._closing_tokens] + 1]


class GradedSteps(Stepped):
    """Conversations in steps, of which a language model says next whether each is right."""

    def answer_ids(self, answer: str) -> list[int]:
        """The ids of an answer behind a step's end; where these are several, that of the token
        which byte-level tokenizers and SentencePiece write so."""
        answered, before = (token_ids(self.tokenizer, self.closes + a) for a in (answer, ""))
        ids = answered[len(before) :] if answered[: len(before)] == before else []
        vocabulary = self.tokenizer.get_vocab()
        tokens = [vocabulary.get(answer.replace(" ", blank)) for blank in ("Ġ", "▁")]
        if len(ids) != 1 and (single := [token for token in tokens if token is not None]):
            return single[:1]
        return ids or token_ids(self.tokenizer, answer)


@dataclass(frozen=True)
class Continued:
    """A response as what a causal language model goes on with: after the user's turn and what opens
    the assistant's, or after the prompt's plain text and a space."""

    round_trips: ClassVar[bool] = False

    tokenizer: "PreTrainedTokenizerBase"
    chat: bool
    rows: int
    closing: tuple[int, ...] = ()
    """Ids behind the response whose probability counts too: the token that closes the assistant's
    turn, or none."""

    def describe(self) -> str:
        """The input of a model, in words for people."""
        return "a response " + ("in the chat template" if self.chat else "behind plain text")

    def context(self, prompt: Prompt) -> tuple[int, ...]:
        """The ids before the response: of the chat, rendered up to where the assistant begins to
        speak (`add_generation_prompt`); or of the prompt's text, with what the tokenizer puts ahead
        of a text (a beginning-of-sequence token, once) and without what it may put after one.

        Raises:
            FrameError: the template fails, or does not say where the assistant begins to speak.
            ModelError: the model has no row for a token.
        """
        return self._context(self._open(prompt), f"the prompt {prompt!r}")

    def ids(
        self, prompt: Prompt, responses: Sequence[str], *, double_bos: bool = False
    ) -> list[list[int]]:
        """The whole input for each response. Its ids are those of the text as a whole; where the
        tokenizer merges the response's beginning with the prompt's end, its own. FrameError for a
        response without any ids."""
        return self.continued(prompt, responses)[0]

    def continued(
        self, prompt: Prompt, responses: Sequence[str]
    ) -> tuple[list[list[int]], list[str]]:
        """`ids`, and the responses that were tokenised by themselves."""
        before = list(self.context(prompt))
        answers, apart = self._answers(self._open(prompt), before, responses)
        return [[*before, *ids, *self.closing] for ids in answers], apart

    def frame(self, prompt: Prompt, *, double_bos: bool = False) -> Frame:
        """The context and the closing ids."""
        return Frame(prompt=prompt, prefix=self.context(prompt), suffix=self.closing)

    def encode(self, conversation: Conversation) -> Encoded:
        """The whole input for a conversation, whose last turn is the response."""
        if self.chat:
            *turns, turn = messages_of(conversation)
            text = rendered(self.tokenizer, turns, add_generation_prompt=True)
            response = turn["content"]
        else:
            text, response = prompt_and_response(conversation, takes=TAKES)
        before = list(self._context(text, "a conversation"))
        [ids], _ = self._answers(text, before, [response])
        return Encoded((*before, *ids, *self.closing), None, len(ids) + len(self.closing))

    def plain(self, conversation: Conversation) -> str | None:
        return None

    def _open(self, prompt: Prompt) -> str:
        return _open_chat(self.tokenizer, prompt) if self.chat else one_text(prompt, takes=TAKES)

    def _context(self, opened: str, source: str) -> tuple[int, ...]:
        [ids] = plain_ids(self.tokenizer, [opened], chat=self.chat)
        if not ids:
            raise FrameError(f"the tokenizer makes no token of {source}: give another prompt")
        self._check_rows(ids, source)
        return tuple(ids)

    def _answers(
        self, opened: str, before: list[int], answers: Sequence[str]
    ) -> tuple[list[list[int]], list[str]]:
        """The ids of whole answers, and the answers that were tokenised by themselves."""
        texts = [("" if self.chat else " ") + storable(answer) for answer in answers]
        inputs = plain_ids(self.tokenizer, [opened + text for text in texts], chat=self.chat)
        answer_ids, apart = [], []
        for answer, text, ids in zip(answers, texts, inputs, strict=True):
            ids = ids[len(before) :] if ids[: len(before)] == before else []
            if not ids:
                ids = token_ids(self.tokenizer, text)
                apart.append(answer)
            if not ids:
                raise FrameError(f"the tokenizer makes no token of the item {answer!r}")
            self._check_rows(ids, f"the item {answer!r}")
            answer_ids.append(list(ids))
        return answer_ids, apart

    def _check_rows(self, ids: Sequence[int], source: str) -> None:
        """ModelError where an id lies beyond the embedding: on a GPU that would be an assertion
        deep inside."""
        if (worst := max(ids)) >= self.rows:
            token = f"{self.tokenizer.convert_ids_to_tokens(worst)!r} (id {worst})"
            fault = f"the model {self.rows} rows of embedding: the two do not belong together"
            raise ModelError(f"{source} holds the token {token}, and {fault}")


@dataclass(frozen=True, eq=False)
class Graded:
    """A prompt and a response inside a question about them; or, without a template, the
    conversation itself, and what comes after it."""

    round_trips: ClassVar[bool] = True

    tokenizer: "PreTrainedTokenizerBase"
    options: QuestionOptions
    chat: bool
    encoder: bool = False
    """Whether an encoder reads it, with the tokens that the tokenizer puts after a text."""
    swapped: bool = False
    """Whether the response takes the opponent's place, and the opponent the response's."""

    def text(self, prompt: Prompt, response: str) -> str:
        """Everything that the judge reads."""
        return self._text(response_messages(prompt, response), prompt, response)

    def ids(
        self, prompt: Prompt, responses: Sequence[str], *, double_bos: bool = False
    ) -> list[list[int]]:
        texts = [self.text(prompt, storable(response)) for response in responses]
        return self._ids(texts)

    def encode(self, conversation: Conversation) -> Encoded:
        return Encoded(tuple(self._ids([self.plain(conversation)])[0]), None)

    def plain(self, conversation: Conversation) -> str:
        messages = messages_of(conversation)
        return self._text(messages, plain_prompt(conversation), messages[-1]["content"])

    def frame(self, prompt: Prompt, *, double_bos: bool = False) -> Frame:
        """Tokens before and after the response, as they are around plain words: a tokenizer may tie
        others to what stands around them (`survives` says which)."""
        check_written_once(functools.partial(self.text, prompt))
        make = functools.partial(self.ids, prompt, double_bos=double_bos)
        return find_frame(make, self.tokenizer, prompt, words=PLAIN_WORDS)

    def answer_ids(self, answer: str) -> list[int]:
        """The ids of an answer behind what the judge has read."""
        question = self.text("Why?", "So.")
        if not self.encoder:  # a decoder begins anew
            answered, before = self._ids([question + answer, question])
            if answered[: len(before)] == before:
                return answered[len(before) :]
        return token_ids(self.tokenizer, answer)

    def _text(self, messages: Messages, prompt: Prompt, response: str) -> str:
        if self.options.template is not None:
            messages = judge_question(self.options, prompt, response, swapped=self.swapped)
        if self.chat:
            opened = rendered(self.tokenizer, messages, add_generation_prompt=True)
        else:
            opened = "\n\n".join(message["content"] for message in messages)
        return opened + self.options.begin

    def _ids(self, texts: Sequence[str]) -> list[list[int]]:
        if self.encoder:
            inputs: Any = self.tokenizer(list(texts))["input_ids"]
            return inputs
        return plain_ids(self.tokenizer, texts, chat=self.chat)


def takes_pairs(tokenizer: "PreTrainedTokenizerBase") -> bool:
    """Whether conversations are pairs of texts: an encoder's tokenizer, with a separator and no
    chat template."""
    return not tokenizer.chat_template and tokenizer.sep_token is not None


def doubled_pair() -> FrameError:
    """The refusal of mode=paper for a model that reads a pair of texts."""
    return FrameError("mode=paper is of chat templates, and this model takes pairs: mode=text")


def token_ids(
    tokenizer: "PreTrainedTokenizerBase", text: str, *, special: bool = False
) -> list[int]:
    """Ids of a text, without or with the `special` tokens that the tokenizer puts around it."""
    return cast(list[int], tokenizer(text, add_special_tokens=special)["input_ids"])


def plain_ids(
    tokenizer: "PreTrainedTokenizerBase", texts: Sequence[str], *, chat: bool
) -> list[list[int]]:
    """Ids of whole texts; of plain ones with the special tokens that go ahead of a text, without
    those that follow it."""
    bare: Any = tokenizer(list(texts), add_special_tokens=False)["input_ids"]
    if chat:  # the template wrote its own
        return bare
    ahead, _ = special_around(tokenizer)
    return [[*ahead, *ids] for ids in bare]


def step_id(tokenizer: "PreTrainedTokenizerBase", token: str) -> int:
    """The id of the token that closes a step. ModelError where the tokenizer has none such."""
    ids = token_ids(tokenizer, token)
    if len(ids) != 1 or ids[0] == tokenizer.unk_token_id:
        added = ", ".join(list(tokenizer.get_added_vocab())[:8]) or "none that were added"
        raise ModelError(f"model.step_token={token!r} is {len(ids)} tokens: give one, of {added}")
    return ids[0]


def is_chat(tokenizer: "PreTrainedTokenizerBase", *, chat: bool | None, name: str) -> bool:
    """Whether model `name` is to be asked in its chat template; None asks so where there is one.
    ModelError where it is asked for and there is none."""
    if chat and not tokenizer.chat_template:
        raise ModelError(f"model.chat=true: {name!r} has no chat template; leave it out")
    return bool(tokenizer.chat_template) if chat is None else chat


def closing_of(tokenizer: "PreTrainedTokenizerBase", *, chat: bool) -> tuple[int, ...]:
    """The token that closes a response: the first special one that the chat template writes behind
    it (the first of all where none is special), else the tokenizer's end-of-sequence token; none
    where there is neither."""
    if chat and (suffix := Templated(tokenizer).frame("Why?").suffix):
        special = {*tokenizer.all_special_ids, *tokenizer.added_tokens_decoder}
        return (next((i for i in suffix if i in special), suffix[0]),)
    return () if tokenizer.eos_token_id is None else (tokenizer.eos_token_id,)


def _open_chat(tokenizer: "PreTrainedTokenizerBase", prompt: Prompt) -> str:
    """The chat rendered to where the assistant speaks."""
    turns = messages_of(turns_of(prompt))
    text, closed = (rendered(tokenizer, turns, add_generation_prompt=b) for b in (True, False))
    # Some (Mistral's) need nothing to open the assistant's turn. Others forget it: their next token
    # would be the header.
    prefix = Templated(tokenizer).frame(prompt).prefix if text == closed else None
    if prefix not in (None, tuple(token_ids(tokenizer, text))):
        advice = f"type model.chat=false or model.judge.chat=false. Rendered: {text!r}"
        raise FrameError(f"add_generation_prompt opens no assistant's turn: {advice}")
    return text


def assistant_opening(tokenizer: "PreTrainedTokenizerBase") -> tuple[int, ...]:
    """The ids between the end of the user's turn and the response: what the frames of all prompts
    end with."""
    conversations = Templated(tokenizer)
    ends = [conversations.frame(prompt).prefix[::-1] for prompt in ("Why?", "Say it", "One of 2")]
    return tuple(shared_start(ends)[::-1])


def log_reading(name: str, conversations: Format, tokenizer: Any) -> None:
    """Log what a model reads and where its reward is, and what its chat template reads beside the
    turns; nothing where the template fails, which is an error of whoever asks."""
    if not isinstance(conversations, Templated | Continued):
        return
    variables = [f"{option}={value}" for option, value in template_variables(tokenizer).items()]
    options = f"; its template with {', '.join(variables)} (model.template_options)"
    with contextlib.suppress(FrameError):
        log.info("%s reads %s%s", name, conversations.describe(), options * bool(variables))
