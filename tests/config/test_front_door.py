"""The front door: what is typed, what is answered, what is refused, and that neither waits for
torch."""

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import pessimal.cli as run
import quick_hydra
from pessimal.__main__ import main
from pessimal.cli import add_task, check_function, completed, print_help, split
from pessimal.config.compose import composed
from pessimal.config.schema import TASKS
from pessimal.errors import (
    ConfigError,
    IncompleteError,
    InputError,
    VerdictError,
    WorkError,
    get_exit_code,
)

ANSWERED = {
    "help": (["--help"], "pessimal VERB [KEY=VALUE …]"),
    "version": (["--version"], "0."),
    "config": (["scan", "--cfg", "job"], "task: scan"),
    "info": (["scan", "--info", "defaults"], "task/scan"),
    "hydra help": (["scan", "--hydra-help"], "--multirun"),
    "completion": (["-sc", "install=bash"], "hydra_bash_completion"),
} | {
    f"help of {verb}": ([verb, "--help"], f"pessimal {verb}")
    for verb in ("scan", "compare", "explain", "search")
}
"""Command lines, and what stands in their answer."""

MISTAKES = [
    (["scna"], "unknown verb 'scna'. Did you mean 'scan'?"),
    (["scan", "bach_size=3"], "no option 'bach_size'. Did you mean 'batch_size'?"),
    (["scan", "batch_size=many"], "'many' of type 'str' could not be converted to Integer"),
    (["scan", "mode=idz"], "expected one of [ids, text, paper]. Did you mean 'ids'?"),
    (["scan", "model=plain-wordpeice-0"], "Did you mean 'plain-wordpiece-0'?"),
    (["scan", "prompts=gratest"], "Could not find 'prompts/gratest'. Did you mean 'greatest'?"),
    (["scan", "prompts=[]"], "no prompts given"),
    (["scan", "model=auto", "model.path=/nowhere/at/all"], "no folder"),
    (["scan", "model=auto", "model.path=no-weights"], "holds no *.safetensors"),
    (["scan", "model=auto", "model.path=language-model"], "model.kind=log_probability"),
    (["scan", "candidates=items"], "candidates.path=FILE"),
    (["scan", "candidates=items", "candidates.path=items.txt", "mode=ids"], "type mode=text"),
    (["scan", "org/nowhere"], "cannot be fetched"),
    (["search", "functions.py:f"], "not callable"),
    (["org/name"], "pessimal scan org/name"),
    (["scan", "a=["], "override"),
    (["scan", "paths.root=/dev/null/x"], "cannot be written to"),
    (["explain", "comparisons=jsonl", "comparisons.path=none.jsonl"], "none.jsonl"),
    (
        ["import", "format=elo", "path=x"],
        "expected one of [eloeverything, factorial54, vocabulary, checkpoints, pairs]",
    ),
    (["compare"], "Scan or import first"),
    (
        ["compare", "confidence=95"],
        "above 0 and below 1 is needed; type for example confidence=0.95",
    ),
    (["scan", "-m", "batch_size=0,-1"], "batch_size=0"),
]
"""Command lines, and what the refusal says."""

RUN_ALL = """
import contextlib, functools, gc, io, json, sys
from hydra._internal.hydra import Hydra
from hydra.core.global_hydra import GlobalHydra
from pessimal.__main__ import main
from pessimal.catalogue import CONF
import pessimal.cli as run
from quick_hydra import quicken
quicken()
gc.set_threshold(100_000)
run.register = functools.cache(run.register)
Hydra.get_mode = lambda *_, **__: None
for line in json.loads(sys.stdin.read()):
    GlobalHydra.instance().clear()
    sys.argv[1:] = line
    out, err, code = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as stop:
            code = int(stop.code or 0)
    heavy = ["torch", "transformers", "pytorch_lightning", "wandb", "pandas", "scipy", "matplotlib"]
    print(json.dumps([code, out.getvalue(), err.getvalue(), [m for m in heavy if m in sys.modules]]))
"""
"""One interpreter for all command lines: what one of them imported stays, so that the last line
knows of all. As in `tests/conftest.py`, no line is composed twice."""


@pytest.fixture(scope="module")
def answers(tmp_path_factory) -> tuple[dict, dict]:
    """Exit code, stdout, stderr and heavy modules of every command line: of those that are
    answered, by name, and of the mistakes, by their place in the list."""
    folder = tmp_path_factory.mktemp("front-door")
    (folder / "items.txt").write_text("love\nhate\n")
    (folder / "no-names.csv").write_text("word,n\nlove,1\n")
    (folder / "no-weights").mkdir()
    (folder / "no-weights" / "config.json").write_text("{}")
    (folder / "language-model").mkdir()
    (folder / "language-model" / "config.json").write_text(
        '{"architectures": ["LlamaForCausalLM"]}'
    )
    header = json.dumps(
        {"model.norm.weight": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}
    ).encode()
    (folder / "language-model" / "model.safetensors").write_bytes(
        len(header).to_bytes(8, "little") + header + b"\0" * 4
    )
    lines = [line for line, _ in (*ANSWERED.values(), *MISTAKES)]
    done = subprocess.run(
        [sys.executable, "-c", RUN_ALL],
        input=json.dumps(lines),
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
        env=os.environ
        | {
            "HF_HUB_OFFLINE": "1",
            "HF_HOME": str(folder / "hub"),
            "PYTHONPATH": os.pathsep.join([str(Path(quick_hydra.__file__).parent), *sys.path]),
        },
    )
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(found) == len(lines)
    assert not list(folder.rglob("registry/*/*")), "no artifact of a run that was refused"
    return dict(zip(ANSWERED, found, strict=False)), dict(enumerate(found[len(ANSWERED) :]))


