"""The suite passes a sound model, and fails a broken one in the row that is about what was
broken."""

import copy
import dataclasses
import shutil

import numpy as np
import pytest
import torch
from networks import CPU, GPT2, made
from transformers.modeling_outputs import SequenceClassifierOutput
from transformers.models.gpt2 import GPT2Config
from transformers.models.llama import LlamaForSequenceClassification

from pessimal.checking.checks import as_table, precision_check, precision_table
from pessimal.checking.suite import CheckPlan, conformance
from pessimal.rewards.base import Part
from pessimal.rewards.formats import Templated
from pessimal.rewards.head import HeadSpec
from pessimal.rewards.heads.linear import LinearHead
from pessimal.rewards.obtain import open_model
from pessimal.rewards.reward_model import RewardModel
from pessimal.rewards.spec import Dtype
from pessimal.scoring.trust import allowed

PLAN = CheckPlan(sample=8, batch_size=6, dtypes=(), seed=0)
NETWORK = [
    "finite",
    "determinism_own",
    "determinism_engine",
    "batch_own",
    "batch_engine",
    "padding_right",
    "padding_left",
    "pad_is_eos",
    "shared_prefix",
    "full_forward",
    "ceiling",
    "head",
]
TOKENS = ["bos", "frame", "survives"]


def suite(model, frame, plan=PLAN):
    found = conformance(model, Part(1.0, Templated(model.tokenizer)), frame, plan, device=CPU)
    return {check.check: check for check in found.checks}, found


def failed(rows) -> list[str]:
    return [name for name, check in rows.items() if check.passed is False]


@pytest.fixture(scope="module")
def shallow(tiny_checkpoint, tmp_path_factory):
    """The tiny model without its second layer, which takes half of the time."""
    folder = tmp_path_factory.mktemp("one-layer") / "tiny-llama"
    shutil.copytree(tiny_checkpoint, folder)
    network = LlamaForSequenceClassification.from_pretrained(folder, num_hidden_layers=1)
    network.save_pretrained(folder)
    return open_model(HeadSpec(path=str(folder)), folder)


@pytest.fixture
def tiny(shallow):
    """The tiny model, whose pad token is its end token, with a tokenizer of its own to change."""
    return dataclasses.replace(shallow, tokenizer=copy.deepcopy(shallow.tokenizer))


@pytest.fixture
def pad_apart(tiny, monkeypatch):
    """The same with a pad token that no conversation contains."""
    load, reserved = (
        RewardModel.network,
        tiny.tokenizer.convert_tokens_to_ids("<|reserved_special_token_0|>"),
    )

    def network(self, dtype=None, which=0):
        made = load(self, dtype)
        made.config.pad_token_id = reserved
        return made

    monkeypatch.setattr(RewardModel, "network", network)
    tiny.tokenizer.pad_token = "<|reserved_special_token_0|>"
    return tiny


@pytest.fixture
def breaking(monkeypatch):
    """Let every network that is loaded go through a change: of its class, or of itself."""
    load = RewardModel.network

    def put(change):
        def changed(self, dtype=None, which=0):
            network = load(self, dtype)
            if isinstance(change, type):
                network.__class__ = change
            else:
                change(network)
            return network

        monkeypatch.setattr(RewardModel, "network", changed)

    return put


class Older(LlamaForSequenceClassification):
    """Pools as sequence classifiers did: at the first pad token, minus one."""

    def forward(self, input_ids, attention_mask=None, **_):
        states = self.model(input_ids, attention_mask=attention_mask).last_hidden_state
        last = (input_ids == self.config.pad_token_id).int().argmax(-1) - 1
        return SequenceClassifierOutput(logits=self.score(states[torch.arange(len(states)), last]))


class Noisy(LlamaForSequenceClassification):
    def forward(self, input_ids, **more):
        output = super().forward(input_ids, **more)
        output.logits = output.logits + torch.randn(output.logits.shape)
        return output


class Mixing(LlamaForSequenceClassification):
    def forward(self, input_ids, **more):
        output = super().forward(input_ids, **more)
        output.logits = output.logits + output.logits.mean()
        return output


class Loud(LlamaForSequenceClassification):
    def forward(self, input_ids, **more):
        output = super().forward(input_ids, **more)
        output.logits = 100 * output.logits
        return output


class Blind(LlamaForSequenceClassification):
    def forward(self, input_ids, attention_mask=None, **more):
        return super().forward(input_ids, attention_mask=torch.ones_like(attention_mask), **more)


def without_pad(network) -> None:
    network.config.pad_token_id = None


@pytest.mark.parametrize(
    ("change", "rows", "row", "note"),
    [
        (Older, ["pad_is_eos"], "pad_is_eos", "the pad token by itself alone"),
        (Loud, None, "ceiling", "as its weights say"),
        (Noisy, None, "determinism_own", "network.eval()"),
        (Mixing, None, "batch_own", "what else is in the batch"),
        (
            Blind,
            ["padding_left"],
            "padding_left",
            "tokenizer.padding_side",
        ),  # on the right, no token sees the padding
        (
            without_pad,
            ["padding_right", "padding_left"],
            "padding_right",
            "no padding token is defined",
        ),
    ],
)
def test_broken_network_fails_in_the_row_about_what_was_broken(
    pad_apart, frame, breaking, change, rows, row, note
):
    breaking(change)
    found, _ = suite(pad_apart, frame)
    assert failed(found) == rows or (rows is None and found[row].passed is False)
    assert note in found[row].note
    assert found["determinism_engine"].passed, "the engine reads the weights"


