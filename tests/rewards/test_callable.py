"""A Python function as a reward."""

import functools

import numpy as np
import pytest
import torch

import pessimal
from pessimal.conversation import Turn
from pessimal.errors import ConfigError, ModelError
from pessimal.rewards.callable import BATCH, CallableSpec, open_callable, wrap_callable
from pessimal.rewards.spec import ModelSpec


def length(prompt: str, responses: list[str], *, scale: float = 1.0) -> list[float]:
    return [scale * (len(response) - len(prompt) / 8) for response in responses]


class Counted:
    def __init__(self, letter: str):
        self.letter = letter

    def __call__(self, prompt, responses):
        return np.array([response.count(self.letter) for response in responses])


def spec(target: str, **arguments) -> ModelSpec:
    return CallableSpec(callable={"_target_": f"{__name__}.{target}", **arguments})


def pair(prompt: str, response: str) -> tuple[Turn, Turn]:
    return Turn("user", prompt), Turn("assistant", response)


def test_rewards_are_the_functions_in_the_order_of_the_conversations():
    conversations = [pair(f"prompt {i % 3}", "x" * i) for i in range(40)]
    reward, reports = open_callable(spec("length", scale=2.0)), {}
    rewards = reward.rewards(conversations, report=lambda batch, of: reports.update(batch))
    np.testing.assert_allclose(rewards, [2.0 * (i - 1) for i in range(40)], atol=1e-12)
    assert reports == dict(enumerate(rewards))
    assert reward.name == "length"
    assert reward.can == {"text"}


def test_one_call_has_one_prompt_and_at_most_256_responses():
    calls = []

    def f(prompt, responses):
        calls.append((prompt, len(responses)))
        return torch.arange(len(responses), dtype=torch.bfloat16, requires_grad=True)

    conversations = [pair("a", str(i)) for i in range(BATCH + 7)] + [
        pair("b", "x"),
        pair("a", "last"),
    ]
    rewards = wrap_callable(f, name="f").rewards(conversations)
    assert calls == [("a", BATCH), ("a", 8), ("b", 1)]
    assert rewards[-1] == 7


def test_several_turns_are_shown_plainly():
    seen = []
    reward = wrap_callable(lambda prompt, responses: seen.append(prompt) or [0.0])
    reward.rewards(
        [
            (
                Turn("user", "Hi"),
                Turn("assistant", "Yes?"),
                Turn("user", "Why?"),
                Turn("assistant", "So."),
            )
        ]
    )
    assert seen == ["user: Hi\n\nassistant: Yes?\n\nuser: Why?"]


def test_a_class_is_made_and_its_instance_called():
    rewards = open_callable(spec("Counted", letter="e")).rewards(
        [pair("p", "tree"), pair("p", "oak")]
    )
    assert rewards.tolist() == [2.0, 0.0]


@pytest.mark.parametrize(
    "given",
    [
        lambda prompt, responses: [1.0] * (len(responses) + 1),
        lambda prompt, responses: [1.0, float("nan")],
        lambda prompt, responses: ["1.0", "2.0"],
        lambda prompt, responses: None,
    ],
)
def test_what_is_no_number_a_response_is_an_error_and_the_rest_is_reported(given):
    reports = {}

    def f(*arguments):
        return [5.0] if arguments[0] == "good" else given(*arguments)

    conversations = [pair("good", "x"), pair("bad", "y"), pair("bad", "z")]
    with pytest.raises(ModelError):
        wrap_callable(f, name="f", shape="plain_group").rewards(
            conversations, report=lambda batch, of: reports.update(batch)
        )
    assert reports == {0: 5.0}


@pytest.mark.parametrize("target", ["nowhere"])
def test_what_cannot_be_called_shows_before_work(target):
    with pytest.raises(ConfigError):
        open_callable(spec(target))  # Counted lacks its letter


def test_digests_follow_source_arguments_and_what_is_closed_over():
    def closing(value):
        return lambda prompt, responses: [value] * len(responses)

    def digest(f) -> str:
        return wrap_callable(f, name="f").weights_digest

    assert digest(closing(1)) == digest(closing(1)) != digest(closing(2))
    assert digest(functools.partial(length, scale=2.0)) != digest(length) == digest(length)
    built_in = wrap_callable(len, shape="plain").weights_digest
    assert len({built_in, digest(Counted("a")), digest(Counted("b"))}) == 3
    one, two = open_callable(spec("length", scale=1.0)), open_callable(spec("length", scale=2.0))
    assert one.config_digest != two.config_digest
    assert one.weights_digest != two.weights_digest


def test_a_sum_leaves_out_what_only_a_term_of_no_weight_applies_to():
    """A weight of 0 is scored and not added: what it alone applies to has no sum."""

    def short(prompt, responses):
        return [float(len(text)) if len(text) < 4 else None for text in responses]

    def every(prompt, responses):
        return [7.0 for _ in responses]

    table = pessimal.scan([short, every], weights=[2.0, 0.0], candidates=["a", "abc", "abcdef"])
    assert dict(zip(table.rows["text"], table.rows["reward"], strict=True)) == {"a": 2, "abc": 6}
    both = pessimal.scan([short, every], weights=[2.0, 1.0], candidates=["a", "abcdef"])
    assert dict(zip(both.rows["text"], both.rows["reward"], strict=True)) == {"a": 9, "abcdef": 7}
