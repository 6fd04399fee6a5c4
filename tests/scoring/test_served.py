"""Every fault that is planted in a server is named, and a right one is called right, whatever its
batches."""

import copy
import functools
import itertools

import numpy as np
import pandas as pd
import pytest
import torch
from planted_server import Planted, listening
from torch import nn
from transformers import LlamaConfig, LlamaForSequenceClassification

from pessimal.checking import as_table, served
from pessimal.checking.served import diagnose
from pessimal.checking.served_checks import checks_of
from pessimal.errors import WorkError
from pessimal.rewards.head import wrap

PROMPT = "What, in one word, is the greatest thing ever?"
CHATML = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
STRANGE = "{% for m in messages %}### {{ m.role }}: {{ m.content }}<|end|>{% endfor %}"


def head(seed: int, outputs: int = 1) -> nn.Linear:
    torch.manual_seed(seed)
    made = nn.Linear(32, outputs, bias=False)
    nn.init.normal_(made.weight, std=0.02)
    return made


def in_int8(network):
    """Rows of weights rounded to 255 steps."""
    network = copy.deepcopy(network)
    for module in network.model.modules():
        if isinstance(module, nn.Linear):
            step = module.weight.abs().amax(1, keepdim=True) / 127
            module.weight.data = (module.weight / step).round() * step
    return network


@pytest.fixture(scope="module")
def tiny(model):
    """The tiny model in memory, so that it is loaded once."""
    return wrap(model.network(), model.tokenizer, name="tiny")


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
    inner = served.in_level

    def in_level(model, network, level, device):
        if level != "int8":
            needs_attention_in(getattr(torch, level))
        return inner(model, network, level, device)

    monkeypatch.setattr(served, "in_level", in_level)


