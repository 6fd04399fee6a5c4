"""A language model that is asked to judge a response: the reward is read off the probabilities of
its next token.

Two responses are compared in both orders, and averaged. Knows how a judge is opened; `question`
knows what it is asked and how its answers become a reward.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from pydantic.dataclasses import dataclass as options_dataclass

from pessimal.errors import ConfigError, ModelError
from pessimal.rewards.base import NetworkReward, Part
from pessimal.rewards.formats import Continued, Graded, GradedSteps, is_chat, step_id
from pessimal.rewards.question import AnswerReading, QuestionOptions
from pessimal.rewards.spec import Dtype, StepSpec

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from pessimal.rewards.base import Reward
    from pessimal.rewards.checkpoint_files import Checkpoint
    from pessimal.rewards.language import JudgeNetwork


@options_dataclass
class JudgeSpec(StepSpec):
    """A causal language model that is asked to judge: log-odds of its positive against its negative
    answers."""

    is_judge: ClassVar[bool] = True

    kind: str = "judge"
    judge: QuestionOptions = field(default_factory=QuestionOptions)

    def check(self) -> None:
        super().check()
        self.judge.check_answers()
        steps, rest = self.step_token is not None, replace(self.judge, positive=[], negative=[])
        if self.one_text and not steps:
            raise ConfigError("model.one_text of a judge goes with model.step_token: omit it")
        if steps and rest != QuestionOptions():
            raise ConfigError("model.step_token: of model.judge give positive and negative alone")

    def open(self, folder: Path | None, *, cache: str) -> "Reward":
        """The judge in a folder.

        Raises:
            ModelError: it is no language model, or an answer is more than one token.
            FrameError: its chat template does not say where it begins to speak.
        """
        from pessimal.rewards.checkpoint_files import read_checkpoint  # torch
        from pessimal.rewards.language import check_is_language_model

        assert folder is not None
        checkpoint = read_checkpoint(self, folder)
        if not checkpoint.config.is_encoder_decoder:
            check_is_language_model(self, checkpoint.config, checkpoint.shapes)
        return open_judge(self, checkpoint)


@dataclass(frozen=True)
class Judge(NetworkReward):
    """A judge on this machine's disk."""

    spec: JudgeSpec
    reading: AnswerReading
    encoder: bool

    @property
    def says_yes_above(self) -> float | None:
        """As its answers say, of steps a probability; None for a raw logit."""
        return self.spec.judge.says_yes_above if self.spec.step_token is None else 0.5

    def describe_scan(self, values: Sequence[np.ndarray]) -> dict[str, Any]:
        """The reward above which it says yes; and of a judge of two how much it prefers the first,
        whichever it is: mean and standard deviation, over candidates, of half the sum of its
        log-odds in both orders (in nats). The reward is half their difference."""
        measured: dict[str, Any] = {"says_yes_above": self.says_yes_above}
        if self.spec.judge.opponent is None:
            return measured
        first = (values[0].astype(np.float64) + values[1]) / 2
        effect = {"mean": float(first.mean()), "standard_deviation": float(first.std())}
        return measured | {"order_effect": effect}

    def network(self, dtype: Dtype | None = None, which: int = 0) -> "JudgeNetwork":
        from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM  # torch

        from pessimal.rewards.language import JudgeNetwork, load_language_network
        from pessimal.rewards.network import Steps

        spec, kind = self.spec, AutoModelForSeq2SeqLM if self.encoder else AutoModelForCausalLM
        network = load_language_network(spec, self.folder, dtype=dtype or spec.dtype, kind=kind)
        judge = JudgeNetwork(network, self.reading)
        if spec.step_token is not None:
            judge.steps = Steps(step_id(self.tokenizer, spec.step_token), 0, spec.reduce)
        return judge


def open_judge(spec: JudgeSpec, checkpoint: "Checkpoint") -> Judge:
    """The judge in a checkpoint, which is asked a question about a response, or two; with a step
    token a process reward model that is a language model (Math-Shepherd, OpenRLHF), of which the
    probability of its positive against its negative answers is read at each step. Raises as
    `JudgeSpec.open`."""
    from pessimal.rewards.language import context_digest, listed_rows  # torch

    options, tokenizer, token = spec.judge, checkpoint.tokenizer, spec.step_token
    encoder, setting = bool(checkpoint.config.is_encoder_decoder), options.setting
    rows = listed_rows(checkpoint.config, checkpoint.shapes)
    chat = is_chat(tokenizer, chat=options.chat, name=spec.name)
    graded: Graded | GradedSteps
    if token is not None:
        if encoder or not chat:
            needs = "a decoder, and a chat template or model.one_text=true"
            raise ModelError(f"model.step_token of {spec.name!r} needs {needs}")
        step_id(tokenizer, token)
        graded = GradedSteps(tokenizer, closes=token)
        setting += f" steps {token!r} {spec.reduce.value}"
    elif options.template is None and not chat:
        raise ModelError(f"{spec.name!r} has no chat template: give model.judge.template")
    else:
        # Its next token must be its answer, and not what opens its turn.
        if chat and options.template is not None:
            Continued(tokenizer, chat, rows).context("Why?")
        graded = Graded(tokenizer, options, chat, encoder=encoder)
    parts: tuple[Part, ...] = (Part(1.0, graded),)
    if isinstance(graded, Graded) and options.opponent is not None:
        # Of two responses, the log-odds are of the first against the second.
        parts = (Part(0.5, graded), Part(-0.5, replace(graded, swapped=True)))
    return Judge(
        embedding_rows=rows,
        parts=parts,
        template_digest=context_digest(tokenizer, chat=chat),
        reading=read_answers(tokenizer, options, graded),
        encoder=encoder,
        **checkpoint.fields(setting),
    )


def read_answers(
    tokenizer: "PreTrainedTokenizerBase", options: QuestionOptions, graded: Graded | GradedSteps
) -> AnswerReading:
    """The ids that are read. ModelError where an answer is more than one token, or means two
    things."""
    if options.logit is not None:
        return AnswerReading((options.logit,))

    def ids(answers: Sequence[str]) -> tuple[int, ...]:
        spelled = [graded.answer_ids(answer) for answer in answers]
        for answer, tokens in zip(answers, spelled, strict=True):
            if len(tokens) != 1:
                advice = "give another, or what the answer begins with, model.judge.begin=TEXT"
                raise ModelError(f"the answer {answer!r} is {len(tokens)} tokens: {advice}")
        return tuple(dict.fromkeys(token for [token] in spelled))

    if options.ratings:
        rated = ids(list(options.ratings))
        if len(rated) != len(options.ratings):
            raise ModelError(f"two of the ratings {list(options.ratings)} are one token")
        return AnswerReading(rated, values=tuple(options.ratings.values()))
    reading = AnswerReading(ids(options.positive), ids(options.negative))
    if ambiguous := set(reading.positive) & set(reading.negative):
        token = tokenizer.convert_ids_to_tokens(ambiguous.pop())
        raise ModelError(f"the token {token!r} is a positive and a negative answer of the judge")
    return reading
