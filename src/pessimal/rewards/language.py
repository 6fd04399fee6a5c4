"""Causal language models: which checkpoints are one, how their network is loaded, and what one has
read when it is asked for its next token.

Knows configurations, names of weights, transformers' loading, tokenizers and templates. Does not
know probabilities.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch
from torch import nn
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    MODEL_FOR_MASKED_LM_MAPPING,
    AutoConfig,
    AutoModelForCausalLM,
)

from pessimal.errors import FrameError, ModelError
from pessimal.rewards.adapters import load_adapter
from pessimal.rewards.digests import template_digest
from pessimal.rewards.frame import Encoded, Frame, Templated, Turn, messages_of, rendered
from pessimal.rewards.heads import Shapes, head_for
from pessimal.rewards.hub import adapter_of
from pessimal.rewards.own_code import load_with_own_code
from pessimal.rewards.quantised import attention_options, loading_options, settle
from pessimal.rewards.spec import Dtype, ModelSpec
from pessimal.tables.score_table import PLAIN_TEXT, PLAIN_TEXT_ALL_THE_SAME, storable

_HEADS = ("classifier.weight", "classifier.out_proj.weight")
"""Of classifiers, beside those of `heads`; the last is RoBERTa's."""


def has_reward_head(shapes: Shapes) -> bool:
    """Whether weights of these names hold a head that gives a reward."""
    return head_for(shapes) is not None or any(name in shapes for name in _HEADS)


def check_is_language_model(spec: ModelSpec, config, shapes: Shapes) -> None:
    """ModelError where a checkpoint, by its files, gives no next-token probabilities: a reward
    model, an encoder."""
    message = f"model.kind={spec.kind.value} was asked of {spec.name!r}, "
    if has_reward_head(shapes):
        raise ModelError(
            f"{message}which is a reward model: its weights hold a reward head in place of a "
            f"language model's. Leave out "
            "model.kind for its rewards; otherwise give the language model that it was made from"
        )
    if getattr(config, "is_encoder_decoder", False) or _is_encoder(config):
        raise ModelError(
            f"{message}which is {type(config).__name__.removesuffix('Config')}, no causal language "
            f"model: it fills gaps, or "
            "reads a text as a whole, and has no next token. Give a decoder, such as a Llama, "
            "Gemma, GPT or Qwen"
        )
    own_code = spec.trust_remote_code and _brings_own_code(config)
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING and not own_code:
        raise ModelError(
            f"{message}whose kind ({type(config).__name__}) transformers knows no causal language "
            f"model of. Give a decoder, "
            "such as a Llama, Gemma, GPT or Qwen"
        )


def listed_rows(config, shapes: Shapes) -> int:
    """How many ids have both an input and an output embedding: ids from here on have no
    probability."""
    rows = config.get_text_config().vocab_size
    heads = [
        shape[0]
        for name, shape in shapes.items()
        if name.endswith(("lm_head.weight", "embed_out.weight"))
    ]
    return min([rows, *heads])


def load_language_network(
    spec: ModelSpec, folder: Path, *, dtype: Dtype, kind: type = AutoModelForCausalLM
) -> nn.Module:
    """The language model in evaluation mode, on the CPU; safetensors only. ModelError where it
    cannot be."""
    options = {
        "dtype": getattr(torch, dtype.value),
        "use_safetensors": True,
        "output_loading_info": True,
    }
    try:
        file = {} if spec.file is None else {"gguf_file": spec.file}
        config = AutoConfig.from_pretrained(
            folder, trust_remote_code=spec.trust_remote_code, **file
        )
        options |= loading_options(spec, config, dtype) | attention_options(config)
        if spec.trust_remote_code and _brings_own_code(config):
            network, report = load_with_own_code(kind, folder, **options)
        else:
            network, report = kind.from_pretrained(folder, config=config, **options)
    except ModelError:
        raise
    except Exception as error:
        raise ModelError(
            f"the language model {spec.name!r} cannot be loaded from {folder}: {error}"
        ) from error
    if missing := sorted(report["missing_keys"]):
        raise ModelError(
            f"the checkpoint of {spec.name!r} in {folder} lacks {missing[:5]}: these would be "
            f"random, and so would its "
            "probabilities. Give a causal language model, as `save_pretrained` of an "
            "AutoModelForCausalLM wrote it"
        )
    if (adapter := adapter_of(spec)) is not None:
        network = load_adapter(network, adapter, name=spec.name)
    settle(network, name=spec.name, dtype=dtype)
    return network.eval().requires_grad_(False)


