"""PEFT adapters, LoRA and its kin: what their files say, whether they hold all that a reward needs,
and merging them.

Knows `adapter_config.json` and the weights beside it. Does not know how the base is loaded, nor
what is asked of it. Files are looked at without torch, which is imported with the network.
"""

import hashlib
import json
import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError, safe_open

from pessimal.catalogue import is_folder
from pessimal.errors import ModelError, require
from pessimal.rewards.digests import shapes_in, weights_digest
from pessimal.rewards.spec import CheckpointSpec

if TYPE_CHECKING:
    from torch import nn
    from transformers import PreTrainedModel

log = logging.getLogger(__name__)

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
VALUE_HEAD = "value_head.safetensors"
"""LLaMA-Factory's: TRL's value head in a file of its own."""
HEADS: tuple[str, ...] = ("score", "classifier", "v_head", "regression_layer", "regression_head")
HEADS += ("out_proj", "score_head", "gating", "value_head")
"""Modules of a network that give a reward: those of `rewards.heads`, and encoders' classifiers."""
EMBEDDINGS = ("embed_tokens.weight", "wte.weight", "embed_in.weight", "word_embeddings.weight")
SAVED, ORIGINAL, BASE = ".modules_to_save.", ".original_module.", ".base_layer."
"""In names of weights, where PEFT saved a resized embedding three times: as trained (twice), and as
it was; and of a layer that is changed, what it was."""
_NOT_WEIGHTS = re.compile("(PREFIX|(MULTITASK_)?PROMPT|P)_TUNING|ADAPTION_PROMPT|CPT|XLORA")


@dataclass(frozen=True)
class Adapter:
    """An adapter's folder on this machine."""

    folder: Path
    config: Mapping[str, Any]
    """`adapter_config.json`."""
    shapes: Mapping[str, list[int]]
    """Shape of each weight by its name in the network: what PEFT puts into the names is taken
    out."""

    @property
    def head(self) -> bool:
        """Whether it holds the whole of a reward head."""
        return holds_head(self.full)

    @property
    def full(self) -> dict[str, list[int]]:
        """The shapes of those weights that take the place of the base's: head, embeddings, whatever
        was in `modules_to_save`."""
        return {name: shape for name, shape in self.shapes.items() if _is_full(name)}

    @property
    def rows(self) -> int | None:
        """Rows of its own input embedding, where tokens were added in training; None where it has
        none."""
        return next(
            (shape[0] for name, shape in self.full.items() if name.endswith(EMBEDDINGS)), None
        )

    @property
    def brings_tokenizer(self) -> bool:
        """Whether its folder has a tokenizer, which then stands for the base's: template and added
        tokens are in it."""
        return (self.folder / "tokenizer_config.json").is_file()

    @property
    def base(self) -> str | None:
        """The model that it says it was trained on, a Hub repository or a folder."""
        return self.config.get("base_model_name_or_path") or None


def read_adapter(folder: Path, *, name: str) -> Adapter:
    """The adapter in a folder.

    Raises:
        MissingExtraError: PEFT is not installed.
        ModelError: it is none that can be merged into a model's weights.
    """
    require("peft", why="an adapter")
    folder = Path(folder)
    if not (folder / CONFIG).is_file():
        raise ModelError(f"model.adapter={folder} has no {CONFIG}; if merged: model.path=DIR")
    if not (folder / WEIGHTS).is_file():
        advice = "To convert: PeftModel.from_pretrained(base, DIR).save_pretrained(NEW_DIR)"
        raise ModelError(f"{folder} holds no {WEIGHTS}. {advice}")
    try:
        config = json.loads((folder / CONFIG).read_text())
        files = [folder / name for name in (WEIGHTS, VALUE_HEAD) if (folder / name).is_file()]
        saved = [item for file in files for item in shapes_in(file).items()]
        shapes = {_plain(weight): shape for weight, shape in saved if ORIGINAL not in weight}
        method = config["peft_type"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, SafetensorError) as error:
        raise ModelError(f"the adapter of {name!r} cannot be read: {error!r}") from error
    if _NOT_WEIGHTS.fullmatch(str(method)):
        raise ModelError(f"the adapter of {name!r} is of type {method}, which changes no weights")
    # Biases have no place in layers without; copies of a layer share the weights that would change.
    for option in ("lora_bias", "layer_replication"):
        if value := config.get(option):
            cannot = f"{option}={value}, which cannot be merged: merge it in code of your own"
            raise ModelError(f"the adapter of {name!r} in {folder} has {cannot}")
    return Adapter(folder, config, shapes)


def base_of(spec: CheckpointSpec, adapter: Adapter) -> tuple[str, str | None]:
    """Path and revision of the base: `model.path`, or what the adapter names. ModelError where that
    is not here."""
    if spec.path is not None:
        return spec.path, spec.revision
    base = adapter.base
    if base is None or (not is_folder(base) and base.count("/") != 1):
        raise ModelError(f"the base {base!r} of {spec.name!r} is not here: model.path=DIR_OR_ID")
    return base, spec.revision or adapter.config.get("revision")


def holds_head(names: Iterable[str]) -> bool:
    """Whether weights of these names hold a reward head."""
    return any(name.split(".")[0] in HEADS and name.endswith(".weight") for name in names)


