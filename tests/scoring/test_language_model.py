"""Log-probabilities are the model's own: of every token at once, and of whole items."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from pessimal.errors import FrameError, ModelError
from pessimal.rewards.load import open_model
from pessimal.rewards.spec import Dtype, Mode, ModelSpec, Score
from pessimal.scoring.candidates import listed, vocabulary
from pessimal.scoring.language_model import NextTokenScorer, answers_of, context_of, scan_language_model
from pessimal.scoring.scan import identify
from tiny_language_models import CHAT, UNLISTED, checkpoint

PROMPT = "What, in one word, is the greatest thing ever?"
ITEMS = ["love", "peace", "peace and war", "peace and truth", "the greatest good", "null", "Ünïcode 🙂"]
THINGS = listed(ITEMS, name="things")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("language")
    made = {kind: checkpoint(root / kind, kind=kind) for kind in ("llama", "gemma2", "gpt2")}
    return made | {"chat": checkpoint(root / "chat", template=CHAT)}


def opened(folder, **options):
    return open_model(ModelSpec(path=str(folder), score=Score.log_probability, **options), folder)


def scanned(model, candidates=None, *, network=None, **options):
    candidates = candidates or vocabulary(model.tokenizer, size=model.embedding_rows)
    mode = Mode.ids if candidates.is_vocabulary else Mode.text
    provenance = identify(
        model, prompt="greatest", prompt_text=PROMPT, candidates=candidates, mode=mode, certain=100
    )
    context = context_of(model, PROMPT)
    options |= {"answers": answers_of(model, context, candidates), "device": torch.device("cpu")}
    return scan_language_model(model, network or model.network(), provenance, candidates, context, **options)


@torch.no_grad()
def by_hand(model, text, **tokenizing):
    """Log-probabilities (rows,) of the next token after a text, in float64 throughout."""
    ids = model.tokenizer(text, return_tensors="pt", **tokenizing)["input_ids"]
    logits = model.network().double()(input_ids=ids).logits[0, -1]
    return (logits - torch.logsumexp(logits, dim=0)).numpy()


@pytest.mark.parametrize("kind", ["llama", "gemma2", "gpt2"])
def test_every_tokens_log_probability_is_the_models_own(folders, kind):
    model = opened(folders[kind])
    table = scanned(model)
    truth = by_hand(model, PROMPT)
    assert len(truth) == len(table.rows) + UNLISTED
    assert np.abs(table.rows["reward"] - truth[table.rows["candidate_id"]]).max() < 1e-5
    assert table.measured["total_probability"] == pytest.approx(
        1 - np.exp(truth[-UNLISTED:]).sum(), abs=1e-6
    ), "normalised over all rows of the embedding"
    assert table.measured["unlisted_rows"] == UNLISTED
    assert table.measured["context"] == f"<|bos|>{PROMPT}"
    assert table.provenance.attention == "own-forward"
    assert table.rows["survives"].isna().all()


def test_chat_is_asked_in_its_template(folders):
    model = opened(folders["chat"])
    whole = f"<|bos|><|start|>user<|sep|>{PROMPT}<|end|><|start|>assistant<|sep|>"
    truth = by_hand(model, whole, add_special_tokens=False)
    table = scanned(model)
    assert np.abs(table.rows["reward"] - truth[table.rows["candidate_id"]]).max() < 1e-5
    assert table.measured["asked"] == "chat template"
    plain = scanned(opened(folders["chat"], chat=False))
    assert plain.provenance.key() != table.provenance.key()
    assert np.abs(plain.rows["reward"] - table.rows["reward"]).max() > 0.1


@pytest.mark.parametrize("kind", ["llama", "gemma2", "gpt2", "chat"])
def test_items_are_the_sums_of_their_tokens_whatever_the_batch(folders, kind):
    model = opened(folders[kind])
    context = context_of(model, PROMPT)
    truth = []
    for item in ITEMS:
        ids = model.tokenizer(context.text + context.joint + item, add_special_tokens=not context.chat)[
            "input_ids"
        ]
        with torch.no_grad():
            logits = model.network().double()(input_ids=torch.tensor([ids])).logits[0]
        each = torch.log_softmax(logits[:-1], dim=-1).gather(1, torch.tensor(ids[1:])[:, None])[:, 0]
        truth.append(float(each[len(context.ids) - 1 :].sum()))
    table = scanned(model, THINGS)
    one_by_one = scanned(model, THINGS, batch_size=1)
    for found in (table, one_by_one):
        assert found.measured["noise"] < 1e-3
        assert found.rows["reward"].to_numpy() == pytest.approx(truth, abs=found.measured["noise"], rel=0)
    assert table.provenance.attention == "full-forward"
    assert table.measured["tokens_per_item"]["least"] == 1
    assert table.measured["tokens_per_item"]["most"] > 3
    assert table.measured["tokenised_apart"] == 0
    assert table.measured["trust"]["largest_difference"] < 1e-4


def test_items_that_begin_alike_share_a_forward(folders):
    model = opened(folders["llama"])
    network = model.network()
    seen = []
    network.register_forward_hook(lambda *call: seen.append(call))
    table = scanned(model, listed(ITEMS[:4], name="things"), network=network)
    # love, peace: none before; "peace and" once before both of its ends.
    assert table.measured["forwards"] == 2


def test_certified_ranks_are_those_of_a_float64_forward(folders):
    model = opened(folders["llama"])
    rows = scanned(model).rows
    truth = by_hand(model, PROMPT)[rows["candidate_id"]]
    certified = rows["certified"].to_numpy()
    assert certified.mean() > 0.9
    rank, claimed = truth.argsort().argsort(), rows["reward"].to_numpy().argsort().argsort()
    assert (rank[certified] == claimed[certified]).all()


@pytest.mark.parametrize("kind", ["llama", "gemma2"])
def test_low_precision_has_few_ties_and_certifies_nothing(folders, kind):
    model = opened(folders[kind], dtype=Dtype.bfloat16)
    table = scanned(model)
    ids = torch.tensor([context_of(model, PROMPT).ids])
    with torch.no_grad():
        own = model.network()(input_ids=ids).logits[0, -1]
    n = len(table.rows)
    assert own[:n].unique().numel() < 0.9 * n, "its own logits lie on the bfloat16 grid, or nothing is tested"
    assert table.rows["reward"].nunique() > 0.99 * n
    assert table.provenance.attention == "full-forward"
    assert not table.rows["certified"].any()
    assert table.measured["noise"] is None
    exact = scanned(opened(folders[kind])).rows["reward"]
    assert np.abs(table.rows["reward"] - exact).max() < 0.2
    assert table.provenance.certain == 0
    items = scanned(model, THINGS).rows["reward"]
    assert np.abs(items - scanned(opened(folders[kind]), THINGS).rows["reward"]).max() < 0.3


def test_path_that_differs_from_the_own_forward_is_not_taken(folders, monkeypatch, caplog):
    inner = NextTokenScorer.ours
    monkeypatch.setattr(NextTokenScorer, "ours", lambda *a, **o: inner(*a, **o).flip(-1))
    for options in ({"dtype": Dtype.bfloat16}, {}):
        model = opened(folders["llama"], **options)
        table = scanned(model)
        assert "Falling back" in caplog.text
        assert table.provenance.attention == "own-forward"
        assert np.abs(table.rows["reward"] - by_hand(model, PROMPT)[table.rows["candidate_id"]]).max() < 0.2
    items = scanned(opened(folders["llama"]), THINGS)
    monkeypatch.undo()
    right = scanned(opened(folders["llama"]), THINGS)
    assert items.rows["reward"].to_numpy() == pytest.approx(right.rows["reward"].to_numpy(), abs=1e-5)
    assert items.provenance.attention == "own-forward"


def test_network_that_sees_what_comes_later_is_not_believed_on_items(folders):
    """Whole items are read off one forward, which only a causal network allows."""
    model = opened(folders["llama"])
    network = model.network()

    def seeing_all(module, arguments, options):
        batch, length = options["input_ids"].shape
        return arguments, options | {"attention_mask": torch.zeros(batch, 1, length, length)}

    network.model.register_forward_pre_hook(seeing_all, with_kwargs=True)
    table = scanned(model, THINGS, network=network)
    assert table.provenance.attention == "own-forward"


def test_tokens_beyond_the_embedding_are_reported_by_name_before_the_network_is_loaded(folders):
    model = opened(folders["llama"])
    context = context_of(model, PROMPT)
    short = replace(model, embedding_rows=max(context.ids))
    with pytest.raises(ModelError, match=rf"What.*id {max(context.ids)}\).*do not belong together"):
        context_of(short, PROMPT)
    last = max(max(ids) for ids in answers_of(model, context, THINGS).ids)
    assert answers_of(replace(model, embedding_rows=last + 1), context, THINGS)
    chat = opened(folders["chat"])
    with pytest.raises(FrameError, match="no token of the item ''"):
        answers_of(chat, context_of(chat, PROMPT), listed(["love", ""], name="things"))
    with pytest.raises(ModelError, match=rf"the item .*id {last}\)"):
        answers_of(replace(model, embedding_rows=last), context, THINGS)


def test_outputs_that_are_too_few_or_no_numbers_are_reported(folders):
    model = opened(folders["llama"])
    network = model.network()
    network.lm_head.weight.data[17] = float("nan")
    with pytest.raises(ModelError, match="no finite numbers"):
        scanned(model, network=network)
    network.lm_head = torch.nn.Linear(32, 50, bias=False)
    with pytest.raises(ModelError, match="50 next-token probabilities"):
        scanned(model, network=network)
