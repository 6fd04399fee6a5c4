"""A language model that is asked to judge a response: the reward is read off the probabilities of
its next token.

Log-odds of positive against negative answers, each several spellings summed; or the expected value
of ratings; or one raw logit. Of all these the normaliser cancels, so a few rows of the output
embedding are a head like any other. Two responses are compared in both orders, and averaged.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor, nn
from transformers import AutoModelForSeq2SeqLM
from transformers.modeling_outputs import SequenceClassifierOutput

from pessimal.errors import FrameError, ModelError
from pessimal.rewards.base import NetworkReward, Part
from pessimal.rewards.checkpoint_files import load_tokenizer, pinned, read_checkpoint
from pessimal.rewards.frame import (
    PLAIN_WORDS,
    Conversation,
    Encoded,
    Frame,
    check_written_once,
    find_frame,
    messages_of,
    plain_prompt,
    rendered,
)
from pessimal.rewards.heads import Head
from pessimal.rewards.language import (
    Continued,
    check_is_language_model,
    context_digest,
    is_chat,
    listed_rows,
    load_language_network,
    plain_ids,
)
from pessimal.rewards.log_probability import LanguageNetwork, LogitScaling
from pessimal.rewards.spec import Dtype, JudgeSpec, ModelSpec
from pessimal.tables.score_table import storable

_SLOT = re.compile(r"\{(prompt|response|opponent)\}")


@dataclass(frozen=True)
class Reading:
    """Which tokens are read, and how their logits become a reward."""

    positive: tuple[int, ...] = ()
    negative: tuple[int, ...] = ()
    values: tuple[float, ...] = ()
    """Of ratings: what each positive id is worth."""

    @property
    def ids(self) -> tuple[int, ...]:
        return (*self.positive, *self.negative)

    def reward(self, logits: Tensor) -> Tensor:
        """Rewards (n,) of the logits (n, ids) of the ids that are read."""
        if self.values:
            values = logits.new_tensor(self.values)
            return logits.softmax(dim=-1) @ values
        for_it, against = logits[:, : len(self.positive)], logits[:, len(self.positive) :]
        if not self.negative:
            return for_it[:, 0]
        return for_it.logsumexp(dim=-1) - against.logsumexp(dim=-1)


@dataclass(frozen=True)
class Judge(NetworkReward):
    """A judge on this machine's disk."""

    reading: Reading

    def network(self, dtype: Dtype | None = None, which: int = 0) -> "JudgeNetwork":
        seq2seq = {"kind": AutoModelForSeq2SeqLM} if self.parts[0].conversations.whole else {}
        causal = load_language_network(
            self.spec, self.folder, dtype=dtype or self.spec.dtype, **seq2seq
        )
        return JudgeNetwork(causal, self.reading)


def open_judge(spec: ModelSpec, folder: Path) -> Judge:
    """The judge in a checkpoint folder.

    Raises:
        ModelError: it is no language model, or an answer is more than one token.
        FrameError: its chat template does not say where it begins to speak.
    """
    config, shapes = read_checkpoint(spec, folder)
    if not config.is_encoder_decoder:
        check_is_language_model(spec, config, shapes)
    tokenizer = load_tokenizer(spec, folder)
    options = spec.judge
    chat = is_chat(tokenizer, chat=options.chat, name=spec.name)
    if (
        chat and options.template is not None
    ):  # its next token must be its answer, and not what opens its turn
        Continued(tokenizer, chat, listed_rows(config, shapes)).context("Why?")
    if options.template is None and not chat:
        raise ModelError(
            f"the tokenizer of {spec.name!r} has no chat template, and model.judge.template is "
            "null: give a template with {prompt} and {response}"
        )
    graded = Graded(tokenizer, options, chat, whole=config.is_encoder_decoder)
    parts = (Part(1.0, graded),)
    if options.opponent is not None:  # the log-odds are of the first against the second
        parts = (Part(0.5, graded), Part(-0.5, replace(graded, swapped=True)))
    fixed = pinned(spec, folder, tokenizer, shapes)
    fixed["config_digest"] = sha256(f"{fixed['config_digest']} {options!r}".encode()).hexdigest()
    return Judge(
        spec=spec,
        folder=folder,
        tokenizer=tokenizer,
        embedding_rows=listed_rows(config, shapes),
        parts=parts,
        template_digest=context_digest(tokenizer, chat=chat),
        reading=reading_of(tokenizer, options, graded),
        **fixed,
    )


def reading_of(tokenizer, options: JudgeSpec, graded: "Graded") -> Reading:
    """The ids that are read. ModelError where an answer is more than one token, or means two
    things."""
    if options.logit is not None:
        return Reading((options.logit,))

    def ids(answers: Sequence[str]) -> tuple[int, ...]:
        found = {}
        for answer in answers:
            own = graded.answer_ids(answer)
            if len(own) != 1:
                tokens = tokenizer.convert_ids_to_tokens(own)
                raise ModelError(
                    f"the judge's answer {answer!r} is {len(own)} tokens of its tokenizer "
                    f"({tokens}), and one is read. Give answers of one token each: "
                    "model.judge.positive=[Yes] model.judge.negative=[No], or what the answer "
                    "begins with: model.judge.begin=TEXT"
                )
            found[own[0]] = answer
        return tuple(found)

    if options.ratings:
        rated = ids(list(options.ratings))
        if len(rated) != len(options.ratings):
            raise ModelError(
                f"two of the ratings {list(options.ratings)} are one token of this tokenizer; each "
                f"its own"
            )
        return Reading(rated, values=tuple(options.ratings.values()))
    reading = Reading(ids(options.positive), ids(options.negative))
    if both := set(reading.positive) & set(reading.negative):
        token = tokenizer.convert_ids_to_tokens(both.pop())
        raise ModelError(
            f"the token {token!r} is a positive and a negative answer of the judge; let it be one "
            f"of them"
        )
    return reading


