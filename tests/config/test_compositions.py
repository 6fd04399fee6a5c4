"""Every configuration in `conf/` composes into its typed form."""

from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir

from experiments.demo_family.recipes import parse_recipe
from pessimal.catalogue import CONF
from pessimal.config.compose import build
from pessimal.config.compose import composed as configuration
from pessimal.config.schema import CompareConfig, ScanConfig, TaskConfig, TrainConfig
from pessimal.rewards.named import spec_of
from pessimal.rewards.spec import Dtype


def composed(*overrides: str) -> TaskConfig:
    """The typed configuration that overrides give."""
    return build(configuration(overrides))


def options(group: str) -> list[str]:
    return sorted(
        str(p.relative_to(CONF / group).with_suffix("")) for p in (CONF / group).rglob("*.yaml")
    )


# Short name, Hub repository and RewardBench rank of the paper's ten models.
PAPER = {
    "N-Gem-27B": ("nicolinho/QRM-Gemma-2-27B", 2),
    "S-Gem-27B-v0.2": ("Skywork/Skywork-Reward-Gemma-2-27B-v0.2", 3),
    "S-Gem-27B": ("Skywork/Skywork-Reward-Gemma-2-27B", 5),
    "S-Lla-8B-v0.2": ("Skywork/Skywork-Reward-Llama-3.1-8B-v0.2", 10),
    "N-Lla-8B": ("nicolinho/QRM-Llama3.1-8B", 11),
    "L-Lla-8B": ("LxzGordon/URM-LLaMa-3.1-8B", 12),
    "R-Lla-8B": ("Ray2333/GRM-Llama3-8B-rewardmodel-ft", 17),
    "R-Lla-3B": ("Ray2333/GRM-Llama3.2-3B-rewardmodel-ft", 19),
    "F-Lla-8B-v0.1": ("RLHFlow/ArmoRM-Llama3-8B-v0.1", 20),
    "R-Gem-2B": ("Ray2333/GRM-gemma2-2B-rewardmodel-ft", 31),
}


BASES = {
    "google/gemma-2-27b",
    "google/gemma-2-2b",
    "meta-llama/Meta-Llama-3-8B",
    "meta-llama/Llama-3.1-8B",
    "meta-llama/Llama-3.2-3B",
}
"""The language models that the paper's ten were made from."""


OPEN = {
    "auto": ["model.path=a/b"],
    "judge": ["model.path=a/b"],
    "judge-rating": ["model.path=a/b"],
    "judge-correct": ["model.path=a/b"],
    "judge-pairwise": ["model.path=a/b", "model.judge.opponent=B"],
    "implicit": ["model.path=a/b", "model.implicit.reference=a/c"],
    "adapter": ["model.adapter=a/b"],
    "callable": ["mode=text", "model.tokenizer=a/b", "model.callable._target_=builtins.len"],
    "endpoint": ["mode=text", "model.tokenizer=a/b", "model.endpoint.url=http://localhost:1"],
    "pair-preference-model-LLaMA3-8B": ["model.judge.opponent=B"],
}
"""What has to be typed with models whose file leaves something open."""


@pytest.mark.parametrize("model", options("model"))
def test_every_model_composes_and_says_what_it_is(model):
    if model in OPEN:
        config = composed("task=scan", f"model={model}", *OPEN[model])
        assert isinstance(config, ScanConfig)
        assert config.model.kind in (model.split("-")[0], "head", "judge")
        return
    spec = spec_of(model)
    assert spec.name == model
    if spec.package is not None:
        assert spec.developer == spec.package.source.split("/")[0]
        assert spec.package.weights.split(",")[0] in spec.base, (
            "4 bits are said wherever it is named"
        )
    elif spec.kind == "log_probability":
        assert spec.path in BASES
        assert spec.rank is None
    elif spec.training_command is None:
        assert spec.rank is None or (spec.path, spec.rank) in PAPER.values()
        assert spec.developer == spec.path.split("/")[0]
        assert not spec.trust_remote_code, "their weights are enough"
    else:
        recipe = parse_recipe(model)
        assert (spec.developer, spec.base) == (recipe.lab, recipe.base)
        assert spec.path == f"runs/demo_family/{model}"
        assert spec.base_path == f"{spec.path}-base"
        assert spec.training_command.split("  #")[0].endswith(f".train {model}")


