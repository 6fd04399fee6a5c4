"""A model's files on this machine: fetched where the Hub has them, and looked at as far as that goes without torch."""

import functools
import json
from pathlib import Path

from pessimal.errors import ModelError
from pessimal.rewards.spec import ModelSpec, Score

FILES = ("*.safetensors", "*.json", "*.txt", "*.model", "*.jinja")
"""What a checkpoint consists of, code of its own apart."""
LANGUAGE = ("model.", "transformer.", "gpt_neox.", "lm_head.")
"""How the names of a language model's weights begin."""


def snapshot(repository: str, revision: str | None, *, files: tuple[str, ...] = FILES, local: str) -> Path:
    """The local copy of a repository at a revision; ModelError where it cannot be fetched, with the `local` alternative
    to type."""
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(repository, revision=revision, allow_patterns=list(files)))
    except Exception as error:
        reason = str(error).strip().splitlines()
        raise ModelError(
            f"the Hub repository {repository!r} (revision {revision or 'default'}) cannot be fetched: "
            f"{type(error).__name__}: {reason[0] if reason else 'no reason given'}. Check the name, your connection "
            f"and `hf auth login`; or give a local folder: {local}"
        ) from error


_fetched = functools.cache(snapshot)
"""Asked for before torch is imported, and again by the verb."""


def files_of(spec: ModelSpec) -> Path:
    """The folder with a model's files; a model of the demo family has none before it is trained.

    Raises:
        ModelError: it cannot be fetched, has no weights as safetensors, or is a language model given for its rewards.
    """
    if spec.local:
        folder = Path(spec.path).expanduser().resolve()
    else:
        folder = _fetched(spec.path, spec.revision, files=(*FILES, "*.py"), local="model=auto model.path=DIR")
    check_weights(spec, folder)
    return folder


def check_weights(spec: ModelSpec, folder: Path) -> None:
    """ModelError where a folder has no weights as safetensors, or those of a plain language model that is given for its
    rewards: by its configuration and the names of its weights alone."""
    weights = sorted(folder.glob("*.safetensors"))
    if not weights:
        kind = "CausalLM" if spec.score is Score.log_probability else "SequenceClassification"
        raise ModelError(
            f"{folder} holds no *.safetensors; weights are read from nothing else. To convert: "
            f"AutoModelFor{kind}.from_pretrained(DIR).save_pretrained(NEW_DIR)"
        )
    if spec.score is Score.log_probability or spec.trust_remote_code:
        return
    try:
        named = json.loads((folder / "config.json").read_text())["architectures"]
        names = {name for file in weights for name in _names(file)}
        plain = bool(named) and all(name.endswith(("ForCausalLM", "LMHeadModel")) for name in named)
    except (OSError, ValueError, KeyError, TypeError):
        return  # whoever loads it says what is wrong
    if plain and names and all(name.startswith(LANGUAGE) for name in names):
        raise ModelError(
            f"{spec.name!r} is a language model ({', '.join(named)}): {folder} lacks score.weight, a reward head, which "
            "would be random. For a reward give a sequence classifier; for the log-probabilities of the same tokens type: "
            "model.score=log_probability"
        )


def _names(file: Path) -> list[str]:
    """Of the tensors in a safetensors file, whose header is JSON behind its length."""
    with file.open("rb") as stream:
        header = json.loads(stream.read(int.from_bytes(stream.read(8), "little")))
    return [name for name in header if name != "__metadata__"]
