"""Models by one word: a file of conf/model, a folder, or a Hub repository."""

import pytest

from pessimal.catalogue import is_named
from pessimal.errors import ConfigError, ModelError
from pessimal.rewards.named import spec_of
from pessimal.rewards.sum import SumSpec


def test_a_name_of_conf_model_brings_what_its_file_says():
    spec = spec_of("Athene-RM-8B")
    assert (spec.path, spec.kind) == ("Nexusflow/Athene-RM-8B", "head")


def test_a_folder_and_a_repository_are_taken_as_paths_with_what_is_changed(tmp_path, monkeypatch):
    (tmp_path / "Athene-RM-8B").mkdir()
    (tmp_path / "Athene-RM-8B" / "config.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    assert not is_named("Athene-RM-8B")  # the folder goes before the name
    assert spec_of("Athene-RM-8B").path == "Athene-RM-8B"
    spec = spec_of("org/name", kind="log_probability", revision="main")
    assert (spec.path, spec.kind, spec.revision) == ("org/name", "log_probability", "main")


def test_what_is_neither_is_refused_with_what_was_meant():
    with pytest.raises(ConfigError, match="Did you mean 'wordy-bpe-"):
        spec_of("wordy-bpe-O")


def test_a_name_is_found_within_a_job_of_hydra_too(command):
    """Where Hydra is running already, and composes nothing else."""
    code, _, err = command("explain", "fluency=beaver-7b-v1.0-cost")
    assert code == 2
    assert "fluency=beaver-7b-v1.0-cost: model.negate=True" in err


def test_functions_and_addresses_are_named_in_one_word():
    spec = spec_of("some/my_rewards.py:compute_score")
    assert (spec.kind, spec.name) == ("callable", "my_rewards.compute_score")
    assert spec_of("https://host:1/v1").endpoint.url == "https://host:1/v1"
    with pytest.raises(ConfigError):
        spec_of("my.py:f", kind="judge")
    with pytest.raises(ConfigError, match="revision"):
        spec_of("org/name", revisoin="main")
    with pytest.raises(ConfigError):
        spec_of("org/name", output={"a": []}, dtype="float33")


def test_terms_of_a_sum_are_models_of_any_kind_with_weights():
    spec = SumSpec(
        name="rubric",
        tasks="tasks.jsonl",
        parts=[
            "plain-bpe-0",
            {"model": "my.py:f", "weight": 0.5},
            {"path": "org/judge", "kind": "log_probability", "weight": 0, "name": "likely"},
        ],
    )
    parts = spec.weighted()
    assert [weight for weight, _ in parts] == [1.0, 0.5, 0.0]
    assert [part.name for _, part in parts] == ["plain-bpe-0", "my.f", "likely"]
    assert [part.tasks for _, part in parts] == [None, "tasks.jsonl", None]
    assert spec.has_vocabulary
    for wrong in (3, {"weight": 1}, {"model": "plain-bpe-0", "weight": "x"}, {"model": 3}):
        with pytest.raises((ConfigError, ModelError)):
            SumSpec(name="s", parts=[wrong]).weighted()
