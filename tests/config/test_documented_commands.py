"""Every command that README.md, the manual and the experiments tell people to type composes: its
options are there, and take such values."""

import copy
import functools
import re
import shlex
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.override_parser.overrides_parser import OverridesParser

from pessimal.catalogue import CONF
from pessimal.cli import add_task
from pessimal.config import compose as schemas

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "experiments").glob("*/README.md")),
]
BLOCK = re.compile(r"```sh\n(.*?)```", re.DOTALL)
STAND_INS = {"model=NAME": "model=plain-bpe-0", "experiment=NAME": "experiment=quickstart/scan"}
"""What a reader puts in the place of a name that is a group's choice."""


def as_the_shell_reads_it(block: str) -> str:
    """A block with its own variables filled in, a loop's by its first value, and a folder for what
    a command prints."""
    block = re.sub(r"\$\([^)]*\)", "DIR", block.replace("\\\n", " "))
    given = dict(re.findall(r"""\bfor (\w+) in (\S+)""", block)) | {
        name: quoted or plain
        for name, quoted, plain in re.findall(
            r"""^(\w+)=(?:"([^"]*)"|(\S+))""", block, re.MULTILINE
        )
    }
    return re.sub(r"\$(\w+)", lambda found: given.get(found[1], "DIR"), block)


def commands() -> list[tuple[str, str]]:
    """Page and command, of every `pessimal …` that stands in a block of shell commands; each
    once."""
    found = []
    for page in PAGES:
        for block in BLOCK.findall(page.read_text(encoding="utf-8")):
            for line in as_the_shell_reads_it(block).splitlines():
                found += [
                    (str(page.relative_to(ROOT)), part.strip())
                    for part in re.split(r"&& ", line)
                    if "pessimal " in part
                ]
    first = {
        line.split("  #")[0]: page for page, line in reversed(found) if line.startswith("pessimal ")
    }
    return [(page, line) for line, page in first.items()]


@functools.cache
def composition(*choices: str):
    """The configuration that choices of files give, with Hydra's own."""
    schemas.register()
    with initialize_config_dir(version_base="1.3", config_dir=str(CONF)):
        return compose("config", overrides=[*choices], return_hydra_config=True)


def compose_line(overrides: list[str]) -> None:
    """Compose as Hydra does, the files first and then the values; the same files once."""
    parsed = OverridesParser.create().parse_overrides(overrides)
    is_choice = [
        p.key_or_group in ("hydra", "kind")
        or p.key_or_group.startswith("hydra/")
        or (CONF / p.key_or_group).is_dir()
        for p in parsed
    ]
    choices = [o for o, is_file in zip(overrides, is_choice, strict=True) if is_file]
    values = [p for p, is_file in zip(parsed, is_choice, strict=True) if not is_file]
    config = copy.deepcopy(composition(*choices))
    ConfigLoaderImpl._apply_overrides_to_config(values, config)


@pytest.mark.parametrize(("page", "command"), commands())
def test_it_composes(page, command):
    words = shlex.split(command, comments=True)[1:]
    if words == ["models"]:
        return
    typed = add_task(words)
    overrides, previous = [], ""
    for argument in typed:
        option, previous = (
            argument.startswith("-") or previous in ("--cfg", "--info", "--config-dir"),
            argument,
        )
        if not option:
            overrides.append(STAND_INS.get(argument, argument))
    if not any(override.startswith(("task=", "experiment=")) for override in overrides):
        assert typed == ["--help"]
        return
    if "--config-dir" in typed:  # names of files that the reader wrote
        overrides = [o for o in overrides if not o.startswith(("contrast=", "model=", "identity="))]
    sweeps = {
        p.get_key_element(): p
        for p in OverridesParser.create().parse_overrides(overrides)
        if p.is_sweep_override()
    }
    assert not sweeps or {"-m", "experiment"} & {*typed, *(o.partition("=")[0] for o in overrides)}
    overrides = [o for o in overrides if o.partition("=")[0] not in sweeps]
    overrides += [f"{key}={next(parsed.sweep_string_iterator())}" for key, parsed in sweeps.items()]
    compose_line(overrides)
