"""The front door: what is typed, what is refused, and that refusing costs nothing."""

import subprocess
import sys

import pytest

from pessimal.config.front_door import with_task
from pessimal.errors import ConfigError


def test_bare_verb_is_sugar_for_the_task():
    assert with_task(["scan", "model=a"]) == ["task=scan", "model=a"]
    assert with_task(["-m", "scan", "model=a,b"]) == ["-m", "task=scan", "model=a,b"]
    assert with_task(["scan", "model=a", "--cfg", "job"]) == ["--cfg", "job", "task=scan", "model=a"]


def test_unknown_verb_is_named_with_the_closest():
    with pytest.raises(ConfigError, match=r"unknown verb 'scna'\. Did you mean 'scan'\?"):
        with_task(["scna"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["scan", "bach_size=3"], "no option 'bach_size'. Did you mean 'batch_size'?"),
        (["scan", "model.nmae=x"], "no option 'model.nmae'. Did you mean 'name'?"),
        (["scan", "batch_size=many"], "'many' of type 'str' could not be converted to Integer"),
        (["scan", "batch_size=0"], "at least 1"),
        (["scan", "mode=idz"], "expected one of [ids, text, paper]"),
        (["scan", "model=oak"], "Could not find 'model/oak'"),
        (["scan", "prompts=gratest"], "Could not find 'prompts/gratest'"),
        (["scan", "prompts=[]"], "no prompts given"),
        (["scan", "model=auto"], "model.path"),
        (["scan", "model=auto", "model.path=/nowhere/at/all"], "neither a folder on this machine nor a Hub"),
        (["scan", "model.recipe.lab=oak"], "one of plain, alder"),
        (["scan", "candidates=items"], "candidates.path=FILE"),
        (["scan", "candidates=items", "mode=text", "candidates.path=none.txt"], "no such file"),
        (["scan", "candidates.path=none.txt"], "candidates=items"),
        (["scan", "tracking=nowhere"], "Could not find 'tracking/nowhere'"),
        (["scan", "experiment=none"], "Could not find 'experiment/none'"),
        (["scan", "a=["], "override"),
        (["train", "model=auto", "model.path=a/b"], "no recipe"),
        (["import"], "format=eloeverything path="),
        (["import", "format=elo", "path=x"], "expected one of [eloeverything, factorial54, vocabulary]"),
        (["import", "format=eloeverything", "path=none.csv"], "no such file"),
        (["compare"], "Scan or import first"),
        (["compare", "models=[nobody]"], "no score table of model 'nobody'"),
        (["compare", "tables=none.parquet"], "no such file"),
        (["compare", "confidence=95"], "between 0 and 1"),
        (["compare", "replicates=10"], "at least 100"),
        (["scan", "trainer=gpu"], "type trainer=cpu"),
        (["scan", "paths.root=/dev/null/x"], "cannot be written to"),
        (["scan", "paths.registry=/dev/null/x"], "cannot be written to"),
        (["scan", "model.name=模型"], "goes in quotes of its own"),
        (["report"], "pessimal compare"),
        (["scna"], "Did you mean 'scan'?"),
    ],
)
def test_mistakes_are_reported_in_one_piece_and_nothing_is_left_behind(command, tmp_path, arguments, message):
    code, out, err = command(*arguments)
    assert code == 2
    assert message in err
    assert err.startswith("pessimal: ")
    assert "Traceback" not in err
    assert out == ""
    assert not list(tmp_path.rglob("registry/*/*")), "no artifact of a run that was refused"


def test_mistake_in_a_sweep_says_in_which_job(command):
    code, _, err = command("scan", "-m", "batch_size=0,-1")
    assert code == 2
    assert "batch_size=0" in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], ["scan", "--cfg", "job"], ["scan", "--help"], ["scna"]]
)
def test_front_door_answers_without_torch(arguments, tmp_path):
    code = (
        "import sys; sys.argv[1:] = " + repr(arguments) + "\n"
        "from pessimal.__main__ import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'transformers', 'pytorch_lightning', 'wandb', 'pandas', 'scipy', 'matplotlib'} & set(sys.modules)\n"
        "print('HEAVY', sorted(heavy))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "HEAVY []"


def test_no_arguments_show_the_help_and_count_as_a_mistake(command):
    code, out, _ = command()
    assert code == 2
    for verb in ("train", "scan", "compare", "import", "report"):
        assert f"  {verb} " in out
