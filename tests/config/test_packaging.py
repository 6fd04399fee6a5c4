"""What is declared is what is imported, and what is tested; the base installation does without the
extras, each of which is named where it is missing; what the wheel holds."""

import ast
import importlib.util
import re
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import pessimal
from pessimal.config.compose import missing_extra_message
from pessimal.errors import EXTRAS, MissingExtraError, require

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
REQUIREMENTS = ("requirements.txt", "requirements-data.txt")


def plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def declared(*extras: str) -> dict[str, Requirement]:
    """Requirements of the package and of some extras, by name; extras of extras too."""
    lines = [*PROJECT["dependencies"]]
    for extra in extras:
        lines += PROJECT["optional-dependencies"][extra]
    found = {}
    for requirement in map(Requirement, lines):
        if requirement.name == "pessimal":
            found |= declared(*requirement.extras)
        else:
            found[plain(requirement.name)] = requirement
    return found


def pinned(*files: str) -> dict[str, str]:
    text = "\n".join((ROOT / file).read_text() for file in files or REQUIREMENTS)
    return {plain(n): version for n, version in re.findall(r"^([\w.-]+)==(\S+)", text, re.M)}


def test_ranges_hold_what_is_tested():
    tested, known = pinned(), declared("all", "dev")
    for name, requirement in known.items():
        assert tested[name] in requirement.specifier, name
    assert set(tested) - set(known) == {"uv", "hatchling", "submitit"}


def test_the_lock_holds_what_is_tested_with_hashes():
    lock = (ROOT / "requirements.lock").read_text()
    assert pinned().items() <= pinned("requirements.lock").items()
    entries = re.split(r"\n(?=[a-z])", lock[lock.index("\naccelerate") + 1 :])
    assert all("--hash=sha256:" in entry for entry in entries)


def test_every_import_is_declared():
    known, installed = set(declared("all")), packages_distributions()
    for file in (ROOT / "src").rglob("*.py"):
        tree = list(ast.walk(ast.parse(file.read_text(encoding="utf-8"))))
        names = [
            n.module for n in tree if isinstance(n, ast.ImportFrom) and n.module and not n.level
        ]
        names += [alias.name for n in tree if isinstance(n, ast.Import) for alias in n.names]
        for module in {name.partition(".")[0] for name in names} - {
            *sys.stdlib_module_names,
            "pessimal",
        }:
            owners = {plain(owner) for owner in installed.get(module, [module])}
            assert owners & known, f"{file}: {module}"


# the base installation


WITHOUT_EXTRAS = """
from importlib.machinery import PathFinder
find = PathFinder.find_spec
PathFinder.find_spec = lambda name, *more: None if name in {names} else find(name, *more)
for verb in ("scan", "compare", "search", "check", "import_", "report", "runs", "push"):
    __import__("pessimal.verbs." + verb)
import pessimal
for name in pessimal.__all__:
    getattr(pessimal, name)
"""


@pytest.mark.slow  # a fresh interpreter that imports all
def test_every_verb_but_explain_and_train_starts_without_any_extra():
    code = WITHOUT_EXTRAS.format(names=[*EXTRAS])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("module", EXTRAS)
def test_a_missing_extra_is_named(module, monkeypatch):
    typed = f"Type: pip install 'pessimal[{EXTRAS[module]}]'"
    assert typed in missing_extra_message(ModuleNotFoundError(name=module))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"^the verb needs the package .*\.") as caught:
        require(module, purpose="the verb")
    assert str(caught.value).endswith(typed)


# what is given out


def test_the_wheel_holds_the_package_and_its_configuration(tmp_path):
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    [wheel] = tmp_path.glob("*.whl")
    assert wheel.name.startswith(f"pessimal-{pessimal.__version__}-")
    names = set(zipfile.ZipFile(wheel).namelist())
    needed = {"py.typed", "conf/config.yaml", "methods/edits.md", "tables/pairs.jsonl"}
    assert {f"pessimal/{name}" for name in needed} <= names
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {
        "pessimal",
        "hydra_plugins",
    }
