"""What a checkpoint says besides its head: where the backbone lies, what closes its input, and
whether it is PairRM."""

import re

from transformers import PreTrainedConfig, PreTrainedTokenizerBase

from pessimal.errors import ModelError
from pessimal.rewards.heads.base import Shapes

_EMBEDDINGS = ("embed_tokens.weight", "embed_in.weight", "wte.weight", "word_embeddings.weight")
BACKBONE = "model"
"""What `NativeRewardModel` calls the network under the head."""


def backbone_of(shapes: Shapes) -> str:
    """Where the network under the head lies, by the name of its input embedding: `model` in most;
    empty where it is the whole, or not known."""
    ends = [(name, end) for name in shapes for end in _EMBEDDINGS if name.endswith(end)]
    names = [name.removesuffix(end).removesuffix(".") for name, end in ends]
    return BACKBONE if BACKBONE in names else (names or [""])[0]


def renamed(shapes: Shapes) -> dict[str, str]:
    """`key_mapping` of `from_pretrained` for checkpoints whose backbone has another name (Starling:
    `transformer`, OpenAssistant: `gpt_neox`); empty where it is `model`."""
    name = backbone_of(shapes)
    return {} if name in ("", BACKBONE) else {rf"^{re.escape(name)}\.": f"{BACKBONE}."}


def is_pairrm(shapes: Shapes) -> bool:
    """Whether weights of these names are PairRM's, which is no head of a decoder
    (`rewards/pairrm.py`)."""
    return "head_layer.4.weight" in shapes and any(
        name.startswith("pretrained_model.") for name in shapes
    )


def closing_ids(config: PreTrainedConfig, tokenizer: PreTrainedTokenizerBase) -> tuple[int, ...]:
    """Ids that a reward model wants after the templated conversation, and reads its reward at;
    mostly none.

    InternLM2's names the token in its configuration. Athene's is the tokenizer's `cls_token`, by
    its published class alone. ModelError where that is missing.
    """
    named = getattr(config, "reward_token_id", None)
    if named is not None:
        return (named,)
    if "AtheneForSequenceClassification" not in (getattr(config, "architectures", None) or []):
        return ()
    if tokenizer.cls_token_id is None:
        raise ModelError(
            "Athene's reward is read at the tokenizer's cls_token, and this tokenizer has none. "
            "Give it the published one: tokenizer.cls_token = '<|reserved_special_token_1|>'; "
            "tokenizer.save_pretrained(DIR)"
        )
    return (tokenizer.cls_token_id,)
