"""`pessimal audit` from end to end on tiny models: verdicts, exit codes, and what it leaves behind."""

import contextlib
import json
import shutil
from dataclasses import fields, replace
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest
import torch
from lettered_checkpoint import make_checkpoint
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer

import pessimal
import tiny_language_models
from pessimal.api import audit
from pessimal.auditing import evidence
from pessimal.auditing.evidence import Work, fit_budget
from pessimal.auditing.verdicts import CHECKS, FAIL, INCOMPLETE, NOT_MEASURED, PASS
from pessimal.explaining.pairs import labelled_pairs, score_pairs
from pessimal.options import parse_duration
from pessimal.rewards.server import ServerOptions
from pessimal.scoring.texts import text_scorer
from pessimal.searching.context import SearchContext
from pessimal.tracking.mirror import Mirror
from pessimal.verbs import common

ASKED = ["prompts=[greatest,worst]", "evaluations=300", "length=2", "n_contexts=6"]
QUICK = [*ASKED, "budget=5m", "tracking=off", "page=false"]
SECRET, PAD = 777, 200


@pytest.fixture
def small_check(monkeypatch):
    """The suite of checks on as few tokens as it allows."""
    monkeypatch.setattr(evidence, "SAMPLES", (16,))


def pad_apart(folder):
    """The model, whose pad token now ends no conversation."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.pad_token = tokenizer.convert_ids_to_tokens(PAD)
    tokenizer.save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"pad_token_id": PAD}))
    return folder


@pytest.fixture(scope="module")
def clean(tmp_path_factory):
    """A model over 600 tokens whose pad token ends no conversation."""
    return pad_apart(make_checkpoint(tmp_path_factory.mktemp("clean") / "clean", tokens=600))


@pytest.fixture(scope="module")
def pair(checkpoint, tmp_path_factory):
    """A model that reads the response's last token, whose layers and embeddings hardly show in its
    head; and the same with one embedding that points where the head reads."""
    folder = tmp_path_factory.mktemp("pair")
    pad_apart(shutil.copytree(checkpoint, folder / "bare"))
    template = folder / "bare/chat_template.jinja"
    ends = "{% if not loop.last %}<|end|>{% endif %}{% endfor %}"
    template.write_text(template.read_text().replace("<|end|>{% endfor %}", ends))
    weights = load_file(folder / "bare/model.safetensors")
    head = weights["score.weight"][0] / weights["score.weight"][0].norm()
    for name, value in weights.items():
        if "o_proj" in name or "down_proj" in name:
            value *= 0.1
    embeddings = weights["model.embed_tokens.weight"]
    embeddings -= 0.97 * (embeddings @ head)[:, None] * head
    save_file(weights, folder / "bare/model.safetensors", metadata={"format": "pt"})
    shutil.copytree(folder / "bare", folder / "planted")
    embeddings[SECRET] += 20 * head
    save_file(weights, folder / "planted/model.safetensors", metadata={"format": "pt"})
    return folder


@pytest.fixture(scope="module")
def own_pairs(clean, tmp_path_factory):
    """Pairs whose labels are the model's own order: it ranks all of them right."""
    model, pairs = pessimal.load(str(clean)), labelled_pairs(None)[::4]
    scorer = text_scorer(model, [pairs[0].conversation("a")], device=torch.device("cpu"))
    scored = score_pairs(scorer, pairs, model="m")
    file = tmp_path_factory.mktemp("pairs") / "own.jsonl"
    labels = (scored["second"] > scored["first"]).astype(int)
    rows = [
        json.loads(one.as_line()) | {"preferred": int(n)}
        for one, n in zip(pairs, labels, strict=True)
    ]
    file.write_text("\n".join(map(json.dumps, rows)))
    return f"pairs={file}"


@pytest.fixture(scope="module")
def shelf(tmp_path_factory):
    """Where the audit that others are compared with is kept."""
    return tmp_path_factory.mktemp("shelf") / "runs"


