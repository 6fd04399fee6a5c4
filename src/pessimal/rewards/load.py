"""From a ModelSpec to a RewardModel: the one place where weights are read.

Knows transformers' loading. Does not know prompts, candidates or how a score is computed.
"""

import copy
import re
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import torch
from torch import nn
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer

from pessimal import __version__
from pessimal.errors import ModelError
from pessimal.rewards.digests import (
    config_digest,
    missing_shards,
    network_digest,
    parameter_count,
    said_digest,
    template_digest,
    tokenizer_digest,
    weight_shapes,
    weights_digest,
)
from pessimal.rewards.frame import Frame, assistant_opening, find_frame, takes_pairs
from pessimal.rewards.heads import Shapes, head_for
from pessimal.rewards.hub import check_weights
from pessimal.rewards.language import (
    check_is_language_model,
    context_digest,
    is_chat,
    listed_rows,
    load_language_network,
)
from pessimal.rewards.own_code import load_with_own_code, native_class, own_class
from pessimal.rewards.spec import Dtype, ModelSpec, Score
from pessimal.tables import ModelDescription
from pessimal.tables.score_table import PLAIN_TEXT, PLAIN_TEXT_ALL_THE_SAME


@dataclass(frozen=True)
class RewardModel:
    """A reward model on this machine's disk, or a language model that is asked for log-probabilities (`spec.score`):
    tokenizer, what pins it down, and how to load its network."""

    spec: ModelSpec
    folder: Path
    """Where its files are."""
    tokenizer: object
    embedding_rows: int
    """Rows of the input embedding (of a language model, of the output embedding too): ids from here on cannot be
    scored."""
    closing: tuple[int, ...]
    """Ids that the model wants after the templated conversation (InternLM2's reward token); mostly none."""
    weights_digest: str
    config_digest: str
    tokenizer_digest: str
    template_digest: str
    description: ModelDescription

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def digests(self) -> dict[str, str]:
        """What pins its rewards down, apart from precision and prompt, by the names of the fields of `ModelProvenance`."""
        names = ("weights_digest", "config_digest", "tokenizer_digest", "template_digest")
        return {name: getattr(self, name) for name in names}

    @property
    def chat(self) -> bool:
        """Whether it is asked in its chat template, as reward models always are."""
        return self.template_digest not in (PLAIN_TEXT, PLAIN_TEXT_ALL_THE_SAME)

    @property
    def revision(self) -> str | None:
        """The Hub commit, which names the snapshot's folder; None for a local folder or a demo sibling."""
        return self.folder.name if re.fullmatch(r"[0-9a-f]{40}", self.folder.name) else None

    def frame(self, prompt: str, *, double_bos: bool = False) -> Frame:
        """The ids around the response slot for one prompt. ConfigError for a language model, which has no such slot."""
        self.spec.check_gives_rewards()
        return find_frame(self.tokenizer, prompt, double_bos=double_bos, closing=self.closing)

    def network(self, dtype: Dtype | None = None) -> nn.Module:
        """Load the network (in the spec's precision where `dtype` is None)."""
        if self.spec.score is Score.log_probability:
            return load_language_network(self.spec, self.folder, dtype=dtype or self.spec.dtype)
        return load_network(self, dtype=dtype or self.spec.dtype)


