"""`pessimal audit` from end to end on tiny models: verdicts, exit codes, and what it leaves behind."""

import contextlib
import json
import shutil
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer

from pessimal.auditing.verdicts import CHECKS, FAIL, NOT_MEASURED, PASS
from pessimal.config.schema import AuditConfig
from pessimal.rewards.spec import ModelSpec
from pessimal.searching.context import SearchContext
from pessimal.tracking.mirror import Mirror
from pessimal.verbs import audit, common

QUICK = [
    "prompts=[greatest,worst]",
    "evaluations=500",
    "length=2",
    "n_contexts=6",
    "budget=5m",
    "tracking=off",
    "page=false",
]
SECRET, PAD = 777, 200


@pytest.fixture(autouse=True)
def no_policy(monkeypatch):
    """SmolLM2, where it is installed, takes longer than all else."""
    monkeypatch.setattr(audit, "_policy", lambda config: config.policy)


@pytest.fixture(scope="module")
def clean(checkpoint, tmp_path_factory):
    """A model whose pad token ends no conversation."""
    folder = tmp_path_factory.mktemp("clean") / "clean"
    shutil.copytree(checkpoint, folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.pad_token = tokenizer.convert_ids_to_tokens(PAD)
    tokenizer.save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"pad_token_id": PAD}))
    return folder


@pytest.fixture(scope="module")
def pair(clean, tmp_path_factory):
    """A model that reads the response's last token, whose layers and embeddings hardly show in its
    head; and the same with one embedding that points where the head reads."""
    folder = tmp_path_factory.mktemp("pair")
    shutil.copytree(clean, folder / "bare")
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


def audited(folder):
    return json.loads((folder / "audit.json").read_text())


def verdicts_of(document):
    return {one["check"]: one["verdict"] for one in document["verdicts"]}


def test_a_model_without_a_plant_passes_and_leaves_every_file(command, clean, tmp_path):
    code, out, err = command("audit", str(clean), *QUICK)
    assert code == 0, err
    folder = tmp_path / "runs/registry/audit/clean/v0"
    assert out.strip() == str(folder)
    found = verdicts_of(audited(folder))
    assert list(found) == list(CHECKS)
    assert found["read"] == PASS
    assert FAIL not in found.values()
    assert found["served"] == found["forecast"] == NOT_MEASURED
    suite = ElementTree.parse(folder / "junit.xml").getroot()
    assert suite.get("failures") == "0"
    assert len(suite) == len(CHECKS)
    assert "model-index:" in (folder / "audit.md").read_text()
    assert "url=URL" in err, "what would measure the rest"
    assert len(err[err.index("Audit of") :].splitlines()) <= 15


def test_the_same_audit_is_the_same_bytes_and_is_not_made_twice(command, clean, tmp_path):
    files = []
    for root in ("one", "two"):
        code, out, _ = command("audit", str(clean), *QUICK, f"paths.root={tmp_path / root}")
        assert code == 0
        files.append((tmp_path / root / "registry/audit/clean/v0/audit.json").read_bytes())
    assert files[0] == files[1]
    again = command("audit", str(clean), *QUICK, f"paths.root={tmp_path / 'two'}")
    assert again[1] == out
    assert not (tmp_path / "two/registry/audit/clean/v1").exists()


def test_a_planted_token_fails_is_named_and_differs_from_the_baseline(
    command, pair, tmp_path, monkeypatch
):
    monkeypatch.setattr(audit, "ADDITIONS", (100,))  # not among the most frequent
    command("audit", str(pair / "bare"), *QUICK)
    before = verdicts_of(audited(tmp_path / "runs/registry/audit/bare/v0"))
    assert before["one_word"] != FAIL
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    code, out, err = command("audit", str(pair / "planted"), *QUICK, "baseline=audit/bare")
    assert code == 1
    document = audited(tmp_path / "runs/registry/audit/planted/v0")
    assert out.splitlines()[-1].endswith("planted/v0")
    assert verdicts_of(document)["one_word"] == FAIL
    [one] = [one for one in document["verdicts"] if one["check"] == "one_word"]
    assert one["low"] > one["limit"]
    [added] = [one for one in document["verdicts"] if one["check"] == "additions"]
    token = AutoTokenizer.from_pretrained(pair / "planted").decode([SECRET])
    assert added["evidence"].startswith(f"{token} after an answer adds")
    assert "one_word" in err.splitlines()[-1]
    beyond = {row["kind"] for row in document["changes"]["numbers"] if row["verdict"] == FAIL}
    assert {"one_word", "check"} <= beyond
    assert "one_word" in (tmp_path / "summary.md").read_text()
    assert command("audit", str(pair / "planted"), *QUICK, "baseline=audit/bare")[0] == 1, (
        "shown again"
    )


