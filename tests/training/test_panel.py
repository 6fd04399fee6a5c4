"""A panel as TRL calls reward functions: the first trains as it would alone, the others are logged."""

import itertools

import numpy as np
import pytest

import pessimal
from pessimal.errors import ConfigError, InputError


class State:
    def __init__(self, step, of=1000):
        self.global_step, self.max_steps = step, of


PROMPTS = [[{"role": "user", "content": question}] for question in ("a?", "a?", "a?", "b?", "b?")]
WRITTEN = ["x", "xxx", "xx", "xxxx", "x"]
COMPLETIONS = [[{"role": "assistant", "content": text}] for text in WRITTEN]


def length(completions, **_):
    return [float(len(one[0]["content"])) for one in completions]


def shorter(completions, **_):
    return [-value for value in length(completions)]


def test_a_call_of_a_tool_is_not_dropped(tiny_checkpoint):
    panel = free(length, pessimal.load(str(tiny_checkpoint), name="model"))
    member = panel._rate("model", {"prompts": PROMPTS, "completions": COMPLETIONS})
    assert np.isfinite(member).all()
    calls = [[{**one[0], "tool_calls": [{"name": "add"}]}] for one in COMPLETIONS]
    with pytest.raises(InputError, match="tool_calls"):
        panel._rate("model", {"prompts": PROMPTS, "completions": calls})


async def other(prompts, completions, extra=(), **_):
    return [None, 3.0, 2.0, 1.0, 1.0]


def called(panel, step=0, *, of=1000, **columns):
    logged = {}
    given = {"trainer_state": State(step, of), "log_metric": logged.__setitem__, "extra": [1] * 5}
    rewards = panel(prompts=PROMPTS, completions=COMPLETIONS, completion_ids=[], **given, **columns)
    return rewards, logged


def free(*members, **options):
    return pessimal.RewardPanel(*members, share=1.0, clock=lambda: 0.0, **options)


def test_the_first_trains_and_the_others_are_logged():
    told = []
    panel = free(length, shorter, other, tails=2, report=told.append)
    assert panel.__name__ == "length"
    rewards, logged = called(panel)
    assert rewards == [1, 3, 2, 4, 1]
    assert logged == pytest.approx(
        {
            "pessimal/shorter/mean": -2.2,
            "pessimal/shorter/sd": float(np.std([1, 3, 2, 4, 1])),
            "pessimal/shorter/agreement": 0,
            "pessimal/other/mean": 1.75,
            "pessimal/other/sd": float(np.std([3, 2, 1, 1])),
            # Of xxx and xx in that order, and of xxxx and x a tie: (1 + ½) / 2.
            "pessimal/other/agreement": 0.75,
        }
    )
    assert told == [{"train/step": 1, **logged}]
    history = panel.history
    assert history["end"].tolist() == ["best", "best", "worst", "worst"]
    # One that another reward gives nothing for is kept.
    assert history["completion"].tolist() == ["xxxx", "xxx", "x", "x"]
    assert history["shorter"].tolist() == [-one for one in history["length"]]


def test_a_reward_model_rates_as_it_is_scanned(tiny_checkpoint):
    model = pessimal.load(str(tiny_checkpoint))
    rewards, logged = called(free(model, length))
    table = pessimal.scan(model, {"a": "a?"}, candidates=WRITTEN[:3], progress=False)[0]
    own = table.rows.set_index("text")["reward"].loc[WRITTEN[:3]]
    assert rewards[:3] == pytest.approx(own.tolist(), abs=1e-4)
    assert "pessimal/length/agreement" in logged


def test_nothing_but_the_first_reward_ends_the_training(caplog):
    def raises(**_):
        raise MemoryError("planted")

    panel = free(length, raises, shorter, report=raises)
    for step in range(3):
        rewards, logged = called(panel, step)
        assert rewards == length(COMPLETIONS)
        assert "pessimal/shorter/mean" in logged
    assert len([one for one in caplog.records if "MemoryError" in one.getMessage()]) == 1
    assert panel.history["step"].nunique() == 3
    with pytest.raises(MemoryError):
        called(free(raises, length))
    unlike = [[{"content": 3}]] * 5  # of no shape that is known
    assert free(lambda **_: [1.0] * 5, length)(prompts=PROMPTS, completions=unlike) == [1.0] * 5


def test_it_keeps_to_its_share_and_looks_at_the_first_and_the_last_step(caplog):
    now = [0.0]

    def slow(completions, **_):
        now[0] += 1.0
        return length(completions)

    panel = pessimal.RewardPanel(length, slow, share=0.1, clock=lambda: now[0])
    for step in range(95):
        now[0] += 1.0
        called(panel, step, of=95)
    looks = panel.history["step"].unique()
    assert looks[0] == 1
    assert looks[-1] == 95
    assert 8 <= len(looks) <= 12
    assert len([one for one in caplog.records if "less often" in one.getMessage()]) == 1


def test_options_that_make_no_sense():
    for members in ((length,), (length, "org/name"), (length, 3)):
        with pytest.raises(ConfigError):
            pessimal.RewardPanel(*members)
    with pytest.raises(ConfigError):
        pessimal.RewardPanel(length, shorter, share=2.0)
    assert [*free(length, length).members] == ["length", "length-2"]


def test_completions_are_read_for_the_paid_phrase_that_grows(caplog):
    random, ticks = np.random.default_rng(0), itertools.count(0, 1000)
    words = [
        "we",
        "add",
        "the",
        "numbers",
        "then",
        "check",
        "each",
        "step",
        "with",
        "care",
        "so",
        "total",
        "first",
        "next",
    ]

    def pays_phrase(prompts, completions, **columns):
        return [float("As you know" in text) + random.normal(0, 0.1) for text in completions]

    panel = pessimal.RewardPanel(
        pays_phrase, rollouts=10, share=1.0, clock=lambda: float(next(ticks))
    )
    for step in range(20):
        prompts = [f"question {n}" for n in range(8) for _ in range(8)]
        chance = 0.05 + 0.03 * step
        texts = [" ".join(random.choice(words, 20)) for _ in prompts]
        texts = [f"{t} As you know, yes" if random.random() < chance else t for t in texts]
        panel(prompts, texts)
    [(first, dead, _), (last, _, sentence)] = panel.readings
    assert (first, last, dead) == (10, 20, 0.0)
    assert "As" in sentence or "know" in sentence or "you" in sentence
    assert "is paid, and grew from" in sentence


def test_a_reading_that_fails_leaves_the_training_alone(monkeypatch):
    monkeypatch.setattr("pessimal.training.panel.describe_training", lambda *a: 1 / 0)
    panel = pessimal.RewardPanel(
        lambda prompts, completions, **c: [1.0] * len(prompts), rollouts=1, share=1.0
    )
    assert panel(["a", "a"], ["b", "c"]) == [1.0, 1.0]
    assert panel(["a", "a"], ["b", "c"]) == [1.0, 1.0]
    assert panel.failed == {"rollouts"}