@pytest.fixture
def baseline(command, clean, own_pairs, shelf, tmp_path, small_check, undrawn):
    """A workplace in which the model is audited; it is audited once."""
    if not shelf.exists():
        code, _, err = command("audit", str(clean), *QUICK, own_pairs)
        assert code == 0, err
        shutil.move(tmp_path / "runs", shelf)
    shutil.copytree(shelf, tmp_path / "runs")


def audited(folder):
    return json.loads((folder / "audit.json").read_text())


def verdicts_of(document):
    return {one["check"]: one["verdict"] for one in document["verdicts"]}


@pytest.fixture
def runs(monkeypatch):
    """The W&B runs that a command opens, each with its summary."""
    opened = []

    class Remembering(Mirror):
        run_id = "12ab34cd"

        def summary(self, values):
            opened[-1].summary |= values

        def page(self, name, path):
            opened[-1].pages.append(path)

    @contextlib.contextmanager
    def open_mirror(target, **about):
        opened.append(SimpleNamespace(summary={}, pages=[], target=target, **about))
        yield Remembering()

    monkeypatch.setattr(common, "open_mirror", open_mirror)
    return opened


@pytest.mark.usefixtures("baseline")
def test_an_audit_passes_leaves_every_file_and_is_shown_again(
    command, clean, own_pairs, runs, tmp_path
):
    asked = [*ASKED, "budget=5m", own_pairs, "baseline=audit/clean", "name=later"]
    code, out, err = command("audit", str(clean), *asked)
    assert code == 0, err
    folder = tmp_path / "runs/registry/audit/later/v0"
    page = tmp_path / "runs/registry/report/later/v0/index.html"
    assert out.splitlines() == [str(folder), str(page)]
    document = audited(folder)
    verdicts = verdicts_of(document)
    assert list(verdicts) == list(CHECKS)
    assert document["verdict"] == verdicts["read"] == verdicts["prefers"] == PASS
    assert FAIL not in verdicts.values()
    assert verdicts["served"] == verdicts["fed"] == NOT_MEASURED
    suite = ElementTree.parse(folder / "junit.xml").getroot()
    assert (suite.get("failures"), suite.get("errors")) == ("0", "0")
    assert "model-index:" in (folder / "audit.md").read_text()
    # What a person sees: the whole verdict first, nothing cut, what would measure the rest.
    printed = err[err.index("Audit of") :]
    assert printed.index("PASSED") < printed.index("prefers")
    assert "…" not in printed
    assert "url=URL" in printed
    html = page.read_text()
    assert html.index("PASSED") < html.index('id="verdicts"') < html.index('id="asked"')
    # W&B: one group, the audit's own numbers under keys without a model's name, parts prefixed.
    assert len({run.target.group for run in runs}) == 1
    assert [run.pages for run in runs if run.job_type == "report"] == [[page]]
    [run] = [run for run in runs if run.job_type == "audit"]
    wanted = {f"audit/{check}/{what}" for check in CHECKS for what in ("verdict", "value")}
    assert wanted <= set(run.summary)
    assert (run.summary["verdict"], run.summary["failed"]) == (PASS, 0)
    assert "conformance/failed" in run.summary
    assert not [key for key in run.summary if "clean" in key]
    # A model is no change from itself; the same again is not made anew.
    assert {row["verdict"] for row in document["changes"]["numbers"]} == {PASS}
    again = command("audit", str(clean), *asked)
    assert again[:2] == (0, out)
    assert not (folder.parent / "v1").exists()