@pytest.mark.parametrize("name", ANSWERED)
def test_a_question_is_answered_without_anything_heavy(answers, name):
    code, out, err, heavy = answers[0][name]
    assert (code, heavy) == (0, [])
    assert ANSWERED[name][1] in out + err


@pytest.mark.parametrize("case", range(len(MISTAKES)), ids=[" ".join(line) for line, _ in MISTAKES])
def test_a_mistake_is_reported_in_one_piece_and_without_torch(answers, case):
    line, message = MISTAKES[case]
    code, out, err, heavy = answers[1][case]
    assert code == 2
    assert message in err
    lines = [one for one in err.splitlines() if "loading its libraries" not in one]
    assert "-m" in line or lines[0].startswith("pessimal: ")
    assert "Traceback" not in err
    assert out == ""
    assert not {"torch", "transformers", "wandb"} & set(heavy)


def test_a_path_that_hydra_would_read_is_quoted(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("run#7", "epoch=3-step=40"):
        Path(name).mkdir()
        assert add_task(["check", f"model.path={name}"]) == ["task=check", f'model.path="{name}"']
    assert add_task(["check", "model.path=run#8"]) == ["task=check", "model.path=run#8"]
    Path("epoch=3-step=40/rewards.py").touch()
    bare = add_task(["scan", "epoch=3-step=40/rewards.py:reward"])
    assert any("callable" in override for override in bare)


def test_bare_verb_is_sugar_for_the_task():
    assert add_task(["scan", "model=a"]) == ["task=scan", "model=a"]
    assert add_task(["-m", "scan", "model=a,b"]) == ["task=scan", "model=a,b", "-m"]
    assert add_task(["scan", "model=a", "--cfg", "job"]) == [
        "task=scan",
        "model=a",
        "--cfg",
        "job",
    ]
    assert add_task(["--info", "scan"]) == ["task=scan", "--info"]
    assert split(["task=scan", "--cfg", "job", "-m"]) == (["task=scan"], {"--cfg": "job", "-m": ""})
    with pytest.raises(ConfigError, match="is no model"):
        add_task(["scan", "model"])


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("org/name", ["model=auto", 'model.path="org/name"']),
        ("my.py:f", ["model=callable", 'model.callable._target_="my.py:f"']),
        ("http://host:8000/v1", ["model=endpoint", 'model.endpoint.url="http://host:8000/v1"']),
        ("plain-bpe-0", ["model=plain-bpe-0"]),
    ],
)
def test_a_model_is_named_like_a_model_on_every_verb(typed, meant):
    meant = meant or ["model=auto", f'model.path="{typed}"']
    for verb in ("audit", "scan", "search", "explain", "check"):
        assert add_task([verb, typed]) == [f"task={verb}", *meant]
        assert add_task([verb, f"model={typed}"]) == [f"task={verb}", *meant]
    assert add_task(["scan", "-m", "model=a/b,c/d"])[1:3] == [
        "model=auto",
        'model.path="a/b","c/d"',
    ]
    assert add_task(["compare", "a/b", "my.py:f"]) == ["task=compare", 'models=["a/b","my.py:f"]']


def test_a_line_is_completed(monkeypatch):
    monkeypatch.setenv("COMP_LINE", "")
    assert completed("pessimal sc") == ["scan"]
    assert set(completed("pessimal -m ")) == set(TASKS)
    assert completed("pessimal scan mode=") == ["mode=ids", "mode=text", "mode=paper"]
    assert completed("pessimal scan trainer.accelerator=c") == [
        "trainer.accelerator=cpu",
        "trainer.accelerator=cuda",
    ]
    assert completed("pessimal search search.allowed=") is None, "which takes a list"
    assert completed("pessimal scan model=pl") is None
    assert completed("pessimal scan model.dtype=bf") == ["model.dtype=bfloat16"]
    assert completed("pessimal scan model.kind=j") == ["model.kind=judge"]
    assert os.environ["COMP_LINE"] == "pessimal task=scan model=pl"


