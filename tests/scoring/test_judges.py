"""A judge's reward is what its next token's probabilities say, by definition, in every verb."""

import functools

import numpy as np
import pytest
import torch
from test_sequences import CPU, ITEMS, PROMPT, THINGS, opened, scanned
from transformers import T5Config, T5ForConditionalGeneration

import pessimal
from pessimal.conversation import Turn
from pessimal.errors import ConfigError, ModelError
from pessimal.rewards.judge import JudgeSpec
from pessimal.rewards.question import FEW, HARDLY, QuestionOptions
from pessimal.scoring.texts import text_scorer
from pessimal.searching.context import SearchContext
from pessimal.searching.run import run
from pessimal.searching.spec import SearchSpec
from tiny_language_models import CHAT, checkpoint, tokenizer
from tolerance import close

ASKED = "Question: {prompt}\nAnswer:\n{response}\nIs it good?"
ANSWERS = {"positive": ["love", "kind"], "negative": ["cruel"]}
BETTER = "What: {prompt}\none {response}\nword {opponent}\nbest?"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return checkpoint(tmp_path_factory.mktemp("judge") / "judge", template=CHAT)


def judge(folder, **options):
    return opened(folder, "judge", judge=QuestionOptions(**{"template": ASKED, **options}))


@torch.no_grad()
def log_probability(model, text, answer):
    """log p(answer token | the judge's turn about a text), in float64."""
    words = model.tokenizer
    whole = f"<|bos|><|start|>user<|sep|>{text}<|end|><|start|>assistant<|sep|>"
    ids = torch.tensor([words(whole, add_special_tokens=False)["input_ids"]])
    [token] = words(answer, add_special_tokens=False)["input_ids"]
    logits = model.network().causal.double()(input_ids=ids).logits[0, -1]
    return float(torch.log_softmax(logits, dim=-1)[token])


def answers(model, *texts):
    """Log-probabilities (texts, 3) of both positive answers and the negative one."""
    each = functools.partial(log_probability, model)
    return np.array(
        [[each(text, answer) for answer in ("love", "kind", "cruel")] for text in texts]
    )


def log_odds(answers):
    """(texts,)"""
    return np.logaddexp(answers[:, 0], answers[:, 1]) - answers[:, 2]


def test_log_odds_of_answers_and_their_spellings(folder, tmp_path):
    model = judge(folder, **ANSWERS)
    table = scanned(model, THINGS, tmp=tmp_path)
    each = answers(model, *(ASKED.format(prompt=PROMPT, response=item) for item in ITEMS))
    truth, size = log_odds(each), np.abs(each).max()
    assert close(table.rows["reward"], truth, size=size)
    turns = [(Turn("user", PROMPT), Turn("assistant", item)) for item in ITEMS]
    assert close(text_scorer(model, turns, device=CPU).rewards(turns), truth, size=size)
    words = scanned(model, tmp=tmp_path / "all")
    assert words.provenance.attention == "shared-prefix"
    assert words.rows["survives"].any()
    kept = words.rows[words.rows["survives"]].iloc[::29]
    each = answers(model, *(ASKED.format(prompt=PROMPT, response=text) for text in kept["text"]))
    assert close(kept["reward"], log_odds(each), size=np.abs(each).max())


def test_ratings_are_an_expected_value_and_a_logit_is_itself(folder, tmp_path):
    worth = {"love": 3.0, "kind": 2.0, "cruel": -1.0}
    model, text = judge(folder, ratings=worth), ASKED.format(prompt=PROMPT, response="peace")
    [each] = answers(model, text)
    p = np.exp(each)
    table = scanned(model, type(THINGS)("one", THINGS.rows[1:2]), tmp=tmp_path)
    [reward] = table.rows["reward"]
    assert close(reward, (p * list(worth.values())).sum() / p.sum(), size=np.abs(each).max())
    assert table.provenance.attention == "shared-prefix", "though one reward has no spread"
    # Without a template: what comes after the conversation itself.
    model = judge(folder, template=None, logit=7)
    [reward] = scanned(model, type(THINGS)("one", THINGS.rows[1:2]), tmp=tmp_path / "logit").rows[
        "reward"
    ]
    whole = f"<|bos|><|start|>user<|sep|>{PROMPT}<|end|><|start|>assistant<|sep|>peace<|end|><|start|>assistant<|sep|>"
    ids = torch.tensor([model.tokenizer(whole, add_special_tokens=False)["input_ids"]])
    assert close(reward, model.network().causal(input_ids=ids).logits[0, -1, 7].item())


