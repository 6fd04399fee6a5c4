"""Models by one word: a file of conf/model, a folder, or a Hub repository."""

import pytest

from pessimal.catalogue import is_named
from pessimal.config.models import spec_of
from pessimal.errors import ConfigError
from pessimal.rewards.spec import Kind


def test_a_name_of_conf_model_brings_what_its_file_says():
    spec = spec_of("Athene-RM-8B")
    assert (spec.path, spec.kind) == ("Nexusflow/Athene-RM-8B", Kind.head)
    assert spec_of("wordy-bpe-0").recipe is not None


def test_a_folder_and_a_repository_are_taken_as_paths_with_what_is_changed(tmp_path, monkeypatch):
    (tmp_path / "Athene-RM-8B").mkdir()
    (tmp_path / "Athene-RM-8B" / "config.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    assert not is_named("Athene-RM-8B")  # the folder goes before the name
    assert spec_of("Athene-RM-8B").path == "Athene-RM-8B"
    spec = spec_of("org/name", kind=Kind.log_probability, revision="main")
    assert (spec.path, spec.kind, spec.revision) == ("org/name", Kind.log_probability, "main")


def test_what_is_neither_is_refused_with_what_was_meant():
    with pytest.raises(ConfigError, match="Did you mean 'wordy-bpe-"):
        spec_of("wordy-bpe-O")


def test_a_name_is_found_within_a_job_of_hydra_too(command):
    """Where Hydra is running already, and composes nothing else."""
    code, _, err = command("explain", "fluency=wordy-bpe-0")
    assert code == 2
    assert "fluency=wordy-bpe-0: model.kind=log_probability" in err
