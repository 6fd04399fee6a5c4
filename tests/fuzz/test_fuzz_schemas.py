"""Every dataclass of options, filled with whatever its types allow: a checked configuration, or one readable refusal."""

import math
import types
import typing
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum

import pytest
from fuzzing import cases, hostile, refused, values
from hydra import compose, initialize_config_dir
from hypothesis import example
from hypothesis import strategies as st

from pessimal.cli.arguments import CONF, with_task
from pessimal.cli.compose import build, register
from pessimal.cli.messages import composition_message
from pessimal.config.schema import SCHEMAS, TASKS
from pessimal.config.schema.shared import check_writable
from pessimal.config.schema.values import existing_file, matching
from pessimal.errors import UserError
from pessimal.models.spec import ModelSpec

names = st.one_of(
    st.sampled_from(["vocabulary", "greatest", "org/name", "plain", "1", "2026-01-31"]), hostile
)
numbers = st.one_of(st.integers(-2, 200), st.integers())
reals = st.one_of(st.floats(0, 1), st.floats())


def of_type(kind) -> st.SearchStrategy:
    """Values of a field's type, as OmegaConf lets them through."""
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if isinstance(kind, types.UnionType) or origin is typing.Union:
        return st.one_of(*map(of_type, parts))
    if origin is list:
        return st.lists(of_type(parts[0]), max_size=3)
    if origin is dict:
        return st.dictionaries(names, of_type(parts[1]), max_size=3)
    if kind is type(None):
        return st.none()
    if isinstance(kind, type) and issubclass(kind, Enum):
        return st.sampled_from(list(kind))
    if is_dataclass(kind):
        return filled(kind)
    return {bool: st.booleans(), int: numbers, float: reals, str: names}.get(kind, values)


@st.composite
def filled(draw, schema: type) -> object:
    """An instance with some fields drawn, or the UserError that refused it."""
    hints, given = typing.get_type_hints(schema), {}
    for field in fields(schema):
        needed = (field.default is MISSING and field.default_factory is MISSING) or field.default == "???"
        if needed or draw(st.integers(0, 2)) == 0:
            given[field.name] = draw(of_type(hints[field.name]))
    if refusal := next((value for value in given.values() if isinstance(value, UserError)), None):
        return refusal
    made, _ = refused(lambda: schema(**given))
    return made


@pytest.mark.slow
@cases(1800, made=st.sampled_from(sorted(SCHEMAS)).flatmap(lambda name: filled(SCHEMAS[name])))
def test_options_are_checked_or_refused_in_words(elsewhere, made):
    if isinstance(made, UserError):
        assert len(str(made)) > 20, "a refusal says what was expected"
        return
    for name in ("batch_size", "replicates", "permutations", "sample", "devices", "num_nodes"):
        number = getattr(made, name, None)
        assert number is None or number >= 1
    confidence = getattr(made, "confidence", 0.5)
    assert 0 < confidence < 1
    assert math.isfinite(confidence)


@cases(300, text=hostile)
@example(text="~no such user/x")
@example(text="x" * 300)
@example(text="\x00*")
@example(text="\ud83d*")
def test_a_path_is_found_or_refused_by_its_name(elsewhere, text):
    for read in (existing_file, matching, _model):
        refused(lambda read=read: read("path", text), naming=repr(text)[1:-1][:20], kinds=UserError)


def _model(_: str, path: str) -> ModelSpec:
    return ModelSpec(path=path)


@pytest.mark.parametrize("given", ["~no such user/x", "a\x00b", "x" * 300, "half \ud83d"])
def test_a_folder_that_cannot_be_is_refused_by_its_name(elsewhere, given):
    found, wrong = refused(lambda: check_writable("paths.root", given), naming="paths.root=")
    assert wrong, found


OPTIONS = sorted(
    {f"{name}.{inner.name}" for name in ("model", "trainer", "search", "tracking") for inner in fields(
        typing.get_type_hints(TASKS["search"])[name])}
    | {field.name for schema in TASKS.values() for field in fields(schema)}
    | {"+prompts.new", "~model", "~lexicons", "lexicons", "contrast", "perturber", "comparisons", "hydra.verbose", "+a", "a"}
)  # fmt: skip
typed = st.one_of(
    st.sampled_from(
        ["1", "0", "-1", "1.5", "null", "[]", "{}", "true", "[greatest]", "auto", "x", "", "'", "[[", "???"]
    ),
    hostile,
    hostile.map(lambda text: '"' + text.replace("\\", "").replace('"', '\\"') + '"'),
)


@pytest.fixture(scope="module")
def composed(elsewhere):
    """The configuration of a command line, without running anything; a wrong one is a UserError, or Hydra's own with a
    message of ours."""
    register()
    with initialize_config_dir(version_base="1.3", config_dir=str(CONF)):

        def from_line(*line: str):
            try:
                return build(compose("config", overrides=with_task(line)))
            except UserError:
                raise
            except Exception as error:
                message = composition_message(error)
                if message is None:
                    raise
                raise UserError(message) from error

        yield from_line


@pytest.mark.slow
@cases(
    60,
    verb=st.sampled_from(sorted(TASKS)),
    overrides=st.lists(st.builds("{}={}".format, st.sampled_from(OPTIONS), typed), min_size=1, max_size=3),
)
@example(verb="compare", overrides=["lexicons=null"])
@example(verb="compare", overrides=["~lexicons=1"])
@example(verb="scan", overrides=["model.name=null"])
def test_a_whole_command_line_composes_or_is_refused_in_words(composed, verb, overrides):
    config, wrong = refused(lambda: composed(verb, *overrides))
    if not wrong:
        assert isinstance(config, TASKS[config.task])
