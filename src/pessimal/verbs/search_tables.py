"""The tables of one search, from its stages; and how the best grows with length, with what the registry holds of others."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from pessimal.search.certificate import Certificate
from pessimal.search.checks import Check, as_table
from pessimal.search.gradient_quality import gradient_quality
from pessimal.search.objective import RewardObjective
from pessimal.search.polish import neighbour_values
from pessimal.search.procedure import SEARCH, Final
from pessimal.search.provenance import SearchProvenance
from pessimal.search.stages import Stages, joined
from pessimal.tracking.registry import Manifest, Registry
from pessimal.verbs.search_context import SearchContext

BASELINES = {
    "random search": "random search",
    "coordinate ascent": "coordinate ascent",
    "beam search": "beam",
}
"""Names of their stages, and in the tables."""


@dataclass
class Searched:
    """One search, ready to be reported."""

    tables: dict[str, pd.DataFrame]
    """By the names that they have in the artifact."""
    numbers: dict
    """What `search.results.About` holds, and more."""
    best_value: float
    """The best reward with the goal's sign, by the model's own forward in float32."""
    inputs: list[str]
    """References of the score tables that it took single tokens' rewards from."""
    ways: list[tuple[str, float, tuple[int, ...]]]
    """The best of each stage by itself: its name, the value, the response."""


@dataclass(frozen=True)
class Ending:
    """Everything that is known when a search is over."""

    context: SearchContext
    stages: Stages
    finals: list[Final]
    """The best by its own reward first."""
    own: np.ndarray
    """float64 (n,): mean rewards of the finals by the model's own forward in float32."""
    certificate: Certificate
    certificate_seconds: float
    noise: float
    """Bound on the numerical error of a reward in float32."""
    single: Tensor
    """float64 (V,): values of single tokens."""
    single_evaluations: int
    objective: RewardObjective
    """In float32."""
    neighbour_values: Tensor
    """float64 (L, V): values of the result with every allowed token at every position."""
    checks: list[Check]

    @property
    def sign(self) -> int:
        return self.context.spec.goal.sign


def tables_and_numbers(ending: Ending) -> tuple[dict[str, pd.DataFrame], dict]:
    """The tables by name, and what else `search.results` needs, the growth of the best with length among it."""
    sequences = _sequences(ending)
    tables = {
        "sequences": sequences,
        "curve": _curve(ending),
        "phases": _phases(ending),
        "neighbours": _neighbours(ending),
        "gradient_quality": _gradient_quality(ending),
        "levels": _levels(ending),
        "ladder": as_table(ending.checks),
        "provenance": _provenance(ending),
    }
    return tables, _numbers(ending, sequences)


def _names(context: SearchContext) -> pd.DataFrame:
    return context.vocabulary.rows.set_index("candidate_id")[["token", "text"]]


def _sequences(ending: Ending) -> pd.DataFrame:
    context, names = ending.context, _names(ending.context)
    responses = [final.point.response for final in ending.finals]
    return pd.DataFrame(
        {
            "rank": range(1, len(responses) + 1),
            "restart": [final.restart for final in ending.finals],
            "start": [final.start for final in ending.finals],
            "token_ids": [list(response) for response in responses],
            "tokens": [[names.loc[i, "token"] for i in response] for response in responses],
            "text": context.round_trip.text_of(torch.tensor(responses)),
            "reward": ending.own,
            "search_reward": [ending.sign * final.point.value for final in ending.finals],
            "survives": context.round_trip(torch.tensor(responses)).tolist(),
            "one_opt": pd.array([final.one_opt for final in ending.finals], dtype="boolean"),
            "evaluations": [final.point.evaluations for final in ending.finals],
        }
    )


def _curve(ending: Ending) -> pd.DataFrame:
    """Best reward so far against evaluations, for the search and each baseline; the last row of each is its budget."""
    rows = []

    def add(method: str, points: list, evaluations: int, before: int = 0) -> None:
        rows.extend((method, before + point.evaluations, ending.sign * point.value) for point in points)
        if points and before + points[-1].evaluations < evaluations:
            rows.append((method, evaluations, ending.sign * points[-1].value))

    stages, before = ending.stages, ending.single_evaluations
    curve = joined([stage for stage in stages.done if stage.phase in SEARCH])
    add("search", curve, before + stages.evaluations(phases=SEARCH), before)
    if ending.context.spec.length == 1:
        best = ending.sign * ending.finals[0].point.value
        rows.append(("search", int(ending.context.mask.sum()), best))
    for stage in stages.done:
        if stage.phase == "baseline":
            add(BASELINES[stage.name], stage.curve, stage.evaluations)
    return pd.DataFrame(rows, columns=["method", "evaluations", "reward"])


def _phases(ending: Ending) -> pd.DataFrame:
    """Evaluations and seconds of each phase of the search."""
    rows = [("start", ending.single_evaluations, 0.0)]
    rows += [(s.phase, s.evaluations, s.seconds) for s in ending.stages.done if s.phase in SEARCH]
    rows.append(("certificate", ending.certificate.evaluations, ending.certificate_seconds))
    phases = pd.DataFrame(rows, columns=["phase", "evaluations", "seconds"])
    return phases.groupby("phase", sort=False).sum().reset_index()


