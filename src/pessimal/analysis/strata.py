"""The algebra of variance components: from means and covariances of cells to tokens, models, wordings and frames.

Knows arrays indexed by (model, wording). What two models share on two wordings is the covariance between them, so
every component is a difference of averages over such a matrix; for crossed designs that are complete these are the
estimates of the classical mean squares. Knows nothing of tables or of resampling.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np


class Split(NamedTuple):
    """Covariance over tokens between wordings, (wordings, wordings), in two parts that add to one model's own."""

    common: np.ndarray
    """Between two models, on average: what belongs to the token, or the token and the wording."""
    specific: np.ndarray | None
    """What a model adds of its own, on average; None for a single model."""


def components(
    mean: np.ndarray, covariance: np.ndarray, tokens: int, signs: np.ndarray, *, standardised: bool
) -> dict[str, float]:
    """Variance components by name, such as "token × model"; negative where a component of zero came out below.

    Args:
        mean: (models, wordings), over tokens.
        covariance: (models, wordings, models, wordings), over tokens, divisor tokens − 1.
        tokens: how many.
        signs: (wordings,), 1 or −1; with both, the frame is a fixed factor that takes these values.
        standardised: bring each model to mean 0 and standard deviation 1 first; its main effect is then 0.

    Source: Searle, Casella & McCulloch 1992, section 4.3 (nested and crossed); Cornfield & Tukey 1956 (fixed frame).
    """
    if standardised:
        mean, covariance = standardise(mean, covariance, tokens)
    split = split_by_model(covariance)
    found = {f"token{name}": value for name, value in _along_wordings(split.common, signs).items()}
    if split.specific is not None:
        found |= {
            f"token × model{name}": value for name, value in _along_wordings(split.specific, signs).items()
        }
    # Means over tokens are known only up to what another draw of tokens would add to them.
    noise = {name.removeprefix("token"): value / tokens for name, value in found.items()}
    found |= _main_effects(mean, signs, noise)
    if standardised:
        found["model"] = 0.0
    return found


def factors(
    mean: np.ndarray,
    covariance: np.ndarray,
    tokens: int,
    design: Sequence[Mapping[str, str]],
    *,
    standardised: bool,
) -> dict[str, float]:
    """Components with the token in them, those of the wording divided between the factors it is made of.

    Args:
        mean: as in `components`.
        covariance: as in `components`.
        tokens: as in `components`.
        design: by wording, the level of each factor; every combination once.
        standardised: as in `components`.
    """
    if standardised:
        _, covariance = standardise(mean, covariance, tokens)
    split = split_by_model(covariance)
    matrices = {"token": split.common} | ({} if split.specific is None else {"token × model": split.specific})
    projections, freedom, sizes = _projections(design)
    found = {}
    for name, matrix in matrices.items():
        square = {
            factor: float(np.sum(projection * matrix)) / freedom[factor]
            for factor, projection in projections.items()
        }
        n = len(design)
        rest = square["rest"]
        varied = {factor: (square[factor] - rest) * size / n for factor, size in sizes.items() if size > 1}
        total = float(
            matrix.mean()
        )  # of the mean wording: the token's own, and what is left of each factor in it
        own = total - rest / n - sum(value / sizes[factor] for factor, value in varied.items())
        found[name] = own
        found |= {f"{name} × {factor}": value for factor, value in varied.items()}
        found[f"{name} × rest"] = rest
    return found


def correlations(found: Mapping[str, float]) -> dict[str, float]:
    """The components as the correlation over tokens that two scans should show, both standardised.

    With both frames, wordings of one frame and of opposite ones are told apart: a model that understands the question
    turns round, and the correlation between opposite frames is negative.
    """

    def get(name: str) -> float:
        return found.get(name, 0.0)

    token, model = get("token"), get("token × model")
    token_frame, model_frame = get("token × frame"), get("token × model × frame")
    token_wording = get("token × wording")
    total = sum(value for name, value in found.items() if name.startswith("token"))
    several, framed = "token × model" in found, "token × frame" in found
    same = " of one frame" if framed else ""
    shared = {f"one model, two wordings{same}": token + model + token_frame + model_frame}
    if framed:
        shared["one model, two wordings of opposite frames"] = token + model - token_frame - model_frame
    if several:
        shared["two models, one wording"] = token + token_frame + token_wording
        shared[f"two models, two wordings{same}"] = token + token_frame
    if several and framed:
        shared["two models, two wordings of opposite frames"] = token - token_frame
    return {name: value / total for name, value in shared.items()}


