"""Hunks, minimal counterfactuals and maximal semifactuals, against brute force over rewards in
closed form."""

import itertools
import random

import pytest

from pessimal.explaining.smallest import apply, grow, hunks_between, shrink, tokens_of

HOSTILE = [
    "",
    " \t\n ",
    "\x00",
    "<script>",
    "\ud800 half",
    "a\u2028b",
    "👨\u200d👩\u200d👧 👍🏽!",
    "e\u0301te\u0301",
    "我们 明天，去。",
    "नमस्ते",
    "x" * 5000,
    "word " * 3000,
]


def random_text(draw: random.Random, *, most: int = 30) -> str:
    pieces = [
        "good",
        "bad",
        "don't",
        ",",
        "…",
        " ",
        "  ",
        "\n\n",
        "\x00",
        "\ud800",
        "我",
        "👍🏽",
        "\u2028",
        "7",
    ]
    return "".join(
        draw.choice(pieces) + draw.choice(["", " ", " "]) for _ in range(draw.randrange(most))
    )


def random_edit(draw: random.Random, text: str) -> str:
    tokens = tokens_of(text)
    for _ in range(draw.randrange(1, 6)):
        place = draw.randrange(len(tokens) + 1)
        tokens[place : place + draw.randrange(3)] = tokens_of(random_text(draw, most=4))
    return "".join(tokens)


def subsets(count: int):
    return (
        chosen for size in range(count + 1) for chosen in itertools.combinations(range(count), size)
    )


class Rewards:
    """m′ by a function of the text; counts calls and what they asked for."""

    def __init__(self, *functions):
        self.functions, self.calls = functions, []

    def __call__(self, asked):
        self.calls.append(list(asked))
        return [self.functions[number](text) for number, text in asked]


def words(count: int, name: str = "w") -> str:
    return " ".join(f"{name}{number} ." for number in range(count))


@pytest.mark.parametrize("seed", range(3))
def test_all_hunks_give_the_edit_and_none_the_original(seed):
    draw = random.Random(seed)
    for _ in range(25):
        original = random_text(draw)
        edited = random_edit(draw, original) if draw.random() < 0.7 else random_text(draw)
        hunks = hunks_between(original, edited)
        assert "".join(tokens_of(original)) == original
        assert apply(original, hunks) == edited
        assert apply(original, hunks, ()) == original
        assert (hunks == ()) == (original == edited)
        assert all(early.end < late.start for early, late in itertools.pairwise(hunks))
        assert all(hunk.tokens >= 1 for hunk in hunks)
        # Each hunk alone is found again where it was.
        for number, hunk in enumerate(hunks[:3]):
            alone = apply(original, hunks, [number])
            assert alone == original[: hunk.start] + hunk.put + original[hunk.end :]
            assert alone != original


def test_any_text_can_be_cut_and_put_together():
    for original, edited in itertools.product(HOSTILE, HOSTILE):
        hunks = hunks_between(original, edited)
        assert apply(original, hunks) == edited
        assert apply(original, hunks, []) == original


def test_tokens_are_words_and_signs_whatever_the_script():
    assert tokens_of("Don't — e\u0301té, 42!") == ["Don't", " —", " e\u0301té", ",", " 42", "!"]
    assert tokens_of("去北京 ") == ["去", "北", "京", " "]
    assert tokens_of("👨\u200d👩\u200d👧 👍🏽") == ["👨\u200d👩\u200d👧", " 👍🏽"]


@pytest.mark.parametrize("seed", range(4))
def test_a_short_edit_is_shrunk_to_the_smallest_that_flips(seed):
    """Rewards with interactions of hunks, so that neither greed nor single hunks would do."""
    draw = random.Random(seed)
    count = draw.randrange(1, 9)
    original = words(count)
    edited = " ".join(
        " ".join([f"x{number}"] * draw.choice([1, 1, 2, 3])) + " ." for number in range(count)
    )
    hunks = hunks_between(original, edited)
    assert len(hunks) == count
    table = {apply(original, hunks, chosen): draw.gauss(0.6, 1) for chosen in subsets(count)}
    table[original], table[edited] = 0.5, -1.0
    flipping = [chosen for chosen in subsets(count) if table[apply(original, hunks, chosen)] < -0.1]
    smallest = min(sum(hunks[number].tokens for number in chosen) for chosen in flipping)
    rewards = Rewards(table.__getitem__)
    [found] = shrink([(original, edited)], rewards, tie=0.1)
    kept = hunks_between(original, found.smallest)
    assert found.tokens == smallest == sum(hunk.tokens for hunk in kept)
    assert found.new_margin == table[found.smallest] < -0.1
    assert found.exact
    assert found.minimal
    assert (found.hunks, found.kept) == (count, len(kept))
    assert found.tokens_before == sum(hunk.tokens for hunk in hunks)
    asked = [text for call in rewards.calls for _, text in call]
    assert found.queries == len(asked) == len(set(asked)) <= 2**count - 1
    assert original not in asked