def _neighbours(ending: Ending) -> pd.DataFrame:
    names, response = _names(ending.context), ending.finals[0].point.response
    return pd.DataFrame(
        [
            {
                "position": neighbour.position,
                "token_id": response[neighbour.position],
                "token": names.loc[response[neighbour.position], "token"],
                "text": names.loc[response[neighbour.position], "text"],
                "neighbour_id": neighbour.token,
                "neighbour": names.loc[neighbour.token, "token"],
                "neighbour_text": names.loc[neighbour.token, "text"],
                "reward": ending.sign * neighbour.value,
                "margin": neighbour.margin,
            }
            for neighbour in ending.certificate.neighbours
        ]
    )


def _gradient_quality(ending: Ending) -> pd.DataFrame:
    """At the result, and at a random response of its length."""
    context, objective = ending.context, ending.objective
    allowed = context.allowed.nonzero()[:, 0]
    generator = torch.Generator().manual_seed(context.config.seed)
    start = allowed[torch.randint(len(allowed), (context.spec.length,), generator=generator)]
    result = torch.tensor(ending.finals[0].point.response)
    points = {
        "start": (start, neighbour_values(objective, start, context.allowed)),
        "result": (result, ending.neighbour_values),
    }
    parts = [
        gradient_quality(values, objective.gradient(response), response, top_k=context.spec.top_k).assign(
            point=point
        )
        for point, (response, values) in points.items()
    ]
    quality = pd.concat(parts, ignore_index=True)
    return quality.assign(best=quality["best_id"].map(_names(context)["text"]), allowed=quality["n"])


def _levels(ending: Ending) -> pd.DataFrame:
    """The best of each length that the beam went through, from the best single token on."""
    rows = [(1, ending.sign * float(ending.single.max()), "scan")]
    for stage in ending.stages.done:
        if stage.name == "beam":
            rows += [
                (lv["length"], ending.sign * lv["value"], "beam")
                for lv in stage.details["levels"]
                if lv["length"] > 1
            ]
    levels = pd.DataFrame(rows, columns=["length", "reward", "what"])
    return levels.assign(reference="", verdict="")


def _provenance(ending: Ending) -> pd.DataFrame:
    context, model = ending.context, ending.context.model
    return pd.DataFrame(
        [
            {
                "model": model.name,
                "revision": model.revision,
                "weights_digest": model.weights_digest[:12],
                "tokenizer_digest": model.tokenizer_digest[:12],
                "template_digest": model.template_digest[:12],
                "dtype": model.spec.dtype.value,
                "mode": context.config.mode.value,
                "path": context.path,
                "allowed": int(context.mask.sum()),
                "seed": context.config.seed,
            }
        ]
    )


def _numbers(ending: Ending, sequences: pd.DataFrame) -> dict:
    context, certificate = ending.context, ending.certificate
    return {
        "model": context.model.name,
        "prompts": context.config.prompt_keys,
        "goal": context.spec.goal.value,
        "length": context.spec.length,
        "mode": context.config.mode.value,
        "method": context.spec.method.value,
        "allowed": int(context.mask.sum()),
        "evaluations": ending.stages.evaluations(phases=SEARCH) + ending.single_evaluations,
        "noise": ending.noise,
        "verdict": certificate.verdict,
        "dtype": context.model.spec.dtype.value,
        "best_reward": float(ending.own[0]),
    }


_SAME = ("model", "goal", "mode", "weights_digest", "allowed_digest")


def growth(registry: Registry, provenance: SearchProvenance, searched: Searched) -> pd.DataFrame:
    """One row a length and way: length, reward, what (scan, beam, search), reference, verdict; rows of other lengths
    are the newest searches of the same model, prompts, goal, mode and allowed tokens."""
    rows = searched.tables.pop("levels").to_dict("records")
    others: dict[int, Manifest] = {}
    for _, manifest in registry.manifests("search-result"):
        if _alike(manifest, provenance) and manifest.summary["length"] != provenance.length:
            others[manifest.summary["length"]] = manifest
    for length, manifest in others.items():
        rows.append(
            _row(length, manifest.summary["best_reward"], manifest.summary["verdict"], manifest.reference)
        )
    rows.append(_row(provenance.length, searched.numbers["best_reward"], searched.numbers["verdict"], ""))
    return pd.DataFrame(rows).sort_values(["length", "what"], ignore_index=True)


def _alike(manifest: Manifest, provenance: SearchProvenance) -> bool:
    other = manifest.summary
    same = all(other.get(name) == getattr(provenance, name) for name in _SAME)
    return same and set(other.get("prompts", ())) == set(provenance.prompts)


def _row(length: int, reward: float, verdict: str, reference: str) -> dict:
    return {
        "length": length, "reward": reward, "what": "search", "reference": reference, "verdict": verdict
    }  # fmt: skip
