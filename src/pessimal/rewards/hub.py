"""A model's files on this machine: fetched where the Hub has them, and looked at as far as that
goes without torch."""

import functools
import json
import re
from collections.abc import Iterator
from pathlib import Path

from safetensors import SafetensorError

from pessimal.catalogue import is_folder
from pessimal.errors import ModelError
from pessimal.rewards.adapters import CONFIG, Adapter, base_of, check_head, read_adapter
from pessimal.rewards.digests import shapes_in
from pessimal.rewards.quantised import check_count, check_gguf
from pessimal.rewards.spec import CheckpointSpec, ModelSpec

FILES = ("*.safetensors", "*.json", "*.txt", "*.model", "*.jinja")
"""What a checkpoint consists of, code of its own apart."""
LANGUAGE = ("model.", "transformer.", "gpt_neox.", "lm_head.")
"""How the names of a language model's weights begin."""
MODULES = re.compile(r"(?:^|_)(?:layers?|blocks|depth|groups?|experts|labels)$")
"""Settings of a configuration that count what is built one by one."""


def snapshot(
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
            f"the Hub repository {repository!r} (revision {revision or 'default'}) cannot be "
            f"fetched: {type(error).__name__}: {reason[0] if reason else 'no reason given'}. Check "
            f"the name, your connection and `hf auth login`; or give a local folder: {local}"
        ) from error


_fetched = functools.cache(snapshot)
"""Asked for before torch is imported, and again by the verb."""


def local_folder(
    path: str, revision: str | None = None, *, files: tuple[str, ...] = FILES, local: str
) -> Path:
    """A folder on this machine, or `snapshot` of a repository, fetched once."""
    if is_folder(path):
        folder = Path(path).expanduser().resolve()
        for file in folder.iterdir():
            if file.exists() and not (file.is_file() or file.is_dir()):  # reading it may never end
                raise ModelError(f"{file} is no file of bytes, but a pipe, device or socket")
        return folder
    return _fetched(path, revision, files=files, local=local)


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
    if spec.training_command is not None and not is_folder(path):
        raise ModelError(
            f"{spec.name} is not trained yet: there is no folder {path}. Type: "
            f"{spec.training_command}"
        )
    # Of the GGUF files of a repository, which holds the same model in many precisions, only the one
    # that is asked.
    files = (*FILES, "*.py") if spec.file is None else (spec.file, *FILES[1:])
    folder = local_folder(path, revision, files=files, local="model=auto model.path=DIR")
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
        raise ModelError(
            f"{folder} holds an adapter ({CONFIG}): type model.adapter={spec.path}, with "
            "model.path=BASE where the adapter does not name its base. Where a whole model lies "
            "beside it, put the two into folders of their own"
        )
    weights = sorted(folder.glob("*.safetensors"))
    if not weights:
        kind = "SequenceClassification" if spec.has_head else "CausalLM"
        raise ModelError(
            f"{folder} holds no *.safetensors; weights are read from nothing else. To convert: "
            f"AutoModelFor{kind}.from_pretrained(DIR).save_pretrained(NEW_DIR)"
        )
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
        if spec.step_token is not None:
            raise ModelError(
                f"{spec.name!r} is a language model ({', '.join(classes)}), which says at each "
                "step whether it is right, and has no reward head. Say what it answers: "
                "model.kind=judge model.judge.positive=[' +'] model.judge.negative=[' -']; where "
                "it was trained on a problem and its solution as one text, model.one_text=true"
            )
        raise ModelError(
            f"{spec.name!r} is a language model ({', '.join(classes)}): {folder} lacks "
            "score.weight, a reward head, which would be random. For a reward give a sequence "
            "classifier; for the log-probabilities of the same tokens type: "
            "model.kind=log_probability; to ask it for a judgement: model=judge "
            "model.path=DIR_OR_ID"
        )


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
        held, what = (rows, "rows") if setting.endswith("labels") else (len(tensors), "tensors")
        check_count(f"config.json of {name!r}", setting, count, held, what=what)


def _counts(config: object) -> Iterator[tuple[str, int | float]]:
    for key, value in config.items() if isinstance(config, dict) else ():
        if isinstance(value, dict):
            yield from _counts(value)
        elif isinstance(value, int | float) and MODULES.search(key):
            yield key, value