@pytest.mark.parametrize(
    ("verb", "by_lightning", "code"),
    [("scan", False, 130), ("train", True, 130), ("compare", False, 143), ("search", True, 143)],
)
def test_ctrl_c_exits_with_130_and_sigterm_with_143_in_every_verb(
    verb, by_lightning, code, monkeypatch, capsys
):
    def interrupted(config, **_):
        try:
            if code == 130:
                raise KeyboardInterrupt
            signal.raise_signal(signal.SIGTERM)
        except KeyboardInterrupt:
            if by_lightning:  # which makes an exit with 1 of it
                sys.exit(1)
            raise

    monkeypatch.setattr(run, "run_hydra", lambda: run.dispatch(TASKS[verb]))
    monkeypatch.setattr(run, "dispatch", interrupted)
    monkeypatch.setattr(sys, "argv", ["pessimal", verb, "model=plain-bpe-0"])
    handler = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as ended:
        main()
    signal.signal(signal.SIGTERM, handler)
    assert ended.value.code == code
    assert "stopped" in capsys.readouterr().err


@pytest.mark.slow
def test_output_that_nobody_reads_ends_quietly():
    line = f"{sys.executable} -m pessimal scan --help | head -1; echo ${{PIPESTATUS[0]}}"
    ran = subprocess.run(["bash", "-c", line], capture_output=True, text=True)
    assert ran.stderr == ""
    assert ran.stdout.endswith("\n0\n")


@pytest.mark.parametrize("verb", ["audit", "explain", "scan"])
def test_help_of_a_verb_fits_two_screens_and_names_what_it_leaves_out(verb, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "110")
    print_help([f"task={verb}"], {})
    said = capsys.readouterr().out
    assert said.count("\n") <= 80
    assert f"pessimal {verb} --help=GROUP" in said
    with pytest.raises(ConfigError, match="modle"):
        print_help([f"task={verb}"], {}, "modle")


@pytest.mark.parametrize("typed", ["{}", "model={}"])
def test_a_folder_may_have_an_equals_sign_in_its_name(typed, tmp_path):
    (folder := tmp_path / "rate=0.1").mkdir()
    config = composed(add_task(["scan", *typed.format(folder).split()]))
    assert config["model"]["path"] == str(folder)


def test_the_configuration_of_every_job_of_a_sweep_is_printed(monkeypatch, capsys):
    line = "pessimal scan -m model=smollm2,smollm2-judge prompts=greatest --cfg job"
    monkeypatch.setattr(sys, "argv", line.split())
    main()
    jobs = list(yaml.safe_load_all(capsys.readouterr().out.replace("# job", "---\n# job")))
    assert [job["model"]["name"] for job in jobs if job] == ["smollm2", "smollm2-judge"]


@pytest.mark.parametrize(
    ("failures", "code"),
    [
        ([WorkError("down"), VerdictError("fails"), RuntimeError("ours")], 1),
        ([WorkError("down"), IncompleteError("core"), OSError(errno.ENOSPC, "full")], 3),
        ([None, None, None], 0),
    ],
)
def test_a_sweep_does_all_its_jobs_and_exits_with_the_code_of_the_worst(
    command, monkeypatch, failures, code
):
    rest = iter(failures)

    def fail(config, **_):
        if (failure := next(rest)) is not None:
            raise failure

    monkeypatch.setattr(run, "dispatch", fail)
    ended, _, err = command("scan", "plain-bpe-0", "-m", "prompts=greatest,best,worst")
    assert ended == code
    assert next(rest, None) is None
    assert "Traceback" not in err
    last = err.rpartition("Error executing job with overrides: ")[2]
    job = next((i for i, f in enumerate(failures) if f and get_exit_code(f) == code), None)
    assert job is None or f"prompts={['greatest', 'best', 'worst'][job]}" in last


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (VerdictError("fails"), 1),
        (ConfigError("typo"), 2),
        (IncompleteError("core"), 3),
        (OSError(errno.ENOSPC, "full"), 4),
        (ZeroDivisionError("ours"), 4),
    ],
)
def test_each_end_has_a_code_of_its_own(command, monkeypatch, failure, code):
    def fail(config, **_):
        raise failure

    monkeypatch.setattr(run, "dispatch", fail)
    assert command("scan", "plain-bpe-0")[0] == code


@pytest.mark.parametrize("name", ["f", "Rewards.score", "alias"])
def test_a_function_of_a_file_is_looked_for_before_torch_is_loaded(tmp_path, name):
    file = tmp_path / "mine.py"
    text = "from json import loads\ndef f(prompt, response):\n    raise RuntimeError\n"
    file.write_text(
        text + "class Rewards:\n    def score(self): ...\nalias = f\nif f:\n    later = f\n"
    )
    check_function(str(file), name)
    file.write_text("from json import *\n")
    check_function(str(file), name)  # may be there
    file.write_text("def other(): ...\n")
    with pytest.raises(InputError, match="It has: other"):
        check_function(str(file), name)
    file.write_text("def (")
    with pytest.raises(InputError, match="Python"):
        check_function(str(file), name)