def _is_encoder(config) -> bool:
    masked = type(config) in MODEL_FOR_MASKED_LM_MAPPING
    return masked and not getattr(config, "is_decoder", False)


def _brings_own_code(config) -> bool:
    return "AutoModelForCausalLM" in (getattr(config, "auto_map", None) or {})


def is_chat(tokenizer, *, chat: bool | None, name: str) -> bool:
    """Whether model `name` is to be asked in its chat template; None asks so where there is one.
    ModelError where it is asked for and there is none."""
    if chat and not tokenizer.chat_template:
        raise ModelError(
            f"model.chat=true, but the tokenizer of {name!r} has no chat template: leave it out, "
            f"and the model is "
            "asked for the next token after the prompt's plain text"
        )
    return bool(tokenizer.chat_template) if chat is None else chat


def context_digest(tokenizer, *, chat: bool) -> str:
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

    tokenizer: object
    chat: bool
    """Whether it is asked in its chat template."""
    rows: int
    """Rows of its embeddings."""
    closing: tuple[int, ...] = ()
    """Ids behind the response whose probability counts too: the token that closes the assistant's
    turn, or none."""

    def context(self, prompt: str) -> tuple[int, ...]:
        """The ids before the response: of the chat, rendered up to where the assistant begins to
        speak (`add_generation_prompt`); or of the prompt's text, with what the tokenizer puts ahead
        of a text (a beginning-of-sequence token, once) and without what it may put after one.

        Raises:
            FrameError: the template fails, or does not say where the assistant begins to speak.
            ModelError: the model has no row for a token.
        """
        return self._begun(self._opened(prompt), f"the prompt {prompt!r}")

    def ids(
        self, prompt: str, responses: Sequence[str], *, double_bos: bool = False
    ) -> list[list[int]]:
        """The whole input for each response. Its ids are those of the text as a whole; where the
        tokenizer merges the response's beginning with the prompt's end, its own. FrameError for a
        response without any ids."""
        return self.continued(prompt, responses)[0]

    def continued(self, prompt: str, responses: Sequence[str]) -> tuple[list[list[int]], list[str]]:
        """`ids`, and the responses that were tokenised by themselves."""
        before = list(self.context(prompt))
        own, apart = self._answers(self._opened(prompt), before, responses)
        return [[*before, *ids, *self.closing] for ids in own], apart

    def frame(self, prompt: str, *, double_bos: bool = False) -> Frame:
        """The context and the closing ids."""
        return Frame(prompt=prompt, prefix=self.context(prompt), suffix=self.closing)

    def encode(self, conversation: Sequence[Turn]) -> Encoded:
        """The whole input for a conversation, whose last turn is the response."""
        *before, response = messages_of(conversation)
        if self.chat:
            opened = rendered(self.tokenizer, before, add_generation_prompt=True, tokenize=False)
        elif [message["role"] for message in before] == ["user"]:
            opened = before[0]["content"]
        else:
            raise FrameError(
                "without a chat template, a language model takes one prompt and one response. "
                "Leave out conversations "
                "of several turns: comparisons.single_turn=true"
            )
        begun = list(self._begun(opened, "a conversation"))
        [own], _ = self._answers(opened, begun, [response["content"]])
        return Encoded((*begun, *own, *self.closing), None, len(own) + len(self.closing))

    def _opened(self, prompt: str) -> str:
        return _opened_chat(self.tokenizer, prompt) if self.chat else prompt

    def _begun(self, opened: str, what: str) -> tuple[int, ...]:
        [ids] = plain_ids(self.tokenizer, [opened], chat=self.chat)
        if not ids:
            raise FrameError(f"the tokenizer makes no token of {what}: give another prompt")
        self._check_rows(ids, what)
        return tuple(ids)

    def _answers(
        self, opened: str, before: list[int], answers: Sequence[str]
    ) -> tuple[list[list[int]], list[str]]:
        """The ids of whole answers, and the answers that were tokenised by themselves."""
        parts = ["" if self.chat else " "] * len(answers)
        parts = [joint + storable(answer) for joint, answer in zip(parts, answers, strict=True)]
        wholes = plain_ids(self.tokenizer, [opened + part for part in parts], chat=self.chat)
        own, apart = [], []
        for answer, part, whole in zip(answers, parts, wholes, strict=True):
            ids = whole[len(before) :] if whole[: len(before)] == before else []
            if not ids:
                ids = self.tokenizer(part, add_special_tokens=False)["input_ids"]
                apart.append(answer)
            if not ids:
                raise FrameError(
                    f"the tokenizer makes no token of the item {answer!r}: take it out of the list"
                )
            self._check_rows(ids, f"the item {answer!r}")
            own.append(list(ids))
        return own, apart

    def _check_rows(self, ids: Sequence[int], what: str) -> None:
        """ModelError where an id lies beyond the embedding: on a GPU that would be an assertion
        deep inside."""
        if (worst := max(ids)) >= self.rows:
            token = self.tokenizer.convert_ids_to_tokens(worst)
            raise ModelError(
                f"{what} holds the token {token!r} (id {worst}), and the model has {self.rows} "
                f"rows in its embedding, so "
                "none for it. Tokenizer and model do not belong together"
            )


