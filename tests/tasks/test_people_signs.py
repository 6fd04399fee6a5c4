"""Whose agreement counts as agreement: prompts with a sign from a level, with none, or as published; tables with Elo,
without, and with another."""

import numpy as np
import pytest
from test_people_and_prompts import ITEMS, VALUE, table

from pessimal.config.schema import CompareConfig, WordingSpec
from pessimal.errors import TableError
from pessimal.report.contents import Contents
from pessimal.tables import ScoreTable, reward_matrix, write_score_table
from pessimal.tasks.findings.factorial import sign_of
from pessimal.tasks.findings.group import Scene, groups
from pessimal.tasks.findings.people import agreement_with_people, people_across_prompts

FACTORS = {"adjective": ["best", "worst"], "superlative": ["ever", "time"]}
PEOPLE = {"elo": 1200 + 100 * VALUE, "elo_matches": 400}
NOISE = {"near": 0.2, "far": 2.0, "between": 0.8}
"""How far each model's order strays from people's."""


def config(**options) -> CompareConfig:
    frames = {"greatest": 1, "best": 1, "worst": -1}
    return CompareConfig(
        **{"frames": frames, "wording": WordingSpec(FACTORS), "replicates": 100, "top": 3} | options
    )


def asked(prompt: str, *, sign: int = 1, models=tuple(NOISE), people=PEOPLE, **options) -> list[ScoreTable]:
    """Rewards that follow people's order, turned round where the sign is −1."""
    noise = np.random.default_rng(0).normal(size=ITEMS)
    return [table(m, prompt, sign * VALUE + NOISE[m] * noise, **people, **options) for m in models]


def told(tables: list[ScoreTable], **options) -> Contents:
    contents, found = Contents(), config(**options)
    for group in groups(tables):
        section = contents.section(group.prompt, "")
        agreement_with_people(Scene(group, reward_matrix(group.tables), found, contents, section))
    people_across_prompts({group.prompt: group for group in groups(tables)}, found, contents)
    return contents


def sentences(contents: Contents, section: int = 0) -> list[str]:
    return [entry.sentence for entry in contents.sections[section].entries]


def drawn_order(contents: Contents, stem: str) -> list[str]:
    """Models along the trajectories."""
    return [label.get_text() for label in contents.figures[stem].axes[-1].get_xticklabels()][1:]


# signs


def test_a_level_counts_in_a_key_of_the_factorial_only():
    assert (sign_of("worst_ever", config()), sign_of("best_time", config())) == (-1, 1)
    assert sign_of("not_best", config()) is None
    assert sign_of("best_of_all", config()) is None
    assert sign_of("worst_ever", config(frames={"worst": -1, "worst_ever": 1})) == 1


@pytest.mark.parametrize("prompt", ["worst", "worst_ever"])
def test_a_negative_frame_turns_items_and_the_closest_model_whether_key_or_level_says_so(prompt):
    """`near` rewards what people rank highest, which is no agreement where bad words answer."""
    contents = told(asked(prompt))
    tables = contents.whole_tables()
    assert tables["rank_difference"]["turned"].all()
    agreement, items, lines = sentences(contents)
    rho = tables["human_correlation"].set_index("model")["spearman"]
    assert rho.idxmin() == "far"
    assert f"Closest to people: far, ρ = {rho['far']:.3f}" in agreement
    assert "agreement is a negative ρ" in agreement
    assert "no model has the expected sign" in agreement
    assert "LOWEST reward" in items
    assert "LOWEST reward" in lines
    assert drawn_order(contents, f"things-{prompt}-people-trajectories") == ["far", "between", "near"]
    assert "no model has" not in sentences(told(asked(prompt, sign=-1)))[0]


def test_where_no_frame_is_known_no_model_is_closest_and_nothing_is_turned():
    contents = told(asked("oddest"))
    assert not contents.whole_tables()["rank_difference"]["turned"].any()
    agreement, items, lines = sentences(contents)
    assert "no model can be called closest to people (type +frames.oddest=1 or -1)" in agreement
    assert "Closest to people:" not in agreement
    assert "Highest: near, ρ = " in agreement
    assert "Lowest: far, ρ = " in agreement
    assert "not stated" in items
    assert "overvalued by models" not in items
    assert "by falling ρ" in lines
    assert "agreement with people" not in lines


def test_as_published_nothing_is_turned_but_models_still_fall_in_agreement():
    contents = told(asked("worst", sign=-1), paper=True)
    assert not contents.whole_tables()["rank_difference"]["turned"].any()
    rho = contents.whole_tables()["human_correlation"].set_index("model")["spearman"]
    assert rho.sort_values().index.tolist() == ["near", "between", "far"]
    assert drawn_order(contents, "things-worst-people-trajectories") == ["near", "between", "far"]
    agreement, items, lines = sentences(contents)
    assert "Closest to people: near" in agreement
    assert "by falling agreement with people" in lines
    assert "not turned round" in lines
    assert "LOWEST" not in items + lines
    assert "overvalued by models" not in items
    first = contents.figures["things-worst-people"].axes[0].get_yticklabels()[0].get_text()
    assert first == "near"


