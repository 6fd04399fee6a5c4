"""Log-probabilities and implicit rewards are the models' own: of every token, of items, with and
without a closing token, in a scan, a search, an explanation."""

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from tokenizers import Tokenizer, models
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast

from pessimal.conversation import Turn
from pessimal.errors import ConfigError, ModelError
from pessimal.rewards import log_probability as implicit_rewards
from pessimal.rewards.log_probability import ImplicitSpec, ReferenceOptions
from pessimal.rewards.named import kind_class
from pessimal.rewards.obtain import open_model
from pessimal.rewards.spec import Dtype, Mode
from pessimal.scoring.candidates import item_candidates, vocabulary
from pessimal.scoring.common_prefix import ResponseScorer, SummedScorer
from pessimal.scoring.identify import identify
from pessimal.scoring.loop import Loop
from pessimal.scoring.scan import NetworkScanner
from pessimal.scoring.scan_texts import ScanPlan
from pessimal.scoring.sequence import FullSequence, SharedSequence
from pessimal.scoring.spec import TrainerSpec
from pessimal.scoring.texts import text_scorer
from pessimal.searching.context import SearchContext
from pessimal.searching.run import run
from pessimal.searching.spec import SearchSpec
from tiny_language_models import CHAT, checkpoint
from tolerance import OF_GRADIENTS, close

PROMPT = "What, in one word, is the greatest thing ever?"
ITEMS = [
    "love",
    "peace",
    "peace and war",
    "peace and truth",
    "the greatest good",
    "null",
    "Ünïcode 🙂",
]
THINGS = item_candidates(ITEMS, name="things")
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("language")
    made = {kind: checkpoint(root / kind, kind=kind) for kind in ("llama", "gemma2", "gpt2")}
    made["chat"] = checkpoint(root / "chat", template=CHAT)
    return made | {"reference": checkpoint(root / "reference", template=CHAT, seed=1)}


def opened(folder, kind="log_probability", **options):
    return open_model(kind_class(kind)(path=str(folder), **options), folder)


def implicit(folders, *, beta=0.1, closing=True, **options):
    spec = ReferenceOptions(reference=str(folders["reference"]), beta=beta, closing=closing)
    return opened(folders["chat"], "implicit", implicit=spec, **options)


def scanned(model, candidates=None, *, networks=None, batch_size=64, tmp):
    candidates = candidates or vocabulary(model.tokenizer, size=model.embedding_rows)
    mode = Mode.ids if candidates.is_vocabulary else Mode.text
    provenance = identify(
        model, prompt="greatest", prompt_text=PROMPT, candidates=candidates, mode=mode, certain=10
    )
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    scanner = NetworkScanner(model, [provenance], candidates, ScanPlan(tmp, TrainerSpec(), tmp))
    scanner.loop = Loop(trainer, batch_size=batch_size, progress=False, ignore_finished=True)
    scanner.networks = networks or scanner.networks
    return scanner.scan(provenance)


@torch.no_grad()
def by_hand(network, before, response):
    """log p(response ids | ids before), in float64 throughout."""
    ids = torch.tensor([[*before, *response]])
    logits = network.causal.double()(input_ids=ids).logits[0]
    each = torch.log_softmax(logits, dim=-1)
    return sum(float(each[len(before) + i - 1, token]) for i, token in enumerate(response))


def context(model, *, chat):
    words = model.tokenizer
    if not chat:
        return words(PROMPT)["input_ids"]
    opened = f"<|bos|><|start|>user<|sep|>{PROMPT}<|end|><|start|>assistant<|sep|>"
    return words(opened, add_special_tokens=False)["input_ids"]


@pytest.mark.parametrize("kind", ["llama", "gemma2", "gpt2", "chat"])
def test_every_tokens_log_probability_is_the_models_own(folders, kind, tmp_path):
    model = opened(folders[kind])
    table, network = scanned(model, tmp=tmp_path), model.network()
    before, ids = context(model, chat=kind == "chat"), table.rows["candidate_id"]
    with torch.no_grad():
        logits = network.causal.double()(input_ids=torch.tensor([before])).logits[0, -1]
    truth = torch.log_softmax(logits, dim=-1).numpy()
    assert close(table.rows["reward"], truth[ids])
    assert close(table.measured["total_probability"], np.exp(truth[ids]).sum())
    assert table.rows["certified"].mean() > 0.9
    assert table.rows["survives"].isna().all()
    assert table.measured["asked"] == ("chat template" if kind == "chat" else "plain text")


