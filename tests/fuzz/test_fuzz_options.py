"""Whatever is typed: a checked configuration, or one readable refusal."""

import types
import typing
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum

import pytest
from fuzzing import cases, hostile, refused, values
from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import assume, example
from hypothesis import strategies as st
from omegaconf import OmegaConf

from pessimal.catalogue import CONF
from pessimal.cli import add_task
from pessimal.config.compose import build, composition_message, register
from pessimal.config.schema import SCHEMAS, TASKS
from pessimal.config.schema.shared import check_writable
from pessimal.config.schema.tables import FILTERS, runs_overrides
from pessimal.errors import ConfigError, UserError
from pessimal.options import existing_file, matching
from pessimal.rewards.head import HeadSpec
from pessimal.tracking.registry import Manifest
from pessimal.verbs.runs import artifact_frame, select

VERBS = sorted(TASKS)
keys = st.sampled_from(
    ["model", "prompts", "a.b", "+x", "++x", "~x", "where", "name", "sort", "seed", ""]
)
typed = st.sampled_from(
    [*VERBS, "show", "diff", "verify", "-m", "--cfg", "job", "-cn", "task=runs", "scna"]
)
words = st.one_of(typed, st.builds("{}={}".format, keys, hostile), hostile)


@cases(330, arguments=st.lists(words, max_size=6))
@example(arguments=["runs", "show", "\ud83d"])
def test_a_command_line_becomes_one_for_hydra_or_is_refused(arguments):
    found, wrong = refused(lambda: add_task(arguments), kinds=ConfigError)
    if wrong:
        assert "\n" not in str(found).replace("\\n", "")
    # Some verbs have keys of their own, and a word by itself is a model, as is model=.
    elif not {"runs", "import", "compare"} & set(map(_plain, arguments)) and all(
        ("=" in one and not one.startswith("model=")) or one[:1] in ("-", "+", "~") or one in TASKS
        for one in arguments
    ):
        assert sorted(map(_plain, found)) == sorted(map(_plain, arguments)), (
            "nothing is added or dropped"
        )


def _plain(argument: str) -> str:
    """A verb as it is typed."""
    verb = argument.removeprefix("task=")
    return verb if verb in TASKS else argument


@cases(160, key=st.sampled_from([*FILTERS, "where", "sort"]), value=hostile)
@example(key="where", value="n>1000")
@example(key="name", value="ends with \\")
@example(key="name", value='\\" and "')
@example(key="name", value="${oc.env:HOME}")
def test_free_text_after_runs_arrives_as_typed(key, value):
    assume(value != "null" and value[:1] not in ("[", '"', "'"))
    (parsed,) = OverridesParser.create().parse_overrides(
        runs_overrides([], [f"{key}={value}"], [])[:1]
    )
    assert parsed.key_or_group == key
    read = OmegaConf.to_container(OmegaConf.create({key: parsed.value()}), resolve=True)
    assert read == {key: value}, "nor is it an interpolation"


scalars = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), hostile)


@pytest.mark.slow
@cases(
    260,
    wanted=st.builds(
        "{}{}{}".format,
        st.sampled_from(["n", "mean", "inner.n", " padded "]),
        st.sampled_from(["=", "==", "!=", "<", "<=", ">", ">="]),
        scalars,
    ),
    summary=st.dictionaries(
        st.sampled_from(["n", "mean", "inner", "padded"]),
        st.one_of(
            scalars,
            st.lists(scalars, max_size=3),
            st.dictionaries(st.just("n"), scalars, max_size=1),
        ),
    ),
)
def test_a_condition_is_decided_for_every_summary(wanted, summary):
    artifacts = artifact_frame([Manifest("thing", "a", 0, {}, summary=summary)])
    found, wrong = refused(lambda: len(select(artifacts, where=wanted)), naming="where")
    assert wrong or found in (0, 1)


names = st.one_of(
    st.sampled_from(["vocabulary", "greatest", "org/name", "1", "2026-01-31"]), hostile
)
PLAIN = {
    bool: st.booleans(),
    int: st.one_of(st.integers(-2, 200), st.integers()),
    float: st.one_of(st.floats(0, 1), st.floats()),
    str: names,
    type(None): st.none(),
}


