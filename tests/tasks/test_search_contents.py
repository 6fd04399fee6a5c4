"""The page of a search: what it claims, what it does not, and that what failed comes first."""

import json

import numpy as np
import pandas as pd
import pytest

from pessimal.report.contents import read_sections
from pessimal.report.page import Comparison, page
from pessimal.tasks.findings.search import search_contents

NOISE = 1e-6
FACTS = {
    "model": "tiny",
    "prompts": {"greatest": "What is the greatest thing ever?"},
    "goal": "optimal",
    "length": 3,
    "mode": "ids",
    "method": "auto",
    "allowed": 990,
    "vocabulary": 1000,
    "filters": ["no_special"],
    "spent": 20_000,
    "restarts": 8,
    "seed": 7,
    "noise": NOISE,
    "verdict": "1-opt",
    "dtype": "float32",
    "path": "shared-prefix",
    "budget": 5000,
    "something_else": "is left",
}
TOKENS = [" good", "<script>", "\n自由"]


def tables(
    *, margin=(0.5, 0.002, 0.1), ends=None, survives=True, sign=1, drift=0.0
) -> dict[str, pd.DataFrame]:
    """A search of three tokens that ends at ±5, its baselines where `ends` says (towards the goal)."""
    ends = {"random search": 4.0, "coordinate ascent": 4.9, "beam": 4.8} if ends is None else ends
    finals = [5.0, 4.7, 4.6]
    sequences = pd.DataFrame(
        {
            "rank": [1, 2, 3],
            "restart": [4, 0, 1],
            "start": ["random", "beam", "repeat"],
            "token_ids": [[1, 2, 3]] * 3,
            "tokens": [TOKENS] * 3,
            "text": ["".join(TOKENS), "second", "third"],
            "reward": [sign * value for value in finals],
            "search_reward": [sign * value + drift for value in finals],
            "survives": [survives, True, False],
            "one_opt": pd.array([True, True, None], dtype="boolean"),
            "evaluations": [10, 20, 30],
        }
    )
    curve = [
        {"method": method, "evaluations": evaluations, "reward": sign * share * end}
        for method, end in ({"search": 5.0} | ends).items()
        for evaluations, share in ((100, 0.5), (20_000, 1.0))
    ]
    neighbours = pd.DataFrame(
        {
            "position": range(3),
            "token_id": [1, 2, 3],
            "token": ["Ġgood", "<script>", "Ċx"],
            "text": TOKENS,
            "neighbour_id": [4, 5, 6],
            "neighbour": ["Ġfine", "Ġgreat", "Ġjoy"],
            "neighbour_text": [" fine", " great", " joy"],
            "reward": [sign * (5 - m) for m in margin],
            "margin": margin,
        }
    )
    quality = pd.concat(
        pd.DataFrame(
            {
                "point": point,
                "position": range(3),
                "best_id": 1,
                "best": [" fine", " great", " joy"],
                "gain": 0.1,
                "gradient_rank": ranks,
                "within_top_k": [rank <= 64 for rank in ranks],
                "regret": 0.0,
                "spearman": [0.1, 0.3, np.nan],
                "n": 989,
                "top_k": 64,
            }
        )
        for point, ranks in (("start", [1, 64, 65]), ("result", [300, 400, 2]))
    )
    return {
        "sequences": sequences,
        "curve": pd.DataFrame(curve),
        "phases": pd.DataFrame(
            {"phase": ["start", "polish"], "evaluations": [15_000, 5000], "seconds": [1.0, 2.0]}
        ),
        "neighbours": neighbours,
        "gradient_quality": quality,
        "growth": pd.DataFrame(
            {
                "length": [1, 2, 3, 3],
                "reward": [sign * value for value in (3.0, 4.0, 4.8, 5.0)],
                "what": ["scan", "beam", "beam", "search"],
                "reference": "",
                "verdict": ["", "", "", "1-opt"],
            }
        ),
        "ladder": pd.DataFrame(
            {
                "rung": [3, 4, 7],
                "check": ["no single change is better", "restarts agree", "better than the baselines"],
                "measured": ["1-opt; smallest margin 0.002", "1 of 8", ""],
                "verdict": ["holds", "does not hold", "not applicable"],
                "meaning": "meant",
            }
        ),
        "provenance": pd.DataFrame({"model": ["tiny"], "prompt": ["greatest"]}),
    }