@pytest.mark.parametrize("kind", ["llama", "gemma2", "gpt2", "chat"])
def test_items_are_the_sums_of_their_tokens_whatever_the_batch(folders, kind, tmp_path):
    model = opened(folders[kind])
    before, joint = context(model, chat=kind == "chat"), "" if kind == "chat" else " "
    network = model.network()
    own = [model.tokenizer(joint + item, add_special_tokens=False)["input_ids"] for item in ITEMS]
    truth = [by_hand(network, before, ids) for ids in own]
    for size in (64, 1):
        table = scanned(model, THINGS, batch_size=size, tmp=tmp_path)
        assert close(table.rows["reward"], truth)
        assert table.provenance.attention == "shared-prefix"
    assert table.measured["tokens_per_item"] == {
        "least": min(map(len, own)),
        "median": np.median([*map(len, own)]),
        "most": max(map(len, own)),
    }
    assert table.measured["tokenised_apart"] == 0


@pytest.mark.parametrize("closing", [True, False])
def test_implicit_reward_is_the_difference_of_two_log_probabilities(folders, closing, tmp_path):
    model = implicit(folders, closing=closing)
    before, end = (
        context(model, chat=True),
        [model.tokenizer.convert_tokens_to_ids("<|end|>")] * closing,
    )
    policy, reference = model.network(None, 0), model.network(None, 1)
    table = scanned(model, tmp=tmp_path)
    for row in table.rows.iloc[::23].itertuples():
        response = [row.candidate_id, *end]
        terms = [0.1 * by_hand(each, before, response) for each in (policy, reference)]
        assert close(row.reward, terms[0] - terms[1], size=np.abs(terms).max())
    table = scanned(model, THINGS, tmp=tmp_path / "items")
    items = table.rows["reward"]
    own = [len(model.tokenizer(item, add_special_tokens=False)["input_ids"]) for item in ITEMS]
    assert table.measured["tokens_per_item"]["most"] == max(own), "the closing token is no item's"
    # What an explanation asks: whole conversations.
    turns = [(Turn("user", PROMPT), Turn("assistant", item)) for item in ITEMS]
    texts = text_scorer(model, turns, device=CPU)
    assert close(texts.rewards(turns), items)
    assert texts.path == "full-forward"


def test_an_implicit_rewards_digests_cover_all_that_it_depends_on(folders):
    model = implicit(folders)
    for other in (implicit(folders, beta=0.2), implicit(folders, closing=False)):
        assert other.weights_digest == model.weights_digest
        assert other.config_digest != model.config_digest
    itself = implicit(folders | {"reference": folders["chat"]})
    assert itself.weights_digest != model.weights_digest


@pytest.mark.parametrize("larger", ["reference"])
def test_an_implicit_reward_has_the_rows_that_both_its_networks_have(folders, larger, tmp_path):
    network = AutoModelForCausalLM.from_pretrained(folders[larger])
    rows = network.get_input_embeddings().num_embeddings
    network.resize_token_embeddings(rows + 8)
    network.save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(folders[larger]).save_pretrained(tmp_path)
    assert implicit(folders | {larger: tmp_path}).embedding_rows == rows


def test_search_of_an_implicit_reward_has_its_gradient_and_finds_the_best(folders):
    model = implicit(folders, beta=1.0)
    frame, allowed = model.frame(PROMPT), np.arange(4, 60)
    scorers = [
        ResponseScorer(
            model.network(None, which),
            frame,
            dtype=Dtype.float32,
            device=CPU,
            length=3,
            allowed=allowed,
        )
        for which in (0, 1)
    ]
    both = SummedScorer([(1.0, scorers[0]), (-1.0, scorers[1])])
    response = torch.tensor([20, 30, 40])
    # d/d one-hot, by autograd through a soft response that is both read and predicted.
    slopes = []
    for which in (0, 1):
        causal = model.network(None, which).causal
        matrix = causal.get_input_embeddings().weight
        soft = torch.nn.functional.one_hot(response, len(matrix)).float().requires_grad_()
        start, end = matrix[torch.tensor(frame.prefix)], matrix[torch.tensor(frame.suffix)]
        logits = causal(inputs_embeds=torch.cat([start, soft @ matrix, end])[None]).logits[0]
        each = torch.log_softmax(logits, dim=-1)[len(frame.prefix) - 1 :]
        value = (each[:3] * soft).sum() + each[3, frame.suffix[0]]
        slopes.append(torch.autograd.grad(value, soft)[0])
    own, size = slopes[0] - slopes[1], float(torch.cat(slopes).abs().max())
    assert close(both.gradient(response), own, size=size, roundings=OF_GRADIENTS)
    # Responses that share a beginning with another.
    changed = response.repeat(6, 1)
    changed[torch.arange(6), torch.arange(6) % 3] = torch.arange(50, 56)
    assert scorers[0].path == "shared-prefix, common prefix"
    size = np.abs([scorer.own_rewards(changed) for scorer in scorers]).max()
    assert close(both.rewards(changed, anchor=response), both.own_rewards(changed), size=size)
    searched = SearchContext(model, {"p": PROMPT}, SearchSpec(length=1))
    every = torch.from_numpy(np.flatnonzero(searched.mask))[:, None]
    assert run(searched).response == tuple(every[both.own_rewards(every).argmax()].tolist())


