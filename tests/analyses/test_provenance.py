"""Where each score comes from: every table has a row, whatever it holds."""

import numpy as np
import pandas as pd

from artifacts import score_table
from pessimal.analyses.analysis import Options
from pessimal.analyses.provenance import analyse
from pessimal.tables.table_set import table_sets

COLUMNS = [
    "model",
    "prompt",
    "prompt_text",
    "candidates",
    "n",
    "score",
    "mode",
    "source",
    "dtype",
    "attention",
    "largest_difference",
    "checked",
    "certified",
    "survives",
    "base",
    "developer",
    "parameters",
    "revision",
    "weights",
    "lowest",
    "highest",
]


def made(model: str, *, survives=True, noise=0.0, measured=None, **identity):
    known = pd.array([survives] * 3 + [None if survives is None else False], dtype="boolean")
    rows = {"survives": known, "certified": [True, False, False, False]}
    given = {"weights_digest": "0123456789abcdef"} | identity
    rewards = np.arange(4.0) + noise
    return score_table(
        list("abcd"),
        rewards,
        model=model,
        rows=rows,
        described={"base": "oak"},
        measured=measured,
        **given,
    )


MEASURED = {
    "trust": {"largest_difference": 1e-6, "n": 16},
    "ceiling": {"low": -4.0, "high": 5.0, "how": "a head on a normalised state"},
}


def test_scans_rescans_published_scores_and_log_probabilities_have_a_row_each():
    tables = [
        made("b", measured=MEASURED),
        made("b", noise=0.1, dtype="bfloat16"),
        made("a", survives=None, mode="published", source="x.csv", dtype=None, weights_digest=None),
        made("lm", score="log_probability"),
    ]
    (result,) = analyse(table_sets(tables)[0], Options())
    table = result.table
    assert list(table) == COLUMNS
    assert table["highest"].tolist()[1] == 5.0
    assert table[["lowest", "highest"]].notna().sum().tolist() == [1, 1]
    assert table["model"].tolist() == ["a", "b", "b", "lm"]
    assert set(table["prompt_text"]) == {"greatest?"}
    assert table["certified"].tolist() == [0.25] * 4
    assert table["survives"].isna().tolist() == [True, False, False, False]
    assert table["survives"].iloc[1] == 0.75
    assert table["weights"].tolist() == ["", *["0123456789ab"] * 3]
    assert table.set_index(["model", "dtype"]).loc[("b", "float32"), "checked"] == 16
    assert not result.headline


def test_language_models_alone_need_no_reward_model():
    (tables,) = table_sets([made("lm", score="log_probability")])
    assert not analyse.needs.missing(tables, Options())
    assert len(analyse(tables, Options())[0].table) == 1
