"""The suite passes a sound model, and fails a broken one in the row that is about what was broken."""

import copy
import dataclasses

import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification
from transformers.modeling_outputs import SequenceClassifierOutput
from transformers.models.bert import BertConfig
from transformers.models.gpt2 import GPT2Config
from transformers.models.llama import LlamaForSequenceClassification

from pessimal.models.heads import LinearHead
from pessimal.models.load import RewardModel
from pessimal.models.spec import Dtype
from pessimal.scoring.conformance import Plan, as_table, conformance
from pessimal.scoring.engine import FullForward

CPU = torch.device("cpu")
PLAN = Plan(sample=8, batch_size=6, dtypes=(), seed=0)
NETWORK = [
    "finite", "determinism_own", "determinism_engine", "batch_own", "batch_engine", "padding_right", "padding_left",
    "pad_is_eos", "shared_prefix", "full_forward", "head",
]  # fmt: skip
TOKENS = ["bos", "bos_paper", "frame", "survives"]


def suite(model, frame, plan=PLAN):
    found = conformance(model, frame, plan, device=CPU)
    return {check.check: check for check in found.checks}, found


def failed(rows) -> list[str]:
    return [name for name, check in rows.items() if check.passed is False]


@pytest.fixture
def tiny(model):
    """The tiny model, whose pad token is its end token, with a tokenizer of its own to change."""
    return dataclasses.replace(model, tokenizer=copy.deepcopy(model.tokenizer))


@pytest.fixture
def pad_apart(tiny, monkeypatch):
    """The same with a pad token that no conversation contains."""
    load, reserved = (
        RewardModel.network,
        tiny.tokenizer.convert_tokens_to_ids("<|reserved_special_token_0|>"),
    )

    def network(self, dtype=None):
        made = load(self, dtype)
        made.config.pad_token_id = reserved
        return made

    monkeypatch.setattr(RewardModel, "network", network)
    tiny.tokenizer.pad_token = "<|reserved_special_token_0|>"
    return tiny


def breaking(monkeypatch, change):
    """Let every network that is loaded go through `change`."""
    load = RewardModel.network
    monkeypatch.setattr(RewardModel, "network", lambda self, dtype=None: change(load(self, dtype)))


def swap_class(network, kind):
    network.__class__ = kind
    return network


def test_sound_model_passes_every_check_and_again_with_the_same_figures(pad_apart, frame):
    rows, found = suite(pad_apart, frame, dataclasses.replace(PLAN, dtypes=tuple(Dtype)))
    again, _ = suite(pad_apart, frame)
    assert all(rows[name] == check for name, check in again.items())
    assert list(rows) == [*NETWORK, "dtype_bfloat16", "dtype_float16", *TOKENS]
    assert not found.failed
    assert rows["shared_prefix"].measured < 1e-4
    assert rows["finite"].n == 8 + 8
    assert rows["pad_is_eos"].n == 8 + 8 + 1, "the pad token too is a response"
    assert rows["survives"].result == rows["bos_paper"].result == "info"
    assert found.details["attention"] == "shared-prefix"
    table = as_table(found.checks)
    assert table["passed"].sum() == len(rows) - 2
    assert all(table["what"].str.endswith("."))


def test_pad_token_that_ends_conversations_is_found(tiny, frame):
    rows, _ = suite(tiny, frame)
    assert failed(rows) == ["pad_is_eos"]
    note = rows["pad_is_eos"].note
    assert "is the end token and ends every conversation" in note
    assert "17 of 17 responses" in note
    assert "config.pad_token_id" in note


def test_class_that_reads_before_the_first_pad_token_is_wrong_about_that_token_alone(
    pad_apart, frame, monkeypatch
):
    class Older(LlamaForSequenceClassification):
        """Pools as sequence classifiers did: at the first pad token, minus one."""

        def forward(self, input_ids, attention_mask=None, **_):
            states = self.model(input_ids, attention_mask=attention_mask).last_hidden_state
            last = (input_ids == self.config.pad_token_id).int().argmax(-1) - 1
            return SequenceClassifierOutput(logits=self.score(states[torch.arange(len(states)), last]))

    breaking(monkeypatch, lambda network: swap_class(network, Older))
    rows, _ = suite(pad_apart, frame)
    assert failed(rows) == ["pad_is_eos"]
    assert "where the pad token is the response" in rows["pad_is_eos"].note