def check_head(name: str, adapter: Adapter, base: Iterable[str]) -> None:
    """ModelError where neither the adapter nor the `base` (names of weights) holds a reward head:
    it would be random."""
    if adapter.head or holds_head(base):
        return
    task, saved = adapter.config.get("task_type"), adapter.config.get("modules_to_save")
    parts = f"task_type={task}, modules_to_save={saved}"
    advice = "Train it with LoraConfig(task_type='SEQ_CLS', modules_to_save=['score']), give its "
    advice += (
        "base, model.path=DIR_OR_ID, or type model.kind=log_probability or model.kind=implicit"
    )
    raise ModelError(f"neither {name!r} nor its base has a reward head: {parts}. {advice}")


def warn_if_untrained(name: str, adapter: Adapter) -> bool:
    """Whether every lora_B is zero, as it is before training, which is logged: the network then
    computes what its base does."""
    with safe_open(adapter.folder / WEIGHTS, framework="pt") as tensors:
        names = [name for name in tensors.keys() if "lora_B" in name or "lora_embedding_B" in name]  # noqa: SIM118
        untrained = bool(names) and not any(tensors.get_tensor(name).any() for name in names)
    if untrained:
        message = "%s: every lora_B of the adapter in %s is zero: all but the head is the base's"
        log.warning(message, name, adapter.folder)
    return untrained


def adapted_digest(base: str, adapter: Adapter) -> str:
    """sha256 over the base's weights digest and the adapter's weights and configuration."""
    about = "base_model_name_or_path|revision|inference_mode|peft_version|auto_mapping"
    items = adapter.config.items()
    settings = {key: value for key, value in items if not re.fullmatch(about, key)}
    parts = f"{base} {weights_digest(adapter.folder)} {json.dumps(settings, sort_keys=True)}"
    return hashlib.sha256(parts.encode()).hexdigest()


def load_adapter(network: "PreTrainedModel", adapter: Adapter, *, name: str) -> "nn.Module":
    """The network with the adapter merged into its weights, in place; for the base alone load it
    again.

    A quantised network keeps the adapter beside its weights, as in training: merging would round it
    away.

    Args:
        network: the base, of the class that is asked, its head as wide as the adapter's.
        adapter: of `read_adapter`.
        name: of the model, for errors.

    Raises:
        ModelError: some of the adapter's weights have no place in the network, or the other way
            round.
    """
    from peft import PeftConfig, PeftModel, load_peft_weights, set_peft_model_state_dict
    from peft.utils import ModulesToSaveWrapper

    try:
        rows, embedding = adapter.rows, network.get_input_embeddings()
        if rows is not None and rows != len(next(embedding.parameters())):
            network.resize_token_embeddings(rows, mean_resizing=False)
        config: Any = PeftConfig.from_pretrained(str(adapter.folder))  # a class for each method
        config.task_type = None  # only says what else PEFT does to the model's inputs and outputs
        config.inference_mode = True
        stored = load_peft_weights(str(adapter.folder), device="cpu").items()
        weights = {key.replace(SAVED, "."): value for key, value in stored if ORIGINAL not in key}
        # PEFT of old wrote what a change is to (all-linear's `score`) beside the change.
        bases = {_plain(key): weights.pop(key) for key in list(weights) if BASE in key}
        network.load_state_dict(bases, strict=False)
        if config.modules_to_save:
            changed = {name.rpartition(".")[0] for name in bases}
            modules = [module for module in config.modules_to_save if module not in changed]
            whole = [m for m in modules if any(f".{m}." in f".{name}" for name in adapter.full)]
            config.modules_to_save = whole or None
        model = PeftModel(network, config)
        report: Any = set_peft_model_state_dict(model, weights)
    except Exception as error:
        raise ModelError(f"the adapter of {name!r} does not fit its base: {error}") from error
    # PEFT's own, under the adapter's name; VeRA's layers share two that are stored once.
    lacking = [key for key in report.missing_keys if re.search(r"(?<!\.vera_[AB])\.default", key)]
    if astray := sorted([*report.unexpected_keys, *lacking]):
        names = f"{', '.join(astray[:5])}. Give {adapter.base!r}: model.path=DIR_OR_ID"
        raise ModelError(f"the adapter of {name!r} does not fit its base: {names}")
    merged: nn.Module = network
    if getattr(network, "hf_quantizer", None) is None:
        merged = model.merge_and_unload(safe_merge=True)
    for path, module in list(merged.named_modules()):
        if isinstance(module, ModulesToSaveWrapper):
            merged.set_submodule(path, module.modules_to_save["default"])
    load_value_head(merged, adapter.folder)
    return merged.eval().requires_grad_(False)


def load_value_head(network: "nn.Module", folder: Path) -> set[str]:
    """Fill the network's value head from the file of its own that LLaMA-Factory writes; gives the
    names of its weights, none where there is no such file."""
    file = Path(folder) / VALUE_HEAD
    if not file.is_file():
        return set()
    from safetensors.torch import load_file

    weights = load_file(file)
    network.load_state_dict(weights, strict=False)
    return set(weights)


def _is_full(name: str) -> bool:
    """Whether a weight takes the place of another, and is no factor of a change to it."""
    factor = any(mark in name for mark in ("lora_", "oft_", "ln_tuning_"))
    return name.endswith((".weight", ".bias")) and not factor


def _plain(name: str) -> str:
    """The name of a weight in the network that PEFT wrapped."""
    return name.removeprefix("base_model.model.").replace(SAVED, ".").replace(BASE, ".")