def exhaustive(*, second: float = 0.01) -> dict[str, pd.DataFrame]:
    """Of a search through all pairs: the tables that come besides."""
    ends = {
        name: pd.DataFrame(
            {
                "rank": [1, 2],
                "first_id": [1, 2],
                "second_id": [3, 4],
                "first": "a",
                "second": "b",
                "text": ["the best pair", f" next of {name}"],
                "reward": [sign * 5.0, sign * (5.0 - second)],
                "survives": [True, False],
            }
        )
        for name, sign in (("top_pairs", 1), ("bottom_pairs", -1))
    }
    return tables() | ends | {
        "histogram": pd.DataFrame({"low": [-5.0, 0.0], "high": [0.0, 5.1], "n": [980_000, 100]}),
        "standing": pd.DataFrame(
            {"result": ["pruned"], "pair": ["a b"], "reward": [4.9], "rank": [12], "of": [980_100]}
        ),
    }  # fmt: skip


def told(contents) -> dict[str, str]:
    """Sentences by the figure or table that they stand under."""
    return {
        entry.figure or entry.table: entry.sentence
        for section in contents.sections
        for entry in section.entries
    }


def test_what_a_certified_result_claims_is_local_and_names_the_closest_neighbour():
    contents = search_contents(tables(), FACTS)
    claim = told(contents)["margins"]
    assert claim.startswith(
        "Best found. Reward 5.0000. No change of one token, among 990 allowed tokens (of 1,000; no_special)"
    )
    assert "The closest, ␣great for <script> at position 1, is lower by 0.00200" in claim
    assert "local statement" in claim
    assert "the same to the last bit" in claim
    first = contents.sections[0]
    assert first.entries[0].title == "The best response found: ␣good<script>\\n自由"
    assert first.sentence.startswith(
        "This search beats random search (by 1.00), coordinate ascent (by 0.100) and beam"
    )
    assert "“What is the greatest thing ever?”" in first.sentence


def test_the_pessimal_search_is_told_with_its_own_words():
    contents = search_contents(tables(sign=-1), FACTS | {"goal": "pessimal"})
    claim = told(contents)["margins"]
    assert claim.startswith("Worst found. Reward −5.0000. No change of one token")
    assert "lowers it. The closest, ␣great for <script> at position 1, is higher by 0.00200" in claim
    assert contents.sections[0].sentence.startswith("This search beats random search (by 1.00)")
    assert "worst response of 3 tokens" in contents.sections[0].title
    assert contents.summary["beats_random"] is True
    assert "3: −5.0000 (search, 1-opt)" in told(contents)["growth"]


@pytest.mark.parametrize(
    ("ends", "sentence", "beats"),
    [
        (
            {"random search": 4.0, "coordinate ascent": 5.3},
            "This search does NOT beat coordinate ascent (better by 0.300), at the same budget of 20,000",
            False,
        ),
        (
            {"random search": 4.0, "coordinate ascent": 5.0 + 1.9 * NOISE},
            "This search does NOT beat coordinate ascent, with which it ties, at the same",
            False,
        ),
        (
            {"random search": 5.1, "coordinate ascent": 5.0 - 1.9 * NOISE},
            "This search does NOT beat random search (better by 0.100) and only ties with coordinate ascent,",
            False,
        ),
        (
            {"random search": 4.0, "coordinate ascent": 5.0 - 2.1 * NOISE},
            "This search beats random search",
            True,
        ),
    ],
)
def test_a_baseline_that_is_not_beaten_comes_in_the_first_sentence(ends, sentence, beats):
    contents = search_contents(tables(ends=ends), FACTS)
    assert contents.sections[0].sentence.startswith(sentence)
    assert contents.summary["beats_coordinate_ascent"] is beats
    assert "beats_beam" not in contents.summary
    lost = "Does NOT beat" in told(contents)["margins"]
    assert lost is not beats


def test_what_is_beaten_is_told_behind_what_is_not():
    ends = {"random search": 4.0, "coordinate ascent": 5.3}
    sentence = search_contents(tables(ends=ends), FACTS).sections[0].sentence
    assert "candidate evaluations. It beats random search (by 1.00)." in sentence


def test_without_baselines_nothing_is_said_to_be_beaten():
    contents = search_contents(tables(ends={}), FACTS)
    assert contents.sections[0].sentence.startswith("No baseline was run")
    assert not [key for key in contents.summary if key.startswith("beats")]


def test_rewards_searched_in_low_precision_are_said_to_be_so():
    contents = search_contents(tables(drift=0.03), FACTS | {"dtype": "bfloat16"})
    assert "These rewards are in bfloat16" in contents.sections[0].sentence
    assert (
        "a difference of 0.030, MORE than the numerical noise; all claims rest on float32"
        in told(contents)["margins"]
    )