def open_model(spec: ModelSpec, folder: Path) -> RewardModel:
    """The model in a checkpoint folder on this machine; its weights are digested, not yet loaded."""
    try:
        config = AutoConfig.from_pretrained(folder, trust_remote_code=spec.trust_remote_code)
    except Exception as error:
        raise ModelError(
            f"the configuration of {spec.name!r} cannot be read from {folder}: {error}{_remote_hint(spec, folder)}"
        ) from error
    check_weights(spec, folder)
    try:
        shapes, missing = weight_shapes(folder), missing_shards(folder)
    except Exception as error:
        raise ModelError(f"the weights of {spec.name!r} in {folder} cannot be read: {error}") from error
    if missing:
        raise ModelError(
            f"{folder} lacks {', '.join(missing[:5])}, weights that its index names: copy or download {spec.name!r} again"
        )
    language = spec.score is Score.log_probability
    if language:
        check_is_language_model(spec, config, shapes)
    else:
        _check_output(spec, shapes)
    tokenizer = load_tokenizer(spec, folder)
    chat = language and is_chat(tokenizer, chat=spec.chat, name=spec.name)
    reward_token = None if language else getattr(config, "reward_token_id", None)
    return RewardModel(
        spec=spec,
        folder=folder,
        tokenizer=tokenizer,
        embedding_rows=listed_rows(config, shapes) if language else config.get_text_config().vocab_size,
        closing=() if reward_token is None else (reward_token,),
        weights_digest=weights_digest(folder),
        config_digest=config_digest(folder, own_code=spec.trust_remote_code),
        tokenizer_digest=tokenizer_digest(tokenizer),
        template_digest=context_digest(tokenizer, chat=chat) if language else template_digest(tokenizer),
        description=ModelDescription(
            base=spec.base,
            developer=spec.developer,
            parameters=spec.parameters or float(parameter_count(shapes)),
            rank=spec.rank,
        ),
    )


@dataclass
class HeldSpec(ModelSpec):
    """A model that is in memory already: it has no path."""

    def __post_init__(self):
        pass


@dataclass(frozen=True)
class HeldModel(RewardModel):
    """A reward model whose network is in memory already (see `wrap`)."""

    held: nn.Module | None = None

    @property
    def revision(self) -> None:
        return None

    def network(self, dtype: Dtype | None = None) -> nn.Module:
        """The network itself; in another precision than its own a copy of it."""
        if dtype in (None, self.spec.dtype):
            return self.held
        return copy.deepcopy(self.held).to(getattr(torch, dtype.value))


def wrap(network: nn.Module, tokenizer, *, name: str = "model", output: int | None = None) -> HeldModel:
    """A reward model of a network and a tokenizer in memory: what a trainer has, or `from_pretrained` gave.

    The network is put into evaluation mode, and otherwise left as it is. Its digest is over the weights as they are now:
    wrap it again after a step of training.

    Args:
        network: a transformers model with a `config` and one output a sequence (or several, with `output`).
        tokenizer: its tokenizer, with a chat template or for pairs of texts.
        output: which of several outputs is the reward.

    Raises:
        ModelError: it has several outputs and `output` is not given, no chat template, or another precision than
            float32, bfloat16 and float16.
    """
    if not hasattr(network, "config"):
        raise ModelError(
            f"a {type(network).__name__} has no `config`: give a transformers model, such as "
            "AutoModelForSequenceClassification.from_pretrained(…)"
        )
    precision = str(next(network.parameters()).dtype).removeprefix("torch.")
    if precision not in {dtype.value for dtype in Dtype}:
        raise ModelError(
            f"{name!r} is in {precision}; give it in float32, bfloat16 or float16: network.float()"
        )
    spec = HeldSpec(name=name, dtype=Dtype(precision), output=output)
    shapes = {key: list(value.shape) for key, value in network.state_dict().items()}
    _check_output(spec, shapes)
    _check_opens_a_response(spec, tokenizer)
    head, reward_token = head_for(shapes), getattr(network.config, "reward_token_id", None)
    network.reward_output = output or 0
    network.assistant_opening = assistant_opening(tokenizer) if head and head.gated else ()
    return HeldModel(
        spec=spec,
        folder=Path(),
        tokenizer=tokenizer,
        embedding_rows=network.config.get_text_config().vocab_size,
        closing=() if reward_token is None else (reward_token,),
        weights_digest=network_digest(network),
        config_digest=said_digest(network.config.to_dict()),
        tokenizer_digest=tokenizer_digest(tokenizer),
        template_digest=template_digest(tokenizer),
        description=ModelDescription(parameters=float(parameter_count(shapes))),
        held=network.eval(),
    )


def load_tokenizer(spec: ModelSpec, folder: Path):
    """The tokenizer of a checkpoint folder; ModelError if it can make no conversation, and the model needs one."""
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=spec.trust_remote_code)
    except Exception as error:
        raise ModelError(f"the tokenizer of {spec.name!r} cannot be loaded from {folder}: {error}") from error
    if spec.score is Score.reward:
        _check_opens_a_response(spec, tokenizer)
    return tokenizer


