"""Weights as they lie in files: digests and shapes; quantised ones, and which package reads them;
PEFT adapters, LoRA and its kin, and how they are merged.

Knows safetensors, GGUF files and `adapter_config.json`. Does not know what is asked of a network.
Files are looked at without torch, which is imported with the network.
"""

import hashlib
import importlib
import importlib.util
import json
import logging
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.version import Version
from safetensors import SafetensorError, safe_open

from pessimal.catalogue import is_folder
from pessimal.errors import EXTRAS, ModelError, require
from pessimal.rewards.rendering import template_variables
from pessimal.rewards.spec import CheckpointSpec, Dtype, Quantize

if TYPE_CHECKING:
    from torch import nn
    from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase


def shapes_in(file: Path) -> dict[str, list[int]]:
    """Shape of every tensor of a safetensors file, from its header."""
    with safe_open(file, framework="np") as tensors:
        return {name: tensors.get_slice(name).get_shape() for name in tensors.keys()}  # noqa: SIM118


def weights_digest(folder: Path) -> str:
    """sha256 over the names and digests of the weight files of a local checkpoint folder.

    In the Hub's cache a weight file is a link to a blob named by its own sha256, so nothing is read
    there.
    """
    from pessimal.tables.files import sha256_of  # not before: it loads pandas

    digest = hashlib.sha256()
    for file in sorted(Path(folder).glob("*.safetensors")):
        blob = file.resolve().name
        weights = blob if file.is_symlink() and len(blob) == 64 else sha256_of(file)
        digest.update(f"{file.name} {weights}\n".encode())
    return digest.hexdigest()


def config_digest(folder: Path, *, own_code: bool) -> str:
    """sha256 over a checkpoint's configuration, without what says nothing about its arithmetic, and
    where its own Python code is run (`own_code`) over that."""
    from pessimal.tables.files import sha256_of

    digest = arithmetic_digest(json.loads((Path(folder) / "config.json").read_text()))
    if own_code:
        for file in sorted(Path(folder).rglob("*.py")):
            digest.update(f"{file.relative_to(folder)} {sha256_of(file)}\n".encode())
    return digest.hexdigest()


def arithmetic_digest(config: Mapping[str, Any]) -> "hashlib._Hash":
    """sha256 over a configuration, without what says nothing about the arithmetic."""
    silent = ("transformers_version", "_name_or_path", "dtype", "torch_dtype")
    settings = {key: value for key, value in config.items() if key not in silent}
    return hashlib.sha256(json.dumps(settings, sort_keys=True, default=str).encode())


