"""Heads of several outputs, process reward models, and where a reward is read: each number is a plain
forward's, or it is refused."""

import json
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModel

import pessimal
import pessimal.api.scan
from pessimal.api import scan as scanning
from pessimal.conversation import Turn
from pessimal.errors import ConfigError, ModelError
from pessimal.rewards.head import HeadSpec, Reading
from pessimal.rewards.named import spec_of as named_spec
from pessimal.rewards.network import Steps
from pessimal.rewards.obtain import open_model
from pessimal.rewards.reward_model import wrap
from pessimal.rewards.spec import Mode, Reduce
from pessimal.scoring.candidates import inputs, vocabulary_of
from pessimal.scoring.identify import gate
from pessimal.scoring.loop import Shards
from pessimal.scoring.scorer import FrameScorer
from pessimal.scoring.texts import text_scorer
from tolerance import close

CPU = torch.device("cpu")
PROMPT = "What is the greatest thing ever?"
STEP = "<|reserved_special_token_0|>"


def linear(name, outputs, inputs=32, *, bias=True):
    generator = torch.Generator().manual_seed(outputs + inputs)
    weights = {f"{name}.weight": torch.randn(outputs, inputs, generator=generator)}
    return weights | ({f"{name}.bias": torch.randn(outputs, generator=generator)} if bias else {})


def layers(name, outputs):
    return linear(f"{name}.0", 24) | linear(f"{name}.2", outputs, 24)


HEADS = {
    "score": lambda n: linear("score", n),
    "score.N": lambda n: layers("score", n),
    "v_head": lambda n: linear("v_head", n),
    "v_head.N": lambda n: layers("v_head", n),
    "v_head.summary": lambda n: linear("v_head.summary", n),
    "v_head.summary.N": lambda n: layers("v_head.summary", n),
    "regression_head": lambda n: linear("regression_head", n, bias=False),
    "out_proj": lambda n: linear("out_proj", n),
    "score_head": lambda n: linear("score_head", n),
}


@pytest.fixture
def with_head(tiny_checkpoint, tmp_path):
    """Put the weights of a head into a copy of the tiny model, in place of its own; other
    `settings` of its configuration."""

    def make(head, **settings):
        folder = shutil.copytree(tiny_checkpoint, tmp_path / "model", dirs_exist_ok=True)
        body = load_file(tiny_checkpoint / "model.safetensors")
        weights = {name: weight for name, weight in body.items() if name != "score.weight"} | head
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
        config = json.loads((tiny_checkpoint / "config.json").read_text()) | settings
        (folder / "config.json").write_text(json.dumps(config))
        return folder

    return make


def by_hand(folder, head, ids):
    """Outputs (T, outputs) of a head at every position, by a plain forward."""
    backbone = AutoModel.from_pretrained(folder)
    with torch.no_grad():
        states = backbone(input_ids=torch.tensor([ids])).last_hidden_state[0]
    names = [name.removesuffix(".weight") for name in head if name.endswith(".weight")]
    for number, name in enumerate(names):
        states = states.relu() if number else states
        states = states @ head[f"{name}.weight"].T + head.get(f"{name}.bias", 0)
    return states


def scored(model, rows=(5, 99, 300)):
    """Ids of whole conversations, and their rewards by each engine."""
    frame, words = model.frame(PROMPT), vocabulary_of(model)
    made = inputs(model.parts[0].conversations, frame, words, Mode.ids)
    scorer = FrameScorer(model.network(), frame, device=CPU)
    rows = np.array(rows)
    rewards = {
        engine.name: scorer._engine_rewards(made, rows, engine, 2) for engine in scorer.engines
    }
    return [made.ids(row) for row in rows], rewards


@pytest.mark.parametrize("kind", HEADS)
def test_outputs_are_counted_from_the_weights_and_read_by_their_numbers(with_head, kind):
    head = HEADS[kind](3)
    folder = with_head(head)
    with pytest.raises(ModelError, match=r"3 outputs.*model\.output=0.*model\.output=all"):
        open_model(HeadSpec(path=str(folder)), folder)
    wholes, rewards = scored(open_model(HeadSpec(path=str(folder), output=2), folder))
    truth = [by_hand(folder, head, ids)[-1, 2] for ids in wholes]
    assert set(rewards) == {"shared-prefix", "full-forward", "own-forward"}
    for name, found in rewards.items():
        assert close(found, torch.stack(truth)), name


