"""Files of the Hugging Face Hub on this machine. Knows repositories; does not know what is in them."""

from pathlib import Path

from pessimal.errors import ModelError

FILES = ("*.safetensors", "*.json", "*.txt", "*.model", "*.jinja")
"""What a checkpoint consists of, code of its own apart."""


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