@dataclass(frozen=True, eq=False)
class Graded:
    """A prompt and a response inside a question about them; or, without a template, the
    conversation itself, and what comes after it."""

    round_trips: ClassVar[bool] = True

    tokenizer: object
    options: JudgeSpec
    chat: bool
    whole: bool = False
    """Whether an encoder reads it, with the tokens that the tokenizer puts after a text."""
    swapped: bool = False
    """Whether the response takes the opponent's place, and the opponent the response's."""

    def text(self, prompt: str, response: str) -> str:
        """Everything that the judge reads."""
        turns = [{"role": "user", "content": prompt}, {"role": "assistant", "content": response}]
        return self._written(
            turns if self.options.template is None else self.question(prompt, response)
        )

    def ids(
        self, prompt: str, responses: Sequence[str], *, double_bos: bool = False
    ) -> list[list[int]]:
        if double_bos:
            raise FrameError(
                "mode=paper is the published procedure for reward models; a judge is asked in "
                "mode=ids or text"
            )
        texts = [self.text(prompt, storable(response)) for response in responses]
        return self._ids(texts)

    def encode(self, conversation: Conversation) -> Encoded:
        *before, response = messages_of(conversation)
        if self.options.template is None:
            text = self._written([*before, response])
        else:
            text = self._written(self.question(plain_prompt(conversation), response["content"]))
        return Encoded(tuple(self._ids([text])[0]), None)

    def frame(self, prompt: str, *, double_bos: bool = False) -> Frame:
        """What stands before and after the response, as it does around plain words: a tokenizer may
        tie others to what stands around them (`survives` says which)."""
        check_written_once(partial(self.text, prompt))
        return find_frame(
            partial(self.ids, prompt, double_bos=double_bos),
            self.tokenizer,
            prompt,
            words=PLAIN_WORDS,
        )

    def answer_ids(self, answer: str) -> list[int]:
        """The ids of an answer behind what the judge has read."""
        before = self.text("Why?", "So.")
        if not self.whole:  # a decoder begins anew
            whole, begun = self._ids([before + answer, before])
            if whole[: len(begun)] == begun:
                return whole[len(begun) :]
        return self.tokenizer(answer, add_special_tokens=False)["input_ids"]

    def question(self, prompt: str, response: str) -> list[dict[str, str]]:
        """The turns that ask about a response."""
        first, second = response, self.options.opponent
        if self.swapped:
            first, second = second, first
        slots = {"prompt": prompt, "response": first, "opponent": second}
        # In one go: a response may hold "{prompt}".
        question = _SLOT.sub(lambda match: slots[match[1]], self.options.template)
        system = (
            []
            if self.options.system is None
            else [{"role": "system", "content": self.options.system}]
        )
        return [*system, {"role": "user", "content": question}]

    def _written(self, messages: list[dict[str, str]]) -> str:
        if self.chat:
            opened = rendered(self.tokenizer, messages, add_generation_prompt=True, tokenize=False)
        else:
            opened = "\n\n".join(message["content"] for message in messages)
        return opened + self.options.begin

    def _ids(self, texts: Sequence[str]) -> list[list[int]]:
        if self.whole:
            return self.tokenizer(list(texts))["input_ids"]
        return plain_ids(self.tokenizer, texts, chat=self.chat)


class JudgeNetwork(LanguageNetwork):
    """Gives the reward of what it has read."""

    def __init__(self, causal: nn.Module, reading: Reading):
        super().__init__(causal)
        self.reading = reading

    def make_head(self) -> "AnswersHead":
        return AnswersHead(self.causal, self.reading)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, **_
    ) -> SequenceClassifierOutput:
        """Rewards as `logits` (batch, 1), by the model's untouched forward."""
        inputs = {"input_ids": input_ids, "attention_mask": attention_mask}
        if self.config.is_encoder_decoder:
            start = self.config.decoder_start_token_id
            inputs["decoder_input_ids"] = torch.full_like(input_ids[:, :1], start)
        logits = self.causal(**inputs).logits[:, -1, list(self.reading.ids)].float()
        return SequenceClassifierOutput(logits=self.reading.reward(logits).unsqueeze(-1))


class AnswersHead(Head):
    """The rows of the output embedding that are read, in float32."""

    def __init__(self, causal: nn.Module, reading: Reading):
        embedding, ids = causal.get_output_embeddings(), list(reading.ids)
        self.weight = embedding.weight.detach()[ids].float()  # (ids, hidden)
        self.bias = None if embedding.bias is None else embedding.bias.detach()[ids].float()
        self.scaling, self.reading = LogitScaling.of(causal.config), reading

    @staticmethod
    def fits(shapes) -> bool:
        return False

    def read(self, final: Tensor, context: Tensor | None) -> Tensor:
        logits = final @ self.weight.T
        return self.reading.reward(
            self.scaling(logits if self.bias is None else logits + self.bias)
        )
