"""Causal language models: which checkpoints are one, how their network is loaded, and what one has read when it is asked for
its next token.

Knows configurations, names of weights, transformers' loading, tokenizers and templates. Does not know probabilities.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    MODEL_FOR_MASKED_LM_MAPPING,
    AutoConfig,
    AutoModelForCausalLM,
)

from pessimal.errors import FrameError, ModelError
from pessimal.rewards.digests import template_digest
from pessimal.rewards.frame import find_frame
from pessimal.rewards.heads import Shapes, head_for
from pessimal.rewards.own_code import load_with_own_code
from pessimal.rewards.spec import Dtype, ModelSpec
from pessimal.tables.score_table import PLAIN_TEXT, PLAIN_TEXT_ALL_THE_SAME

_HEADS = ("classifier.weight", "classifier.out_proj.weight")
"""Of classifiers, beside those of `heads`; the last is RoBERTa's."""


def has_reward_head(shapes: Shapes) -> bool:
    """Whether weights of these names hold a head that gives a reward."""
    return head_for(shapes) is not None or any(name in shapes for name in _HEADS)


def check_is_language_model(spec: ModelSpec, config, shapes: Shapes) -> None:
    """ModelError where a checkpoint, by its files, gives no next-token probabilities: a reward model, an encoder."""
    message = f"model.score=log_probability was asked of {spec.name!r}, "
    if has_reward_head(shapes):
        raise ModelError(
            f"{message}which is a reward model: its weights hold a reward head in place of a language model's. Leave out "
            "model.score for its rewards; for log-probabilities give the language model that it was made from"
        )
    if getattr(config, "is_encoder_decoder", False) or _is_encoder(config):
        raise ModelError(
            f"{message}which is {type(config).__name__.removesuffix('Config')}, no causal language model: it fills gaps, or "
            "reads a text as a whole, and has no next token. Give a decoder, such as a Llama, Gemma, GPT or Qwen"
        )
    own_code = spec.trust_remote_code and _brings_own_code(config)
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING and not own_code:
        raise ModelError(
            f"{message}whose kind ({type(config).__name__}) transformers knows no causal language model of. Give a decoder, "
            "such as a Llama, Gemma, GPT or Qwen"
        )


def listed_rows(config, shapes: Shapes) -> int:
    """How many ids have both an input and an output embedding: ids from here on have no probability."""
    rows = config.get_text_config().vocab_size
    heads = [
        shape[0] for name, shape in shapes.items() if name.endswith(("lm_head.weight", "embed_out.weight"))
    ]
    return min([rows, *heads])


def load_language_network(spec: ModelSpec, folder: Path, *, dtype: Dtype) -> nn.Module:
    """The causal language model in evaluation mode, on the CPU; safetensors only. ModelError where it cannot be."""
    options = {"dtype": getattr(torch, dtype.value), "use_safetensors": True, "output_loading_info": True}
    try:
        config = AutoConfig.from_pretrained(folder, trust_remote_code=spec.trust_remote_code)
        if spec.trust_remote_code and _brings_own_code(config):
            network, report = load_with_own_code(AutoModelForCausalLM, folder, **options)
        else:
            network, report = AutoModelForCausalLM.from_pretrained(folder, **options)
    except Exception as error:
        raise ModelError(
            f"the language model {spec.name!r} cannot be loaded from {folder}: {error}"
        ) from error
    if missing := sorted(report["missing_keys"]):
        raise ModelError(
            f"the checkpoint of {spec.name!r} in {folder} lacks {missing[:5]}: these would be random, and so would its "
            "probabilities. Give a causal language model, as `save_pretrained` of an AutoModelForCausalLM wrote it"
        )
    return network.eval().requires_grad_(False)


def _is_encoder(config) -> bool:
    masked = type(config) in MODEL_FOR_MASKED_LM_MAPPING
    return masked and not getattr(config, "is_decoder", False)


def _brings_own_code(config) -> bool:
    return "AutoModelForCausalLM" in (getattr(config, "auto_map", None) or {})


