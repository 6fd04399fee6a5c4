"""A language model that is asked to judge a response: the reward is read off the probabilities of
its next token.

Log-odds of positive against negative answers, each several spellings summed; or the expected value
of ratings; or one raw logit. Of all these the normaliser cancels, so a few rows of the output
embedding are a head like any other. Two responses are compared in both orders, and averaged.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.modeling_outputs import SequenceClassifierOutput

from pessimal.conversation import Conversation, Prompt
from pessimal.errors import ModelError
from pessimal.rewards.base import NetworkReward, Part
from pessimal.rewards.ceiling import Interval, NormalisedStates
from pessimal.rewards.checkpoint_files import Checkpoint
from pessimal.rewards.digests import template_digest
from pessimal.rewards.frame import (
    PLAIN_WORDS,
    Encoded,
    Frame,
    check_written_once,
    find_frame,
    judge_question,
    messages_of,
    plain_prompt,
    with_response,
)
from pessimal.rewards.heads import Head, Shapes
from pessimal.rewards.language import (
    Continued,
    check_is_language_model,
    context_digest,
    is_chat,
    listed_rows,
    load_language_network,
    plain_ids,
    token_ids,
)
from pessimal.rewards.log_probability import LanguageNetwork, LogitScaling, output_embedding
from pessimal.rewards.network import Steps
from pessimal.rewards.positions import Stepped, step_id
from pessimal.rewards.rendering import rendered
from pessimal.rewards.spec import Dtype, JudgeSpec
from pessimal.tables.score_table import storable

log = logging.getLogger(__name__)


ASKED = 16
"""Questions on which it is measured how likely the answers are."""
FEW, HARDLY = 0.5, 0.01
"""Probability of all answers together below which a judge is warned of, and below which its ranks
are those of two things that it does not say."""


def hardly_answers(measured: Mapping[str, Any]) -> bool:
    """Whether a table, by what it records, is of a judge that hardly ever gives its answers: no
    rank of it is certain."""
    answers = measured.get("answers")
    return answers is not None and answers["mean"] < HARDLY


@dataclass(frozen=True)
class Answers:
    """How likely a judge's answers are, each question's probabilities summed over all of them."""

    mean: float
    least: float
    instead: int
    """Of the other tokens the likeliest, on the question with the least."""

    def report(self, name: str, tokenizer: PreTrainedTokenizerBase) -> dict[str, Any]:
        """What a table records of it; warned of below .5."""
        instead = str(tokenizer.decode([self.instead]))
        if self.mean < FEW:
            log.warning(
                "%s: its answers have a probability of %.2g together: it mostly says something "
                "else, such as %r. Give the spellings that it uses, or what stands before its "
                "answer: model.judge.begin=TEXT (of a model that thinks first, an empty thought)",
                name,
                self.mean,
                instead,
            )
        if self.mean < HARDLY:
            log.warning("%s: so no rank is certified", name)
        return {"mean": self.mean, "least": self.least, "instead": storable(instead)}


@dataclass(frozen=True)
class AnswerReading:
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
            return logits.softmax(dim=-1) @ logits.new_tensor(self.values)
        for_it, against = logits[:, : len(self.positive)], logits[:, len(self.positive) :]
        if not self.negative:
            return for_it[:, 0]
        return for_it.logsumexp(dim=-1) - against.logsumexp(dim=-1)


@dataclass(frozen=True)
class Judge(NetworkReward):
    """A judge on this machine's disk."""

    reading: AnswerReading
    encoder: bool
    """Whether an encoder reads the question, and a decoder answers."""

    @property
    def says_yes_above(self) -> float | None:
        """As its answers say, of steps a probability; None for a raw logit."""
        return self.spec.judge.says_yes_above if self.spec.step_token is None else 0.5

    def describe_scan(self, values: Sequence[np.ndarray]) -> dict[str, Any]:
        """The reward above which it says yes; and of a judge of two how much it prefers the first,
        whichever it is: mean and standard deviation, over candidates, of half the sum of its
        log-odds in both orders (in nats). The reward is half their difference."""
        measured: dict[str, Any] = {"says_yes_above": self.says_yes_above}
        if self.spec.judge.opponent is not None:
            first = (values[0].astype(np.float64) + values[1]) / 2
            effect = {"mean": float(first.mean()), "standard_deviation": float(first.std())}
            measured["order_effect"] = effect
        return measured

    def network(self, dtype: Dtype | None = None, which: int = 0) -> "JudgeNetwork":
        kind = AutoModelForSeq2SeqLM if self.encoder else AutoModelForCausalLM
        dtype = dtype or self.spec.dtype
        network = load_language_network(self.spec, self.folder, dtype=dtype, kind=kind)
        judge, spec = JudgeNetwork(network, self.reading), self.spec
        if spec.step_token is not None:
            judge.steps = Steps(step_id(self.tokenizer, spec.step_token), 0, spec.reduce)
        return judge


