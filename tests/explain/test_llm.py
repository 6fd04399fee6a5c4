"""The two steps of a language model's perturbations, against a scripted server."""

import json

import pytest
from scripted_server import (
    CLARITY,
    HOSTILE,
    OVERALL,
    PLACEBO,
    VERBOSITY,
    Says,
    case,
    chat,
    comparison,
    good,
    kind,
    request,
    serving,
)

from pessimal.errors import ConfigError, WorkError
from pessimal.explain.attribute import Attribute, Direction
from pessimal.explain.perturbation import Request, Status
from pessimal.explain.perturbers.llm import Llm

BOTH = (CLARITY, VERBOSITY)


def perturber(server, folder=None, *, attributes=BOTH, min_locality: float = 0.0, **options) -> Llm:
    return Llm(chat(server.url, folder, **options), attributes=attributes, min_locality=min_locality)


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


def test_a_request_says_which_end_of_the_attribute_is_wanted_and_shows_the_words():
    with serving(good) as server:
        perturber(server).perturb([request(VERBOSITY, better=True), request(CLARITY, better=False)])
    sent = {case(asked)["attribute"]: asked for asked in server.of_kind("rewrite")}
    prompts_text = sent["verbosity"]["messages"][0]["content"]
    assert "it has less of this attribute" in prompts_text
    assert "it is better as a response overall" in prompts_text
    prompts_text = sent["clarity"]["messages"][0]["content"]
    assert "it has less of this attribute" in prompts_text
    assert "it is worse as a response overall" in prompts_text
    material = case(sent["clarity"])
    assert material["words"] == ["Peace"]
    assert material["description"] == CLARITY.description
    assert material["conversation"] == [{"role": "user", "content": "What is the best thing?"}]


def test_control_arms_need_no_words_and_name_no_attribute():
    with serving(good) as server:
        made = perturber(server).perturb([request(OVERALL), request(OVERALL, better=False), request(PLACEBO)])
    assert len(server.requests) == len(server.of_kind("rewrite")) == 3
    assert {each.status for each in made} == {Status.changed}
    assert {each.spans for each in made} == {None}
    assert all("attribute" not in case(asked) for asked in server.requests)
    prompts_text = sorted(asked["messages"][0]["content"] for asked in server.requests)
    assert "neither better nor worse" in prompts_text[0]
    assert {
        "it is better as a response" in prompts_text[1],
        "it is better as a response" in prompts_text[2],
    } == {True, False}


def test_words_that_do_not_occur_are_dropped_and_counted():
    def script(asked, _):
        if kind(asked) == "identify":
            named = {"clarity": ["good thing", "peace", "", " ", "thing."], "verbosity": ["nowhere"]}
            return Says(json.dumps(named))
        return good(asked)

    with serving(script) as server:
        llm = perturber(server)
        clarity, verbosity = llm.perturb([request(CLARITY), request(VERBOSITY)])
        llm.perturb([request(CLARITY, better=False)])
    assert clarity.spans == ((11, 22),)  # "good thing" and "thing." overlap
    assert "3 named words do not occur" in clarity.note
    assert verbosity.spans == ()
    assert verbosity.status is Status.changed
    assert llm.dropped == 4
    assert "4 named words did not occur" in llm.summary()


def test_not_applicable_is_taken_at_its_word():
    with serving(rewrites("", applicable=False)) as server:
        (made,) = perturber(server).perturb([request()])
    assert (made.status, made.text) == (Status.not_applicable, None)
    assert "cannot be changed so" in made.note


@pytest.mark.parametrize("text", ["Peace is a good thing.", " Peace is a good thing.\n", "", " \n"])
def test_a_text_that_was_not_changed_or_is_empty_has_failed(text):
    with serving(rewrites(text)) as server:
        (made,) = perturber(server).perturb([request()])
    assert (made.status, made.text) == (Status.failed, None)
    assert made.note


