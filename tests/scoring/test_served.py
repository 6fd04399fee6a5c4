"""Every fault that is planted in a server is named, and a right one is called right, whatever its
batches."""

import copy
import functools
import itertools
import json

import numpy as np
import pandas as pd
import pytest
import torch
from planted_server import Planted, listening
from torch import nn
from transformers import LlamaConfig, LlamaForSequenceClassification

from pessimal.checking import served
from pessimal.checking.served import checks_of, diagnose
from pessimal.rewards.reward_model import wrap

PROMPT = "What, in one word, is the greatest thing ever?"


def head(seed: int, outputs: int = 1) -> nn.Linear:
    torch.manual_seed(seed)
    made = nn.Linear(32, outputs, bias=False)
    nn.init.normal_(made.weight, std=0.02)
    return made


@pytest.fixture(scope="module")
def deep(model):
    """The tiny model in memory, so that it is loaded once."""
    return wrap(model.network(), model.tokenizer, name="tiny")


@pytest.fixture(scope="module")
def tiny(model):
    """The same without its second layer, which takes half of the time."""
    network = model.network()
    network.model.layers, network.config.num_hidden_layers = network.model.layers[:1], 1
    return wrap(network, model.tokenizer, name="tiny")


@pytest.fixture(scope="module")
def base(tiny):
    """What an adapter was trained on: other weights, another head."""
    network = copy.deepcopy(tiny.held)
    torch.manual_seed(1)
    for weight in network.model.parameters():
        weight.data += 0.05 * torch.randn_like(weight)
    network.score = head(2)
    return wrap(network, tiny.tokenizer, name="base")


@functools.cache
def refusal(dtype: torch.dtype) -> str:
    """Why torch's own attention does not run in low precision here; empty where it does. Some
    processors whose capability is forced down (ATEN_CPU_CAPABILITY) stop at some shapes: tried on
    those of a diagnosis."""
    for rows, length in itertools.product((1, 5, 16), (13, 32, 64, 95, 146)):
        query, keys = (torch.zeros(rows, heads, length, 8, dtype=dtype) for heads in (4, 2))
        mask = torch.ones(rows, 1, length, length, dtype=torch.bool)
        attention = torch.nn.functional.scaled_dot_product_attention
        try:
            attention(query, keys, keys, is_causal=True, enable_gqa=True)
            attention(query, query, query, attn_mask=mask)
        except RuntimeError as error:
            return f"torch's attention does not run in {dtype} here: {error}"
    return ""


def needs_attention_in(dtype: torch.dtype) -> None:
    if why := refusal(dtype):
        pytest.skip(why)


@pytest.fixture(autouse=True)
def skipped_where_torch_refuses(monkeypatch):
    """Ends a test that comes to a precision in which torch's own attention does not run."""
    inner = served.Diagnosis.deviations.func

    def deviations(answers):
        for level in served.LEVELS:
            needs_attention_in(getattr(torch, level.value))
        return inner(answers)

    monkeypatch.setattr(served.Diagnosis, "deviations", property(deviations))