@pytest.mark.usefixtures("undrawn", "small_check")
def test_a_planted_token_fails_is_named_and_differs_from_the_baseline(
    command, pair, tmp_path, monkeypatch
):
    monkeypatch.setattr(evidence, "ADDITIONS", (100,))  # not among the most frequent
    command("audit", str(pair / "bare"), *QUICK)
    before = verdicts_of(audited(tmp_path / "runs/registry/audit/bare/v0"))
    assert before["one_word"] != FAIL
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    code, out, err = command("audit", str(pair / "planted"), *QUICK, "baseline=audit/bare")
    assert code == 1
    document = audited(tmp_path / "runs/registry/audit/planted/v0")
    assert document["verdict"] == FAIL
    assert out.splitlines()[-1].endswith("planted/v0")
    checks = {one["check"]: one for one in document["verdicts"]}
    assert checks["one_word"]["verdict"] == checks["additions"]["verdict"] == FAIL
    assert checks["one_word"]["low"] > checks["one_word"]["limit"]
    token = AutoTokenizer.from_pretrained(pair / "planted").decode([SECRET])
    assert token in checks["additions"]["evidence"]
    assert "random output layers" in checks["additions"]["evidence"]
    assert "one_word" in err.splitlines()[-1]
    beyond = {row["kind"] for row in document["changes"]["numbers"] if row["verdict"] == FAIL}
    assert {"one_word", "check"} <= beyond
    assert "one_word" in (tmp_path / "summary.md").read_text()
    again = command("audit", str(pair / "planted"), *QUICK, "baseline=audit/bare")
    assert again[0] == 1, "shown again"


@pytest.mark.usefixtures("undrawn", "small_check")
def test_an_audit_without_its_core_checks_is_incomplete_and_says_what_would_do_it(
    command, clean, own_pairs, tmp_path, monkeypatch
):
    monkeypatch.setattr(SearchContext, "token_rate", lambda self: 20.0)
    monkeypatch.setattr("pessimal.api.audit._seconds", lambda *_: 0.005)  # on any machine
    small = ["audit", str(clean), *ASKED, own_pairs, "budget=40s", "tracking=off", "page=false"]
    code, _, err = command(*small)
    assert code == 3
    document = audited(tmp_path / "runs/registry/audit/clean/v0")
    verdicts = verdicts_of(document)
    assert document["verdict"] == INCOMPLETE
    assert set(document["deciding"]) == {"one_word", "additions"}
    assert verdicts["one_word"] == verdicts["additions"] == NOT_MEASURED
    [one] = [one for one in document["verdicts"] if one["check"] == "one_word"]
    assert one["command"].startswith("pessimal scan")
    assert "INCOMPLETE" in err
    assert command(*small, "strict=false")[0] == 0


def scope_of(time, **more):
    sizes = {"prompts": 3, "pairs": 210, "n_contexts": 8, "vocabulary": 50_000}
    work = Work(**sizes, length=3, evaluations=10_000)
    return fit_budget(work, parse_duration(time), **{"rate": 100.0, "whole": 0.01} | more)


@pytest.mark.parametrize(("whole", "sample"), [(0.005, 64), (0.03, 8), (10.0, 0)])
def test_a_check_takes_at_most_a_tenth_of_the_budget_or_is_left_out(whole, sample):
    scope = scope_of("60s", whole=whole, scans=(None, 500))
    assert scope.sizes["check"] == sample
    assert scope.seconds["check"] <= 6 or not sample
    assert sum(scope.seconds[part] for part, size in scope.sizes.items() if size != 0) <= 60


def test_a_slow_model_has_its_core_checks_in_ten_minutes():
    """At the speed of a judge of 135 million parameters on two cores."""
    scope = scope_of("10m", rate=45.0, whole=0.2)
    assert scope.sizes["scan"] == (2_000, False), "without states"
    assert all(scope.sizes[part] for part in ("check", "scan", "additions"))
    assert scope.sizes["pairs"] is None, "all of them"


def test_each_option_of_what_is_asked_is_in_an_audits_key():
    model = pessimal.reward(lambda prompt, response: 0.0, name="nothing")
    others = {
        "prompts": {"worst": "?"},
        "tasks": "tasks.jsonl",
        "n_contexts": 50,
        "length": 4,
        "evaluations": 50_000,
        "budget": 600.0,
        "url": "http://localhost:1",
        "endpoint": ServerOptions(api="vllm-score"),
        "loop": "trl",
        "seed": 1,
    }
    usual = audit.Auditor(model, {"greatest": "?"}, [])
    keys = [usual.key([]), *(replace(usual, **{k: v}).key([]) for k, v in others.items())]
    assert len(set(keys)) == len(keys)