def closing_of(tokenizer, *, chat: bool) -> tuple[int, ...]:
    """The token that closes a response: the first special one that the chat template writes behind
    it (the first of all where none is special), else the tokenizer's end-of-sequence token; none
    where there is neither."""
    if chat and (suffix := Templated(tokenizer).frame("Why?").suffix):
        special = {*tokenizer.all_special_ids, *tokenizer.added_tokens_decoder}
        return (next((i for i in suffix if i in special), suffix[0]),)
    return () if tokenizer.eos_token_id is None else (tokenizer.eos_token_id,)


def _opened_chat(tokenizer, prompt: str) -> str:
    """The chat rendered to where the assistant speaks."""
    turn = [{"role": "user", "content": prompt}]
    try:
        opened = tokenizer.apply_chat_template(turn, add_generation_prompt=True, tokenize=False)
        closed = tokenizer.apply_chat_template(turn, add_generation_prompt=False, tokenize=False)
    except Exception as error:
        raise FrameError(f"the chat template fails on a user turn: {error}") from error
    if opened != closed:
        return opened
    # Some (Mistral's) need nothing to open the assistant's turn. Others forget it: their next token
    # would be the header.
    ids = tuple(tokenizer(opened, add_special_tokens=False)["input_ids"])
    if Templated(tokenizer).frame(prompt).prefix != ids:
        raise FrameError(
            "the chat template writes nothing with add_generation_prompt=True, though its answers "
            "come after an opening "
            "of their own: the next token would be that, and no answer. Mend the template, or type "
            "model.chat=false "
            f"(of a judge: model.judge.chat=false) to ask after the plain text. Rendered: "
            f"{opened!r}"
        )
    return opened


def plain_ids(tokenizer, texts: Sequence[str], *, chat: bool) -> list[list[int]]:
    """Ids of whole texts; of plain ones with the special tokens that go ahead of a text, without
    those that follow it."""
    bare = tokenizer(list(texts), add_special_tokens=False)["input_ids"]
    if chat:  # the template wrote its own
        return bare
    ahead = _ahead(tokenizer)
    return [[*ahead, *ids] for ids in bare]


def _ahead(tokenizer) -> list[int]:
    """The special tokens that the tokenizer puts ahead of a text."""
    whole = tokenizer("a", add_special_tokens=True)["input_ids"]
    bare = tokenizer("a", add_special_tokens=False)["input_ids"]
    for start in range(len(whole) - len(bare) + 1):
        if whole[start : start + len(bare)] == bare:
            return whole[:start]
    raise FrameError(
        f"the tokenizer makes {bare} of 'a', and {whole} with special tokens: what it puts ahead "
        f"of a text is not "
        "known. Type model.chat=true where there is a chat template"
    )