FAULTS = {
    "softmax": ({"after": lambda logits: logits.softmax(-1)}, ["activation"]),
    "sigmoid": ({"after": torch.sigmoid}, ["activation"]),
    "log-sigmoid": ({"after": nn.functional.logsigmoid}, ["monotone"]),
    "another scale": ({"after": lambda logits: 2 * logits + 1}, ["scale"]),
    "another sign": ({"after": lambda logits: -logits}, ["scale"]),
    # Behind a norm without weights all states are of one length.
    "normalised state": ({"state": "normalised"}, ["scale"]),
    "first token": ({"pool": "first"}, ["unknown"]),
    "the end token is the pad token": ({"pool": "not pad"}, ["unknown"]),
    "two outputs": ({"head": head(4, 2)}, ["outputs"]),
    "doubled BOS": ({"bos": 1}, ["other_tokens"]),
    "missing end": ({"cut": 1}, ["other_tokens"]),
    "the padding is read": ({"pool": "row"}, ["batch"]),
    "another order": ({"together": lambda scores: scores[::-1]}, ["batch"]),
    "the first answer for all": ({"together": lambda x: 0 * x + x[0]}, ["batch"]),
    "sigmoid, doubled BOS": ({"after": torch.sigmoid, "bos": 1}, ["activation", "other_tokens"]),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_named(tiny, deep, name):
    options, faults = FAULTS[name]
    model = deep if "padding" in name else tiny  # after one layer its tokens are much alike
    server = Planted(model.held, model.tokenizer, **options)
    found = diagnose(server, model, prompt=PROMPT)
    assert [part.fault for part in found.faults] == faults
    assert server.sent == len(found.served) <= 200
    assert not found.harmless
    assert any(check.passed is False for check in checks_of(found))


def test_dropout_left_on_is_named(tiny):
    """Whatever else is wrong: of answers that change nothing else can be said."""
    server = Planted(tiny.held, tiny.tokenizer)
    server.network.score = nn.Sequential(nn.Dropout(0.1), server.network.score).train()
    found = diagnose(server, tiny, prompt=PROMPT)
    assert [part.fault for part in found.faults] == ["unrepeatable"]


def less_the_mean_so_far(memory, scores):
    memory.extend(scores.ravel())
    return scores - np.mean(memory)


def first_is_zero(memory, scores):
    memory.append(scores)
    return 0 * scores if len(memory) == 1 else scores


@pytest.mark.parametrize(
    ("whole", "fault"), [(less_the_mean_so_far, "unrepeatable"), (first_is_zero, "unknown")]
)
def test_answers_that_depend_on_other_requests(tiny, whole, fault):
    """Neither dropout nor a precision is blamed for them."""
    right, memory = Planted(tiny.held, tiny.tokenizer), []
    found = diagnose(lambda inputs: whole(memory, right(inputs)), tiny, prompt=PROMPT)
    assert [part.fault for part in found.faults] == [fault]
    assert not found.harmless


@pytest.fixture(scope="module")
def long_one(tiny):
    """A model that reads 2,300 tokens."""
    torch.manual_seed(1)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1}
    config = LlamaConfig(
        vocab_size=len(tiny.tokenizer),
        num_attention_heads=2,
        num_labels=1,
        initializer_range=0.3,
        max_position_embeddings=2300,
        pad_token_id=tiny.tokenizer.pad_token_id,
        **sizes,
    )
    return wrap(LlamaForSequenceClassification(config), tiny.tokenizer)


@pytest.mark.parametrize(
    ("most", "keep", "detail"), [(512, "start", "512 tokens, the end is lost")]
)
def test_truncation_is_named_by_its_limit(long_one, most, keep, detail):
    server = Planted(long_one.held, long_one.tokenizer, most=most, keep=keep)
    found = diagnose(server, long_one, prompt=PROMPT)
    assert [part.fault for part in found.faults] == ["truncation"]
    assert found.faults[0].detail.startswith(detail)
    failed = [check.check for check in checks_of(found) if check.passed is False]
    assert failed == ["served_long"]


@pytest.mark.parametrize(("level", "options"), [("bfloat16", {"dtype": torch.bfloat16})])
def test_lower_precision_is_named_and_measured(tiny, level, options):
    needs_attention_in(options["dtype"])
    found = diagnose(Planted(tiny.held, tiny.tokenizer, **options), tiny, prompt=PROMPT)
    assert [tuple(part) for part in found.faults] == [
        ("rounding", f"no more than {level} makes here")
    ]
    assert found.harmless
    assert found.own_difference == np.abs(found.served - found.own).max() > 1e-3 * found.spread


