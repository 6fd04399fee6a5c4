"""Hold the drift of a trained policy against what was forecast of it; draw the figure.

python experiments/forecast/agreement.py planted human_elo
"""

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
from features import of_drawn, table
from matplotlib.figure import Figure
from scipy import stats

RUNS, HERE = Path("runs/forecast"), Path(__file__).parent
LEAST_SHARE, LEAST_SIGN, LEAST_RHO, FEWEST = 0.01, 0.9, 0.8, 20


def looked_at(drawn: dict[str, np.ndarray]) -> list[str]:
    """Features whose commonest value is not that of more than 99 % of answers."""
    shares = {f: pd.Series(v).value_counts(normalize=True).iloc[0] for f, v in drawn.items()}
    return [f for f, share in shares.items() if share <= 1 - LEAST_SHARE]


def compared(label: str) -> pd.DataFrame:
    """A row a KL and feature: what was forecast, with its interval, and what came (SD)."""
    texts = json.loads((RUNS / "drawn.json").read_text())
    drawn, fresh = table(texts["forecast"]), table(texts["fresh"])
    forecast = pd.read_csv(RUNS / f"{label}-forecast.csv")
    before, _ = of_drawn(texts["forecast"], np.load(RUNS / f"{label}-rewards.npy"))
    gains = [float(tilt.q @ before.scores) for tilt in before.tilts]
    run = json.loads((RUNS / f"{label}.json").read_text())
    rows = []
    for at in run["kept"]:
        later = table(at["texts"])
        last = pd.DataFrame(run["history"]).iloc[at["step"] - 4 : at["step"] + 1].mean()
        gain = np.interp(last["kl"], [tilt.kl for tilt in before.tilts], gains)
        for feature in looked_at(drawn):
            own = forecast[forecast["feature"] == feature]
            changes = {
                name: np.interp(at["kl"], [0, *own["kl"]], [0, *own[name]])
                for name in ("change", "low", "high")
            }
            spread = np.nanstd(drawn[feature])
            moved = (np.nanmean(later[feature]) - np.nanmean(fresh[feature])) / spread
            error = np.hypot(*(stats.sem(v[feature], nan_policy="omit") for v in (later, fresh)))
            where = {"reward": label, "target": at["target"], "kl": at["kl"], "step": at["step"]}
            where |= {"kl of steps": last["kl"], "gain": gain, "gained": last["reward"]}
            rows.append(
                where | {"feature": feature} | changes | {"drift": moved, "error": error / spread}
            )
    return pd.DataFrame(rows)


def agreement(at: pd.DataFrame) -> dict[str, float | bool]:
    """What the registration asks of one reward at one KL."""
    said = at[(at["low"] > 0) | (at["high"] < 0)]
    same = np.sign(said["change"]) == np.sign(said["drift"])
    low, high = stats.binomtest(int(same.sum()), max(len(said), 1)).proportion_ci(method="wilson")
    rho = stats.spearmanr(at["change"], at["drift"]).statistic
    return {
        "features": len(at),
        "with a sign": len(said),
        "same sign": same.mean(),
        "low": low,
        "high": high,
        "same sign of all": (np.sign(at["change"]) == np.sign(at["drift"])).mean(),
        "rho": rho,
        "slope": np.polyfit(at["change"], at["drift"], 1)[0],
        "agrees": len(said) >= FEWEST and same.mean() >= LEAST_SIGN and rho >= LEAST_RHO,
    }


def draw(every: pd.DataFrame, path: Path) -> None:
    """Forecast against drift, a panel a reward and KL."""
    labels, targets = every["reward"].unique(), every["target"].unique()
    figure = Figure(figsize=(3.1 * len(targets), 3.3 * len(labels)), layout="constrained")
    axes = figure.subplots(len(labels), len(targets), squeeze=False)
    for row, label in enumerate(labels):
        for column, target in enumerate(targets):
            at = every[(every["reward"] == label) & (every["target"] == target)]
            axis = axes[row, column]
            if at.empty:
                axis.axis("off")
                continue
            bars = {"fmt": "o", "ms": 4, "lw": 0.8, "color": "#3b6ea8"}
            errors = np.abs(at[["low", "high"]].to_numpy().T - at["change"].to_numpy())
            axis.errorbar(at["change"], at["drift"], xerr=errors, yerr=1.96 * at["error"], **bars)
            ends = np.array([at[["low", "drift"]].min().min(), at[["high", "drift"]].max().max()])
            axis.plot(ends, ends, color="0.5", lw=0.8)
            axis.axhline(0, color="0.8", lw=0.6)
            axis.axvline(0, color="0.8", lw=0.6)
            axis.set_title(f"{label}, KL {at['kl'].iloc[0]:.2f} nats", fontsize=9)
            axis.set(xlabel="forecast change, SD", ylabel="change in training, SD")
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    every = pd.concat([compared(label) for label in sys.argv[1:]], ignore_index=True)
    every.round(4).to_csv(HERE / "features.csv", index=False)
    places = ["reward", "target", "kl", "step", "kl of steps", "gain", "gained"]
    found = [
        dict(zip(places, k, strict=True)) | agreement(at)
        for k, at in every.groupby(places, sort=False)
    ]
    print(pd.DataFrame(found).round(3).to_string(index=False))
    draw(every, HERE / "agreement.png")
