"""Which responses a text gives, in the whole conversation; and the best of those."""

import pytest
import torch

from pessimal.rewards.formats import Templated
from pessimal.searching.allowed import RoundTrip, best_retokenizing

PROMPTS = ("What, in one word, is the greatest thing ever?", "What is evil?")


@pytest.fixture(scope="module")
def tokenizer(tiny_checkpoint):
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(tiny_checkpoint)


@pytest.fixture(scope="module")
def frame(tokenizer):
    return Templated(tokenizer).frame(PROMPTS[0])


def ids_of(tokenizer, *tokens: str) -> torch.Tensor:
    return torch.tensor([tokenizer.convert_tokens_to_ids(list(tokens))])


def test_it_is_the_round_trip_of_each_response(tokenizer, frame):
    generator = torch.Generator().manual_seed(0)
    responses = torch.randint(0, len(tokenizer), (300, 2), generator=generator)
    retokenizes = RoundTrip(tokenizer, [(Templated(tokenizer), frame)])(responses)
    for ids, found in zip(responses.tolist(), retokenizes.tolist(), strict=True):
        text = tokenizer.decode(ids, clean_up_tokenization_spaces=False)
        conversation = [
            {"role": "user", "content": PROMPTS[0]},
            {"role": "assistant", "content": text},
        ]
        whole = tokenizer.apply_chat_template(conversation, tokenize=True, return_dict=False)
        assert found == (whole == frame.around(ids))
    assert 0.05 < retokenizes.float().mean() < 0.95


def test_the_template_decides_not_the_text_alone(tokenizer, frame):
    # The template trims; alone, ' love' is one token that decodes to itself.
    love = ids_of(tokenizer, "Ġlove")
    (text,) = RoundTrip(tokenizer, [(Templated(tokenizer), frame)]).text_of(love)
    assert (text, tokenizer(text, add_special_tokens=False)["input_ids"]) == (
        " love",
        love[0].tolist(),
    )
    assert RoundTrip(tokenizer, [(Templated(tokenizer), frame)])(love).tolist() == [False]
    assert RoundTrip(tokenizer, [(Templated(tokenizer), frame)])(
        ids_of(tokenizer, "love", "Ġlove")
    ).tolist() == [True]
    assert RoundTrip(tokenizer, [(Templated(tokenizer), frame)])(
        ids_of(tokenizer, "l", "ove")
    ).tolist() == [False], "it merges"
    closed = Templated(tokenizer, (7,)).frame(PROMPTS[0])
    word = ids_of(tokenizer, "love")
    assert RoundTrip(tokenizer, [(Templated(tokenizer, (7,)), closed)])(word).tolist() == [True]
    assert RoundTrip(tokenizer, [(Templated(tokenizer), closed)])(word).tolist() == [False], (
        "closing ids stand behind the conversation"
    )


def test_with_several_prompts_it_has_to_retokenize_in_each(tokenizer, frame):
    # A template that runs prompt and response together: what stands before decides how the response
    # is split.
    from copy import deepcopy

    glued = deepcopy(tokenizer)
    glued.chat_template = "{{ bos_token }}{% for m in messages %}{{ m['content'] }}{% endfor %}"
    plain, tying = Templated(glued).frame("love:"), Templated(glued).frame("so ")
    word = ids_of(glued, "love")
    assert RoundTrip(glued, [(Templated(glued), plain)])(word).tolist() == [True]
    assert RoundTrip(glued, [(Templated(glued), tying)])(word).tolist() == [False]
    for frames in ([plain, tying], [tying, plain]):
        assert RoundTrip(glued, [(Templated(glued), one) for one in frames])(word).tolist() == [
            False
        ]


def single(rows: torch.Tensor) -> torch.Tensor:
    return rows[:, None]


@pytest.mark.parametrize("count", [1, 3, 100])
def test_best_retokenizing_is_what_sorting_everything_gives(count):
    generator = torch.Generator().manual_seed(count)
    values = torch.randint(0, 30, (200,), generator=generator).double()  # many ties
    good = torch.rand(200, generator=generator) < 0.1
    found = best_retokenizing(
        values, single, count=count, retokenizes=lambda responses: good[responses[:, 0]], above=9.0
    )
    expected = [
        row
        for row in sorted(range(200), key=lambda row: (-float(values[row]), row))
        if good[row] and values[row] > 9
    ]
    assert found.tolist() == expected[:count]


def test_round_trips_are_checked_from_the_best_downward_and_no_further_than_need_be():
    values, asked = torch.arange(10_000).double(), []

    def retokenizes(responses):
        asked.extend(responses[:, 0].tolist())
        return responses[:, 0] < 9_980

    assert best_retokenizing(values, single, count=1, retokenizes=retokenizes).tolist() == [9_979]
    assert asked == list(range(9_999, 9_999 - len(asked), -1))
    assert len(asked) < 60
