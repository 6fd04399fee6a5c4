"""Quantised checkpoints: weights that are quantised while they are loaded (bitsandbytes), that were
quantised before (AWQ, GPTQ and others say so in config.json), and GGUF files.

Knows what `from_pretrained` has to be told, and which package each needs. Heads, and the layers
that give next-token probabilities, stay in full precision.
"""

import hashlib
import importlib
import importlib.util
from collections.abc import Mapping
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.version import Version

from pessimal.errors import EXTRAS, ModelError
from pessimal.rewards.adapters import HEADS
from pessimal.rewards.spec import CheckpointSpec, Dtype, Quantize

if TYPE_CHECKING:
    from torch import nn
    from transformers import PreTrainedConfig

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
"""What transformers reads each kind of quantised weights with, as pip names it. AWQ's own package,
autoawq, was given up in 2025; gptqmodel reads its checkpoints."""
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
    """How a checkpoint's weights were quantised, by its configuration: awq, gptq, bitsandbytes …;
    None where they were not."""
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
        check_count(str(spec.file), setting, count, len(reader.tensors), what="tensors")


def check_count(said_by: str, setting: str, count: float, held: int, *, what: str) -> None:
    """ModelError where a configuration says of more than `MANY` modules than weights are held: a
    network of them would fill the memory."""
    if count > max(MANY, held):
        says = f"{said_by} says {setting}={count:,}, and its weights hold {held:,} {what}"
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
    modules = {package: package.replace("-", "_") for package in PACKAGES.get(method, ())}
    missing = [package for package in modules if not importlib.util.find_spec(modules[package])]
    if missing:
        packages = f"'pessimal[{EXTRAS[method]}]'" if method in EXTRAS else " ".join(missing)
        needed = " and ".join(missing)
        raise ModelError(f"{name!r} has {method} weights: {needed} missing, pip install {packages}")
