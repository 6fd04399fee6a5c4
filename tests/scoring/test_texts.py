"""Rewards of whole conversations: the model's own, whatever stands beside them; kept once known."""

from dataclasses import fields
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from pessimal.conversation import Turn
from pessimal.rewards.callable import CallableReward, wrap_callable
from pessimal.rewards.head import HeadSpec
from pessimal.rewards.obtain import open_model
from pessimal.rewards.sum import sum_of
from pessimal.scoring.texts import KeptRewards, NetworkTexts, Scorers, SummedTexts, text_scorer
from pessimal.scoring.trust import SAMPLE
from tolerance import close

WORDS = ["love", "hate", "good", "evil", "peace", "war", "kind", "cruel", "wisdom", "truth"]


def conversations(n, *, seed=0):
    random = np.random.default_rng(seed)

    def text():
        return " ".join(random.choice(WORDS, size=random.integers(1, 9)))

    return [(Turn("user", text()), Turn("assistant", text())) for _ in range(n)]


@pytest.fixture(scope="module")
def opened(tiny_checkpoint):
    return open_model(HeadSpec(path=str(tiny_checkpoint)), tiny_checkpoint)


@pytest.fixture(scope="module")
def scorer(opened):
    return NetworkTexts(
        opened,
        opened.parts[0].conversations,
        opened.network(),
        conversations(20),
        device=torch.device("cpu"),
    )


def test_each_reward_is_the_models_own_in_any_company(opened, scorer):
    asked = conversations(40, seed=1)
    own = scorer.own_rewards(asked)
    assert np.ptp(own) > 0.1
    assert close(scorer.rewards(asked), own)
    assert close(scorer.rewards(asked[::-1])[::-1], own)
    small = NetworkTexts(
        opened,
        opened.parts[0].conversations,
        opened.network(),
        asked,
        device=torch.device("cpu"),
        batch_size=1,
    )
    assert close(small.rewards(asked), own)


def test_a_head_that_gives_something_else_is_given_up(opened, monkeypatch, caplog):
    from pessimal.scoring import engine

    right = engine.Decoder.rewards
    monkeypatch.setattr(engine.Decoder, "rewards", lambda self, *a, **k: right(self, *a, **k) * 1.5)
    scorer = NetworkTexts(
        opened,
        opened.parts[0].conversations,
        opened.network(),
        conversations(20),
        device=torch.device("cpu"),
    )
    assert scorer.path == "own-forward"
    assert "Falling back" in caplog.text
    asked = conversations(5, seed=2)
    assert close(scorer.rewards(asked), scorer.own_rewards(asked))


def test_known_rewards_are_not_asked_for_again_and_half_a_line_is_none(scorer, tmp_path):
    asked = conversations(12, seed=4)
    first = KeptRewards(scorer, tmp_path / "model" / "rewards.jsonl")
    found = first.rewards([*asked, asked[0]])
    assert first.n_scored == len(set(asked))
    assert found[-1] == found[0]
    file = tmp_path / "model" / "rewards.jsonl"
    lines = file.read_text().splitlines()
    file.write_text("\n".join(lines[:-1]) + "\n" + lines[-1][:20])
    again = KeptRewards(scorer, file)
    assert close(again.rewards(asked), found[:-1])
    assert again.n_scored == 1
    assert close(KeptRewards(None, file).rewards(asked), found[:-1])


def test_conversations_that_differ_in_a_role_alone_are_not_one(scorer, tmp_path):
    one = (Turn("user", "love"), Turn("assistant", "good"))
    other = (Turn("system", "love"), Turn("assistant", "good"))
    kept = KeptRewards(scorer, tmp_path / "rewards.jsonl")
    assert close(kept.rewards([one, other]), scorer.own_rewards([one, other]))
    assert kept.n_scored == 2


def test_a_killed_scorer_has_kept_its_finished_batches(scorer, tmp_path):
    class Dying:
        def rewards(self, rows, *, report=None):
            batches = 0

            def count(batch, n):
                nonlocal batches
                report(batch, n)
                batches += 1
                if batches == 2:
                    raise KeyboardInterrupt

            return scorer.rewards(rows, report=count)

    asked, file = conversations(30, seed=5), tmp_path / "rewards.jsonl"
    with pytest.raises(KeyboardInterrupt):
        KeptRewards(Dying(), file).rewards(asked)
    kept = len(file.read_text().splitlines())
    assert 0 < kept < len(set(asked))
    after = KeptRewards(scorer, file)
    assert close(after.rewards(asked), scorer.own_rewards(asked))
    assert after.n_scored == len(set(asked)) - kept


def test_a_reward_of_texts_is_asked_twice_for_a_sample_and_never_again(tmp_path, caplog):
    calls = []

    class Paid(CallableReward):
        def cost(self, conversations, *, again=()):
            return f"{len(conversations)} and {len(again)} requests"

    def length(response):
        calls.append(response)
        return len(response)

    made = wrap_callable(length)
    reward = Paid(**{field.name: getattr(made, field.name) for field in fields(made)})
    asked = list(dict.fromkeys(conversations(60, seed=5)))
    options = {"device": torch.device("cpu"), "folder": tmp_path}
    caplog.set_level("INFO")
    one = text_scorer(reward, asked[:40], **options)
    sample = len(calls) // 2
    assert sample == SAMPLE
    assert f"{sample} and {sample} requests" in caplog.text
    found = one.rewards(asked)
    assert found.tolist() == [len(turns[-1].content) for turns in asked]
    assert len(calls) == sample + len(asked)
    caplog.clear()
    summed = sum_of([(2.0, reward)], name="twice")
    again = text_scorer(summed, asked[:40], **options)
    assert again.rewards(asked).tolist() == (2 * found).tolist()
    assert len(calls) == sample + len(asked), "also in a second start, and within a sum"
    assert "requests" not in caplog.text


def stub(values=(), *, longest=None):
    """A scorer with these rewards, which is none of functions."""
    rewards = np.array(values, dtype=float)
    about = {"noise": 0.0, "trust": None, "device": torch.device("cpu"), "path": "stub"}
    return SimpleNamespace(longest=longest, rewards=lambda *_, **__: rewards, **about)


def test_a_sum_reads_what_all_its_scorers_read_and_only_a_function_may_be_silent():
    assert SummedTexts([(1.0, stub(longest=5)), (1.0, stub(longest=9))]).longest == 5
    turns = conversations(3)
    silent = turns[1][-1].content
    function = wrap_callable(lambda response: None if response == silent else len(response))
    functions = text_scorer(function, [turns[0]], device=torch.device("cpu"))
    rewards = SummedTexts([(2.0, functions), (1.0, stub([1, 2, np.nan]))]).rewards(turns)
    assert rewards[:2].tolist() == [2 * len(turns[0][-1].content) + 1, 2]
    assert np.isnan(rewards[2]), "what a network cannot read has no sum"


def test_rewards_of_two_paths_are_kept_in_two_files(opened, tmp_path, monkeypatch):
    files = []
    for path in ("full-forward", "own forward"):
        scorer = stub()
        scorer.path = path
        monkeypatch.setattr("pessimal.scoring.texts.text_scorer", lambda *_, s=scorer, **__: s)
        makers = Scorers([], torch.device("cpu"), None, tmp_path, SimpleNamespace(advance=None))
        files.append(makers.make_scorer(opened)[1].file)
    assert files[0] != files[1]