@pytest.mark.parametrize("preset", [e for e in options("experiment") if not e.endswith("/models")])
def test_every_experiment_composes(preset):
    config = composed(f"experiment={preset}")
    study, name = preset.split("/")
    verb, *variant = name.split("_")  # scan_bfloat16 is a scan
    assert config.task == verb
    assert config.tracking.group == study
    if verb in ("train", "scan"):
        with initialize_config_dir(version_base="1.3", config_dir=str(CONF)):
            hydra = compose("config", [f"experiment={preset}"], return_hydra_config=True).hydra
        assert hydra.mode.name == "MULTIRUN"
        (swept,) = (
            [name.strip() for name in str(values).split(",")]
            for key, values in hydra.sweeper.params.items()
            if key in ("model", "model.revision")
        )
        assert set(swept) <= set(options("model")) or "model.revision" in hydra.sweeper.params
        assert len(swept) >= (3 if variant else 6)
    if isinstance(config, CompareConfig):
        assert set(config.models) <= set(options("model"))


SEVERAL = {
    "core": {"greatest", "best", "worst"},
    "eloeverything": {"greatest", "greatest_concept", "humans_prefer"},
    "factorial54": {
        f"{adjective}_{superlative}_{concision}"
        for adjective in ("best", "greatest", "good", "worst", "bad", "terrible")
        for superlative in ("ever", "world", "time")
        for concision in ("one", "single", "please")
    },
    "grading": {
        f"{what}{again}" for what in ("sheep", "capital", "equation") for again in ("", "-again")
    },
}
"""Options of `prompts` that hold more than the one prompt they are named after."""


@pytest.mark.parametrize("group", ["tracking", "trainer", "candidates", "prompts"])
def test_every_option_of_a_group_composes(group, tmp_path):
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text('{"prompt": "1 + 1?", "answer": "2"}')
    function = ["model=callable", "model.callable._target_=builtins.len"]
    for option in options(group):
        lists = {
            "census": [*function, f"tasks={tasks}"],
            "items": ["candidates.path=" + str(Path(__file__)), "mode=text"],
            "master_keys": ["mode=text"],
        }
        extra = lists.get(option, [])
        config = composed("task=scan", f"{group}={option}", *extra)
        chosen = getattr(config, group)
        if group == "tracking":
            assert chosen.mode.value == ("offline" if option == "default" else option)
        elif group == "trainer":
            alone = option in ("cpu", "gpu")
            assert chosen.accelerator == (option if alone else "auto")
            assert chosen.strategy.value == ("auto" if alone else option)
            assert (chosen.devices == 1) == alone
        elif group == "candidates":
            assert chosen.name == option
        else:
            assert set(chosen) == SEVERAL.get(option, {option})


def test_a_comparison_knows_its_lexicons_terms_wordings_and_polarities():
    config = composed("task=compare")
    assert config.lexicons == {"AFINN-111": "afinn", "TextBlob": "textblob"}
    assert set(config.identity) == {
        "gender",
        "ethnicity",
        "religion",
        "sexuality",
        "disability",
        "age",
        "nationality",
    }
    for axis in config.identity.values():
        assert axis.about
        assert axis.source
        assert len(set(axis.terms)) == len(axis.terms) >= 10
        assert all(term == term.strip().lower() and " " not in term for term in axis.terms)
    assert [len(levels) for levels in config.wording.factors.values()] == [6, 3, 3]
    assert {key for key, sign in config.polarity.items() if sign == -1} == {
        "worst",
        "bad",
        "terrible",
    }


def test_overrides_arrive_typed():
    config = composed(
        "task=scan",
        "prompts=[worst,best]",
        "model=auto",
        "model.path=org/name",
        "model.dtype=bfloat16",
    )
    assert list(config.prompts) == ["worst", "best"]
    assert config.prompts["worst"] == "What, in one word, is the worst thing ever?"
    assert config.model.dtype is Dtype.bfloat16
    assert config.model.name == "name"
    config = composed("task=train", "base=smollm2", f"data={__file__}", "recipe.steps=3")
    assert isinstance(config, TrainConfig)
    assert (config.recipe.name, config.recipe.steps) == ("human_elo", 3)
