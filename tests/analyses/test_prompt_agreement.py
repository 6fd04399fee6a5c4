"""How alike one model orders the items under its prompts: scipy as oracle."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from pessimal.analyses.analysis import Options
from pessimal.analyses.prompt_agreement import analyse, prompt_agreement
from pessimal.errors import TableError
from pessimal.tables.table_set import table_sets


def three_prompts(items: int = 200) -> dict[str, pd.DataFrame]:
    """`steady` answers all three alike, `turns` answers the last with the opposite order."""
    rng = np.random.default_rng(0)
    names = [f"w{i}" for i in range(items)]
    liked = pd.DataFrame(rng.normal(size=(items, 2)), index=names, columns=["steady", "turns"])
    noise = [0.1 * rng.normal(size=(items, 2)) for _ in range(3)]
    return {
        "greatest": liked + noise[0],
        "best": liked.round(1) + 0 * noise[1],
        "worst": liked * [1, -1] + noise[2],
    }


def test_each_two_prompts_have_scipys_tau_inside_its_interval():
    rewards = pd.DataFrame({prompt: matrix["turns"] for prompt, matrix in three_prompts().items()})
    table = prompt_agreement(rewards, replicates=200)
    pairs = [("greatest", "best"), ("greatest", "worst"), ("best", "worst")]
    assert list(zip(table["prompt_a"], table["prompt_b"], strict=True)) == pairs
    for row in table.itertuples():
        expected = stats.kendalltau(rewards[row.prompt_a], rewards[row.prompt_b]).statistic
        assert row.kendall == pytest.approx(expected, abs=1e-12)
        assert row.low < row.kendall < row.high
    assert (table["n"] == 200).all()


def test_each_model_is_compared_with_itself_and_the_extremes_are_in_the_headline(table_set):
    (result,) = analyse(table_set(three_prompts()), Options(replicates=200))
    table = result.table.set_index(["model", "prompt_a", "prompt_b"])["kendall"]
    assert len(table) == 6
    assert table["turns", "greatest", "worst"] < -0.8 < 0.8 < table["steady", "greatest", "worst"]
    assert result.estimate.value == table.max()
    assert f"({table.min():.2f})" in result.headline
    assert len(result.headline.split()) <= 25


def test_scans_of_two_modes_are_not_compared(table_set):
    own = three_prompts()
    ids = table_set({"best": own["best"], "worst": own["worst"][["turns"]]}).tables
    text = table_set({"worst": own["worst"][["steady"]]}, mode="published").tables
    (result,) = analyse(table_sets([*ids, *text])[0], Options(replicates=200))
    assert result.table["model"].tolist() == ["turns"]
    with pytest.raises(TableError, match="on two prompts"):
        analyse(
            table_sets([t for t in [*ids, *text] if t.provenance.model == "steady"])[0], Options()
        )


def test_a_model_that_answers_one_prompt_alike_throughout_is_left_out_by_name(table_set):
    own = three_prompts()
    flat = own["worst"].assign(turns=1.0)
    (result,) = analyse(table_set({"best": own["best"], "worst": flat}), Options(replicates=200))
    assert result.table["model"].tolist() == ["steady"]
    assert any(note.startswith("turns: ") for note in result.notes)
