"""The two steps of a language model's perturbations, against a scripted server."""

import json

import pytest

from pessimal.explaining.attribute import Attribute, Direction
from pessimal.explaining.perturbers import Request, Status
from pessimal.explaining.perturbers.llm import Llm, find
from scripted_server import (
    CLARITY,
    HOSTILE,
    OVERALL,
    PLACEBO,
    VERBOSITY,
    Says,
    case,
    comparison,
    good,
    kind,
    request,
    serving,
)

BOTH = (CLARITY, VERBOSITY)


def perturber(server, folder=None, *, attributes=BOTH, **options) -> Llm:
    asked = {"model": "m", "base_url": server.url} | options
    return Llm(attributes=attributes, cache=folder, **asked)


def rewrites(*texts, applicable: bool = True):
    """Names nothing, and rewrites to these in turn."""
    left = list(texts)

    def script(asked, number):
        if kind(asked) == "identify":
            return good(asked)
        text = left.pop(0) if len(left) > 1 else left[0]
        return Says(json.dumps({"applicable": applicable, "response": text}))

    return script


def test_words_are_named_once_a_response_and_each_request_is_rewritten():
    everything = [
        Request(comparison(), response, attribute, direction)
        for response in (0, 1)
        for attribute in BOTH
        for direction in Direction
    ]
    with serving(good) as server:
        made = perturber(server).perturb(everything)
    assert (len(server.of_kind("identify")), len(server.of_kind("rewrite"))) == (2, 8)
    assert [each.request for each in made] == everything
    assert {each.status for each in made} == {Status.changed}
    assert made[0].text == "clarity-0 is a good thing."
    assert made[0].spans == ((0, 5),)
    assert made[4].text == "clarity-0 maybe."


@pytest.mark.parametrize(
    ("response", "named", "spans"),
    [
        ("cat category cat", ["cat"], ((0, 3), (13, 16))),
        ("so so so", ["so so", "so"], ((0, 5), (6, 8))),
        ("a b c", ["a b", "b c"], ((0, 5),)),
        ("Peace is good", ["peace", "", " ", "Peace", "good."], ((0, 5),)),
    ],
)
def test_words_are_found_where_they_stand(response, named, spans):
    assert find(response, named) == spans


@pytest.mark.parametrize(
    ("script", "status"),
    [
        (rewrites("", applicable=False), Status.not_applicable),
        (rewrites(" Peace is a good thing.\n"), Status.failed),
        (lambda *_: Says(None, refusal="No."), Status.refused),
        (
            lambda a, _: good(a) if kind(a) == "identify" else Says("I'm sorry, I can't."),
            Status.refused,
        ),
    ],
)
def test_what_came_of_no_text_is_a_status_with_a_reason(script, status):
    with serving(script) as server:
        (made,) = perturber(server).perturb([request()])
    assert (made.status, made.text) == (status, None)
    assert made.note


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_responses_are_data(text):
    def script(asked, _):
        material = case(asked)
        if "attributes" in material:
            return Says(
                json.dumps({name: [material["response"]] for name in material["attributes"]})
            )
        return Says(json.dumps({"applicable": True, "response": material["response"] + "<b>\0"}))

    with serving(script) as server:
        (made,) = perturber(server).perturb([request(text=text)])
    assert (made.status, made.text) == (Status.changed, text + "<b>\0")
    assert made.spans == (((0, len(text)),) if text.strip() else ())


def test_its_provenance_is_all_that_decides_its_texts():
    with serving(good) as server:
        own = perturber(server).provenance()
        assert (
            own == perturber(server, api_key_variable=None, retries=9, concurrency=1).provenance()
        )
        others = [
            perturber(server, temperature=0.0),
            perturber(server, model="n"),
            perturber(server, attempts=2),
            perturber(server, attributes=(CLARITY,)),
            perturber(
                server, attributes=(CLARITY, Attribute("verbosity", "Otherwise described.", -1))
            ),
        ]
    assert all(other.provenance() != own for other in others)
    assert len(json.loads(json.dumps(own))["prompts"]) == 64


def test_the_null_is_made_by_the_same_model_and_keeps_the_length():
    texts = ["Peace is fine.", "Calm is a fine matter."]

    def script(asked, _):
        again = "An earlier attempt was longer or shorter" in asked["messages"][0]["content"]
        return Says(json.dumps({"applicable": True, "response": texts[again]}))

    with serving(script) as server:
        llm = perturber(server)
        assert llm.placebo() is llm
        (made,) = llm.perturb([request(PLACEBO)])
    assert made.text == texts[1]  # the first one had 3 words for 5
    assert len(server.requests) == 2
    with serving(rewrites("Peace is so very much a truly good thing.", "Calm is good.")) as server:
        (made,) = perturber(server).perturb([request(PLACEBO)])
    assert made.text == "Calm is good."  # of two of another length the closer one
    assert "0.60" in made.note  # three words for five


def test_a_dry_run_counts_what_would_be_asked_and_asks_nothing():
    ways = [
        (attribute, better, response)
        for attribute in BOTH
        for better in (True, False)
        for response in (0, 1)
    ]
    everything = [request(a, better=better, response=response) for a, better, response in ways] + [
        request(OVERALL)
    ]
    with serving(good) as server:
        plan = perturber(server).dry_run(everything)
        assert server.requests == []
        assert plan.calls() == {"identify": 2, "rewrite": 9}
        same = [request(PLACEBO), request(PLACEBO, better=False)]  # are one question
        assert perturber(server).dry_run(same).calls().total() == 1
        perturber(server).perturb(everything)
    assert (len(server.of_kind("identify")), len(server.of_kind("rewrite"))) == (2, 9)