def _check_opens_a_response(spec: ModelSpec, tokenizer) -> None:
    if not tokenizer.chat_template and not takes_pairs(tokenizer):
        raise ModelError(
            f"the tokenizer of {spec.name!r} has no chat template, so there is no slot for a response. Give it one: "
            "tokenizer.chat_template = …; tokenizer.save_pretrained(folder)"
        )


def load_network(model: RewardModel, *, dtype: Dtype) -> nn.Module:
    """The network in evaluation mode, on the CPU; safetensors only. ModelError if it is no scalar reward model.

    Two attributes are added that its class does not have: `reward_output`, which of its outputs is the reward, and
    for heads that read the prompt `assistant_opening`, the ids between the user's turn and the response.
    """
    spec, folder = model.spec, model.folder
    shapes = weight_shapes(folder)
    head = head_for(shapes)
    opening = assistant_opening(model.tokenizer) if head and head.gated else ()
    options = {"dtype": getattr(torch, dtype.value), "use_safetensors": True, "output_loading_info": True}
    try:
        config = AutoConfig.from_pretrained(folder, trust_remote_code=spec.trust_remote_code)
        if spec.trust_remote_code and (kind := own_class(config)):
            network, report = load_with_own_code(kind, folder, **options)
        elif head and head.modules(shapes, config):
            network, report = native_class(config).from_pretrained(
                folder, config=config, head=head, shapes=shapes, assistant_opening=opening, **options
            )
        else:
            network, report = AutoModelForSequenceClassification.from_pretrained(
                folder, num_labels=head_outputs(shapes) or 1, **options
            )
    except Exception as error:
        raise ModelError(
            f"the model {spec.name!r} cannot be loaded from {folder}: {error}{_remote_hint(spec, folder)}"
        ) from error
    missing = sorted(report["missing_keys"])
    if missing:
        raise ModelError(
            f"the checkpoint of {spec.name!r} in {folder} lacks {missing[:5]}: these would be random. A language "
            "model without a reward head gives no rewards; give a sequence classifier, or type "
            f"model.score=log_probability for its log-probabilities.{_remote_hint(spec, folder)}"
        )
    network.reward_output = spec.output or 0
    network.assistant_opening = opening
    return network.eval().requires_grad_(False)


def head_outputs(shapes: Shapes) -> int | None:
    """Outputs of the classification head by its weights; None where there is none of a known name.

    The configuration does not always say: published reward models leave it at the library's default of two.
    """
    names = ("score.weight", "classifier.weight", "classifier.out_proj.weight")  # the last is RoBERTa's
    return next((shapes[name][0] for name in names if name in shapes), None)


def _check_output(spec: ModelSpec, shapes: Shapes) -> None:
    outputs, head = head_outputs(shapes), head_for(shapes)
    if outputs is None and head is not None:  # one of those that give one reward
        outputs = 1
    if outputs is None:  # a head of another kind; without one, loading will say so
        return
    if outputs > 1 and spec.output is None:
        raise ModelError(
            f"{spec.name!r} has {outputs} outputs; a reward model has one. Say which of them is the reward: "
            f"model.output=0 for the first, up to {outputs - 1}"
        )
    if spec.output is not None and spec.output >= outputs:
        raise ModelError(
            f"model.output={spec.output}, but {spec.name!r} has {outputs} outputs: give 0 to {outputs - 1}"
        )


def _remote_hint(spec: ModelSpec, folder: Path) -> str:
    if spec.trust_remote_code or not list(folder.glob("modeling*.py")):
        return ""
    return (
        " The folder brings Python code of its own, which is not run unless asked for: model.trust_remote_code=true "
        "(for a Hub repository with model.revision=<full commit>)"
    )


def of_model(model: RewardModel) -> dict:
    """The fields of every provenance on the model and the software."""
    return {
        "revision": model.revision,
        **model.digests,
        "dtype": model.spec.dtype.value,
        "output": model.spec.output,
        "software": {
            "pessimal": __version__,
            "torch": torch.__version__,
            "transformers": version("transformers"),
        },
    }