def test_a_tie_is_no_victory_and_a_better_neighbour_no_certificate():
    tie = told(search_contents(tables(margin=(0.5, -1.5e-6, 1e-6)), FACTS | {"verdict": "tie"}))["margins"]
    assert "surely raises it" in tie
    assert "TIE at 2 of 3 positions: ␣great for <script> at position 1 differs by 1.50e−06" in tie
    better = told(search_contents(tables(margin=(0.5, -0.2, 0.1)), FACTS | {"verdict": "not 1-opt"}))[
        "margins"
    ]
    assert better.startswith("NOT a local optimum.")
    assert "␣great for <script> at position 1, raises it by 0.200" in better
    assert "No change of one token" not in better


def test_survival_in_text_is_said_of_the_winner_and_of_all():
    kept = told(search_contents(tables(), FACTS))["margins"]
    assert "Its text survives" in kept
    assert "Of 3 kept responses 67% survive." in kept
    contents = search_contents(tables(survives=False), FACTS)
    assert "Its text does NOT survive" in told(contents)["margins"]
    assert "mode=text" in told(contents)["margins"]
    assert contents.summary["survives"] is False


def test_one_token_is_exact_and_claims_more():
    given = tables(ends={})
    one = {name: given[name].head(1) for name in ("sequences", "neighbours", "provenance", "curve")}
    one["phases"] = pd.DataFrame({"phase": ["start"], "evaluations": [990], "seconds": [0.0]})
    contents = search_contents(one, FACTS | {"length": 1, "restarts": 0, "budget": None})
    section, how = contents.sections
    assert [entry.sentence for entry in how.entries] == ["Evaluations: start 990."]  # one point is no curve
    assert section.title == "tiny · greatest · best token"
    claim = told(contents)["margins"]
    assert "Every one of 990 allowed tokens (of 1,000; no_special) was scored" in claim
    assert "local" not in claim
    assert "found." not in claim.replace("not only the best found.", "")
    assert "at position" not in claim
    assert section.entries[0].title.startswith("The best token: ")


def test_an_exhaustive_search_is_exact_but_for_ties():
    facts = FACTS | {"length": 2, "method": "exhaustive"}
    contents = search_contents(exhaustive(), facts)
    claim = told(contents)["margins"]
    assert "Every one of 980,100 pairs of tokens from 990 allowed tokens" in claim
    assert "The next pair, ␣next of top_pairs, is lower by 0.0100." in claim
    assert "0 of 1 cheaper ways reach it; another is pruned a b, rank 12." in told(contents)["pairs"]
    assert "The first are" not in told(contents)["sequences"]
    assert "␣good<script>\\n自由 (5.0000), second (4.7000), third (4.6000)." in told(contents)["sequences"]
    assert "restarts" not in contents.figures
    titles = [section.title for section in contents.sections]
    assert "tiny · greatest · best response of 2 tokens · every pair" in titles
    tied = told(search_contents(exhaustive(second=1e-6), facts))["margins"]
    assert "TIE: 1 other pair is within twice the numerical noise" in tied
    worst = search_contents(
        exhaustive() | {"sequences": tables(sign=-1)["sequences"]}, facts | {"goal": "pessimal"}
    )
    assert "The next pair, ␣next of bottom_pairs, is higher by 0.0100." in told(worst)["margins"]


def test_of_all_pairs_those_that_reach_the_best_are_counted_bounds_included():
    given = exhaustive()
    given["standing"] = pd.DataFrame(
        {
            "result": ["pruned", "beam", "restart 0", "random search"],
            "pair": ["p", "b", "r", " s"],
            "reward": [5.0, 5.0, 4.0, 1.0],
            "rank": [1, 1, 3, 900],
            "rank_most": [1, 2, 3, 950],
            "of": 980_100,
        }
    )
    sentence = told(search_contents(given, FACTS | {"length": 2, "method": "exhaustive"}))["pairs"]
    assert (
        "1 of 4 cheaper ways reach it (pruned); of the others the best and the worst are beam b, rank 1 to 2"
        in sentence
    )
    assert sentence.endswith("random search ␣s, rank 900 to 950.")