@pytest.mark.parametrize("step", ["identify", "rewrite"])
@pytest.mark.parametrize(
    "says",
    [
        Says(None, refusal="No."),
        Says(None, finish_reason="content_filter"),
        Says("I'm sorry, I can't do that."),
    ],
)
def test_refusals_at_either_step_are_refusals(step, says):
    with serving(lambda asked, _: says if kind(asked) == step else good(asked)) as server:
        llm = perturber(server)
        (made,) = llm.perturb([request()])
    assert (made.status, made.text) == (Status.refused, None)
    assert made.note
    assert "1 refused" in llm.summary()
    assert len(server.of_kind("rewrite")) == (step == "rewrite")


@pytest.mark.parametrize("step", ["identify", "rewrite"])
def test_replies_of_no_use_at_either_step_are_failures(step):
    with serving(lambda asked, _: Says("hm") if kind(asked) == step else good(asked)) as server:
        (made,) = perturber(server, attempts=2).perturb([request()])
    assert made.status is Status.failed
    assert "no JSON object" in made.note
    assert len(server.of_kind(step)) == 2


def test_a_request_that_fails_alone_takes_no_other_with_it():
    def script(asked, _):
        return Says(status=500) if case(asked).get("attribute") == "clarity" else good(asked)

    with serving(script) as server:
        made = perturber(server, retries=0).perturb([request(CLARITY), request(VERBOSITY)])
    assert [each.status for each in made] == [Status.failed, Status.changed]
    assert "status 500" in made[0].note


def test_a_request_gives_the_same_whatever_else_is_asked():
    alone, others = (
        request(CLARITY, seed=3),
        [request(VERBOSITY), request(CLARITY), request(PLACEBO, response=1)],
    )
    with serving(good) as server:
        (single,) = perturber(server).perturb([alone])
        among = perturber(server).perturb([*others, alone])
    assert among[-1] == single
    assert len({json.dumps(asked["messages"]) for asked in server.of_kind("identify")}) == 1


def test_seeds_repeat_both_steps():
    with serving(good) as server:
        made = perturber(server).perturb([request(seed=0), request(seed=1)])
    assert len({each.text for each in made}) == 2
    assert sorted(asked["seed"] for asked in server.of_kind("identify")) == [0, 1000]


def test_a_second_run_pays_for_nothing(tmp_path):
    everything = [request(attribute, seed=seed) for attribute in (*BOTH, OVERALL) for seed in (0, 1)]
    with serving(good) as server:
        first = perturber(server, tmp_path).perturb(everything)
        paid = len(server.requests)
        again = perturber(server, tmp_path)
        assert again.perturb(everything) == first
    assert len(server.requests) == paid == 8
    assert "0 calls" in again.summary()


def test_after_a_stop_the_same_command_goes_on(tmp_path):
    everything = [request(attribute, seed=seed) for attribute in BOTH for seed in range(8)]
    with serving(lambda asked, number: good(asked) if number < 11 else Says(status=503)) as server:
        with pytest.raises(WorkError, match="2 requests in a row"):
            perturber(server, tmp_path, concurrency=1, retries=0, stop_after=2).perturb(everything)
        server.script = good
        llm = perturber(server, tmp_path)
        made = llm.perturb(everything)
    assert {each.status for each in made} == {Status.changed}
    assert (llm.chat.usage.cached, llm.chat.usage.calls) == (11, 24 - 11)


