"""What a comparison says of people and of pairs of prompts: on made-up models whose truth is known."""

import numpy as np
import pandas as pd
import pytest

from pessimal.config.schema import CompareConfig
from pessimal.report.contents import Contents
from pessimal.tables import ScoreIdentity, ScoreTable, reward_matrix
from pessimal.tasks.findings.between_prompts import framings
from pessimal.tasks.findings.group import Scene, groups
from pessimal.tasks.findings.people import agreement_with_people, people_across_prompts

FRAMES = {"greatest": 1, "best": 1, "worst": -1}
ITEMS = 120
VALUE = np.linspace(-2, 2, ITEMS)
NAMES = [f"thing {place}" for place in range(ITEMS)]
NAMES[:2] = ["null", "<b>"]


def table(model: str, prompt: str, rewards: np.ndarray, *, mode: str = "ids", **people) -> ScoreTable:
    rows = pd.DataFrame(
        {
            "candidate_id": range(ITEMS),
            "token": None,
            "text": NAMES,
            "kind": "item",
            "survives": True,
            "reward": np.asarray(rewards, dtype=float),
            "certified": True,
        }
    ).assign(**people)
    identity = ScoreIdentity(
        model=model,
        prompt=prompt,
        prompt_text=f"{prompt}?",
        candidates="things",
        candidates_digest="d",
        mode=mode,
        source="scan",
    )
    return ScoreTable(identity, rows)


def config(**options) -> CompareConfig:
    return CompareConfig(frames=FRAMES, replicates=100, top=3, **options)


def by_prompt(tables: list[ScoreTable]) -> dict:
    return {group.prompt: group for group in groups(tables)}


# two prompts


@pytest.fixture(scope="module")
def prompts() -> Contents:
    """`reads` turns its order round with the frame; `deaf` scores the same whatever is asked."""
    taste = np.random.default_rng(0).permutation(VALUE)
    tables = [
        table(model, prompt, {"reads": sign * VALUE, "deaf": taste}[model] * scale)
        for model in ("reads", "deaf")
        for prompt, sign, scale in (("greatest", 1, 1.0), ("best", 1, 2.0), ("worst", -1, 1.0))
    ]
    contents = Contents()
    framings(by_prompt(tables), config(), contents)
    return contents


def test_one_section_a_pair_of_prompts_all_models_first(prompts):
    assert [section.title for section in prompts.sections] == [
        "best × worst · things",
        "greatest × worst · things",
        "greatest × best · things",
    ]
    for section in prompts.sections:
        assert [entry.title for entry in section.entries] == ["All models", "deaf", "reads"]
        for entry in section.entries:
            assert entry.figure in prompts.figures
            rows = prompts.whole_tables()[entry.table]
            for column, value in entry.where.items():
                rows = rows[rows[column] == value]
            assert len(rows) == (2 if entry.title == "All models" else 4 * 3)


def test_reversal_scores_tell_who_turns_round(prompts):
    score = {key: value for key, value in prompts.summary.items() if "/reversal/" in key}
    assert score["things-best-worst/reversal/reads"] == 1
    assert score["things-best-worst/reversal/deaf"] == 0
    assert score["things-greatest-best/reversal/reads"] == 0
    told = prompts.sections[1].entries[0].sentence
    assert "Highest: reads, 1.000" in told
    assert "lowest: deaf, 0.000" in told
    assert "Surely more than half of the pairs: 1 of 2 models; surely less: 1." in told


def test_what_is_expected_follows_the_frames(prompts):
    opposite, _, same = (section.sentence for section in prompts.sections)
    assert "opposite ends" in opposite
    assert "near 1" in opposite
    assert "same end" in same
    assert "near 0" in same


def test_the_ends_of_both_axes_are_a_table_with_both_rewards(prompts):
    axes = prompts.whole_tables()["axes"]
    rows = axes[(axes["model"] == "reads") & (axes["first"] == "best") & (axes["second"] == "worst")]
    top = rows[(rows["axis"] == "difference") & (rows["end"] == "top")]
    assert top["text"].tolist() == NAMES[:-4:-1]
    assert top["reward_first"].tolist() == pytest.approx(2 * VALUE[:-4:-1])
    assert top["reward_second"].tolist() == pytest.approx(-VALUE[:-4:-1])
    assert top["value"].tolist() == pytest.approx(3 * VALUE[:-4:-1])


def test_two_modes_are_not_compared_and_this_is_said():
    contents = Contents()
    tables = [table("m", "best", VALUE), table("m", "worst", -VALUE, mode="text")]
    framings(by_prompt(tables), config(), contents)
    told = [entry.sentence for entry in contents.sections[0].entries]
    assert "nothing to compare" in told[0]
    assert "best was scanned in mode ids, worst in mode text" in told[1]
    assert "framing" not in contents.tables