def open_judge(checkpoint: Checkpoint) -> Judge:
    """The judge in a checkpoint.

    Raises:
        ModelError: it is no language model, or an answer is more than one token.
        FrameError: its chat template does not say where it begins to speak.
    """
    spec, config, shapes = checkpoint.spec, checkpoint.config, checkpoint.shapes
    encoder = bool(config.is_encoder_decoder)
    if not encoder:
        check_is_language_model(spec, config, shapes)
    tokenizer, rows = checkpoint.tokenizer, listed_rows(config, shapes)
    options = spec.judge
    if spec.step_token is not None:
        return _open_steps(checkpoint, spec.step_token, rows)
    chat = is_chat(tokenizer, chat=options.chat, name=spec.name)
    # Its next token must be its answer, and not what opens its turn.
    if chat and options.template is not None:
        Continued(tokenizer, chat, rows).context("Why?")
    if options.template is None and not chat:
        raise ModelError(
            f"the tokenizer of {spec.name!r} has no chat template, and model.judge.template is "
            "null: give a template with {prompt} and {response}"
        )
    graded = Graded(tokenizer, options, chat, encoder=encoder)
    both = (Part(0.5, graded), Part(-0.5, replace(graded, swapped=True)))
    return Judge(
        embedding_rows=rows,
        # Of two responses, the log-odds are of the first against the second.
        parts=(Part(1.0, graded),) if options.opponent is None else both,
        template_digest=context_digest(tokenizer, chat=chat),
        reading=reading_of(tokenizer, options, graded),
        encoder=encoder,
        **checkpoint.fields(repr(options)),
    )


def _open_steps(checkpoint: Checkpoint, token: str, rows: int) -> Judge:
    """A process reward model that is a language model: the probability of its positive against its
    negative answers at each step (Math-Shepherd, OpenRLHF). ModelError as `open_judge`."""
    spec, tokenizer = checkpoint.spec, checkpoint.tokenizer
    if checkpoint.config.is_encoder_decoder or not tokenizer.chat_template:
        raise ModelError(
            f"model.step_token of {spec.name!r}: steps are graded by a decoder, in a chat template "
            "or, where it was trained on a problem and its solution as one text, with "
            "model.one_text=true"
        )
    step_id(tokenizer, token)
    graded = GradedSteps(tokenizer, closes=token)
    return Judge(
        embedding_rows=rows,
        parts=(Part(1.0, graded),),
        template_digest=template_digest(tokenizer),
        reading=reading_of(tokenizer, spec.judge, graded),
        encoder=False,
        **checkpoint.fields(f"{spec.judge!r} steps {token!r} {spec.reduce.value}"),
    )


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


def reading_of(
    tokenizer: PreTrainedTokenizerBase, options: JudgeSpec, graded: "Graded | GradedSteps"
) -> AnswerReading:
    """The ids that are read. ModelError where an answer is more than one token, or means two
    things."""
    if options.logit is not None:
        return AnswerReading((options.logit,))

    def ids(answers: Sequence[str]) -> tuple[int, ...]:
        spelled = [graded.answer_ids(answer) for answer in answers]
        for answer, tokens in zip(
            answers, map(tokenizer.convert_ids_to_tokens, spelled), strict=True
        ):
            if len(tokens) != 1:
                raise ModelError(
                    f"the judge's answer {answer!r} is {len(tokens)} tokens of its tokenizer "
                    f"({tokens}), and one is read. Give answers of one token each, or what the "
                    "answer begins with: model.judge.begin=TEXT"
                )
        return tuple(dict.fromkeys(token for [token] in spelled))

    if options.ratings:
        rated = ids(list(options.ratings))
        if len(rated) != len(options.ratings):
            raise ModelError(
                f"two of the ratings {list(options.ratings)} are one token of this tokenizer"
            )
        return AnswerReading(rated, values=tuple(options.ratings.values()))
    reading = AnswerReading(ids(options.positive), ids(options.negative))
    if both := set(reading.positive) & set(reading.negative):
        token = tokenizer.convert_ids_to_tokens(both.pop())
        raise ModelError(f"the token {token!r} is a positive and a negative answer of the judge")
    return reading