FAULTS = {
    "softmax": ({"after": lambda logits: logits.softmax(-1)}, "softmax", ()),
    "sigmoid": ({"after": torch.sigmoid}, "sigmoid", ()),
    "normalised state": ({"state": "normalised"}, "normalised_state", ()),
    "last element of the embedding": ({"state": "element"}, "last_element", ()),
    "first token": ({"pool": "first"}, "wrong_position", ()),
    "mean of the tokens": ({"pool": "mean"}, "wrong_position", ()),
    "the end token is the pad token": ({"pool": "not pad"}, "pad_read_as_end", ()),
    "the padding is read": ({"pool": "row"}, "pad_read_as_end", ()),
    "random head": ({"head": head(3)}, "random_head", ("adapter_head",)),
    "two outputs": ({"head": head(4, 2)}, "two_outputs", ()),
    "softmax over two outputs": (
        {"head": head(4, 2), "after": lambda x: x.softmax(-1)},
        "two_outputs",
        (),
    ),
    "one of two probabilities": (
        {"head": head(4, 2), "after": lambda x: x.softmax(-1)[:, 1:]},
        "two_outputs",
        ("random_head",),
    ),
    "doubled BOS": ({"bos": 1}, "doubled_bos", ()),
    "missing end": ({"cut": 1}, "missing_end", ()),
    "another template": ({"template": CHATML}, "another_template", ()),
    "a template that nobody knows": ({"template": STRANGE}, "another_template", ()),
    "left padding": ({"side": "left", "masked": False}, "left_padding", ()),
    "left padding, another pad token": (
        {"side": "left", "masked": False, "pad": 4},
        "left_padding",
        ("pad_read_as_end",),
    ),
    "another scale": ({"after": lambda logits: 2 * logits + 1}, "scale", ()),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_named(tiny, name):
    options, fault, remaining = FAULTS[name]
    server = Planted(tiny.held, tiny.tokenizer, **options)
    found = diagnose(server, tiny, prompt=PROMPT)
    assert [part.fault for part in found.faults] == [fault]
    assert found.remaining == remaining
    assert bool(found.apart) == bool(remaining)
    assert server.sent == len(found.served) <= 200
    assert not found.harmless
    assert any(check.passed is False for check in checks_of(found))


@pytest.mark.parametrize(
    ("level", "options"),
    [("bfloat16", {"dtype": torch.bfloat16}), ("float16", {"dtype": torch.float16}), ("int8", {})],
)
def test_lower_precision_is_named_and_measured(tiny, level, options):
    body = in_int8(tiny.held) if level == "int8" else None
    needs_attention_in(options.get("dtype", torch.float32))
    found = diagnose(Planted(tiny.held, tiny.tokenizer, body=body, **options), tiny, prompt=PROMPT)
    assert [tuple(part) for part in found.faults] == [("lower_precision", level)]
    assert found.harmless
    assert found.own_difference == np.abs(found.served - found.own).max() > 1e-3 * found.spread


@pytest.mark.parametrize("whole", [False, True], ids=["head", "whole base"])
def test_an_adapter_that_is_not_loaded_is_named_by_its_base(tiny, base, whole):
    server = Planted(
        tiny.held, tiny.tokenizer, head=base.held.score, body=base.held if whole else None
    )
    found = diagnose(server, tiny, prompt=PROMPT, base=base)
    assert [part.fault for part in found.faults] == ["adapter_head"]
    assert not found.remaining


def test_a_base_that_does_not_explain_the_head_leaves_one_fault(tiny, base):
    found = diagnose(
        Planted(tiny.held, tiny.tokenizer, head=head(3)), tiny, prompt=PROMPT, base=base
    )
    assert [part.fault for part in found.faults] == ["random_head"]
    assert not found.remaining


def test_two_faults_are_both_named(tiny):
    server = Planted(tiny.held, tiny.tokenizer, after=torch.sigmoid, bos=1)
    found = diagnose(server, tiny, prompt=PROMPT)
    assert [part.fault for part in found.faults] == ["sigmoid", "doubled_bos"]


def test_what_no_input_tells_apart_stays_ambiguous(tiny):
    """Rewards near 40: their sigmoid is 1 in every precision, as a softmax over one logit is."""
    high = copy.deepcopy(tiny.held)
    high.score = nn.Linear(32, 1)
    high.score.weight.data, high.score.bias.data = tiny.held.score.weight.data, torch.tensor([40.0])
    server = Planted(high, tiny.tokenizer, after=torch.sigmoid)
    found = diagnose(server, wrap(high, tiny.tokenizer), prompt=PROMPT)
    assert {found.faults[0].fault, *found.remaining} == {"softmax", "sigmoid"}


def test_text_only_servers_are_judged_too(tiny):
    for options, names in (
        ({"bos": 1}, ["doubled_bos"]),
        ({"state": "normalised"}, ["normalised_state"]),
        ({}, []),
    ):
        server = Planted(tiny.held, tiny.tokenizer, **options)
        found = diagnose(server, tiny, prompt=PROMPT, forms=["text"])
        assert [part.fault for part in found.faults] == names


def test_another_model_is_unknown_and_no_random_head(tiny, base):
    found = diagnose(Planted(base.held, tiny.tokenizer), tiny, prompt=PROMPT)
    assert [part.fault for part in found.faults] == ["unknown"]


@pytest.mark.slow
def test_two_hundred_right_servers_raise_no_alarm(tiny):
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
    for seed in range(200):
        noise = (0.0, 1e-6, 1e-4)[seed % 3]
        server = Planted(
            small.held,
            tiny.tokenizer,
            side=("left", "right")[seed % 2],
            noise=noise,
            seed=seed,
            pad=(None, 4)[seed // 100],
        )
        found = diagnose(server, small, prompt=PROMPT, seed=seed, budget=50)
        bad = [check.check for check in checks_of(found) if check.passed is False]
        if found.faults or found.remaining or bad or server.sent > 50:
            alarms.append((seed, found.faults, bad))
    assert not alarms


def test_the_table_has_the_columns_of_the_suite(tiny):
    found = diagnose(Planted(tiny.held, tiny.tokenizer), tiny, prompt=PROMPT)
    table = as_table(checks_of(found)).set_index("check")
    assert (
        table.loc["served_ids", "measured"]
        == np.abs(found.served - found.own)[found.forms == "ids"].max()
    )
    assert table.loc["served_ids", "allowed"] == pytest.approx(1e-3 * found.own.std())
    assert table["passed"].dropna().all()


def test_answers_of_another_shape_and_no_numbers(tiny):
    with pytest.raises(WorkError, match="shape"):
        diagnose(lambda inputs: np.zeros(len(inputs) + 1), tiny, prompt=PROMPT)
    found = diagnose(lambda inputs: np.full(len(inputs), np.nan), tiny, prompt=PROMPT)
    assert [part.fault for part in found.faults] == ["unknown"]


@pytest.mark.parametrize("fault", [None, "sigmoid"])
def test_the_verb_over_http(command, tiny, tiny_checkpoint, tmp_path, fault):
    server = Planted(tiny.held, tiny.tokenizer, after=torch.sigmoid if fault else None)
    url, stop = listening(server)
    try:
        given = [
            "model=auto",
            f"model.path={tiny_checkpoint}",
            "tracking=off",
            "strict=true",
            "requests=60",
        ]
        code, out, _ = command("check", f"url={url}", *given)
    finally:
        stop()
    assert code == (1 if fault else 0)
    assert server.sent <= 60
    assert len(out.strip().splitlines()) <= 15
    table = pd.read_parquet(
        tmp_path / "runs/registry/conformance/tiny-llama--served/v0/tables/conformance.parquet"
    )
    passed = table.set_index("check")["passed"]
    assert passed["served_ids"] == passed["served_messages"] == (fault is None)