def of_type(kind) -> st.SearchStrategy:
    """Values of a field's type, as OmegaConf lets them through."""
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if isinstance(kind, types.UnionType) or origin is typing.Union:
        return st.one_of(*map(of_type, parts))
    if origin is list:
        return st.lists(of_type(parts[0]), max_size=3)
    if origin is dict:
        return st.dictionaries(names, of_type(parts[1]), max_size=3)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return st.sampled_from(list(kind))
    return filled(kind) if is_dataclass(kind) else PLAIN.get(kind, values)


@st.composite
def filled(draw, schema: type) -> object:
    """An instance with some fields drawn, or the UserError that refused it."""
    hints, given = typing.get_type_hints(schema), {}
    for field in fields(schema):
        needed = (
            field.default is MISSING and field.default_factory is MISSING
        ) or field.default == "???"
        if needed or draw(st.integers(0, 2)) == 0:
            given[field.name] = draw(of_type(hints[field.name]))
    if refusal := next((value for value in given.values() if isinstance(value, UserError)), None):
        return refusal
    return refused(lambda: schema(**given))[0]


@pytest.mark.slow
@cases(600, made=st.sampled_from(sorted(SCHEMAS)).flatmap(lambda name: filled(SCHEMAS[name])))
def test_options_are_checked_or_refused_in_words(elsewhere, made):
    if isinstance(made, UserError):
        assert len(str(made)) > 20, "a refusal says what was expected"
        return
    for name in ("batch_size", "replicates", "permutations", "sample", "devices", "num_nodes"):
        number = getattr(made, name, None)
        assert number is None or number >= 1
    assert 0 < getattr(made, "confidence", 0.5) < 1


READERS = (existing_file, matching, lambda _, path: HeadSpec(path=path))


@cases(100, text=hostile, read=st.sampled_from(READERS))
@example(text="~no such user/x", read=existing_file)
@example(text="\x00*", read=matching)
@example(text="\ud83d*", read=matching)
def test_a_path_is_found_or_refused_by_its_name(elsewhere, text, read):
    found, wrong = refused(lambda: read("path", text), naming=repr(text)[1:-1][:20])
    assert found is not None or not wrong


@pytest.mark.parametrize("given", ["~no such user/x", "a\x00b", "x" * 300, "half \ud83d"])
def test_a_folder_that_cannot_be_is_refused_by_its_name(elsewhere, given):
    found, wrong = refused(lambda: check_writable("paths.root", given), naming="paths.root=")
    assert wrong, found


GROUPS = ("model", "trainer", "search", "tracking")
HINTS = typing.get_type_hints(TASKS["search"])
OPTIONS = sorted(
    {f"{group}.{field.name}" for group in GROUPS for field in fields(HINTS[group])}
    | {field.name for schema in TASKS.values() for field in fields(schema)}
    | {
        "+prompts.new",
        "~model",
        "~lexicons",
        "lexicons",
        "contrast",
        "perturber",
        "hydra.verbose",
        "+a",
        "a",
    }
)
given = st.one_of(
    st.sampled_from(
        [
            "1",
            "0",
            "-1",
            "1.5",
            "null",
            "[]",
            "{}",
            "true",
            "[greatest]",
            "auto",
            "x",
            "'",
            "[[",
            "???",
        ]
    ),
    hostile,
    hostile.map(lambda text: '"' + text.replace("\\", "").replace('"', '\\"') + '"'),
)


@pytest.fixture(scope="module")
def composed(elsewhere):
    """The configuration of a command line, without running anything; a wrong one is a UserError, or
    Hydra's own with a message of ours."""
    register()

    def from_line(*line: str):
        try:
            return build(compose("config", overrides=add_task(line)))
        except UserError:
            raise
        except Exception as error:
            message = composition_message(error)
            if message is None:
                raise
            raise UserError(message) from error

    with initialize_config_dir(version_base="1.3", config_dir=str(CONF)):
        yield from_line


@pytest.mark.slow
@cases(
    20,
    verb=st.sampled_from(VERBS),
    overrides=st.lists(
        st.builds("{}={}".format, st.sampled_from(OPTIONS), given), min_size=1, max_size=3
    ),
)
@example(verb="compare", overrides=["lexicons=null"])
@example(verb="compare", overrides=["~lexicons=1"])
@example(verb="scan", overrides=["model.name=null"])
def test_a_whole_command_line_composes_or_is_refused_in_words(composed, verb, overrides):
    config, wrong = refused(lambda: composed(verb, *overrides))
    assert wrong or isinstance(config, TASKS[config.task])