@pytest.mark.parametrize("kind", ["score", "score.N", "regression_head"])
def test_one_output_needs_no_number_and_its_bias_is_added(with_head, kind):
    head = HEADS[kind](1)
    folder = with_head(head)
    wholes, rewards = scored(open_model(HeadSpec(path=str(folder)), folder))
    truth = torch.stack([by_hand(folder, head, ids)[-1, 0] for ids in wholes])
    assert close(rewards["shared-prefix"], truth)


@pytest.mark.parametrize(
    "head",
    [
        linear("score", 1, bias=False) | linear("auxiliary_head", 1),
        linear("score", 1) | {"score_norm.weight": torch.ones(32)},
        linear("v_head.summary", 1) | linear("v_head.gate", 1),
        linear("score", 1, bias=False) | linear("v_head.extra", 1),
    ],
)
def test_a_weight_that_is_not_read_is_an_error(with_head, head):
    folder = with_head(head)
    with pytest.raises(ModelError, match=r"does not read \d"):
        open_model(HeadSpec(path=str(folder)), folder).network()


@pytest.mark.parametrize("prefix", ["pretrained_model.model."])
def test_a_stock_classifier_is_read_whatever_its_backbone_is_called(
    tiny_checkpoint, with_head, prefix
):
    plain = open_model(HeadSpec(path=str(tiny_checkpoint)), tiny_checkpoint)
    folder = with_head({})
    weights = load_file(tiny_checkpoint / "model.safetensors")
    moved = {name.replace("model.", prefix, 1): weight for name, weight in weights.items()}
    assert set(moved) != set(weights)
    save_file(moved, folder / "model.safetensors", metadata={"format": "pt"})
    found = scored(open_model(HeadSpec(path=str(folder)), folder))[1]
    for name, truth in scored(plain)[1].items():
        assert close(found[name], truth), name


@pytest.mark.parametrize(
    ("kind", "reduce"), zip(["score.N", "score", "stock"], Reduce, strict=True)
)
def test_steps_are_read_where_they_end_and_reduced(with_head, kind, reduce):
    head = linear("score", 2, bias=False) if kind == "stock" else HEADS[kind](2)
    folder = with_head(head)
    spec = HeadSpec(path=str(folder), output=1, step_token=STEP, reduce=reduce)
    model = open_model(spec, folder)
    step = model.tokenizer.convert_tokens_to_ids(STEP)
    wholes, rewards = scored(model, rows=(step, 99, 300))  # the first is a step in itself
    start = len(model.frame(PROMPT).prefix)

    def truth(ids, start):
        values = by_hand(folder, head, ids).softmax(dim=-1)[:, 1]
        each = values[[i for i in range(start, len(ids)) if ids[i] == step]]
        ways = {Reduce.min: each.min(), Reduce.last: each[-1], Reduce.product: each.prod()}
        return len(each), float(ways[reduce])

    counted, numbers = zip(*(truth(ids, start) for ids in wholes), strict=True)
    assert counted == (2, 1, 1)
    for name, found in rewards.items():
        assert close(found, np.array(numbers)), name
    turns = (Turn("user", f"Is {STEP} love?"), Turn("assistant", "good\n\npeace and love\n\nwar"))
    scorer = text_scorer(model, [turns], device=CPU)
    [encoded] = scorer.encoded([turns])
    assert encoded.ids.count(step) == 4
    assert encoded.ids[-1] == step
    steps, number = truth(list(encoded.ids), len(encoded.ids) - encoded.n_response)
    assert steps == 3
    assert close(scorer.rewards([turns]), np.array([number]))


def test_one_output_a_step_is_a_sigmoid():
    steps = Steps(token=7, output=0, reduce=Reduce.product)
    values = torch.tensor([[[0.0], [9.0], [1.0]], [[2.0], [9.0], [9.0]]])
    ids = torch.tensor([[7, 1, 7], [1, 1, 1]])
    found = steps.reduced(values, ids)
    assert close(found[0], torch.tensor(0.5) * torch.tensor(1.0).sigmoid())
    assert found[1].isnan(), "no step ends there"


