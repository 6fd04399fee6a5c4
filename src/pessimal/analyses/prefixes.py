"""Does a persona ahead of the question change what a model likes, beyond any text of its length?"""

import numpy as np
import pandas as pd
from scipy import stats

from pessimal.analyses.analysis import Needs, Options, analysis, noted
from pessimal.errors import TableError
from pessimal.plots import Forest
from pessimal.statistics import crossed_interval, holm, jackknife
from pessimal.tables.result import LEVEL, Effect, Result
from pessimal.tables.table_set import TableSet

BLOCKS = 20
"""Groups of candidates that the jackknife leaves out one by one."""


def prefix_effect(
    bare: np.ndarray, persona: np.ndarray, control: np.ndarray, *, confidence: float = 0.95
) -> dict[str, float]:
    """How much lower the rank agreement with the bare prompt is under a persona than under its
    control.

    Spearman's rho with mid-ranks; the interval and the two-sided p (Student t) are a delete-a-group
    jackknife over candidates in random groups, with the ranks of all of them.

    Args:
        bare, persona, control: rewards (n,) of the same candidates.

    Returns:
        effect (rho of the control − rho of the persona), low, high, p, rho_persona, rho_control.

    Raises:
        TableError: fewer candidates than two a group, or rewards that are all the same.
    """
    if len(bare) < 2 * BLOCKS or min(map(np.ptp, (bare, persona, control))) == 0:
        raise TableError(f"{len(bare)} candidates, or rewards that are all the same")
    ranks = np.stack([stats.rankdata(values) for values in (bare, persona, control)])

    def rhos(kept: np.ndarray) -> np.ndarray:
        of = np.corrcoef(ranks[:, kept])[0, 1:]
        return np.array([*of, of[1] - of[0]])

    groups = np.random.default_rng(0).permutation(len(bare)) % BLOCKS
    left_out = np.stack([rhos(groups != group) for group in range(BLOCKS)])
    estimates = rhos(np.ones(len(bare), dtype=bool))
    spread = jackknife(left_out)
    errors, low, high = crossed_interval(estimates, [spread], confidence=confidence)
    effect, error = estimates[2], errors[2]
    p = 2 * stats.t.sf(abs(effect) / error, BLOCKS - 1) if error > 0 else float(effect == 0)
    names = ("effect", "low", "high", "p", "rho_persona", "rho_control")
    return dict(zip(names, (effect, low[2], high[2], p, *estimates[:2]), strict=True))


@analysis("prefixes", Needs(prompts=0, prefixes=True), place=155)
def analyse(tables: TableSet, options: Options) -> list[Result]:
    """Each model, prompt and persona: paired with the prompt alone and with a control of equal
    length."""
    by_key = {
        (t.model, t.provenance.mode, prompt): t
        for prompt, members in tables.by_prompt.items()
        for t in members
    }
    rows, notes = [], []
    for (model, mode, key), table in by_key.items():
        design = table.provenance.prefixed
        if design is None or design["control"]:
            continue
        others = [by_key.get((model, mode, name)) for name in (design["prompt"], f"{key}_control")]
        where = f"{tables.labels[model]} on {key}"
        if None in others:
            notes.append(f"{where}: the prompt alone or the control was not scanned")
            continue
        columns = pd.concat([t.by_id for t in (*others, table) if t], axis=1, join="inner")
        bare, control, persona = columns.to_numpy(dtype=float).T
        best = bare.argmax()
        tokens = [t.measured.get("prefix_tokens") for t in (table, others[1]) if t]
        with noted(notes, where):
            effect_here = prefix_effect(bare, persona, control, confidence=options.confidence)
            rows.append(
                {"model": model, "prompt": design["prompt"], "prefix": design["prefix"]}
                | effect_here
                | {"n": len(columns), "candidates": tables.candidates}
                | {"optimal_stays": persona.argmax() == best}
                | {"optimal_stays_control": control.argmax() == best}
                | dict(zip(("tokens", "tokens_control"), tokens, strict=True))
            )
    if not rows:
        raise TableError("; ".join(notes))
    table = pd.DataFrame(rows)
    table.insert(table.columns.get_loc("p") + 1, "p_adjusted", holm(table["p"]).to_numpy())
    effect = Effect(
        *("effect", "drop in Spearman's ρ beyond a control's", "low", "high"),
        p="p_adjusted",
        null=0.0,
        of=tables.things,
    )
    held = table[(table["p_adjusted"] <= LEVEL) & (table["effect"] > 0)]
    most = table.loc[(table if held.empty else held)["effect"].abs().idxmax()]
    name = tables.labels[most["model"]]
    headline = (
        f"As {most['prefix']}, {name} ranks {tables.things} on {most['prompt']} otherwise, beyond "
        f"a control (ρ {most['rho_persona']:.2f} and {most['rho_control']:.2f})."
        if len(held)
        else f"No persona was found to change how {tables.things} are ranked beyond its control."
    )
    forest = Forest.of(effect, xlabel="drop in Spearman's ρ with the bare prompt, beyond a control")
    first = (most, "prefixes", table, effect, headline)
    return [Result.of_row(*first, plot=forest, method="prefixes", notes=tuple(notes))]