def test_a_judge_of_two_is_asked_in_both_orders_and_the_orders_effect_is_reported(folder, tmp_path):
    model = judge(folder, template=BETTER, opponent="truth", **ANSWERS)
    table = scanned(model, THINGS, tmp=tmp_path)
    first = [BETTER.format(prompt=PROMPT, response=i, opponent="truth") for i in ITEMS]
    second = [BETTER.format(prompt=PROMPT, response="truth", opponent=i) for i in ITEMS]
    each = [answers(model, *texts) for texts in (first, second)]
    one, two = map(log_odds, each)
    size = np.abs(each).max()
    assert close(table.rows["reward"], (one - two) / 2, size=size)
    effect = table.measured["order_effect"]
    assert close(effect["mean"], (one + two).mean() / 2, size=size)
    assert close(effect["standard_deviation"], ((one + two) / 2).std(), size=size)
    turns = [(Turn("user", PROMPT), Turn("assistant", item)) for item in ITEMS]
    rewards = text_scorer(model, turns, device=CPU).rewards(turns)
    assert close(rewards, table.rows["reward"], size=size)


def test_a_search_of_each_form_of_judge_ends_with_the_models_own_reward(folder):
    for options in ({}, {"template": BETTER, "opponent": "truth"}):
        model = judge(folder, **ANSWERS, **options)
        context = SearchContext(model, {"p": PROMPT}, SearchSpec(length=2, evaluations=400))
        found = run(context)
        own = context.own_rewards(torch.tensor([found.response]))
        assert close(found.reward, own[0])


def test_an_encoder_and_decoder_judges_by_its_first_token(tmp_path):
    words = tokenizer()
    config = T5Config(
        vocab_size=len(words),
        d_model=16,
        d_kv=4,
        d_ff=32,
        num_layers=1,
        num_heads=2,
        decoder_start_token_id=3,
        pad_token_id=3,
        eos_token_id=3,
    )
    torch.manual_seed(0)
    network = T5ForConditionalGeneration(config).eval()
    network.save_pretrained(tmp_path / "t5")
    words.save_pretrained(tmp_path / "t5")
    model = judge(tmp_path / "t5", **ANSWERS)
    ids = torch.tensor([words(ASKED.format(prompt=PROMPT, response="love"))["input_ids"]])
    with torch.no_grad():
        logits = network(input_ids=ids, decoder_input_ids=torch.tensor([[3]])).logits[0, -1]
    love, kind, cruel = (
        logits[words.convert_tokens_to_ids(answer)] for answer in ("love", "kind", "cruel")
    )
    truth = float(torch.logaddexp(love, kind) - cruel)
    rewards = scanned(model, THINGS, tmp=tmp_path / "work").rows["reward"]
    assert close(rewards[0], truth)


def test_answers_that_split_or_mean_two_things_are_refused(folder):
    with pytest.raises(ModelError, match=r"'wonderful' is \d tokens"):
        judge(folder, positive=["wonderful"], negative=["cruel"])
    with pytest.raises(ConfigError, match="love"):
        JudgeSpec(
            path=str(folder), judge=QuestionOptions(ASKED, positive=["love"], negative=["love"])
        )
    with pytest.raises(ConfigError, match="one way to read"):
        JudgeSpec(path=str(folder))
    with pytest.raises(ConfigError, match=r"\{response\}"):
        JudgeSpec(path=str(folder), judge=QuestionOptions("{prompt}", logit=3))


def len_of(response):
    return len(response)


def test_a_judge_that_never_gives_its_answers_has_no_ranks(folder, tmp_path, caplog):
    words = tokenizer(template=CHAT)
    plain = judge(folder, **ANSWERS)
    question = plain.parts[0].conversations.ids(PROMPT, ["peace"])
    with torch.no_grad():
        logits = plain.network().causal(input_ids=torch.tensor(question)).logits[0, -1]
    order = [words.decode([i]) for i in logits.argsort().tolist()]
    rare, common = (
        [text for text in some if len(words(text, add_special_tokens=False)["input_ids"]) == 1]
        for some in (order[:40], order[::-1][:40])
    )
    never = judge(folder, positive=rare[:1], negative=rare[1:2])
    table = scanned(never, THINGS, tmp=tmp_path)
    assert table.measured["answers"]["mean"] < HARDLY
    assert not table.rows["certified"].any()
    assert "no rank is certified" in caplog.text
    alone, watched = (
        pessimal.scan([never, len_of], PROMPT, weights=w, candidates=ITEMS, progress=False)
        for w in ([1, 1], [0, 1])
    )
    assert not alone.rows["certified"].any(), "nor of a sum that it is a term of"
    assert watched.rows["certified"].any(), "unless its weight is 0"
    caplog.clear()
    often = judge(folder, positive=common[:20], negative=common[20:])
    table = scanned(often, THINGS, tmp=tmp_path / "often")
    assert table.measured["answers"]["mean"] > HARDLY
    assert table.rows["certified"].any()
    assert ("model.judge.begin" in caplog.text) == (table.measured["answers"]["mean"] < FEW)