def test_sound_model_passes_every_check_and_again_with_the_same_figures(pad_apart, frame):
    rows, found = suite(pad_apart, frame, dataclasses.replace(PLAN, dtypes=tuple(Dtype)))
    again, _ = suite(pad_apart, frame)
    assert all(rows[name] == check for name, check in again.items())
    assert list(rows) == [*NETWORK, "dtype_bfloat16", "dtype_float16", *TOKENS]
    assert not found.failed
    assert rows["shared_prefix"].measured < 1e-4
    assert rows["finite"].n == 8 + 8
    assert rows["pad_is_eos"].n == 8 + 8 + 1, "the pad token too is a response"
    assert rows["survives"].result == "info"
    assert found.details["attention"] == "shared-prefix"
    table = as_table(found.checks)
    assert table["passed"].sum() == len(rows) - 1
    assert all(table["what"].str.endswith("."))


def test_pad_token_that_ends_conversations_is_found(tiny, frame):
    rows, _ = suite(tiny, frame)
    assert failed(rows) == ["pad_is_eos"]
    assert "17 of 17 responses" in rows["pad_is_eos"].note


def test_wrong_head_is_found(pad_apart, frame, monkeypatch):
    right = LinearHead.read
    monkeypatch.setattr(
        LinearHead, "read", lambda self, final, context: right(self, final * 1.1 + 0.1, context)
    )
    rows, _ = suite(pad_apart, frame)
    assert failed(rows) == ["shared_prefix", "full_forward", "head"]
    assert "docs/extend/head.md" in rows["head"].note


def test_doubled_bos_is_found(tiny, frame):
    tiny.tokenizer.chat_template = "{{ bos_token }}" + tiny.tokenizer.chat_template
    rows, _ = suite(tiny, tiny.frame(frame.prompt))
    assert rows["bos"].passed is False
    assert rows["bos"].measured == 2
    assert "writes 2 of them" in rows["bos"].note


def test_texts_that_change_what_stands_around_them_are_counted(tiny, frame):
    before = tiny.tokenizer.chat_template
    tiny.tokenizer.chat_template = (
        before + "{{ '~' if messages[-1]['content'] | trim | length > 9 }}"
    )
    rows, _ = suite(tiny, frame)
    assert rows["frame"].passed is False
    assert 0 < rows["frame"].measured < rows["frame"].n
    assert "mode=ids is not affected" in rows["frame"].note


@pytest.mark.parametrize(("share", "passed"), [(0.9, True), (1.1, False)])
def test_a_precision_passes_up_to_its_rounding_in_the_spread_of_rewards(share, passed):
    exact = np.arange(8.0)
    off = share * allowed(exact, dtype=Dtype.bfloat16)
    rewards = {Dtype.float32: exact, Dtype.bfloat16: np.r_[exact[:7], exact[7] + off]}
    table = precision_table({(dtype, "own-forward"): row for dtype, row in rewards.items()})
    check = precision_check(Dtype.bfloat16, table, exact, None)
    assert (check.passed, check.measured) == (passed, pytest.approx(off / exact.std()))


def test_a_precision_is_judged_by_its_fastest_path():
    exact = np.arange(8.0)
    paths = {"own-forward": exact, "shared-prefix": np.r_[exact[:7], 107.0]}
    rewards = {(Dtype.bfloat16, name): values for name, values in paths.items()}
    table = precision_table({(Dtype.float32, "own-forward"): exact} | rewards)
    check = precision_check(Dtype.bfloat16, table, exact, None)
    assert (check.passed, check.measured) == (False, pytest.approx(100 / exact.std()))


def test_overflow_in_float16_is_found(pad_apart, frame, breaking):
    def large(network):
        if network.dtype is torch.float16:
            network.model.layers[0].mlp.down_proj.weight.mul_(1e6)

    breaking(large)
    rows, _ = suite(
        pad_apart, frame, dataclasses.replace(PLAN, dtypes=(Dtype.float32, Dtype.float16))
    )
    assert failed(rows) == ["dtype_float16"]
    assert rows["dtype_float16"].measured is None
    assert "they overflow" in rows["dtype_float16"].note


@pytest.mark.parametrize(("kind", "sizes"), [(GPT2Config, GPT2)])
def test_absolute_positions_do_not_survive_padding_on_the_left(
    pad_apart, frame, monkeypatch, kind, sizes
):
    network = made(kind, {**sizes, "initializer_range": 0.3}, pad_apart.embedding_rows)
    network.config.pad_token_id = pad_apart.tokenizer.pad_token_id
    monkeypatch.setattr(RewardModel, "network", lambda self, dtype=None, which=0: network)
    assert failed(suite(pad_apart, frame)[0]) == ["padding_left"]
