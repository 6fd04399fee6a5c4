"""Does the optimal token survive another wording: counted by hand, ties counted, dependence not
forgotten; and which wordings and models are used."""

from itertools import permutations, product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from scipy import stats

from experiments.inherited_values.wording import ANY, OPPOSITE, analyse, paraphrase
from pessimal.analyses.analysis import Options

CONF = Path(__file__).parents[2] / "conf"

LEVELS = {
    f"{a}_{s}": {"adjective": a, "superlative": s}
    for a, s in product(("best", "good", "worst"), ("ever", "time"))
}
POLARITY = {prompt: -1 if prompt.startswith("worst") else 1 for prompt in LEVELS}


def rewards(n: int = 200, *, seed: int = 0, noise: float = 1.0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    taste = rng.normal(size=n)
    columns = {p: POLARITY[p] * taste + noise * rng.normal(size=n) for p in LEVELS}
    return pd.DataFrame(columns, index=[f"token {i}" for i in range(n)])


def row(table: pd.DataFrame, **wanted: str) -> pd.Series:
    rows = table[(table[list(wanted)] == pd.Series(wanted)).all(axis=1)]
    assert len(rows) == 1
    return rows.iloc[0]


@pytest.mark.parametrize("end", ["pessimal"])
def test_shares_and_ranks_are_those_counted_pair_by_pair(end):
    table = rewards()
    found = paraphrase(table, polarity=POLARITY, levels=LEVELS, top=10).shares
    signed = table if end == "optimal" else -table
    ranks = signed.rank(ascending=False, method="min")
    kinds = {
        ANY: lambda a, b: POLARITY[a] == POLARITY[b],
        "only adjective": lambda a, b: POLARITY[a] == POLARITY[b] and a[-4:] == b[-4:],
        "only superlative": lambda a, b: POLARITY[a] == POLARITY[b] and a[:-4] == b[:-4],
        OPPOSITE: lambda a, b: POLARITY[a] != POLARITY[b],
    }
    for frame, sign in (("positive", 1), ("negative", -1)):
        for changed, counts in kinds.items():
            pairs = [
                (a, b) for a, b in permutations(table, 2) if POLARITY[a] == sign and counts(a, b)
            ]
            if not pairs:
                assert not ((found["frame"] == frame) & (found["changed"] == changed)).any()
                continue
            there = np.array([ranks.loc[signed[a].idxmax(), b] for a, b in pairs])
            one = row(found, frame=frame, changed=changed, end=end)
            assert one["pairs"] == len(pairs)
            assert one["survives"] == pytest.approx(np.mean(there == 1))
            assert one["in_top"] == pytest.approx(np.mean(there <= 10))
            assert one["median_rank"] == pytest.approx(np.median(there))
            rho = [stats.spearmanr(table[a], table[b]).statistic for a, b in pairs]
            assert one["spearman"] == pytest.approx(np.mean(rho))


def test_interval_leaves_each_wording_out_with_all_its_pairs():
    table = rewards(noise=0.3).drop(columns=["worst_ever", "worst_time"])
    whole = paraphrase(table, polarity=POLARITY).shares.iloc[0]
    left = [
        paraphrase(table.drop(columns=p), polarity=POLARITY).shares.iloc[0]["spearman"]
        for p in table
    ]
    se = np.sqrt(3 / 4 * np.sum((np.array(left) - np.mean(left)) ** 2))
    reach = stats.t.ppf(0.975, 3) * se
    assert whole["spearman_low"] == pytest.approx(whole["spearman"] - reach)
    assert whole["spearman_high"] == pytest.approx(min(1, whole["spearman"] + reach))


# analyse

FACTORS = {"adjective": ["best", "good", "worst", "bad"], "superlative": ["ever", "time"]}
SIGNS = {"best": 1, "good": 1, "worst": -1, "bad": -1}
PROMPTS = ["_".join(levels) for levels in product(*FACTORS.values())]
READING = {"polarity": SIGNS, "factors": FACTORS}


def scans(models: list[str], prompts: list[str], *, lucky: bool = False) -> dict[str, pd.DataFrame]:
    """Rewards that turn round with the question; with `lucky`, one word is optimal in every
    positive wording."""
    rng = np.random.default_rng(0)
    taste = np.linspace(-1, 1, 60)
    found = {}
    for prompt in prompts:
        sign = SIGNS[prompt.split("_")[0]]
        frame = pd.DataFrame(
            {m: sign * taste + rng.normal(0, 0.6, 60) for m in models},
            index=[f"word{i}" for i in range(60)],
        )
        if lucky and sign == 1:
            frame.loc["word7"] = 9.0
        found[prompt] = frame
    return found


def test_a_token_that_is_optimal_in_every_wording_survives_all_and_its_opposite_does_not(table_set):
    tables = table_set(scans(["a", "b"], PROMPTS, lucky=True), **READING)
    shares, tokens = analyse(tables, Options())
    assert (shares.name, tokens.name) == ("paraphrase", "paraphrase_tokens")
    rows = shares.table[(shares.table["changed"] == ANY) & (shares.table["end"] == "optimal")]
    assert set(rows["model"]) == {"a", "b"}
    assert (rows.loc[rows["frame"] == "positive", "survives"] == 1).all()
    assert shares.estimate.value == pytest.approx(rows["survives"].mean())
    assert shares.estimate.n == rows["pairs"].sum()
    first = tokens.table.query("frame == 'positive' and end == 'optimal'")
    assert first[["text", "wordings", "of"]].drop_duplicates().to_numpy().tolist() == [
        ["word7", 4, 4]
    ]
    assert tokens.headline == ""
    assert "opposite frame" not in shares.plot.where["changed"]


def test_the_54_prompts_are_every_combination_and_hold_the_papers_three(shared_data):
    prompts = yaml.safe_load((CONF / "prompts/factorial54.yaml").read_text())
    factors = yaml.safe_load((CONF / "wording/factorial54.yaml").read_text())["factors"]
    assert list(prompts) == ["_".join(levels) for levels in product(*factors.values())]
    assert len(set(prompts.values())) == 54
    for key in ("best", "greatest", "worst"):
        core = yaml.safe_load((CONF / f"prompts/{key}.yaml").read_text())
        assert prompts[f"{key}_ever_one"] == core[key]
    published = pd.read_parquet(next((shared_data / "big_two").glob("*.parquet"))).columns
    assert list(published[1:]) == list(prompts)