def test_noise_is_no_determinism(pad_apart, frame, monkeypatch):
    random = torch.Generator().manual_seed(0)

    class Noisy(LlamaForSequenceClassification):
        def forward(self, input_ids, **more):
            output = super().forward(input_ids, **more)
            output.logits = output.logits + torch.randn(output.logits.shape, generator=random)
            return output

    breaking(monkeypatch, lambda network: swap_class(network, Noisy))
    rows, _ = suite(pad_apart, frame)
    assert rows["determinism_own"].passed is False
    assert rows["determinism_own"].measured > rows["determinism_own"].allowed
    assert "run twice differs" in rows["determinism_own"].note
    assert rows["determinism_engine"].passed, "the engine reads the weights, not the noise"


def test_reward_that_hangs_on_its_batch_is_found(pad_apart, frame, monkeypatch):
    class Mixing(LlamaForSequenceClassification):
        def forward(self, input_ids, **more):
            output = super().forward(input_ids, **more)
            output.logits = output.logits + output.logits.mean()
            return output

    breaking(monkeypatch, lambda network: swap_class(network, Mixing))
    rows, _ = suite(pad_apart, frame)
    assert rows["batch_own"].passed is False
    assert rows["determinism_own"].passed


def test_network_blind_to_the_attention_mask_fails_where_padding_comes_first(pad_apart, frame, monkeypatch):
    class Blind(LlamaForSequenceClassification):
        def forward(self, input_ids, attention_mask=None, **more):
            return super().forward(input_ids, attention_mask=torch.ones_like(attention_mask), **more)

    breaking(monkeypatch, lambda network: swap_class(network, Blind))
    rows, _ = suite(pad_apart, frame)
    assert failed(rows) == ["padding_left"], "on the right, no token sees the padding"
    assert "tokenizer.padding_side = 'right'" in rows["padding_left"].note


def test_network_that_cannot_take_padded_batches_is_a_finding_with_its_own_words(
    pad_apart, frame, monkeypatch
):
    def without_pad(network):
        network.config.pad_token_id = None
        return network

    breaking(monkeypatch, without_pad)
    rows, _ = suite(pad_apart, frame)
    assert failed(rows) == ["padding_right", "padding_left"]
    assert rows["padding_right"].measured is None
    assert "no padding token is defined" in rows["padding_right"].note
    assert "config.pad_token_id = tokenizer.pad_token_id" in rows["padding_right"].note


def test_without_a_pad_token_padding_does_not_apply(tiny, frame, monkeypatch):
    def without_pad(network):
        network.config.pad_token_id = None
        return network

    tiny.tokenizer.pad_token = None
    breaking(monkeypatch, without_pad)
    rows, _ = suite(tiny, frame)
    assert [name for name, check in rows.items() if check.result == "n/a"] == [
        "padding_right", "padding_left", "pad_is_eos",
    ]  # fmt: skip


def test_wrong_head_is_found(pad_apart, frame, monkeypatch):
    right = LinearHead.read
    monkeypatch.setattr(
        LinearHead, "read", lambda self, final, context: right(self, final * 1.1 + 0.1, context)
    )
    rows, _ = suite(pad_apart, frame)
    assert failed(rows) == ["shared_prefix", "full_forward", "head"]
    assert "models/heads/README.md" in rows["head"].note


def test_wrong_engine_leaves_the_head_in_the_right(pad_apart, frame, monkeypatch):
    right = FullForward.rewards
    monkeypatch.setattr(FullForward, "rewards", lambda *a, **k: right(*a, **k).flip(0) + 1)
    rows, _ = suite(pad_apart, frame)
    assert failed(rows) == ["full_forward"]


def test_doubled_bos_is_found_and_what_mode_paper_does_is_said(tiny, frame):
    tiny.tokenizer.chat_template = "{{ bos_token }}" + tiny.tokenizer.chat_template
    rows, _ = suite(tiny, tiny.frame(frame.prompt))
    assert rows["bos"].passed is False
    assert rows["bos"].measured == 2
    assert "writes 2 of them" in rows["bos"].note
    assert "as mode=text does" in rows["bos_paper"].note, "this tokenizer adds none by itself"


def test_texts_that_change_what_stands_around_them_are_counted(tiny, frame):
    before = tiny.tokenizer.chat_template
    tiny.tokenizer.chat_template = before + "{{ '~' if messages[-1]['content'] | trim | length > 9 }}"
    rows, _ = suite(tiny, frame)
    assert rows["frame"].passed is False
    assert 0 < rows["frame"].measured < rows["frame"].n
    assert "mode=ids is not affected" in rows["frame"].note