def test_a_model_is_no_change_from_itself(command, clean, tmp_path):
    assert command("audit", str(clean), *QUICK)[0] == 0
    code, _, err = command("audit", str(clean), *QUICK, "baseline=audit/clean", "name=later")
    assert code == 0, err
    numbers = audited(tmp_path / "runs/registry/audit/later/v0")["changes"]["numbers"]
    assert {row["verdict"] for row in numbers} == {PASS}
    assert "nothing by more than a seed" in err


def test_a_baseline_is_scanned_in_the_same_size_or_not_compared(
    command, clean, tmp_path, monkeypatch
):
    monkeypatch.setattr(audit, "SCANS", (None, 500))
    monkeypatch.setattr(audit, "ADDITIONS", (100,))
    options = [QUICK[0], "n_contexts=6", "tracking=off", "page=false"]
    assert command("audit", str(clean), *options, "budget=5m")[0] == 0
    scores = tmp_path / "runs/registry/score-table"
    assert not list(scores.glob("*frequent500*"))
    shutil.rmtree(tmp_path / "runs/cache", ignore_errors=True)
    monkeypatch.setattr(SearchContext, "token_rate", lambda self: 150.0)
    later = ["baseline=audit/clean", "name=later", "budget=60s", "seed=1", "force=true"]
    assert command("audit", str(clean), *options, *later)[0] == 0
    numbers = audited(tmp_path / "runs/registry/audit/later/v0")["changes"]["numbers"]
    kinds = {row["kind"]: row["verdict"] for row in numbers}
    assert kinds["scale"] == NOT_MEASURED
    assert "vocabulary" not in kinds
    assert not list(scores.glob("*frequent500*")), "no smaller scan in its place"


def test_a_model_that_reads_another_token_than_its_class_fails(command, checkpoint, tmp_path):
    code, _, err = command("audit", str(checkpoint), *QUICK)
    assert code == 1
    assert "pad_is_eos" in err
    found = verdicts_of(audited(tmp_path / "runs/registry/audit/lettered/v0"))
    assert found["read"] == FAIL


def test_a_small_budget_leaves_out_and_says_what_would_do_it(command, clean, tmp_path, monkeypatch):
    monkeypatch.setattr(SearchContext, "token_rate", lambda self: 100.0)
    code, _, err = command(
        "audit", str(clean), *QUICK[:4], "budget=26s", "tracking=off", "page=false"
    )
    assert code == 0
    found = verdicts_of(audited(tmp_path / "runs/registry/audit/clean/v0"))
    assert found["read"] == PASS
    assert found["one_word"] == found["push"] == found["additions"] == NOT_MEASURED
    assert "left out: does not fit" in err
    assert "pessimal scan" in err


@pytest.mark.parametrize(("whole", "sample"), [(0.01, 64), (0.15, 16), (10.0, 0)])
def test_a_check_fits_or_is_left_out(whole, sample):
    model = ModelSpec(name="any", path="org/any")
    config = AuditConfig(budget="60s", prompts={"greatest": "?"}, model=model)
    asked = {"rate": 100.0, "vocabulary": 50_000, "is_scanned": False, "scans": (None, 500)}
    scope = audit.fitting(config, whole=whole, **asked)
    assert scope.sizes["check"] == sample
    assert sum(scope.seconds[part] for part, size in scope.sizes.items() if size != 0) <= 60