@pytest.mark.parametrize("seed", range(3))
def test_a_long_edit_is_shrunk_until_no_hunk_can_be_reverted(seed):
    draw = random.Random(seed)
    count = draw.randrange(9, 16)
    original = words(count)
    edited = " ".join(
        " ".join([f"x{number}"] * draw.choice([1, 2, 3])) + " ." for number in range(count)
    )
    single = [draw.gauss(-0.3, 1) for _ in range(count)]
    double = {pair: draw.gauss(0, 0.5) for pair in itertools.combinations(range(count), 2)}

    def margin(text):
        present = [number for number in range(count) if f"x{number} " in text]
        return sum(single[n] for n in present) + sum(
            double[p] for p in itertools.combinations(present, 2)
        )

    offset = margin(edited) + 1  # so that the whole edit has a margin of -1
    rewards = Rewards(lambda text: margin(text) - offset)
    [found] = shrink([(original, edited)], rewards, tie=0.05)
    assert found.minimal
    assert not found.exact
    assert found.new_margin == rewards.functions[0](found.smallest) < -0.05
    kept = hunks_between(original, found.smallest)
    for fewer in itertools.combinations(kept, len(kept) - 1) if len(kept) > 1 else ():
        assert rewards.functions[0](apply(original, fewer)) >= -0.05
    asked = [text for call in rewards.calls for _, text in call]
    assert found.queries == len(asked) == len(set(asked))


@pytest.mark.parametrize("exact_hunks", [0, 3])
def test_a_hunk_is_tried_again_after_a_later_one_is_reverted(exact_hunks):
    """The preference flips where y stands, and x wherever z does: x has to stay until z is gone,
    and y alone is the least."""

    def margin(text):
        return -1.0 if "y" in text and ("x" in text or "z" not in text) else 1.0

    [found] = shrink([("a . b . c .", "x . y . z .")], Rewards(margin), exact_hunks=exact_hunks)
    assert (found.smallest, found.kept, found.tokens) == ("a . y . c .", 1, 1)
    assert found.minimal


def test_many_move_in_step_and_do_not_disturb_one_another():
    edits = [(words(n), words(n, "x")) for n in (1, 3, 12, 5, 20)]
    functions = [lambda text, need=need: need - text.count("x") - 0.5 for need in (1, 2, 7, 4, 3)]
    together = Rewards(*functions)
    found = shrink(edits, together)
    assert [one.tokens for one in found] == [1, 2, 7, 4, 3]
    alone, calls = [], []
    for edit, function in zip(edits, functions, strict=True):
        rewards = Rewards(function)
        alone += shrink([edit], rewards)
        calls.append(len(rewards.calls))
    assert alone == found
    assert len(together.calls) == max(calls)
    assert {number for number, _ in together.calls[0]} == {0, 1, 2, 3, 4}
    assert sum(one.queries for one in found) == sum(map(len, together.calls))


def test_an_edit_that_no_longer_flips_is_left_whole():
    edits = [("a b", "a c"), ("a b", "a d")]
    flips, holds = shrink(
        edits, lambda asked: [-1.0 if "c" in text else -0.05 for _, text in asked], tie=0.1
    )
    assert flips.minimal
    assert (holds.exact, holds.minimal, holds.smallest, holds.queries) == (False, False, "a d", 1)


@pytest.mark.parametrize("seed", range(4))
def test_a_semifactual_grows_until_nothing_can_be_added(seed):
    draw = random.Random(seed)
    count = draw.randrange(6, 12)
    tokens = [f"w{number}" for number in range(count)]

    def edit(name, places):
        return " ".join(
            name * draw.choice([1, 2]) if place in places else token
            for place, token in enumerate(tokens)
        )

    original, own = " ".join(tokens), edit("o", {0})
    others = [
        (name, edit(name, set(draw.sample(range(count), draw.randrange(1, 5))))) for name in "pqrs"
    ]
    worth = {name: draw.gauss(0.2, 1) for name in "pqrs"}

    def margin(text):
        pairs = 0.4 * text.count("p") * text.count("q") - 0.2 * text.count("r") * text.count("s")
        costs = sum(worth[name] * text.count(name) for name in "pqrs")
        return 2 + pairs - costs

    rewards = Rewards(margin)
    [found] = grow([(original, own, others)], rewards, tie=0.1)
    assert found.maximal
    assert found.new_margin == margin(found.largest) > 0.1
    # Which hunks were added: the choice among those of the others that gives this text.
    free = [
        hunk
        for hunk in dict.fromkeys(h for _, other in others for h in hunks_between(original, other))
        if not any(hunk.overlaps(mine) for mine in hunks_between(original, own))
    ]
    choices = (
        choice
        for choice in itertools.combinations(free, found.added)
        if not any(a.overlaps(b) for a, b in itertools.combinations(choice, 2))
    )
    applied = next(
        [*hunks_between(original, own), *choice]
        for choice in choices
        if apply(original, [*hunks_between(original, own), *choice]) == found.largest
    )
    assert found.tokens == sum(hunk.tokens for hunk in applied)
    for hunk in set(free) - set(applied):
        blocked = any(hunk.overlaps(other) for other in applied)
        assert blocked or margin(apply(original, [*applied, hunk])) <= 0.1
    asked = [text for call in rewards.calls for _, text in call]
    assert found.queries == len(asked) == len(set(asked))


def test_semifactuals_grow_by_the_largest_hunk_first_and_in_step():
    """A margin of 5 that each x lowers by 1: the hunk of four leaves no place for the one of
    three."""
    one = ("a b c d", "z b c d", [("p", "a x x x c d"), ("q", "a b c x x x x"), ("r", "a b x d")])
    none = ("a b", "a c", ())
    rewards = Rewards(lambda text: 5 - text.count("x"), lambda text: 1.0)
    grown, same = grow([one, none], rewards)
    assert grown.largest == "z b c x x x x"
    assert (grown.tokens, grown.tokens_before, grown.new_margin, grown.attributes) == (5, 1, 1, "q")
    assert (same.largest, same.added, same.queries, same.maximal) == ("a c", 0, 1, True)
    assert {number for number, _ in rewards.calls[0]} == {0, 1}
