"""A dry run: what client would take, and that it asks nothing."""

import pytest
from scripted_server import CLARITY, OVERALL, VERBOSITY, Says, chat, good, kind, request, serving

from pessimal.errors import ConfigError
from pessimal.explain.chat.plan import Prices
from pessimal.explain.perturbers.llm import Llm

EVERYTHING = [
    request(attribute, better=better, response=response)
    for attribute in (CLARITY, VERBOSITY)
    for better in (True, False)
    for response in (0, 1)
] + [request(OVERALL)]


@pytest.fixture
def server():
    with serving(good) as running:
        yield running


def perturber(server, folder=None) -> Llm:
    return Llm(chat(server.url, folder), attributes=(CLARITY, VERBOSITY))


def test_it_counts_what_would_be_asked_and_asks_nothing(server):
    plan = perturber(server).dry_run(EVERYTHING)
    assert server.requests == []
    assert (plan.kinds["identify"].calls, plan.kinds["rewrite"].calls) == (2, 9)
    perturber(server).perturb(EVERYTHING)
    assert (len(server.of_kind("identify")), len(server.of_kind("rewrite"))) == (2, 9)


def test_what_is_in_the_cache_is_apart(server, tmp_path):
    llm = perturber(server, tmp_path)
    llm.perturb(EVERYTHING[:3])
    paid = len(server.requests)
    plan = perturber(server, tmp_path).dry_run(EVERYTHING)
    assert (plan.cached, plan.calls) == (paid, 11 - paid)
    perturber(server, tmp_path).perturb(EVERYTHING)
    done = perturber(server, tmp_path).dry_run(EVERYTHING)
    assert (done.cached, done.calls, done.cost(Prices(1, 1))) == (11, 0, 0)
    assert done.examples == {}


def test_requests_that_ended_with_step_one_take_no_second(tmp_path):
    def script(asked, _):
        return Says(None, refusal="No.") if kind(asked) == "identify" else good(asked)

    with serving(script) as running:
        llm = perturber(running, tmp_path)
        llm.perturb(EVERYTHING)
        assert len(running.of_kind("rewrite")) == 1  # the control arm
        assert llm.dry_run(EVERYTHING).calls == 0


def test_tokens_are_a_quarter_of_the_characters(server):
    short = perturber(server).dry_run([request(OVERALL, text="a" * 400)])
    long = perturber(server).dry_run([request(OVERALL, text="a" * 4400)])
    assert long.kinds["rewrite"].prompt_tokens - short.kinds["rewrite"].prompt_tokens == 1000
    assert (short.kinds["rewrite"].completion_tokens, long.kinds["rewrite"].completion_tokens) == (100, 1100)
    assert "characters / 4" in short.text(Prices())


def test_the_cost_is_the_tokens_times_the_prices_or_unknown(server):
    plan = perturber(server).dry_run([request(OVERALL, text="a" * 4000)])
    rewrite = plan.kinds["rewrite"]
    assert plan.cost(Prices(2.0, 10.0)) == pytest.approx((2 * rewrite.prompt_tokens + 10 * 1000) / 1e6)
    assert plan.cost(Prices(2.0, None)) is None
    assert "cost: unknown" in plan.text(Prices())
    assert "cost: about 0.0" in plan.text(Prices(2.0, 10.0))
    with pytest.raises(ConfigError, match="price"):
        Prices(-1.0)


def test_it_shows_one_whole_example_of_each_kind(server):
    text = perturber(server).dry_run(EVERYTHING).text(Prices())
    assert text.count("An example of identify") == text.count("An example of rewrite") == 1
    assert '"response": "Peace is a good thing."' in text
    assert "[system] You rewrite responses" in text


def test_requests_that_cannot_be_sent_are_said(server):
    plan = perturber(server).dry_run([request(text="\ud800"), request()])
    assert (plan.unsendable, plan.calls) == (1, 2)
    assert "1 requests would fail" in plan.text(Prices())


def test_control_arms_do_not_hang_on_step_one(tmp_path):
    def script(asked, _):
        return Says(None, refusal="No.") if kind(asked) == "identify" else good(asked)

    with serving(script) as running:
        perturber(running, tmp_path / "a").perturb([request(CLARITY)])
        refused = perturber(running, tmp_path / "a").dry_run([request(CLARITY), request(OVERALL)])
        perturber(running, tmp_path / "b").perturb([request(OVERALL)])
        unnamed = perturber(running, tmp_path / "b").dry_run([request(CLARITY), request(OVERALL)])
    assert (refused.kinds["identify"].cached, refused.kinds["rewrite"].calls) == (1, 1)
    assert (unnamed.kinds["identify"].calls, unnamed.kinds["rewrite"].calls) == (1, 1)
    assert unnamed.kinds["rewrite"].cached == 1