def test_what_has_no_steps_is_refused(with_head):
    folder = with_head(linear("score", 2))
    with pytest.raises(ModelError, match=r"2 outputs"):
        open_model(HeadSpec(path=str(folder), step_token=STEP), folder)
    with pytest.raises(ModelError, match=r"is [2-9] tokens"):
        open_model(HeadSpec(path=str(folder), step_token="no such", output=1), folder)
    with pytest.raises(ConfigError, match=r"without model\.read"):
        HeadSpec(path=str(folder), step_token=STEP, read=Reading.own)
    with pytest.raises(ConfigError, match=r"model\.step_token=TOKEN"):
        HeadSpec(path=str(folder), reduce=Reduce.last)
    with pytest.raises(ConfigError, match="min, last, product"):
        HeadSpec(path=str(folder), step_token=STEP, reduce="mean")
    assert HeadSpec(path=str(folder), step_token=STEP, reduce="last").reduce is Reduce.last
    with pytest.raises(ConfigError, match=r"not of model\.kind=log_probability"):
        named_spec(str(folder), kind="log_probability", step_token=STEP)
    with pytest.raises(ConfigError, match=r"model\.step_token"):
        HeadSpec(path=str(folder), step_token=STEP).require("search", "ids", "gradient")


def test_a_token_that_the_template_writes_too_closes_no_step(with_head):
    folder = with_head(linear("score", 1))
    spec = HeadSpec(path=str(folder), step_token="<|end|>")
    conversations = open_model(spec, folder).parts[0].conversations
    [ids] = conversations.ids(PROMPT, ["good\n\npeace"])
    assert ids.count(conversations.step) == 3, "of the prompt's turn, and of two steps"
    assert ids[-1] == conversations.step
    turns = (Turn("user", PROMPT), Turn("assistant", "good\n\npeace"))
    encoded = conversations.encode(turns)
    assert list(encoded.ids) == ids
    assert ids[-encoded.n_response :].count(conversations.step) == 2


def test_every_output_is_scanned_in_one_pass(with_head, monkeypatch):
    folder = with_head(linear("score", 3), id2label={0: "kind", 1: "LABEL_1", 2: "true"})
    passes = []
    run = pessimal.scoring.loop.Pass.run
    monkeypatch.setattr(
        pessimal.scoring.loop.Pass, "run", lambda *a, **k: passes.append(1) or run(*a, **k)
    )
    every = pessimal.load(str(folder), output="all")
    texts = ["love", "peace", "war", "good", "evil", "truth"]
    tables = pessimal.scan(every, PROMPT, candidates=texts, states=False, progress=False)
    assert passes == [1]
    names = [table.provenance.model for table in tables]
    name = folder.parent.name  # a folder called model says nothing
    assert names == [f"{name}.kind", f"{name}.output-1", f"{name}.true"]
    assert len({table.provenance.key() for table in tables}) == 3
    for number, table in enumerate(tables):
        one = pessimal.load(str(folder), output=number)
        alone = pessimal.scan(one, PROMPT, candidates=texts, states=False, progress=False)
        assert close(table.rows["reward"], alone.rows["reward"])
        assert table.provenance.output == alone.provenance.output == number
    with pytest.raises(ConfigError, match=r"model\.output=NUMBER"):
        pessimal.check(every)
    with pytest.raises(ConfigError, match=r"model\.output=NUMBER"):
        pessimal.explain(every, PROMPT, "love", "war")


def test_a_scan_that_ends_between_two_outputs_keeps_their_pass(
    with_head, command, tmp_path, monkeypatch
):
    folder = with_head(linear("score", 3), id2label={0: "kind", 1: "fair", 2: "true"})
    items = "candidates.texts=[love,peace,war,good,evil]"
    line = ["scan", str(folder), "model.output=all", "candidates=items", items, "tracking=off"]
    line += ["model.name=m", "prompts=greatest", "progress=false", "states=false"]
    publish, written, write = scanning._publish, [], Shards.write

    def killed(*given):
        if any((tmp_path / "runs/registry").rglob("scores.parquet")):
            raise KeyboardInterrupt
        publish(*given)

    monkeypatch.setattr(Shards, "write", lambda *given: written.append(1) or write(*given))
    monkeypatch.setattr(scanning, "_publish", killed)
    assert command(*line)[0] == 130
    scored = len(written)
    assert scored
    monkeypatch.setattr(scanning, "_publish", publish)
    assert command(*line)[0] == 0
    assert len(written) == scored, "what was scored is read"
    tables = sorted(file.parent.parent.name for file in tmp_path.rglob("scores.parquet"))
    assert len(tables) == 3
    assert list((tmp_path / "runs/cache/scans").iterdir()) == []