def test_an_exhaustive_search_claims_less_of_texts_and_in_low_precision():
    facts = FACTS | {"length": 2, "method": "exhaustive"}
    text = search_contents(exhaustive(), facts | {"mode": "text"})
    assert "The next pair" not in told(text)["margins"]  # it does not survive
    assert "the best of all that a text gives" in told(text)["margins"]
    assert "no text gives" in told(text)["pairs"]
    low = told(search_contents(exhaustive(second=1e-6), facts | {"dtype": "bfloat16"}))["margins"]
    assert "in bfloat16, whose rounding may hide a better one" in low
    assert "other pair" not in low


def test_what_is_compared_with_baselines_is_the_best_response_not_the_end_of_a_curve():
    given = tables(ends={"random search": 5.2})
    given["curve"].loc[given["curve"]["method"] == "search", "reward"] += 1  # a shorter response, say
    assert (
        search_contents(given, FACTS)
        .sections[0]
        .sentence.startswith("This search does NOT beat random search (better by 0.200)")
    )


def test_the_restarts_and_the_ladder_are_told():
    contents = search_contents(tables(), FACTS)
    assert (
        "8 restarts ended at 3 distinct responses, from 5.0000 (random start) to 4.6000 (repeat"
        in told(contents)["restarts"]
    )
    ladder = told(contents)["ladder"]
    assert ladder.startswith(
        "Holds: no single change is better [1-opt; smallest margin 0.002]. Does not hold: restarts agree"
    )
    assert "Not applicable: better than the baselines." in ladder
    alone = tables() | {"sequences": tables()["sequences"].head(1)}
    contents = search_contents(alone, FACTS | {"restarts": 1})
    assert "how far restarts agree is not known" in told(contents)["sequences"]
    assert "restarts" not in contents.figures


def test_gradients_are_told_with_what_blind_guessing_would_give():
    contents = search_contents(tables(), FACTS)
    sentence = told(contents)["gradient"]
    assert (
        "At a random response the truly best swap is among the gradient's top 64 at 2 of 3 positions (median rank 64 of 989)"
        in sentence
    )
    assert (
        "At the result the truly best swap is among the gradient's top 64 at 1 of 3 positions (median rank 300"
        in sentence
    )
    assert "median over positions: 0.20" in sentence
    assert "6.5% of positions" in sentence
    assert contents.summary["gradient_within_top_k_share"] == pytest.approx(2 / 3)
    constant = tables()
    constant["gradient_quality"] = constant["gradient_quality"].assign(spearman=np.nan)
    assert "is not defined" in told(search_contents(constant, FACTS))["gradient"]


def test_the_summary_holds_what_searches_are_compared_by():
    summary = search_contents(tables(), FACTS).summary
    assert summary["best_reward"] == 5.0
    assert summary["best_text"] == "".join(TOKENS)
    assert summary["smallest_margin"] == 0.002
    assert summary["evaluations"] == 20_000
    assert summary["beats_beam"] is True
    assert (summary["length"], summary["goal"], summary["verdict"]) == (3, "optimal", "1-opt")
    json.dumps(summary)  # as it is written, and as W&B takes it


def test_growth_over_one_length_is_left_out():
    given = tables() | {"growth": tables()["growth"].tail(1)}
    contents = search_contents(given, FACTS)
    assert "growth" not in contents.figures
    assert not [
        entry for section in contents.sections for entry in section.entries if entry.table == "growth"
    ]


@pytest.mark.parametrize("given", ["whole", "bare", "exhaustive"])
def test_the_page_holds_every_section_with_hostile_tokens_escaped(given, tmp_path):
    facts = FACTS | ({"length": 2, "method": "exhaustive"} if given == "exhaustive" else {})
    held = exhaustive() if given == "exhaustive" else tables()
    if given == "bare":
        held = {name: held[name] for name in ("sequences", "provenance")}
    contents = search_contents(held, facts)
    contents.write(tmp_path)
    sections, _ = read_sections(tmp_path)
    html = page([Comparison("search-result/tiny:v1", tmp_path, "2026")], title="a search")
    for section in sections:
        assert section.title in html
        for entry in section.entries:
            assert entry.figure is None or (tmp_path / "figures" / f"{entry.figure}.png").exists()
    assert "<script>" not in html
    assert "&lt;script&gt;" in html
    assert set(held) == {file.stem for file in (tmp_path / "tables").glob("*.parquet")}
    kept = pd.read_parquet(tmp_path / "tables" / "sequences.parquet")
    assert json.loads(kept["token_ids"].iloc[0]) == [1, 2, 3]
    assert json.loads(kept["tokens"].iloc[0]) == TOKENS