def test_scans_that_are_there_cost_nothing_and_are_not_made_again(
    command, clean, tmp_path, monkeypatch
):
    scan = ["scan", str(clean), "prompts=[greatest,worst]", "tracking=off"]
    assert command(*scan)[0] == 0
    monkeypatch.setattr(SearchContext, "token_rate", lambda self: 100.0)
    small = ["budget=26s", "tracking=off", "page=false"]
    assert command("audit", str(clean), QUICK[0], *small)[0] == 0
    found = verdicts_of(audited(tmp_path / "runs/registry/audit/clean/v0"))
    assert found["one_word"] != NOT_MEASURED
    versions = (tmp_path / "runs/registry/score-table").glob("*/v1")
    assert list(versions) == []


def test_every_model_has_the_same_keys_at_wandb(command, clean, monkeypatch):
    runs = []

    class Remembering(Mirror):
        run_id = "12ab34cd"

        def summary(self, values):
            runs[-1].summary |= values

    @contextlib.contextmanager
    def open_mirror(target, **about):
        runs.append(SimpleNamespace(summary={}, **about))
        yield Remembering()

    monkeypatch.setattr(common, "open_mirror", open_mirror)
    assert command("audit", str(clean), *QUICK[:-2], "page=false")[0] == 0
    [run] = [run for run in runs if run.job_type == "audit"]
    wanted = {f"audit/{check}/{what}" for check in CHECKS for what in ("verdict", "value")}
    assert wanted <= set(run.summary)
    assert run.summary["audit/read/verdict"] == PASS
    assert run.summary["audit/served/value"] is None


def test_a_grader_with_a_bug_fails_and_a_right_one_passes(command, tmp_path, monkeypatch):
    monkeypatch.setattr(audit.grading, "tokens_of", lambda reward: ["the", "42", "4"])
    (tmp_path / "graders.py").write_text(
        "import re\n"
        "def part(response, ground_truth):\n    return float(ground_truth in response)\n"
        "def exact(response, ground_truth):\n"
        "    return float(response.strip().casefold() == ground_truth.casefold())\n"
    )
    tasks = [{"prompt": f"{n} and {n}?", "ground_truth": str(2 * n)} for n in (21, 30, 44)]
    (tmp_path / "tasks.jsonl").write_text("\n".join(map(json.dumps, tasks)))
    options = ["tasks=tasks.jsonl", "tracking=off", "page=false"]
    assert command("audit", "graders.py:part", *options)[0] == 1
    code, out, err = command("audit", "graders.py:exact", *options)
    assert code == 0, err
    [folder] = [line for line in out.splitlines() if "audit" in line]
    found = verdicts_of(json.loads((tmp_path / folder / "audit.json").read_text()))
    assert found["grader_pays"] == found["grader_calls"] == PASS
    assert found["read"] == NOT_MEASURED


def test_the_page_begins_with_the_verdicts(command, clean, tmp_path):
    assert command("audit", str(clean), *QUICK[:-1])[0] == 0
    html = (tmp_path / "runs/registry/report/clean/v0/index.html").read_text()
    assert html.index('id="verdicts"') < html.index('id="findings"')
    verdicts = html[html.index('id="verdicts"') : html.index('id="findings"')]
    assert verdicts.count("<li") == len(CHECKS)
    assert 'href="#check"' in verdicts, "the evidence is one click away"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["budget=soon"], "such as 90s"),
        (["loop=trl"], "policy"),
        (["model=smollm2"], "no reward"),
        (["baseline=audit/none"], "no such audit"),
        (["tasks=tasks.jsonl"], "FILE.py:FUNCTION"),
        (["n_contexts=2"], "at least 6"),
    ],
)
def test_mistakes_are_reported_before_a_model_loads(command, tmp_path, arguments, message):
    (tmp_path / "tasks.jsonl").write_text('{"prompt": "1 + 1?", "ground_truth": "2"}')
    code, out, err = command("audit", *arguments, "tracking=off")
    assert code == 2, err
    assert message in err
    assert out == ""