def spec_of(checkpoint, **options):
    return HeadSpec(path=str(checkpoint.folder), output="all", **options)


def test_a_gated_heads_objectives_are_those_of_the_published_class(published):
    checkpoint = published("armorm")
    model = open_model(spec_of(checkpoint), checkpoint.folder)
    assert [number for _, number in model.outputs] == [None, 0, 1, 2, 3, 4]
    wholes, rewards = scored(model)
    for row, ids in enumerate(wholes):
        with torch.no_grad():
            theirs = checkpoint.network(torch.tensor([ids]))
        truth = [float(theirs.score), *theirs.rewards[0].tolist()]
        for name, found in rewards.items():
            assert close(found[row], np.array(truth)), name
    with pytest.raises(ModelError, match=r"leave out model\.trust_remote_code"):
        open_model(spec_of(checkpoint, trust_remote_code=True), checkpoint.folder)
    third = open_model(HeadSpec(path=str(checkpoint.folder), output=2), checkpoint.folder)
    assert close(scored(third)[1]["shared-prefix"], rewards["shared-prefix"][:, 3])


def test_the_objective_that_decides_is_the_one_that_the_reward_varies_with():
    rng = np.random.default_rng(0)
    objectives = rng.normal(size=(4000, 3)) * [1, 1, 5]
    coefficients = np.array([2.0, -1.0, 0.0])
    columns = np.column_stack([objectives @ coefficients, objectives])
    found = gate(columns, coefficients, ["a", "b", "c"])
    assert found["decides"] == "a"
    assert sum(found["share"].values()) == pytest.approx(1)
    assert found["share"]["a"] == pytest.approx(0.8, abs=0.02)
    assert found["share"]["c"] == pytest.approx(0)


def test_own_reads_the_last_token_that_is_no_pad(tiny_checkpoint, caplog):
    # Its pad token is the token that its template ends in.
    network = AutoConfig.from_pretrained(tiny_checkpoint)
    assert network.pad_token_id == network.eos_token_id
    own = open_model(HeadSpec(path=str(tiny_checkpoint), read=Reading.own), tiny_checkpoint)
    end = open_model(HeadSpec(path=str(tiny_checkpoint)), tiny_checkpoint)
    assert own.config_digest != end.config_digest
    frame, words = end.frame(PROMPT), vocabulary_of(end)
    pad = end.tokenizer.pad_token_id
    made = inputs(own.parts[0].conversations, own.frame(PROMPT), words, Mode.ids)
    scorer = FrameScorer(own.network(), own.frame(PROMPT), device=CPU)
    rows = np.array([5, pad, 99, 300])
    found = scorer.score_rows(made, rows, batch_size=4)
    published = own.network()
    with torch.no_grad():
        theirs = [published(torch.tensor([frame.around([row])])).logits[0, 0] for row in rows]
    assert close(found, torch.stack(theirs))
    some = {"candidates": ["love", "war", "peace"], "states": False, "progress": False}
    table = pessimal.scan(end, PROMPT, **some)
    assert table.measured["own_class_differs"]["standard_deviations"] > 0.5
    assert "model.read=own" in caplog.text
    caplog.clear()
    table = pessimal.scan(own, PROMPT, **some)
    assert "own_class_differs" not in table.measured
    assert "model.read=own" not in caplog.text


def test_a_network_in_memory_is_read_where_its_own_forward_does(tiny_checkpoint):
    there = open_model(HeadSpec(path=str(tiny_checkpoint), read=Reading.own), tiny_checkpoint)
    held = wrap(there.network(), there.tokenizer, read="own")
    ids, rewards = scored(held)
    assert close(rewards["own-forward"], scored(there)[1]["shared-prefix"])
    assert set(rewards) == {"own-forward"}
    assert len(ids[0]) > len(scored(there)[0][0]), "the pad tokens are its own to pass over"