def test_one_model_is_told_in_the_singular():
    said = " ".join(sentences(told(asked("greatest", models=("near",)))))
    assert "Closest to people" not in said
    assert "near, ρ = " in said
    assert "1 models" not in said
    assert "models by falling" not in said


def test_without_intervals_no_item_is_called_sure():
    said = sentences(told(asked("greatest", models=("near", "far"), people=PEOPLE | {"elo_matches": 0})))
    assert "whose difference has the same sign" in said[1]
    assert "leaves out zero" not in said[1]


# several prompts


def across(contents: Contents) -> str:
    (entry,) = contents.sections[-1].entries
    return entry.sentence


def test_only_models_asked_every_prompt_are_counted_for_every_prompt():
    tables = [*asked("greatest"), *asked("worst", models=("near",))]
    assert (
        "The expected sign under every prompt, surely: 0 of 1 model (2 without a ρ under all 2 of them are not counted)."
        in across(told(tables))
    )
    tables = [*asked("greatest"), *asked("worst", sign=-1, models=("near", "between"))]
    assert "surely: 2 of 2 models (1 without a ρ under all 2 of them is not counted)." in across(told(tables))
    tables = [*asked("greatest", models=("near",)), *asked("worst", models=("far",))]
    assert "no model has a ρ under all 2 of them" in across(told(tables))
    assert "not counted" not in across(told([*asked("greatest"), *asked("worst")]))


def test_prompts_without_a_frame_are_named_and_levels_count():
    tables = [*asked("best_ever"), *asked("worst_ever", sign=-1), *asked("oddest")]
    said = across(told(tables))
    assert "best_ever (expected positive)" in said
    assert "worst_ever (expected negative)" in said
    assert "oddest (frame not stated)" in said
    assert (
        "under every prompt whose frame is stated, surely: 3 of 3 models; the frame of oddest is not stated"
        in said
    )
    assert "Which sign to expect cannot be said" in across(told([*asked("oddest"), *asked("odder")]))
    legend = [text.get_text() for text in told(tables).figures["things-people"].legends[0].get_texts()]
    assert legend == ["best_ever  (+)", "oddest", "worst_ever  (−)"]


# Elo


def test_tables_without_elo_are_named_and_the_others_are_compared():
    with_elo = asked("greatest", models=("near",))
    bare = asked("greatest", models=("far", "between"), people={})
    contents = told([*with_elo, *bare])
    alone = told(with_elo)
    assert contents.whole_tables()["human_correlation"].equals(alone.whole_tables()["human_correlation"])
    assert contents.whole_tables()["rank_difference"].equals(alone.whole_tables()["rank_difference"])
    (entry, *_) = contents.sections[0].entries
    assert entry.title == "Not compared with people"
    assert entry.sentence.startswith("between, far: of 3 score tables 2 have no Elo")
    one = sentences(told([*with_elo, *bare[:1]]))[0]
    assert one.startswith("far: of 2 score tables 1 has no Elo")


def test_a_comparison_with_one_table_without_elo_has_people_in_it(command, tmp_path):
    near, far = asked("greatest", models=("near", "far"))
    bare = ScoreTable(far.identity, far.rows.drop(columns=["elo", "elo_matches"]))
    files = [
        write_score_table(found, tmp_path / f"{place}.parquet") for place, found in enumerate((near, bare))
    ]
    code, _, err = command(
        "compare", f"tables=[{files[0]},{files[1]}]", "tracking=off", "replicates=100", "permutations=100"
    )
    assert code == 0, err
    assert "Not compared with people: far: of 2 score tables 1 has no Elo" in err
    assert "near, ρ = " in err


@pytest.mark.parametrize("column", ["elo", "elo_matches"])
def test_tables_that_give_the_items_other_people_are_refused(column):
    other = PEOPLE | {column: 2400 - 3 * np.arange(ITEMS) if column == "elo" else 399}
    tables = [*asked("greatest", models=("near",)), *asked("greatest", models=("far",), people=other)]
    with pytest.raises(TableError, match="another Elo or number of matches") as refused:
        told(tables)
    names = [repr(table.name) for table in (tables[1], tables[0])]
    for part in (*names, "120 of 120 items", "models=[near]", "models=[far]"):
        assert part in str(refused.value)


def test_another_elo_under_another_prompt_is_said():
    tables = [*asked("greatest"), *asked("worst", sign=-1, people=PEOPLE | {"elo": 1000 + 50 * VALUE})]
    assert "The Elo scores under worst are not those under greatest" in across(told(tables))
    assert "The Elo scores under" not in across(told([*asked("greatest"), *asked("worst")]))