def test_whether_rounding_is_harmless_does_not_depend_on_the_unit_of_rewards(tiny):
    """Multiplied by a power of two floats keep their digits, so that all differences grow by it."""
    needs_attention_in(torch.bfloat16)
    network = copy.deepcopy(tiny.held)
    network.score.weight.data *= 1024
    one, other = (
        diagnose(
            Planted(model.held, model.tokenizer, dtype=torch.bfloat16),
            model,
            prompt=PROMPT,
            budget=50,
        )
        for model in (tiny, wrap(network, tiny.tokenizer))
    )
    assert other.own_difference == 1024 * one.own_difference > 1
    assert other.faults == one.faults != ()
    assert (one.harmless, other.harmless) == (True, True)


def test_another_checkpoint_is_named_by_a_check_of_it(tiny, base):
    """Its weights have no name beside this model's, and are right beside their own."""
    server = Planted(tiny.held, tiny.tokenizer, head=base.held.score, body=base.held)
    assert [part.fault for part in diagnose(server, tiny, prompt=PROMPT).faults] == ["unknown"]
    assert diagnose(server, base, prompt=PROMPT).right


@pytest.mark.slow
def test_right_servers_raise_no_alarm(tiny):
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tiny.tokenizer),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_labels=1,
        initializer_range=0.3,
        max_position_embeddings=128,
        pad_token_id=tiny.tokenizer.pad_token_id,
    )
    small = wrap(LlamaForSequenceClassification(config), tiny.tokenizer)
    alarms = []
    for seed in range(24):
        noise = (0.0, 1e-6, 1e-4)[seed % 3]
        server = Planted(
            small.held,
            tiny.tokenizer,
            side=("left", "right")[seed % 2],
            noise=noise,
            seed=seed,
            pad=(None, 4)[seed // 12],
        )
        found = diagnose(server, small, prompt=PROMPT, seed=seed, budget=50)
        bad = [check.check for check in checks_of(found) if check.passed is False]
        if found.faults or bad or server.sent > 50:
            alarms.append((seed, found.faults, bad))
    assert not alarms


@pytest.mark.parametrize("fault", ["sigmoid"])
def test_the_verb_over_http(command, deep, tiny_checkpoint, tmp_path, undrawn, fault):
    server = Planted(deep.held, deep.tokenizer, after=torch.sigmoid if fault else None)
    url, stop = listening(server)
    try:
        given = [
            "model=auto",
            f"model.path={tiny_checkpoint}",
            "tracking=off",
            "strict=true",
            "requests=60",
            "endpoint.api=vllm-classify",
        ]
        code, out, err = command("check", f"url={url}", *given)
    finally:
        stop()
    assert code == (1 if fault else 0), err
    assert server.sent <= 60
    assert len(out.strip().splitlines()) <= 15
    table = pd.read_parquet(
        tmp_path / "runs/registry/conformance/tiny-llama--served/v0/tables/conformance.parquet"
    )
    passed = table.set_index("check")["passed"]
    assert passed["served_ids"] == passed["served_messages"] == (fault is None)


def test_an_audit_asks_the_server_and_the_loop(command, deep, tiny_checkpoint, tmp_path, undrawn):
    url, stop = listening(Planted(deep.held, deep.tokenizer, after=torch.sigmoid))
    try:
        given = ["prompts=greatest", "evaluations=100", "length=2", "n_contexts=6"]
        given += ["page=false", "tracking=off", f"url={url}", "endpoint.api=vllm-classify"]
        given += ["loop=trl", f"policy={tiny_checkpoint}"]
        code, _, err = command("audit", str(tiny_checkpoint), *given)
    finally:
        stop()
    assert code == 1, err
    folder = tmp_path / "runs/registry/audit/tiny-llama/v0"
    audit = json.loads((folder / "audit.json").read_text())
    found = {one["check"]: one for one in audit["verdicts"]}
    assert found["served"]["verdict"] == "fail"
    assert found["fed"]["verdict"] == "pass"
    assert found["fed"]["n"] == 200
    assert found["additions"]["verdict"] == "not_measured", "answers are longer than it reads"
    assert "128" in found["additions"]["evidence"]