def test_rewards_that_are_no_numbers_are_said_once(tiny, frame, monkeypatch):
    def damaged(network):
        network.score.weight.fill_(float("nan"))
        return network

    breaking(monkeypatch, damaged)
    rows, found = suite(tiny, frame, dataclasses.replace(PLAN, dtypes=(Dtype.float32, Dtype.bfloat16)))
    assert failed(rows) == ["finite"]
    assert rows["finite"].measured == 16
    assert {rows[name].note for name in NETWORK[1:10]} == {"not measured: see finite"}
    assert "in float32, rewards are not numbers" in rows["dtype_bfloat16"].note
    assert list(rows)[:11] == NETWORK
    assert found.precision is None


def test_precisions_are_compared_with_float32(pad_apart, frame):
    plan = dataclasses.replace(PLAN, dtypes=(Dtype.float32, Dtype.bfloat16))
    rows, found = suite(pad_apart, frame, plan)
    table = found.precision.set_index(["dtype", "path"])
    own, fast = table.loc[("bfloat16", "own-forward")], table.loc[("bfloat16", "shared-prefix")]
    assert table.loc[("float32", "own-forward"), "largest_difference"] == 0
    assert rows["dtype_bfloat16"].measured == fast["largest_difference"] > 1e-3
    assert own["distinct"] <= fast["distinct"] == own["n"] == 16
    assert "dtype_float16" not in rows


def test_overflow_in_float16_is_found(pad_apart, frame, monkeypatch):
    def large(network):
        if network.dtype is torch.float16:
            network.model.layers[0].mlp.down_proj.weight.mul_(1e6)
        return network

    breaking(monkeypatch, large)
    rows, _ = suite(pad_apart, frame, dataclasses.replace(PLAN, dtypes=(Dtype.float32, Dtype.float16)))
    assert failed(rows) == ["dtype_float16"]
    assert rows["dtype_float16"].measured is None
    assert "they overflow" in rows["dtype_float16"].note


def test_precision_that_the_device_cannot_compute_does_not_apply(pad_apart, frame, monkeypatch):
    def refuse(network):
        if network.dtype is torch.float16:

            def forward(*_, **__):
                raise RuntimeError("\"addmm_impl_cpu_\" not implemented for 'Half'")

            network.forward = forward
        return network

    breaking(monkeypatch, refuse)
    rows, found = suite(pad_apart, frame, dataclasses.replace(PLAN, dtypes=tuple(Dtype)))
    assert rows["dtype_float16"].result == "n/a"
    assert "not implemented for 'Half'" in rows["dtype_float16"].note
    assert rows["dtype_bfloat16"].passed
    assert "float16" not in set(found.precision["dtype"])


def test_low_precision_model_is_asked_in_its_own_precision_and_its_head_in_float32(pad_apart, frame):
    half = dataclasses.replace(pad_apart, spec=dataclasses.replace(pad_apart.spec, dtype=Dtype.bfloat16))
    rows, found = suite(half, frame)
    assert found.details["dtype"] == "bfloat16"
    assert rows["head"].result == "n/a"
    assert "dtypes=[float32]" in rows["head"].note
    assert rows["batch_own"].allowed > 0.1 * found.details["spread"]
    rows, _ = suite(half, frame, dataclasses.replace(PLAN, dtypes=(Dtype.float32,)))
    assert rows["head"].passed
    assert rows["head"].measured < 1e-4


SMALL = {
    "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "initializer_range": 0.3,
}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "sizes"),
    [(GPT2Config, {"n_embd": 32, "n_layer": 2, "n_head": 4, "initializer_range": 0.3}), (BertConfig, SMALL)],
)
def test_absolute_positions_do_not_survive_padding_on_the_left(pad_apart, frame, monkeypatch, kind, sizes):
    torch.manual_seed(0)
    pad = pad_apart.tokenizer.pad_token_id
    config = kind(**sizes, vocab_size=pad_apart.embedding_rows, num_labels=1, pad_token_id=pad)
    network = AutoModelForSequenceClassification.from_config(config).eval().requires_grad_(False)
    network.reward_output = 0
    monkeypatch.setattr(RewardModel, "network", lambda self, dtype=None: network)
    rows, _ = suite(pad_apart, frame)
    assert failed(rows) == ["padding_left"]


def test_longer_responses_of_unequal_lengths_are_asked_too(pad_apart, frame, monkeypatch):
    seen = []
    right = FullForward.rewards
    monkeypatch.setattr(
        FullForward,
        "rewards",
        lambda self, ids, *, shared: seen.append(ids.shape[1]) or right(self, ids, shared=shared),
    )
    suite(pad_apart, frame)
    assert len(set(np.array(seen) - len(frame.suffix))) == 9
