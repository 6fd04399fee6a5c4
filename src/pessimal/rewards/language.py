"""Causal language models: which checkpoints are one, how their network is loaded, and what one has
read when it is asked for its next token.

Knows configurations, names of weights, transformers' loading, tokenizers and templates. Does not
know probabilities.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, cast

from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    MODEL_FOR_MASKED_LM_MAPPING,
    AutoModelForCausalLM,
    GenerationConfig,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from pessimal.conversation import Conversation, Prompt, turns_of
from pessimal.errors import FrameError, ModelError
from pessimal.rewards.checkpoint_files import load_checkpoint
from pessimal.rewards.digests import template_digest
from pessimal.rewards.frame import (
    Encoded,
    Frame,
    Templated,
    messages_of,
    one_text,
    prompt_and_response,
)
from pessimal.rewards.heads import ENCODERS, Shapes, head_for
from pessimal.rewards.own_code import load_with_own_code
from pessimal.rewards.rendering import rendered, special_around
from pessimal.rewards.spec import Dtype, ModelSpec
from pessimal.tables.score_table import PLAIN_TEXT, PLAIN_TEXT_ALL_THE_SAME, storable

TAKES = "without a chat template, a language model takes one prompt and one response"


def has_reward_head(shapes: Shapes) -> bool:
    """Whether weights of these names hold a head that gives a reward."""
    return head_for(shapes) is not None or any(name in shapes for name in ENCODERS)


def check_is_language_model(spec: ModelSpec, config: PreTrainedConfig, shapes: Shapes) -> None:
    """ModelError where a checkpoint, by its files, gives no next-token probabilities: a reward
    model, an encoder."""
    message = f"model.kind={spec.kind.value} was asked of {spec.name!r}, "
    if has_reward_head(shapes):
        raise ModelError(
            f"{message}which is a reward model: its weights hold a reward head in place of a "
            "language model's. Leave out model.kind for its rewards"
        )
    if getattr(config, "is_encoder_decoder", False) or _is_encoder(config):
        raise ModelError(
            f"{message}which is {type(config).__name__.removesuffix('Config')}, no causal language "
            "model: it fills gaps, or reads a text as a whole, and has no next token. Give a "
            "decoder, such as a Llama, Gemma, GPT or Qwen"
        )
    own_code = spec.trust_remote_code and _brings_own_code(config)
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING and not own_code:
        raise ModelError(
            f"{message}whose kind ({type(config).__name__}) transformers knows no causal language "
            "model of. Give a decoder, such as a Llama, Gemma, GPT or Qwen"
        )


def listed_rows(config: PreTrainedConfig, shapes: Shapes) -> int:
    """How many ids have both an input and an output embedding: ids from here on have no
    probability."""
    names = [name for name in shapes if name.endswith(("lm_head.weight", "embed_out.weight"))]
    return min([config.get_text_config().vocab_size, *(shapes[name][0] for name in names)])


def load_language_network(
    spec: ModelSpec, folder: Path, *, dtype: Dtype, kind: type = AutoModelForCausalLM
) -> PreTrainedModel:
    """The language model in evaluation mode, on the CPU; safetensors only. ModelError where it
    cannot be."""

    def make(config: PreTrainedConfig, **options: Any) -> tuple[PreTrainedModel, dict[str, Any]]:
        if spec.trust_remote_code and _brings_own_code(config):
            return load_with_own_code(kind, folder, **options)
        loaded: Any = kind
        return loaded.from_pretrained(folder, config=config, **options)

    advice = (
        ", and so would its probabilities. Give a causal language model, as `save_pretrained` of "
        "an AutoModelForCausalLM wrote it."
    )
    network = load_checkpoint(spec, folder, make, dtype=dtype, what="language model", advice=advice)
    return cast(PreTrainedModel, network)


def _is_encoder(config: PreTrainedConfig) -> bool:
    masked = type(config) in MODEL_FOR_MASKED_LM_MAPPING
    return masked and not getattr(config, "is_decoder", False)


def _brings_own_code(config: PreTrainedConfig) -> bool:
    return "AutoModelForCausalLM" in (getattr(config, "auto_map", None) or {})


def is_chat(tokenizer: PreTrainedTokenizerBase, *, chat: bool | None, name: str) -> bool:
    """Whether model `name` is to be asked in its chat template; None asks so where there is one.
    ModelError where it is asked for and there is none."""
    if chat and not tokenizer.chat_template:
        raise ModelError(
            f"model.chat=true, but the tokenizer of {name!r} has no chat template: leave it out, "
            "and the model is asked for the next token after the prompt's plain text"
        )
    return bool(tokenizer.chat_template) if chat is None else chat


def context_digest(tokenizer: PreTrainedTokenizerBase, *, chat: bool) -> str:
    """`template_digest` in a table's provenance: the template's sha256, or PLAIN_TEXT where none
    was in use."""
    if chat:
        return template_digest(tokenizer)
    return PLAIN_TEXT_ALL_THE_SAME if tokenizer.chat_template else PLAIN_TEXT


@dataclass(frozen=True)
class Continued:
    """A response as what a causal language model goes on with: after the user's turn and what opens
    the assistant's, or after the prompt's plain text and a space."""

    round_trips: ClassVar[bool] = False

    tokenizer: PreTrainedTokenizerBase
    chat: bool
    """Whether it is asked in its chat template."""
    rows: int
    """Rows of its embeddings."""
    closing: tuple[int, ...] = ()
    """Ids behind the response whose probability counts too: the token that closes the assistant's
    turn, or none."""

    def describe(self) -> str:
        """The input of a model, in words for people."""
        place = "in the chat template" if self.chat else "behind the prompt's plain text"
        return f"a response {place}"

    def context(self, prompt: Prompt) -> tuple[int, ...]:
        """The ids before the response: of the chat, rendered up to where the assistant begins to
        speak (`add_generation_prompt`); or of the prompt's text, with what the tokenizer puts ahead
        of a text (a beginning-of-sequence token, once) and without what it may put after one.

        Raises:
            FrameError: the template fails, or does not say where the assistant begins to speak.
            ModelError: the model has no row for a token.
        """
        return self._context(self._opened(prompt), f"the prompt {prompt!r}")

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
        answers, apart = self._answers(self._opened(prompt), before, responses)
        return [[*before, *ids, *self.closing] for ids in answers], apart

    def frame(self, prompt: Prompt, *, double_bos: bool = False) -> Frame:
        """The context and the closing ids."""
        return Frame(prompt=prompt, prefix=self.context(prompt), suffix=self.closing)

    def encode(self, conversation: Conversation) -> Encoded:
        """The whole input for a conversation, whose last turn is the response."""
        if self.chat:
            *turns, last = messages_of(conversation)
            opened = rendered(self.tokenizer, turns, add_generation_prompt=True)
            response = last["content"]
        else:
            opened, response = prompt_and_response(conversation, takes=TAKES)
        before = list(self._context(opened, "a conversation"))
        [ids], _ = self._answers(opened, before, [response])
        return Encoded((*before, *ids, *self.closing), None, len(ids) + len(self.closing))

    def _opened(self, prompt: Prompt) -> str:
        return _opened_chat(self.tokenizer, prompt) if self.chat else one_text(prompt, takes=TAKES)

    def _context(self, opened: str, what: str) -> tuple[int, ...]:
        [ids] = plain_ids(self.tokenizer, [opened], chat=self.chat)
        if not ids:
            raise FrameError(f"the tokenizer makes no token of {what}: give another prompt")
        self._check_rows(ids, what)
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
                raise FrameError(
                    f"the tokenizer makes no token of the item {answer!r}: take it out of the list"
                )
            self._check_rows(ids, f"the item {answer!r}")
            answer_ids.append(list(ids))
        return answer_ids, apart

    def _check_rows(self, ids: Sequence[int], what: str) -> None:
        """ModelError where an id lies beyond the embedding: on a GPU that would be an assertion
        deep inside."""
        if (worst := max(ids)) >= self.rows:
            token = self.tokenizer.convert_ids_to_tokens(worst)
            raise ModelError(
                f"{what} holds the token {token!r} (id {worst}), and the model has {self.rows} "
                "rows in its embedding, so none for it. Tokenizer and model do not belong together"
            )


def closing_of(tokenizer: PreTrainedTokenizerBase, *, chat: bool) -> tuple[int, ...]:
    """The token that closes a response: the first special one that the chat template writes behind
    it (the first of all where none is special), else the tokenizer's end-of-sequence token; none
    where there is neither."""
    if chat and (suffix := Templated(tokenizer).frame("Why?").suffix):
        special = {*tokenizer.all_special_ids, *tokenizer.added_tokens_decoder}
        return (next((i for i in suffix if i in special), suffix[0]),)
    return () if tokenizer.eos_token_id is None else (tokenizer.eos_token_id,)


def _opened_chat(tokenizer: PreTrainedTokenizerBase, prompt: Prompt) -> str:
    """The chat rendered to where the assistant speaks."""
    turns = messages_of(turns_of(prompt))
    opened, closed = (
        str(rendered(tokenizer, turns, add_generation_prompt=opens)) for opens in (True, False)
    )
    if opened != closed:
        return opened
    # Some (Mistral's) need nothing to open the assistant's turn. Others forget it: their next token
    # would be the header.
    if Templated(tokenizer).frame(prompt).prefix != tuple(token_ids(tokenizer, opened)):
        raise FrameError(
            "the chat template writes nothing with add_generation_prompt=True, though its answers "
            "have an opening of their own. Mend it, or type model.chat=false (of a judge: "
            f"model.judge.chat=false) to ask after the plain text. Rendered: {opened!r}"
        )
    return opened


def token_ids(tokenizer: PreTrainedTokenizerBase, text: str, *, special: bool = False) -> list[int]:
    """Ids of a text, without or with the `special` tokens that the tokenizer puts around it."""
    return cast(list[int], tokenizer(text, add_special_tokens=special)["input_ids"])


def set_sampling(
    causal: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    *,
    tokens: int,
    temperature: float = 1.0,
    **more: Any,
) -> set[int]:
    """Have `generate` write at most so many tokens; gives those that end a reply. In place of the
    checkpoint's own sampling habits (top-k, penalties), which would fill what is left open: the
    temperature says all."""
    end = getattr(causal.generation_config, "eos_token_id", None)
    ends = {*(end if isinstance(end, list) else [end]), tokenizer.eos_token_id} - {None}
    padding = tokenizer.pad_token_id
    options: dict[str, Any] = {"max_new_tokens": tokens, "eos_token_id": sorted(ends) or None}
    options["pad_token_id"] = padding if padding is not None else min(ends, default=0)
    if temperature > 0:
        options |= {"do_sample": True, "temperature": temperature, "top_k": 0, "top_p": 1.0}
    causal.generation_config = GenerationConfig(**options, **more)
    return ends


def plain_ids(
    tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], *, chat: bool
) -> list[list[int]]:
    """Ids of whole texts; of plain ones with the special tokens that go ahead of a text, without
    those that follow it."""
    bare: Any = tokenizer(list(texts), add_special_tokens=False)["input_ids"]
    if chat:  # the template wrote its own
        return bare
    ahead, _ = special_around(tokenizer)
    return [[*ahead, *ids] for ids in bare]
