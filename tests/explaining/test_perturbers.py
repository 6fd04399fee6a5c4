"""Perturbers from their files: what is wrong with an option is said before anything is loaded."""

import inspect
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from pessimal.errors import ConfigError
from pessimal.explaining.perturbers import (
    HANDED_IN,
    Perturbation,
    Status,
    check_options,
    make_perturber,
)
from scripted_server import CLARITY

FILES = sorted((Path(__file__).parents[2] / "conf" / "perturber").glob("*.yaml"))
LLM = {
    "_target_": "pessimal.explaining.perturbers.llm.Llm",
    "model": "m",
    "base_url": "http://127.0.0.1:9/v1",
}


class Shout:
    """A perturber of somebody else's."""

    name = "shout"

    def __init__(self, *, marks: int = 1):
        self.marks = marks

    def perturb(self, requests):
        return [
            Perturbation(one, Status.changed, one.text.upper() + "!" * self.marks)
            for one in requests
        ]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_file_holds_all_options_of_its_class_with_their_defaults(file):
    spec = OmegaConf.to_container(OmegaConf.load(file))
    if "model" in spec:  # has none of its own
        with pytest.raises(ConfigError, match=r"perturber\.model="):
            make_perturber(spec, attributes=[CLARITY], cache=None)
        spec["model"] = "some/model"
    takes = inspect.signature(check_options(spec)).parameters
    options = {
        name: each.default for name, each in takes.items() if name not in (*HANDED_IN, "model")
    }
    assert {
        name: value for name, value in spec.items() if name not in ("_target_", "model")
    } == options


def test_one_of_ones_own_is_made_with_its_options():
    made = make_perturber(
        {"_target_": f"{__name__}.Shout", "marks": 3}, attributes=[CLARITY], cache=None
    )
    assert made.marks == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temprature": 0.5}, "Did you mean 'temperature'"),
        ({"attempts": 0}, "perturber.attempts=0"),
        ({"max_tokens": None}, None),
        ({"_target_": "pessimal.explaining.perturbers.llm.Lm"}, "_target_"),
        (
            {
                "_target_": "pessimal.explaining.perturbers.local.Local",
                "base_url": None,
                "dtype": "float8",
            },
            "base_url",
        ),
    ],
)
def test_impossible_options_are_refused(options, message):
    if message is None:
        assert check_options(LLM | options)
        return
    with pytest.raises(ConfigError, match=message):
        check_options(LLM | options)