def network_digest(network: "nn.Module") -> str:
    """sha256 over the names and the bytes of the weights of a network in memory."""
    import torch  # not before: files are looked at without it

    digest = hashlib.sha256()
    for name, tensor in sorted(network.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    return digest.hexdigest()


def missing_shards(folder: Path) -> list[str]:
    """Weight files that a checkpoint folder's index names, and that are not there."""
    index = Path(folder) / "model.safetensors.index.json"
    if not index.is_file() or (index.parent / "model.safetensors").is_file():  # loaded instead
        return []
    shards = sorted(set(json.loads(index.read_text())["weight_map"].values()))
    return [name for name in shards if not (Path(folder) / name).is_file()]


WRAPPERS = r"^(?:(?:module|_orig_mod|base_model\.model)\.)+"
"""Prefixes that DistributedDataParallel, torch.compile and PEFT put before all names."""


def weight_shapes(folder: Path) -> dict[str, list[int]]:
    """Shape of every weight of a checkpoint folder by its name, from the headers of its safetensors
    files."""
    shapes: dict[str, list[int]] = {}
    for file in sorted(Path(folder).glob("*.safetensors")):
        shapes |= shapes_in(file)
    return shapes


def rename_weights(
    shapes: dict[str, list[int]], mapping: Mapping[str, str]
) -> dict[str, list[int]]:
    """Shapes by the names that `mapping` (of `name_mapping`) gives."""
    for pattern, name in mapping.items():
        shapes = {re.sub(pattern, name, weight): shape for weight, shape in shapes.items()}
    return shapes


def parameter_count(shapes: Mapping[str, Sequence[int]]) -> int:
    """Number of parameters in weights of these shapes."""
    return sum(math.prod(shape) for shape in shapes.values())


def tokenizer_digest(tokenizer: "PreTrainedTokenizerBase") -> str:
    """sha256 over the vocabulary, the added tokens and, for fast tokenizers, the whole tokenisation
    pipeline."""
    parts: list[Any] = [sorted(tokenizer.get_vocab().items()), sorted(tokenizer.all_special_tokens)]
    if (backend := getattr(tokenizer, "backend_tokenizer", None)) is not None:
        pipeline = json.loads(backend.to_str())
        # Calls with truncation or padding leave their settings behind in the backend; they are not
        # its identity.
        parts.append({k: v for k, v in pipeline.items() if k not in ("truncation", "padding")})
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def template_digest(tokenizer: "PreTrainedTokenizerBase") -> str:
    """sha256 of the chat template, and of what else it reads but the turns (`template_variables`)
    where it does."""
    written = json.dumps(tokenizer.chat_template)
    if variables := template_variables(tokenizer):
        written += json.dumps(variables, sort_keys=True, default=str)
    return hashlib.sha256(written.encode()).hexdigest()


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
    def full(self) -> dict[str, list[int]]:
        """The shapes of those weights that take the place of the base's: head, embeddings, whatever
        was in `modules_to_save`."""
        return {name: shape for name, shape in self.shapes.items() if _is_full(name)}

    @property
    def rows(self) -> int | None:
        """Rows of its own input embedding, where tokens were added in training; None where it has
        none."""
        rows = (shape[0] for name, shape in self.full.items() if name.endswith(EMBEDDINGS))
        return next(rows, None)

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
    require("peft", purpose="an adapter")
    folder = Path(folder)
    if not (folder / CONFIG).is_file():
        raise ModelError(f"model.adapter={folder} has no {CONFIG}; if merged: model.path=DIR")
    if not (folder / WEIGHTS).is_file():
        advice = "To convert: PeftModel.from_pretrained(base, DIR).save_pretrained(NEW_DIR)"
        raise ModelError(f"{folder} holds no {WEIGHTS}. {advice}")
    try:
        config, saved = json.loads((folder / CONFIG).read_text()), shapes_in(folder / WEIGHTS)
        saved |= shapes_in(folder / VALUE_HEAD) if (folder / VALUE_HEAD).is_file() else {}
        shapes = {_plain(weight): saved[weight] for weight in saved if ORIGINAL not in weight}
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
    if holds_head(adapter.full) or holds_head(base):
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


MANY = 1_000
"""Modules of a kind that are built without a question."""

PACKAGES = {
    "bitsandbytes": ("bitsandbytes", "accelerate"),
    "awq": ("gptqmodel",),
    "gptq": ("optimum", "gptqmodel"),
    "auto-round": ("auto-round",),
    "compressed-tensors": ("compressed-tensors",),
    "hqq": ("hqq",),
    "torchao": ("torchao",),
    "gguf": ("gguf", "accelerate"),
}
"""Package by which transformers reads each kind of quantised weights, as pip names it. AWQ's own
package, autoawq, was given up in 2025; gptqmodel reads its checkpoints."""
IN_FULL = (*(f"^{head}" for head in HEADS), "lm_head", "embed_out", "output_layer")
"""Modules that bitsandbytes leaves alone: what reads a reward or a probability off the last hidden
state."""


def loading_options(
    spec: CheckpointSpec, config: "PreTrainedConfig", dtype: Dtype
) -> dict[str, Any]:
    """Further arguments of `from_pretrained` for a model that is, or is to be, quantised; empty for
    others.

    Args:
        spec: of the model.
        config: its transformers configuration.
        dtype: in which it computes.

    Raises:
        ModelError: it is quantised already and is to be again, or a package is missing.
    """
    if spec.file is not None:
        _check_installed("gguf", spec.name)
        quiet_gguf()
        return {"gguf_file": spec.file, "use_safetensors": None}
    method = method_of(config)
    if method is not None:
        if spec.quantize is not None:
            raise ModelError(f"model.quantize: {spec.name!r} is quantised ({method}): leave it out")
        _check_installed(method, spec.name)
    if spec.quantize is None:
        return {}
    _check_installed("bitsandbytes", spec.name)
    import torch
    from transformers import BitsAndBytesConfig

    bits: dict[str, Any] = {"load_in_8bit": True}
    if spec.quantize is not Quantize.int8:
        bits = {"load_in_4bit": True, "bnb_4bit_quant_type": spec.quantize.value}
        bits["bnb_4bit_compute_dtype"] = getattr(torch, dtype.value)
    return {"quantization_config": BitsAndBytesConfig(**bits, llm_int8_skip_modules=[*IN_FULL])}


def attention_options(config) -> dict:
    """Further arguments of `from_pretrained` that keep the soft-capping of Gemma 2's attention,
    which transformers before 5.21 leaves out by default."""
    capped = getattr(config.get_text_config(), "attn_logit_softcapping", None)
    older = Version(version("transformers")) < Version("5.21")
    return {"attn_implementation": "eager"} if capped and older else {}


def quiet_gguf() -> None:
    """Switch off transformers' bar while it reads a GGUF file, which nothing else does."""
    reading: Any = importlib.import_module("transformers.modeling_gguf_pytorch_utils")
    reading.tqdm = partial(reading.tqdm, disable=True)


def method_of(config: "PreTrainedConfig") -> str | None:
    """Method by which a checkpoint's weights were quantised, by its configuration: awq, gptq,
    bitsandbytes …; None where they were not."""
    options = getattr(config, "quantization_config", None)
    if options is None:
        return None
    options = options if isinstance(options, Mapping) else vars(options)
    method = options.get("quant_method")
    return str(getattr(method, "value", method) or "bitsandbytes")  # which older files do not name


def quantised_digest(base: str, spec: CheckpointSpec) -> str:
    """The weights digest of a model that is quantised while it is loaded: sha256 over that of its
    files, and how; that of others as it is."""
    if spec.quantize is None:
        return base
    how = f"{base} {spec.quantize.value} bitsandbytes {version('bitsandbytes')}"
    return hashlib.sha256(how.encode()).hexdigest()


def settle(network: "nn.Module", *, name: str, dtype: Dtype) -> None:
    """Hold a network that was just loaded to the precision that was asked for.

    bitsandbytes computes 4-bit layers in bfloat16 on CPUs that can, whatever it was told; in
    float32 it is kept from it.

    Raises:
        ModelError: the layer that gives the reward is itself quantised, so that it has few values
            to give.
    """
    for head in HEADS:
        for module in getattr(network, head).modules() if hasattr(network, head) else ():
            weight = getattr(module, "weight", None)
            packed = weight is None and hasattr(module, "qweight")
            if packed or (weight is not None and not weight.is_floating_point()):
                advice = "Give the full precision, with model.quantize=int8, nf4 or fp4"
                raise ModelError(f"the reward head of {name!r}, {head}, is quantised. {advice}")
    layers: list[Any] = list(network.modules()) if dtype is Dtype.float32 else []
    for layer in layers:
        if hasattr(layer, "support_avx512bf16_for_cpu"):
            layer.support_avx512bf16_for_cpu = False


def check_gguf(spec: CheckpointSpec, folder: Path) -> None:
    """ModelError where a folder has no such GGUF file, or it is given for what GGUF files do not
    hold."""
    if not (folder / str(spec.file)).is_file():
        names = ", ".join(sorted(file.name for file in folder.glob("*.gguf"))) or "none"
        raise ModelError(f"{folder} has no file {spec.file!r}: model.file=NAME.gguf, of {names}")
    if spec.has_head:
        advice = "type model.kind=log_probability, or model=judge for a judgement"
        raise ModelError(f"model.file={spec.file}: GGUF files hold no reward head: {advice}")
    if spec.quantize is not None:
        raise ModelError(f"model.quantize: {spec.file} is quantised already: leave it out")
    _check_installed("gguf", spec.name)
    gguf = importlib.import_module("gguf")
    try:
        reader = gguf.GGUFReader(folder / str(spec.file))
        settings = [key for key in reader.fields if key.endswith(("block_count", "expert_count"))]
        counts = {key: int(reader.fields[key].contents()) for key in settings}
    except Exception:
        return  # whoever loads it says what is wrong
    for setting, count in counts.items():
        check_count(str(spec.file), setting, count, len(reader.tensors), noun="tensors")


def check_count(said_by: str, setting: str, count: float, held: int, *, noun: str) -> None:
    """ModelError where a configuration says of more than `MANY` modules than weights are held: a
    network of them would fill the memory."""
    if count > max(MANY, held):
        says = f"{said_by} says {setting}={count:,}, and its weights hold {held:,} {noun}"
        raise ModelError(f"{says}: no network is built. Copy or download the model again")


def gguf_shapes(config: "PreTrainedConfig") -> dict[str, list[int]]:
    """Shape of every weight of the language model that a GGUF file of this configuration becomes,
    by its name; weights that are tied once."""
    import torch
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        network = AutoModelForCausalLM.from_config(config)
    return {name: list(weight.shape) for name, weight in network.named_parameters()}


def _check_installed(method: str, name: str) -> None:
    packages = PACKAGES.get(method, ())
    if missing := [p for p in packages if not importlib.util.find_spec(p.replace("-", "_"))]:
        install = f"'pessimal[{EXTRAS[method]}]'" if method in EXTRAS else " ".join(missing)
        needed = " and ".join(missing)
        raise ModelError(f"{name!r} has {method} weights: {needed} missing, pip install {install}")