@pytest.mark.parametrize("kind", ["gemma2"])
def test_low_precision_has_few_ties_and_certifies_its_tails(folders, kind, tmp_path):
    exact = scanned(opened(folders[kind]), tmp=tmp_path / "exact").rows
    model = opened(folders[kind], dtype=Dtype.bfloat16)
    table = scanned(model, tmp=tmp_path)
    assert table.rows["reward"].nunique() > 0.99 * len(table.rows)
    top = exact["reward"].nlargest(10).index
    assert (table.rows["reward"].nlargest(10).index == top).all()
    assert table.rows.loc[top, "certified"].all()
    assert close(table.rows.loc[top, "reward"], exact.loc[top, "reward"])


def test_path_that_differs_from_the_own_forward_is_not_taken(
    folders, monkeypatch, caplog, tmp_path
):
    right = scanned(opened(folders["llama"]), THINGS, tmp=tmp_path / "right").rows["reward"]
    inner = SharedSequence.rewards
    monkeypatch.setattr(SharedSequence, "rewards", lambda *a, **o: inner(*a, **o) + 1)
    table = scanned(opened(folders["llama"]), THINGS, tmp=tmp_path)
    assert "Falling back" in caplog.text
    assert table.provenance.attention == "full-forward"
    assert close(table.rows["reward"], right)


def test_network_that_sees_what_comes_later_is_not_believed_on_items(folders, tmp_path):
    """Whole items are read off one forward, which only a causal network allows."""
    model = opened(folders["llama"])
    network = model.network()

    def seeing_all(module, arguments, options):
        batch, length = options["input_ids"].shape
        return arguments, options | {"attention_mask": torch.zeros(batch, 1, length, length)}

    network.causal.model.register_forward_pre_hook(seeing_all, with_kwargs=True)
    table = scanned(model, THINGS, networks=lambda *_: network, tmp=tmp_path)
    assert table.provenance.attention != "shared-prefix"


def test_models_whose_tokens_differ_are_refused(folders, tmp_path):
    folder = checkpoint(tmp_path / "other")
    backend = Tokenizer(models.WordLevel({f"word{i}": i for i in range(300)}, unk_token="word0"))
    PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="word3").save_pretrained(folder)
    with pytest.raises(ModelError, match="different tokens"):
        opened(folders["chat"], "implicit", implicit=ReferenceOptions(reference=str(folder)))
    with pytest.raises(ConfigError, match=r"model\.implicit\.reference=DIR"):
        ImplicitSpec(path=str(folder))


def test_what_is_prompt_and_what_response_decides_not_the_ids_alone(folders):
    """Two conversations of the same ids, of which another part is the response."""
    model = opened(folders["llama"])
    turns = [
        (Turn("user", "love"), Turn("assistant", "peace war")),
        (Turn("user", "love peace"), Turn("assistant", "war")),
    ]
    texts, words, network = text_scorer(model, turns, device=CPU), model.tokenizer, model.network()
    ids = words("love peace war")["input_ids"]
    truth = [by_hand(network, ids[:-own], ids[-own:]) for own in (2, 1)]
    assert close(texts.rewards(turns), truth)
    assert texts.path == "full-forward"


@pytest.mark.parametrize("which", [1])
def test_path_that_is_wrong_for_one_of_two_networks_is_not_taken(folders, monkeypatch, which):
    model = implicit(folders)
    turns = [(Turn("user", PROMPT), Turn("assistant", item)) for item in ITEMS]
    right = text_scorer(model, turns, device=CPU).rewards(turns)
    rows, inner = model.network(None, which).causal.lm_head.weight, FullSequence.whole_rewards

    def wrong(engine, ids, *, n_response):
        is_the_one = torch.equal(engine.decoder.head.embedding.weight, rows)
        return inner(engine, ids, n_response=n_response) + 1 * is_the_one

    monkeypatch.setattr(FullSequence, "whole_rewards", wrong)
    texts = text_scorer(model, turns, device=CPU)
    assert texts.terms[which][1].path == "own-forward"
    assert close(texts.rewards(turns), right)
    each = [scorer.trust for _, scorer in texts.terms]
    assert texts.trust == max(each, key=lambda trust: trust.largest_difference / trust.tolerance)


def test_a_reference_is_read_at_its_own_revision(folders, monkeypatch):
    asked = []

    def files_of(spec):
        asked.append((spec.path, spec.revision))
        return folders["reference"]

    monkeypatch.setattr(implicit_rewards, "files_of", files_of)
    reference = ReferenceOptions(reference="org/begun", revision="theirs")
    spec = ImplicitSpec(path="org/policy", revision="ours", implicit=reference)
    open_model(spec, folders["chat"])
    assert asked == [("org/begun", "theirs")]
