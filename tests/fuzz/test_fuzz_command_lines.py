"""Whatever is typed: a command line Hydra can read, or one readable refusal."""

import pytest
from fuzzing import cases, hostile, refused
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import assume, example
from hypothesis import strategies as st

from pessimal.cli.arguments import with_task
from pessimal.config.schema import TASKS
from pessimal.config.schema.runs import FILTERS, runs_overrides
from pessimal.errors import ConfigError, UserError
from pessimal.tracking.listing import frame, select
from pessimal.tracking.registry import Manifest

VERBS = sorted(TASKS)
keys = st.sampled_from(["model", "prompts", "a.b", "+x", "++x", "~x", "where", "name", "sort", "seed", ""])
overrides = st.builds("{}={}".format, keys, hostile)
words = st.one_of(
    st.sampled_from([*VERBS, "show", "diff", "verify", "-m", "--cfg", "job", "-cn", "task=runs", "scna"]),
    overrides,
    hostile,
)
figures = st.sampled_from(["n", "mean", "optimal", "inner.n", " padded "])
signs = st.sampled_from(["=", "==", "!=", "<", "<=", ">", ">="])
scalars = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), hostile)


@cases(1200, arguments=st.lists(words, max_size=6))
@example(arguments=["runs", "show", "\ud83d"])
def test_a_command_line_becomes_one_for_hydra_or_is_refused(arguments):
    found, wrong = refused(lambda: with_task(arguments), kinds=ConfigError)
    if wrong:
        assert "\n" not in str(found).replace("\\n", "")
        return
    if "runs" not in arguments and "task=runs" not in arguments:
        assert sorted(map(_plain, found)) == sorted(map(_plain, arguments)), "nothing is added or dropped"


def _plain(argument: str) -> str:
    """A verb as it is typed."""
    verb = argument.removeprefix("task=")
    return verb if verb in TASKS else argument


@cases(600, key=st.sampled_from([*FILTERS, "where", "sort"]), value=hostile)
@example(key="where", value="n>1000")
@example(key="name", value="ends with \\")
@example(key="name", value='\\" and "')
@example(key="name", value="${oc.env:HOME}")
def test_free_text_after_runs_arrives_as_typed(key, value):
    assume(value != "null" and value[:1] not in ("[", '"', "'"))
    override = runs_overrides([], [f"{key}={value}"], [])[0]
    (parsed,) = OverridesParser.create().parse_overrides([override])
    assert parsed.key_or_group == key
    assert parsed.value() == value


@pytest.mark.slow
@cases(
    1000,
    figure=figures,
    sign=signs,
    value=scalars,
    summary=st.dictionaries(
        st.sampled_from(["n", "mean", "optimal", "inner", "padded"]),
        st.one_of(
            scalars,
            st.lists(scalars, max_size=3),
            st.dictionaries(st.sampled_from(["n"]), scalars, max_size=1),
        ),
        max_size=4,
    ),
)
def test_a_condition_is_decided_for_every_summary(figure, sign, value, summary):
    artifacts = frame([Manifest("thing", "a", 0, {}, summary=summary)])
    wanted = f"{figure}{sign}{value}"
    found, wrong = refused(lambda: len(select(artifacts, where=[wanted])), naming="where", kinds=UserError)
    if not wrong and found and sign == "=":
        assert not len(select(artifacts, where=[f"{figure}!={value}"]))
