"""Process rewards of language models: the probability of plus against minus at each step."""

import math

import pytest
import torch

import pessimal
from pessimal.conversation import Turn
from pessimal.scoring.texts import text_scorer
from tiny_language_models import CHAT, checkpoint

PROMPT, STEP = "What is love?", "<|sep|>"
RESPONSES = (f"love{STEP}\npeace{STEP}", f"war{STEP}", f"kind{STEP}\ncruel{STEP}\nlove{STEP}")
ANSWERS = {"positive": [" love"], "negative": [" war"]}
OPTIONS = {"kind": "judge", "step_token": STEP, "judge": ANSWERS}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return checkpoint(tmp_path_factory.mktemp("steps") / "steps", template=CHAT)


@torch.no_grad()
def probabilities(model, text: str, begin: int, answers=ANSWERS) -> list[float]:
    """Of the positive answers against the negative ones, at each step behind `begin` ids."""
    words, causal = model.tokenizer, model.network().causal
    ids = words(text, add_special_tokens=False)["input_ids"]
    step = words.convert_tokens_to_ids(STEP)
    logits = causal(input_ids=torch.tensor([ids])).logits[0].double()
    sides = [
        logits[:, [words(a, add_special_tokens=False)["input_ids"][0] for a in side]].logsumexp(-1)
        for side in answers.values()
    ]
    shares = torch.stack(sides).softmax(dim=0)[0]
    return [float(shares[at]) for at in range(begin, len(ids)) if ids[at] == step]


def scored(model, responses=RESPONSES) -> list[float]:
    asked = [(Turn("user", PROMPT), Turn("assistant", response)) for response in responses]
    return text_scorer(model, asked[:2], device=torch.device("cpu")).rewards(asked).tolist()


REDUCES = {"min": min, "last": lambda steps: steps[-1], "product": math.prod}


@pytest.mark.parametrize("reduce", list(REDUCES))
def test_steps_of_one_text(folder, reduce):
    model = pessimal.load(str(folder), **OPTIONS, one_text=True, reduce=reduce)
    steps = [probabilities(model, f"<|bos|>{PROMPT} {one}", 0) for one in RESPONSES]
    assert [len(one) for one in steps] == [2, 1, 3]
    assert scored(model) == pytest.approx([REDUCES[reduce](one) for one in steps], abs=1e-5)


def test_steps_in_a_chat_template_and_paragraphs(folder):
    model = pessimal.load(str(folder), **OPTIONS)
    opened = f"<|bos|><|start|>user{STEP}{PROMPT}<|end|><|start|>assistant{STEP}"
    begin = len(model.tokenizer(opened, add_special_tokens=False)["input_ids"])
    steps = probabilities(model, f"{opened}love{STEP}kind{STEP}", begin)
    assert scored(model, ["love\n\nkind", "war"])[0] == pytest.approx(min(steps), abs=1e-5)


def test_spellings_of_an_answer_are_summed(folder):
    answers = {"positive": [" love", " kind"], "negative": [" war", "cruel"]}
    model = pessimal.load(str(folder), **OPTIONS | {"judge": answers}, one_text=True)
    right = [min(probabilities(model, f"<|bos|>{PROMPT} {one}", 0, answers)) for one in RESPONSES]
    assert scored(model) == pytest.approx(right, abs=1e-5)


def test_a_scan_of_steps_is_bounded_by_probabilities(folder):
    model = pessimal.load(str(folder), **OPTIONS, one_text=True)
    table = pessimal.scan(model, PROMPT, candidates=list(RESPONSES), progress=False)
    assert table.rewards == pytest.approx(scored(model), abs=1e-5)
    assert (table.measured["ceiling"]["low"], table.measured["ceiling"]["high"]) == (0.0, 1.0)
    assert table.measured["says_yes_above"] == 0.5