# people


def people(tables: list[ScoreTable], **options) -> Contents:
    contents = Contents()
    for group in groups(tables):
        section = contents.section(group.prompt, "")
        agreement_with_people(Scene(group, reward_matrix(group.tables), config(**options), contents, section))
    people_across_prompts(by_prompt(tables), config(**options), contents)
    return contents


def rated(
    *, models: int = 6, matches: int = 400, prompts: tuple[str, ...] = ("greatest", "worst")
) -> list[ScoreTable]:
    """Models that agree with people but on two items, the second (by people next to last) and the last but one."""
    rng = np.random.default_rng(0)
    elo = 1200 + 100 * VALUE
    liked = VALUE.copy()
    liked[1], liked[-2] = 2.5, -2.5
    return [
        table(
            f"m{m}",
            prompt,
            FRAMES[prompt] * (liked + 0.1 * rng.normal(size=ITEMS)),
            elo=elo,
            elo_matches=matches,
        )
        for m in range(models)
        for prompt in prompts
    ]


def test_items_that_models_and_people_part_on_are_listed_whichever_end_is_asked_for():
    contents = people(rated())
    tables = contents.whole_tables()
    assert (
        tables["rank_difference"].groupby("prompt")["turned"].first()
        == pd.Series({"greatest": False, "worst": True})
    ).all()
    for prompt in ("greatest", "worst"):
        listed = tables["valued"].query(f"prompt == '{prompt}' and rank == 1").set_index("end")
        assert listed.loc["overvalued", "name"] == NAMES[1]
        assert listed.loc["undervalued", "name"] == NAMES[-2]
        assert listed.loc["overvalued", "high"] < 0 < listed.loc["undervalued", "low"]
    worst = [entry.sentence for entry in contents.sections[1].entries]
    assert "LOWEST reward" in worst[1]
    assert "agreement is a negative ρ" in worst[0]
    assert all(entry.figure in contents.figures for section in contents.sections for entry in section.entries)


def test_the_contracted_columns_are_there_and_every_table_can_be_written(tmp_path):
    contents = people(rated())
    contents.write(tmp_path)
    correlation = pd.read_parquet(tmp_path / "tables/human_correlation.parquet")
    assert {"model", "prompt", "n", "spearman", "kendall", "low", "high"} <= set(correlation)
    assert (correlation["spearman_corrected"].abs() > correlation["spearman"].abs()).all()
    difference = pd.read_parquet(tmp_path / "tables/rank_difference.parquet")
    assert {"name", "human_rank", "model_rank", "difference", "difference_published"} <= set(difference)
    assert "null" in set(difference["name"])


def test_match_counts_that_tell_nothing_leave_the_ranks_and_a_reason():
    contents = people(rated(matches=0, prompts=("greatest",)))
    told = " ".join(entry.sentence for entry in contents.sections[0].entries)
    assert "120 of 120 items have no count of matches" in told
    assert contents.whole_tables()["rank_difference"]["people_low"].isna().all()
    assert "reliability_at_most" not in contents.whole_tables()["human_correlation"]


def test_few_models_and_the_published_way_say_what_they_lack():
    two = people(rated(models=2, prompts=("greatest",)))
    assert "too few models for an interval" in two.sections[0].entries[1].sentence
    published = people(rated(prompts=("worst",)), paper=True)
    assert "counted among the raters, as published" in published.sections[0].entries[1].sentence
    table = published.whole_tables()["rank_difference"]
    assert (table["difference"] == table["difference_published"]).all()
    assert not table["turned"].any()


def test_agreement_across_prompts_counts_models_with_the_expected_sign():
    rng = np.random.default_rng(1)
    people_say = {"elo": 1200 + 100 * VALUE, "elo_matches": 400}
    tables = [
        table(
            model,
            prompt,
            (1 if model == "deaf" else sign) * VALUE + 0.3 * rng.normal(size=ITEMS),
            **people_say,
        )
        for model in ("reads", "reads too", "deaf")
        for prompt, sign in (("greatest", 1), ("worst", -1))
    ]
    contents = people(tables)
    section = contents.sections[-1]
    assert section.title == "people across prompts · things"
    (entry,) = section.entries
    assert "expected sign under every prompt, surely: 2 of 3 models" in entry.sentence
    assert "worst (expected negative)" in entry.sentence
    assert entry.figure in contents.figures


def test_one_prompt_has_no_section_across_prompts():
    contents = people(rated(prompts=("greatest",)))
    assert len(contents.sections) == 1