@dataclass(frozen=True, eq=False)
class Graded:
    """A prompt and a response inside a question about them; or, without a template, the
    conversation itself, and what comes after it."""

    round_trips: ClassVar[bool] = True

    tokenizer: PreTrainedTokenizerBase
    options: JudgeSpec
    chat: bool
    encoder: bool = False
    """Whether an encoder reads it, with the tokens that the tokenizer puts after a text."""
    swapped: bool = False
    """Whether the response takes the opponent's place, and the opponent the response's."""

    def text(self, prompt: Prompt, response: str) -> str:
        """Everything that the judge reads."""
        if self.options.template is not None:
            return self._written(self._question(prompt, response))
        return self._written(with_response(prompt, response))

    def ids(
        self, prompt: Prompt, responses: Sequence[str], *, double_bos: bool = False
    ) -> list[list[int]]:
        texts = [self.text(prompt, storable(response)) for response in responses]
        return self._ids(texts)

    def encode(self, conversation: Conversation) -> Encoded:
        *before, response = messages_of(conversation)
        if self.options.template is None:
            text = self._written([*before, response])
        else:
            text = self._written(self._question(plain_prompt(conversation), response["content"]))
        return Encoded(tuple(self._ids([text])[0]), None)

    def frame(self, prompt: Prompt, *, double_bos: bool = False) -> Frame:
        """What stands before and after the response, as it does around plain words: a tokenizer may
        tie others to what stands around them (`survives` says which)."""
        check_written_once(partial(self.text, prompt))
        make = partial(self.ids, prompt, double_bos=double_bos)
        return find_frame(make, self.tokenizer, prompt, words=PLAIN_WORDS)

    def answer_ids(self, answer: str) -> list[int]:
        """The ids of an answer behind what the judge has read."""
        question = self.text("Why?", "So.")
        if not self.encoder:  # a decoder begins anew
            answered, before = self._ids([question + answer, question])
            if answered[: len(before)] == before:
                return answered[len(before) :]
        return token_ids(self.tokenizer, answer)

    def _question(self, prompt: Prompt, response: str) -> list[dict[str, str]]:
        return judge_question(self.options, prompt, response, swapped=self.swapped)

    def _written(self, messages: list[dict[str, str]]) -> str:
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


class JudgeNetwork(LanguageNetwork):
    """Gives the reward of what it has read."""

    def __init__(self, causal: PreTrainedModel, reading: AnswerReading):
        super().__init__(causal)
        self.reading = reading

    def make_head(self) -> "AnswersHead":
        return AnswersHead(self.causal, self.reading)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, **_
    ) -> SequenceClassifierOutput:
        """Rewards as `logits` (batch, 1), by the model's untouched forward; where steps are graded
        the log-odds at all positions, (batch, length, 1)."""
        if self.steps is not None:
            every = self.causal(input_ids=input_ids, attention_mask=attention_mask).logits.float()
            answers = every[..., list(self.reading.ids)]
            odds = self.reading.reward(answers.flatten(0, 1))
            return SequenceClassifierOutput(logits=odds.view(*input_ids.shape, 1))
        logits = self._next(input_ids, attention_mask)[:, list(self.reading.ids)]
        return SequenceClassifierOutput(logits=self.reading.reward(logits).unsqueeze(-1))

    @torch.no_grad()
    def answers(self, inputs: Sequence[Sequence[int]]) -> Answers | None:
        """How likely the answers are to whole `inputs`; None for a raw logit, which is of no
        answer."""
        if not (self.reading.negative or self.reading.values):
            return None
        device = next(self.parameters()).device
        asked = (torch.tensor([ids], device=device) for ids in inputs)
        logs = torch.cat([self._next(ids).log_softmax(dim=-1) for ids in asked])
        ids = list(self.reading.ids)
        sums = logs[:, ids].exp().sum(dim=-1)
        logs[:, ids] = float("-inf")
        instead = logs[sums.argmin()].argmax()
        return Answers(float(sums.mean()), float(sums.min()), int(instead))

    def _next(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Logits (batch, rows) float32 of what comes next."""
        inputs = {"input_ids": input_ids, "attention_mask": attention_mask}
        if self.config.is_encoder_decoder:
            start = self.config.decoder_start_token_id
            inputs["decoder_input_ids"] = torch.full_like(input_ids[:, :1], start)
        return self.causal(**inputs).logits[:, -1].float()


class AnswersHead(Head):
    """The rows of the output embedding that are read, in float32."""

    def __init__(self, causal: PreTrainedModel, reading: AnswerReading):
        embedding, ids = output_embedding(causal), list(reading.ids)
        self.weight = embedding.weight.detach()[ids].float()  # (ids, hidden)
        self.bias = None if embedding.bias is None else embedding.bias.detach()[ids].float()
        self.scaling, self.reading = LogitScaling.of(causal.config), reading

    @staticmethod
    def fits(shapes: Shapes) -> bool:
        return False

    def read(self, final: Tensor, context: Tensor | None) -> Tensor:
        logits = final @ self.weight.T
        logits = logits if self.bias is None else logits + self.bias
        return self.reading.reward(self.scaling(logits))

    def bounds(self, states: NormalisedStates) -> Interval:
        values, positive = self.reading.values, len(self.reading.positive)
        if values:
            return torch.tensor([min(values)]).double(), torch.tensor([max(values)]).double()
        if not self.reading.negative:
            low, high = states.linear(self.weight, self.bias)
            return self.scaling(low[:1]), self.scaling(high[:1])
        weight = (self.weight[:positive, None] - self.weight[None, positive:]).flatten(0, 1)
        bias = self.bias
        if bias is not None:
            bias = (bias[:positive, None] - bias[None, positive:]).flatten()
        # Each answer's odds are at most those against every other answer at once.
        low, high = states.linear(weight, bias)
        above, below = (self.scaling.gap(one).view(positive, -1) for one in (high, -low))
        most = -(-above).logsumexp(dim=1)
        least = -(-below).logsumexp(dim=0)
        return -least.logsumexp(dim=0)[None], most.logsumexp(dim=0)[None]
