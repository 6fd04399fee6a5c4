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
from scripted_server import CLARITY, VERBOSITY

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


def test_a_language_model_is_handed_its_attributes_and_cache(tmp_path):
    made = make_perturber({**LLM, "retries": 0}, attributes=[CLARITY, VERBOSITY], cache=tmp_path)
    assert made.attributes == (CLARITY, VERBOSITY)
    assert made.chat.cache.folder == tmp_path
    assert made.chat.options.retries == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temprature": 0.5}, "Did you mean 'temperature'"),
        ({"cache": "x"}, "no such option"),
        ({"temperature": 3.0}, "perturber.temperature=3.0.*2"),
        ({"attempts": 0}, "perturber.attempts=0"),
        ({"retries": -1}, "perturber.retries=-1"),
        ({"retries": True}, "perturber.retries=True"),
        ({"max_tokens": None}, None),
        ({"allow_unanswered": "perhaps"}, "allow_unanswered"),
        ({"model": None}, r"perturber\.model="),
        ({"_target_": "pessimal.explaining.perturbers.llm.Lm"}, "_target_"),
        ({"_target_": "pathlib.Path"}, "no class with"),
        ({"_target_": None}, "_target_"),
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


def test_checking_options_loads_nothing_heavy(loaded_by):
    modules = [f"pessimal.explaining.perturbers.{name}" for name in ("llm", "local", "rules")]
    assert loaded_by(modules, ["torch", "transformers", "openai", "huggingface_hub"]) == "[]"