class TestLocality:
    inside, outside = "Calm is a good thing.", "Peace is a bad idea."

    def test_a_change_elsewhere_is_asked_for_once_more_with_that_said(self):
        with serving(rewrites(self.outside, self.inside)) as server:
            llm = perturber(server, min_locality=0.5)
            (made,) = llm.perturb([request()])
        first, second = server.of_kind("rewrite")
        assert "earlier attempt changed words other than" not in first["messages"][0]["content"]
        assert "earlier attempt changed words other than" in second["messages"][0]["content"]
        assert made.text == self.inside
        assert "asked twice" in made.note
        assert "below" not in made.note
        assert "1 changes lay elsewhere" in llm.summary()

    def test_a_change_within_the_words_is_not_asked_for_again(self):
        with serving(rewrites(self.inside)) as server:
            perturber(server, min_locality=1.0).perturb([request()])
        assert len(server.of_kind("rewrite")) == 1

    def test_without_the_option_nothing_is_asked_again(self):
        with serving(rewrites(self.outside)) as server:
            (made,) = perturber(server).perturb([request()])
        assert len(server.of_kind("rewrite")) == 1
        assert made.text == self.outside

    def test_the_more_local_of_two_is_kept_and_said_to_fall_short(self):
        half, none = "Calm is a bad thing.", self.outside
        for texts in ((half, none), (none, half)):
            with serving(rewrites(*texts)) as server:
                (made,) = perturber(server, min_locality=0.9).perturb([request()])
            assert made.text == half
            assert "still below 0.9" in made.note

    def test_a_second_answer_of_no_use_leaves_the_first(self):
        with serving(rewrites(self.outside, "")) as server:
            (made,) = perturber(server, min_locality=0.9).perturb([request()])
        assert (made.status, made.text) == (Status.changed, self.outside)

    def test_control_arms_have_none(self):
        with serving(rewrites(self.outside)) as server:
            perturber(server, min_locality=1.0).perturb([request(OVERALL), request(PLACEBO)])
        assert len(server.requests) == 2


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_responses_are_data(text):
    def script(asked, _):
        material = case(asked)
        if "attributes" in material:
            return Says(json.dumps({name: [material["response"]] for name in material["attributes"]}))
        return Says(json.dumps({"applicable": True, "response": material["response"] + "<b>\0"}))

    with serving(script) as server:
        (made,) = perturber(server).perturb([request(text=text)])
    assert (made.status, made.text) == (Status.changed, text + "<b>\0")
    assert made.spans == (((0, len(text)),) if text.strip() else ())


def test_a_response_with_lone_surrogates_fails_without_a_call():
    with serving(good) as server:
        llm = perturber(server)
        made = llm.perturb([request(text="a \ud800 b"), request()])
    assert [each.status for each in made] == [Status.failed, Status.changed]
    assert "lone surrogates" in made[0].note
    assert not any("\ufffd" in json.dumps(asked, ensure_ascii=False) for asked in server.requests)


def test_an_answer_with_lone_surrogates_is_no_answer():
    with serving(lambda *_: Says('{"applicable": true, "response": "\\ud800"}')) as server:
        (made,) = perturber(server).perturb([request(OVERALL)])
    assert made.status is Status.failed
    assert "lone surrogates" in made.note


def test_nothing_asked_gives_nothing():
    with serving(good) as server:
        assert perturber(server).perturb([]) == []
    assert server.requests == []


def test_its_provenance_is_all_that_decides_its_texts():
    with serving(good) as server:
        own = perturber(server).provenance()
        assert own == perturber(server, key="sk-other", retries=9, concurrency=1).provenance()
        others = [
            perturber(server, min_locality=0.1),
            perturber(server, temperature=0.0),
            perturber(server, model="n"),
            perturber(server, attempts=2),
            perturber(server, attributes=(CLARITY,)),
            perturber(server, attributes=(CLARITY, Attribute("verbosity", "Otherwise described.", -1))),
        ]
    assert all(other.provenance() != own for other in others)
    assert len(json.loads(json.dumps(own))["prompts"]) == 64


def test_impossible_options_and_unknown_attributes_are_refused():
    with serving(good) as server:
        with pytest.raises(ConfigError, match="min_locality"):
            perturber(server, min_locality=2)
        with pytest.raises(ConfigError, match="same name"):
            perturber(server, attributes=(CLARITY, CLARITY))
        with pytest.raises(ConfigError, match="verbosity is asked for"):
            perturber(server, attributes=(CLARITY,)).perturb([request(VERBOSITY)])
        with pytest.raises(ConfigError, match="attempts"):
            perturber(server, attempts=0)
    assert server.requests == []
