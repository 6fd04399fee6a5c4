"""Is the positive arm steeper, over several models that all see the same words?

Knows what `sentiment` finds for each model; knows no words and no frames.
"""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from pessimal.analysis.regression import holm, interval
from pessimal.errors import TableError

ACROSS = ["lexicon", "prompt", "n", "stems", "mean", "error_models", "error_words", "freedom", "low", "high"]
ACROSS += ["p", "p_holm", "above"]


def asymmetry_across_models(
    asymmetry: pd.DataFrame,
    influences: Mapping[tuple[str, str], pd.DataFrame | None],
    *,
    confidence: float = 0.95,
) -> pd.DataFrame:
    """Is the positive arm steeper, over models: the mean of `steeper_sd`, by lexicon and prompt.

    Both models and words are samples. All models see the same words, so whatever sets these words apart from others
    moves all of them together and is not in the spread between models: the standard error is the root of two variances,
    `error_models`² (of the mean over models as they are) and `error_words`² (of the same mean as one stem at a time is
    left out in all models that have it: their `influence` averaged, 0 where a vocabulary lacks the stem). What happens
    to one model on one word is in both, so intervals are too wide rather than too narrow (Owen 2007). Degrees of freedom
    after Satterthwaite, of models − 1 and of the stems − 2 of the smaller arm in the model that has fewest; with two
    models they are little known themselves (of 400 simulated comparisons without asymmetry 13% had p < .05 where models
    differed far more than words; with three or more models 7% at most). Models of one family count as independent,
    which they are not, so p values are too small where several stand for one. They are corrected over all rows (Holm).

    Args:
        asymmetry: those of several models, with the columns model and lexicon.
        influences: of the same models, by model and lexicon.
        confidence: of the interval.

    Returns:
        lexicon, prompt, n (models), stems (in any of them), mean, error_models, error_words, freedom, low, high, p,
        p_holm, above (models with a steeper positive arm). error_models is missing for one model, error_words where a
        model's influences are; low, high and p where either is.

    Raises:
        TableError: a model has two rows for one lexicon and prompt, or no entry among the influences.

    Source: Owen 2007 (The pigeonhole bootstrap) for adding the variances; Satterthwaite 1946.
    """
    keys = ["lexicon", "prompt"]
    if asymmetry.duplicated([*keys, "model"]).any():
        row = asymmetry[asymmetry.duplicated([*keys, "model"])].iloc[0]
        raise TableError(
            f"Model {row['model']!r} has two rows for prompt {row['prompt']!r} and lexicon {row['lexicon']!r}; a model "
            "counts once. Keep one of them."
        )
    rows = []
    for (lexicon, prompt), part in asymmetry.groupby(keys, sort=False):
        values, n = part["steeper_sd"].to_numpy(), len(part)
        moves, names = _moves_of_mean(part, influences)
        models = values.var(ddof=1) / n if n > 1 else np.nan
        words, freedom = np.square(moves).sum(), int(part["stems"].min()) - 2
        total = models + words
        # Not a number where either variance is unknown.
        if total > 0:
            freedom = total**2 / (models**2 / (n - 1) + words**2 / freedom)
        low, high, p = interval(values.mean(), np.sqrt(total), freedom, confidence=confidence)
        rows.append(
            {
                "lexicon": lexicon,
                "prompt": prompt,
                "n": n,
                "stems": names,
                "mean": values.mean(),
                "error_models": np.sqrt(models),
                "error_words": np.sqrt(words),
                "freedom": float(freedom) if total >= 0 else np.nan,
                "low": float(low),
                "high": float(high),
                "p": float(p),
                "above": int((values > 0).sum()),
            }
        )
    table = pd.DataFrame(rows)
    return table.assign(p_holm=holm(table["p"]))[ACROSS]


def _moves_of_mean(
    part: pd.DataFrame, influences: Mapping[tuple[str, str], pd.DataFrame | None]
) -> tuple[np.ndarray, int]:
    """By how much the models' mean moves as each stem is left out of all of them, and how many stems there are.

    Not a number where a model's influences are unknown.
    """
    lexicon, prompt = part["lexicon"].iloc[0], part["prompt"].iloc[0]
    columns = []
    for model in part["model"]:
        if (model, lexicon) not in influences:
            raise TableError(
                f"No influences of model {model!r} with lexicon {lexicon!r}: without them the error over words is not "
                "known. Give `Sentiment.influence` of each model, {(model, lexicon): influence}."
            )
        columns.append(influences[model, lexicon])
    known = [moves[prompt] for moves in columns if moves is not None]
    total = pd.concat(known).groupby(level=0).sum() if known else pd.Series(dtype=float)
    whole = len(known) == len(part)
    return (total.to_numpy() / len(part) if whole else np.array([np.nan])), len(total)
