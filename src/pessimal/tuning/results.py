"""What a study reports: the tuned options, how they do on held-out prompts, and every trial.

Knows the tables of a study. Does not know Optuna, files or models.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from pessimal.plots import Forest, Scatter
from pessimal.tables.result import Estimate, Result, weight_of
from pessimal.tuning.held_out import ALL

METHOD = "tuning"
COMPLETE, PRUNED = "complete", "pruned"


def study_results(tables: Mapping[str, pd.DataFrame], *, logarithmic: Sequence[str] = ()) -> list[Result]:
    """The Results of one study.

    Args:
        tables: `trials`, `searches`, `options` and `provenance`; `importances` where there are trials enough, and
            `held_out` with `held_out_differences` where prompts were held out.
        logarithmic: options whose values are spread by their logarithm.
    """
    makers = {
        "held_out_differences": _held_out,
        "options": lambda table: _options(table, tables),
        "trials": lambda table: _trials(
            table, list(tables["options"]["option"]), logarithmic, ranked="importances" in tables
        ),
        "importances": _importances,
    }
    rest = [Result(name, table, method=METHOD) for name, table in tables.items() if name not in makers]
    return [make(tables[name]) for name, make in makers.items() if name in tables] + rest


def _held_out(table: pd.DataFrame) -> Result:
    overall = table[table["prompt"] == ALL].iloc[0]
    prompts, sure = len(table) - 1, overall["n"] > 1
    verb = "more" if overall["low"] > 0 else "LESS" if overall["high"] < 0 else "no more"
    p = float(overall["p"]) if sure else None
    alone = "One held-out prompt, or one start, says nothing of others: tuning.held_out=[KEY,KEY]"
    summary = {"held_out_prompts": prompts}
    summary |= {
        f"held_out_{name}": float(overall[name])
        for name in ("difference", "low", "high", "p")
        if pd.notna(overall[name])
    }
    return Result(
        "held_out_differences",
        table,
        headline=f"On {prompts} held-out prompts the tuned options find {verb} than the defaults: "
        f"{overall['difference']:+.3f} SD.".replace("-0.", "−0."),
        plot=Forest(
            row="prompt", estimate="difference", tabs=(),
            xlabel="best reward, tuned − defaults (SD of single tokens' rewards)",
        ),
        method=METHOD,
        weight=weight_of(overall["difference"], p),
        estimate=Estimate(
            "tuned − defaults, SD", float(overall["difference"]), int(overall["n"]), "prompts" if prompts > 1 else "starts",
            *((float(overall["low"]), float(overall["high"]), p) if sure else ()),
        ),
        notes=() if prompts > 1 and sure else (alone,),
        summary=summary,
    )  # fmt: skip


def _options(table: pd.DataFrame, tables: Mapping[str, pd.DataFrame]) -> Result:
    """The best trial against the defaults' own."""
    trials = tables["trials"]
    complete = trials[trials["state"] == COMPLETE]
    best, defaults = complete[complete["best"]].iloc[0], complete[complete["defaults"]]
    own = f"{defaults['value'].iloc[0]:.3f}" if len(defaults) else "not known"
    who = "the defaults themselves" if best["defaults"] else f"trial {best['trial']}"
    summary: dict[str, float | str] = {
        "trials": int(trials["state"].isin([COMPLETE, PRUNED]).sum()),
        "best_value": float(complete["value"].max()),
    }
    if len(defaults):
        summary["defaults_value"] = float(defaults["value"].iloc[0])
    summary |= {f"tuned/{row.option}": row.tuned for row in table.itertuples()}
    return Result(
        "options",
        table,
        headline=f"Of {len(complete)} complete trials {who} did best: {best['value']:.3f} SD; defaults: {own}.",
        method=METHOD,
        weight=weight_of(0.2),
        estimate=Estimate("best trial, SD", float(best["value"]), len(complete), "trials"),
        notes=()
        if "held_out" in tables
        else (
            "No prompts were held out, and values of trials flatter the best: tuning.held_out=[KEY,…] compares.",
        ),
        summary=summary,
    )


def _trials(
    table: pd.DataFrame, options: Sequence[str], logarithmic: Sequence[str], *, ranked: bool
) -> Result:
    """Every trial, along one option at a time."""
    counts = ", ".join(f"{n} {state}" for state, n in table["state"].value_counts().items())
    valued = table[table["value"].notna()]
    pieces = [
        valued[["trial", "state", "value"]].assign(
            option=option, place=_x_positions(valued[option], log=option in logarithmic)
        )
        for option in options
    ]
    return Result(
        "trials",
        table,
        headline=f"{len(table)} trials: {counts}.",
        plot=Scatter(
            data=pd.concat(pieces), x="place", y="value", group="state", panel="option",
            xlabel="from the lowest to the highest value tried", ylabel="value (SD)",
        ) if len(valued) else None,
        method=METHOD,
        weight=weight_of(0.1),
        notes=() if ranked else ("How much each option matters is not given: too few trials, or all values alike.",),
    )  # fmt: skip


def _x_positions(values: pd.Series, *, log: bool) -> np.ndarray:
    """Where each value stands between the lowest and the highest, 0 to 1; words in order of appearance."""
    numeric = pd.api.types.is_numeric_dtype(values) and not pd.api.types.is_bool_dtype(values)
    numbers = values.to_numpy(dtype=float) if numeric else pd.factorize(values)[0].astype(float)
    numbers = np.log(numbers) if log and numeric else numbers
    span = np.ptp(numbers)
    return (numbers - numbers.min()) / span if span > 0 else np.full(len(numbers), 0.5)


def _importances(table: pd.DataFrame) -> Result:
    top = table.iloc[0]
    drawn = table.assign(
        low=table["importance"] - table["standard_error"], high=table["importance"] + table["standard_error"]
    )
    return Result(
        "importances",
        table,
        headline=f"{top['option']} matters most: it explains {top['importance']:.0%} of the variance of trials' values.",
        plot=Forest(
            data=drawn, row="option", estimate="importance", tabs=(),
            xlabel="share of variance explained (fANOVA; ± one standard error)",
        ),
        method=METHOD,
        weight=weight_of(0.2),
        estimate=Estimate(
            "share of variance", float(top["importance"]), int(top["n"]), "trials",
            float(drawn["low"].iloc[0]), float(drawn["high"].iloc[0]),
        ),
    )  # fmt: skip
