"""Attributes with rules of their own: the order of edits, and what is refused before any model is loaded."""

import time

import pytest

from pessimal.errors import ConfigError
from pessimal.explain.attribute import Attribute, Direction, Edit
from pessimal.explain.comparison import Comparison, Turn
from pessimal.explain.perturbation import Request, Status
from pessimal.explain.perturbers.rules import Rules, check
from pessimal.explain.rules import user_edits


def made(text, *, more=(), less=(), direction=Direction.better, name="mine"):
    comparison = Comparison("k", (Turn("user", "?"),), (text, "other"))
    (found,) = Rules().perturb([Request(comparison, 0, Attribute(name, "", 1, more, less), direction)])
    return found


def test_edits_follow_one_another():
    edits = (
        Edit(find="(cat)s?", put=r"\1fish"),
        Edit(find="catfish", put="dog"),
        Edit(prepend="So: "),
        Edit(append="!"),
    )
    found = made("Cats and a CAT", more=edits)
    assert found.text == "So: dog and a dog!"
    assert found.spans == ((0, 4), (11, 14))
    assert found.status is Status.changed


def test_own_rules_go_before_the_built_in_ones():
    assert made("I think so.", name="assertiveness", more=(Edit(append=" Yes."),)).text == "I think so. Yes."


def test_a_text_that_no_edit_changes_and_one_of_which_nothing_is_left():
    assert made("dog", more=(Edit(find="cat", put="x"),)).status is Status.not_applicable
    assert "leave nothing" in made("dog", more=(Edit(find=".+", put=" "),)).note


def test_the_way_without_edits_is_not_applicable():
    found = made("dog", more=(Edit(append="!"),), direction=Direction.worse)
    assert found.status is Status.not_applicable
    assert "`less`" in found.note


def test_an_expression_that_never_ends_is_cut_off(monkeypatch):
    monkeypatch.setattr(user_edits, "MOST_SECONDS", 0.2)
    begun = time.monotonic()
    found = made("a" * 60 + "!", more=(Edit(find=r"(a|a)*(a|aa)+$", put="x"),))
    assert time.monotonic() - begun < 5
    assert found.status is Status.failed
    assert "took longer" in found.note


def test_a_text_that_grows_without_bound_is_cut_off():
    found = made("a" * 2000, more=(Edit(find="a", put="a" * 2000),))
    assert found.status is Status.failed
    assert "longer than" in found.note


@pytest.mark.parametrize(
    ("attribute", "said"),
    [
        (
            Attribute("politeness", "", 1),
            r"no rules for the attribute 'politeness'.*conf/contrast/politeness.yaml",
        ),
        (Attribute("mine", "", 1, more=(Edit(),)), "nothing is given; give exactly one"),
        (
            Attribute("mine", "", 1, less=(Edit(find="a", append="b"),)),
            r"rule 1 under `less`: find and append is given",
        ),
        (
            Attribute(
                "mine",
                "",
                1,
                more=(Edit(append="b"), Edit(find="(")),
            ),
            "rule 2 under `more`.*not a regular expression",
        ),
        (Attribute("mine", "", 1, more=(Edit(find="a", put=r"\1"),)), "names group 1"),
        (Attribute("clarity", "", 1, more=(Edit(find="["),)), "not a regular expression"),
    ],
)
def test_what_cannot_be_carried_out_is_refused(attribute, said):
    with pytest.raises(ConfigError, match=said):
        check([attribute])


def test_known_attributes_and_right_edits_pass():
    check([Attribute("clarity", "", 1), Attribute("mine", "", 1, more=(Edit(find="(a)", put=r"\1\1"),))])
