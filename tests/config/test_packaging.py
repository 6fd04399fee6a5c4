"""What is declared is what is imported, and what is tested; `conf/` goes along."""

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from pessimal.catalogue import CONF
from pessimal.config.messages import EXTRAS, missing_extra

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
INSTALLED_BY = {
    "yaml": "omegaconf",
    "markupsafe": "jinja2",
    "httpx2": "openai",
    "_hydra_ext": "hydra-core",
    "typing_extensions": "pydantic",
    "tqdm": "transformers",
    "packaging": "transformers",
}
"""Modules that a declared dependency cannot do without."""


def plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def declared(*extras: str) -> dict[str, Requirement]:
    """Requirements of the package and of some extras, by name."""
    lines = [
        *PROJECT["dependencies"],
        *(line for e in extras for line in PROJECT["optional-dependencies"][e]),
    ]
    return {plain(Requirement(line).name): Requirement(line) for line in lines}


def pinned() -> dict[str, str]:
    lines = (ROOT / "requirements.txt").read_text().splitlines()
    return {
        plain(name): version
        for name, version in re.findall(r"^([\w.-]+)==(\S+)", "\n".join(lines), re.M)
    }


def test_ranges_hold_what_is_tested():
    tested = pinned()
    for name, requirement in declared("demo", "llm", "page", "quantised", "dev").items():
        assert tested[name] in requirement.specifier, name
    assert set(tested) - set(declared("demo", "llm", "page", "quantised", "dev")) == {
        "uv",
        "hatchling",
        "submitit",
    }


def test_every_import_is_declared():
    known, installed = set(declared("demo", "llm", "page")), packages_distributions()
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
            owners = {plain(d) for d in installed.get(module, [INSTALLED_BY.get(module, module)])}
            assert owners & known or INSTALLED_BY.get(module) in known, f"{file}: {module}"


@pytest.mark.parametrize("module", EXTRAS)
def test_a_missing_extra_is_named(module):
    message = missing_extra(ModuleNotFoundError(name=module))
    assert f"pip install 'pessimal[{EXTRAS[module]}]'" in message
    assert missing_extra(ModuleNotFoundError(name="pessimal.nothing")) is None


def test_the_configuration_is_found():
    assert (CONF / "config.yaml").is_file()