@dataclass(frozen=True)
class Context:
    """Everything before the answer."""

    text: str
    """What the ids were made of: the rendered chat up to where the assistant begins to speak, or the prompt."""
    ids: tuple[int, ...]
    """Its ids, with the special tokens that the template or the tokenizer writes ahead, and none after it."""
    chat: bool
    """Whether the text is a chat template's."""

    @property
    def joint(self) -> str:
        """What stands between the text and an answer: a space after plain text, nothing after a template."""
        return "" if self.chat else " "


@dataclass(frozen=True)
class Continuations:
    """Answers as ids that go on from a context."""

    ids: list[tuple[int, ...]]
    """One tuple an answer, at least one id each."""
    apart: list[str]
    """Answers whose first letters the tokenizer would merge with the context's end; they were tokenised by themselves,
    so that what is scored is not what the tokenizer makes of the whole text."""


def is_chat(tokenizer, *, chat: bool | None, name: str) -> bool:
    """Whether model `name` is to be asked in its chat template; None asks so where there is one. ModelError where it is
    asked for and there is none."""
    if chat and not tokenizer.chat_template:
        raise ModelError(
            f"model.chat=true, but the tokenizer of {name!r} has no chat template: leave it out, and the model is "
            "asked for the next token after the prompt's plain text"
        )
    return bool(tokenizer.chat_template) if chat is None else chat


def context_digest(tokenizer, *, chat: bool) -> str:
    """`template_digest` in a table's provenance: the template's sha256, or PLAIN_TEXT where none was in use."""
    if chat:
        return template_digest(tokenizer)
    return PLAIN_TEXT_ALL_THE_SAME if tokenizer.chat_template else PLAIN_TEXT


def find_context(tokenizer, prompt: str, *, chat: bool) -> Context:
    """The ids before the answer to one prompt.

    In a chat: the user's turn and what opens the assistant's (`add_generation_prompt`). Otherwise the prompt's own
    text, with what the tokenizer puts ahead of a text (a beginning-of-sequence token, once) and without what it may
    put after one: the model is asked how the text goes on.

    Raises FrameError where the template fails, or does not say where the assistant begins to speak.
    """
    text = _opened_chat(tokenizer, prompt) if chat else prompt
    ids = _ids(tokenizer, [text], chat=chat)[0]
    if not ids:
        raise FrameError(f"the tokenizer makes no token of the prompt {prompt!r}: give another prompt")
    return Context(text=text, ids=tuple(ids), chat=chat)


def continuations(tokenizer, context: Context, answers: Sequence[str]) -> Continuations:
    """The ids of whole answers after the context: after plain text joined by one space, in a chat directly.

    The ids are those of the text as a whole, less the context's. Where the tokenizer merges the two at their border,
    the answer's own ids are taken, and it is named in `apart`. Raises FrameError for an answer without any ids.
    """
    parts = [context.joint + answer for answer in answers]
    wholes = _ids(tokenizer, [context.text + part for part in parts], chat=context.chat)
    before = list(context.ids)
    own, apart = [], []
    for answer, part, whole in zip(answers, parts, wholes, strict=True):
        ids = whole[len(before) :] if whole[: len(before)] == before else []
        if not ids:
            ids = tokenizer(part, add_special_tokens=False)["input_ids"]
            apart.append(answer)
        if not ids:
            raise FrameError(f"the tokenizer makes no token of the item {answer!r}: take it out of the list")
        own.append(tuple(ids))
    return Continuations(own, apart)


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
    # Some (Mistral's) need nothing to open the assistant's turn. Others forget it: their next token would be the header.
    ids = tuple(tokenizer(opened, add_special_tokens=False)["input_ids"])
    if find_frame(tokenizer, prompt).prefix != ids:
        raise FrameError(
            "the chat template writes nothing with add_generation_prompt=True, though its answers come after an opening "
            "of their own: the next token would be that, and no answer. Mend the template, or type model.chat=false to "
            f"ask after the plain text. Rendered: {opened!r}"
        )
    return opened


def _ids(tokenizer, texts: Sequence[str], *, chat: bool) -> list[list[int]]:
    """Ids of whole texts; of plain ones with the special tokens that go ahead of a text, without those that follow it."""
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
        f"the tokenizer makes {bare} of 'a', and {whole} with special tokens: what it puts ahead of a text is not "
        "known. Type model.chat=true where there is a chat template"
    )