def standardise(mean: np.ndarray, covariance: np.ndarray, tokens: int) -> tuple[np.ndarray, np.ndarray]:
    """As if each model's rewards had mean 0 and standard deviation 1 (divisor n) over all tokens and wordings."""
    within = np.einsum("mwmw->mw", covariance).mean(axis=1) * (tokens - 1) / tokens
    scale = np.sqrt(within + mean.var(axis=1))  # (models,)
    return (
        (mean - mean.mean(axis=1, keepdims=True)) / scale[:, None],
        covariance / scale[:, None, None, None] / scale[:, None],
    )


def split_by_model(covariance: np.ndarray) -> Split:
    """Average the covariance of the cells over pairs of models, and over models with themselves."""
    models = len(covariance)
    own = np.einsum("mwmv->wv", covariance) / models
    if models == 1:
        return Split(own, None)
    between = (covariance.sum(axis=(0, 2)) - models * own) / (models * (models - 1))
    return Split(between, own - between)


def _along_wordings(matrix: np.ndarray, signs: np.ndarray) -> dict[str, float]:
    """What all wordings share, what turns round with the frame, and what is one wording's own."""
    blocks = [matrix[np.ix_(signs == sign, signs == sign)] for sign in np.unique(signs)]
    alike = [(block.sum() - np.trace(block)) / (len(block) * (len(block) - 1)) for block in blocks]
    freedom = [len(block) - 1 for block in blocks]
    own = [np.trace(block) / len(block) - shared for block, shared in zip(blocks, alike, strict=True)]
    wording = float(np.average(own, weights=freedom))
    if len(blocks) == 1:
        return {"": float(alike[0]), " × wording": wording}
    same = float(np.mean(alike))
    opposite = float(matrix[np.ix_(signs == 1, signs == -1)].mean())
    return {"": (same + opposite) / 2, " × frame": (same - opposite) / 2, " × wording": wording}


def _main_effects(mean: np.ndarray, signs: np.ndarray, noise: Mapping[str, float]) -> dict[str, float]:
    """Components of the cells' means, (models, wordings), less what the drawing of tokens puts into them.

    `noise` is a token's component over the number of tokens, by what else is in its name ("", " × model × wording").
    """
    models = len(mean)
    per_frame = [mean[:, signs == sign] for sign in np.unique(signs)[::-1]]  # the positive first
    freedom = sum(frame.shape[1] - 1 for frame in per_frame)
    left = (
        1 / len(per_frame) ** 2 * sum(1 / frame.shape[1] for frame in per_frame)
    )  # of one wording in the mean
    across = [frame.mean(axis=0) for frame in per_frame]
    wordings = sum(float(np.sum((row - row.mean()) ** 2)) for row in across) / freedom
    found = {}
    model_wording = 0.0
    if models > 1:
        residual = [
            frame - frame.mean(axis=1, keepdims=True) - row + row.mean()
            for frame, row in zip(per_frame, across, strict=True)
        ]
        square = sum(float(np.sum(part**2)) for part in residual) / (freedom * (models - 1))
        model_wording = square - noise[" × model × wording"]
        wordings -= square / models
        level = np.mean([frame.mean(axis=1) for frame in per_frame], axis=0)  # (models,)
        found["model"] = float(level.var(ddof=1)) - left * square - noise[" × model"]
    found["wording"] = wordings - noise[" × wording"]
    if len(per_frame) == 2:
        half = (per_frame[0].mean(axis=1) - per_frame[1].mean(axis=1)) / 2  # (models,)
        frame = (
            float(half.mean()) ** 2 - left * found["wording"] - noise[" × frame"] - left * noise[" × wording"]
        )
        if models > 1:
            found["model × frame"] = float(half.var(ddof=1)) - left * square - noise[" × model × frame"]
            frame -= float(half.var(ddof=1)) / models
        found["frame"] = frame
    if models > 1:
        found["model × wording"] = model_wording
    return found


def _projections(
    design: Sequence[Mapping[str, str]],
) -> tuple[dict[str, np.ndarray], dict[str, int], dict[str, int]]:
    """For each factor, and for what is left over: projection on it, degrees of freedom; and levels by factor."""
    n = len(design)
    overall = np.full((n, n), 1 / n)
    projections, freedom, sizes = {}, {}, {}
    for factor in design[0]:
        labels = np.array([row[factor] for row in design])
        sizes[factor] = len(set(labels))
        if sizes[factor] > 1:
            alike = labels[:, None] == labels
            projections[factor] = alike * sizes[factor] / n - overall
            freedom[factor] = sizes[factor] - 1
    projections["rest"] = np.eye(n) - overall - sum(projections.values())
    freedom["rest"] = n - 1 - sum(freedom.values())
    return projections, freedom, sizes
