"""Spaces are typed as Hydra types sweeps, and what does not fit is refused before any trial."""

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from toy_study import parsed

from pessimal.errors import ConfigError
from pessimal.tuning.study import options_of, with_options
from pessimal.verbs.search_tuning import as_overrides, parse_space


@pytest.mark.parametrize(
    ("typed", "values"),
    [
        ("search.step_size=range(1,4)", IntDistribution(1, 3)),
        ("search.top_k=range(64,257,64)", IntDistribution(64, 256, step=64)),
        ("search.top_k=choice(64,256)", CategoricalDistribution([64, 256])),
        ("search.top_k=64,256", CategoricalDistribution([64, 256])),
        ("search.top_k=interval(16,512)", IntDistribution(16, 512)),
        ("search.top_k=tag(log,int(interval(16,512)))", IntDistribution(16, 512, log=True)),
        ("search.momentum=interval(0,0.95)", FloatDistribution(0, 0.95)),
        ("search.momentum=range(0.5,0.9,0.1)", FloatDistribution(0.5, 0.8, step=0.1)),
        ("search.momentum=choice(0,0.9)", CategoricalDistribution([0.0, 0.9])),
        ("search.momentum=tag(log,interval(0.01,0.9))", FloatDistribution(0.01, 0.9, log=True)),
    ],
)
def test_hydras_sweeps_are_optunas_distributions(typed, values):
    # The later override of an option counts, and a single value takes it out.
    earlier = ["search.top_k=1,2", "search.momentum=0,0.5", "search.momentum=0.9", "search.top_k=7"]
    overrides = OverridesParser.create().parse_overrides([*earlier, typed, "task=search"])
    space, fixed = parse_space(overrides)
    assert space == {typed.split("=")[0]: values}
    assert "task=search" in fixed


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("search.topk=choice(1,2)", "Did you mean 'search.top_k'?"),
        ("search.length=2,3", "search.length cannot be tuned"),
        ("search.top_k=choice(64,0.5)", "whole numbers, not 0.5"),
        ("search.top_k=interval(0.5,9)", "whole numbers, not 0.5"),
        ("search.top_k=range(1,9,0.5)", "whole numbers, not 0.5"),
        ("search.top_k=interval(1,inf)", "interval(1,inf)"),
        ("search.top_k=choice(64,true)", "whole numbers, not True"),
        ("search.momentum=choice(0,high)", "numbers, not 'high'"),
        ("search.top_k=range(4,4)", "range"),
        ("search.top_k=range(9,4,-1)", "range"),
        ("search.top_k=interval(9,4)", "interval"),
        ("search.momentum=tag(log,interval(0,0.9))", "log"),
        ("search.top_k=glob(*)", "give range"),
        ("search.top_k=64", "nothing to tune"),
        ("search.momentum=interval(0,1.5)", "search.momentum=1.5"),
        ("search.search_width=choice(64,0,128)", "search.search_width=0"),
    ],
)
def test_what_cannot_be_tuned_or_the_option_refuses_is_refused(typed, message):
    with pytest.raises(ConfigError) as refused:
        parsed(typed)
    assert message in str(refused.value)


def test_options_go_through_a_command_line_and_come_back_to_the_bit(spec):
    options = {"search.momentum": 0.1 + 0.2, "search.step_size_until": 1e-5, "search.top_k": 3}
    message = {"tuning.study": "it's, a=b [c]", "tuning.storage": "/a b/c.db"}
    typed = OverridesParser.create().parse_overrides(as_overrides(options | message))
    assert {override.key_or_group: override.value() for override in typed} == options | message
    assert options_of(with_options(spec.search, options), list(options)) == options