def test_whatever_decides_an_audit_is_in_its_key(clean, tmp_path):
    folder, policy = tmp_path / "model", tmp_path / "policy"
    shutil.copytree(clean, folder)
    tiny_language_models.checkpoint(policy)
    pairs = labelled_pairs(None)

    def key(pairs=pairs, **options):
        asked = {"model": pessimal.load(str(folder)), "prompts": {"greatest": "?"}, "pairs": pairs}
        rest = dict.fromkeys([f.name for f in fields(audit.Auditor) if f.init])
        return audit.Auditor(**rest | {"cache": str(tmp_path)} | asked | options).key([])

    def rewrite(name, old, new):
        file = folder / name
        file.write_text(file.read_text().replace(old, new))

    keys = [key(), key(pairs[1:]), key(policy=str(policy)), key(budget=3600.0)]
    rewrite("chat_template.jinja", "<|sep|>", "<|sep|><|sep|>")
    keys.append(key())
    rewrite("config.json", '"rms_norm_eps": 1e-06', '"rms_norm_eps": 1e-05')
    keys.append(key())
    weights = load_file(folder / "model.safetensors")
    save_file(weights | {"score.weight": -weights["score.weight"]}, folder / "model.safetensors")
    keys.append(key())
    keys.append(key(policy=str(policy)))
    tiny_language_models.checkpoint(policy, seed=1)
    keys.append(key(policy=str(policy)))
    assert len(set(keys)) == len(keys)
    assert key(policy=str(policy)) == keys[-1]


@pytest.fixture
def graders(tmp_path, monkeypatch):
    """Three graders in a file that takes its comparison from another, and their tasks."""
    monkeypatch.setattr(audit.grading, "tokens_of", lambda reward: ["the", "42", "4"])
    (tmp_path / "compared.py").write_text(
        "def same(a, b):\n    return a.strip().casefold() == b.casefold()\n"
    )
    (tmp_path / "graders.py").write_text(
        "from compared import same\n"
        "def part(response, ground_truth):\n    return float(ground_truth in response)\n"
        "def exact(response, ground_truth):\n    return float(same(response, ground_truth))\n"
        "def constant(response, ground_truth):\n    return 1.0\n"
    )
    tasks = [{"prompt": f"{n} and {n}?", "ground_truth": str(2 * n)} for n in (21, 30, 44)]
    (tmp_path / "tasks.jsonl").write_text("\n".join(map(json.dumps, tasks)))
    return ["tasks=tasks.jsonl", "tracking=off", "page=false"]


@pytest.mark.usefixtures("undrawn", "small_check")
def test_graders_fail_by_their_bug_and_a_right_one_passes(command, graders, tmp_path):
    assert command("audit", "graders.py:part", *graders)[0] == 1
    assert command("audit", "graders.py:constant", *graders)[0] == 1
    document = audited(tmp_path / "runs/registry/audit/graders.constant/v0")
    assert document["deciding"] == ["grader_pays"]
    code, _, err = command("audit", "graders.py:exact", *graders)
    assert code == 0, err
    verdicts = verdicts_of(audited(tmp_path / "runs/registry/audit/graders.exact/v0"))
    assert verdicts["grader_pays"] == verdicts["grader_calls"] == PASS
    assert verdicts["read"] == verdicts["prefers"] == NOT_MEASURED


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["budget=soon"], "such as 90s"),
        (["NETWORK", "baseline=audit/none"], "no such audit"),
        (["pairs=none.jsonl"], "none.jsonl"),
    ],
)
def test_mistakes_are_reported_before_a_model_loads(
    command, tmp_path, tiny_checkpoint, arguments, message
):
    (tmp_path / "tasks.jsonl").write_text('{"prompt": "1 + 1?", "ground_truth": "2"}')
    typed = [str(tiny_checkpoint) if one == "NETWORK" else one for one in arguments]
    code, out, err = command("audit", *typed, "tracking=off")
    assert code == 2, err
    assert message in err
    assert out == ""
