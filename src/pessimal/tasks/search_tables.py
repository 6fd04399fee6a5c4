"""The tables of one search, as its page and W&B show them, from what the stages found."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from pessimal.search.certificate import Certificate
from pessimal.search.gradient_quality import gradient_quality
from pessimal.search.ladder import Rung, as_table
from pessimal.search.objective import RewardObjective
from pessimal.search.polish import neighbour_values
from pessimal.search.procedure import SEARCH, Final
from pessimal.search.stages import Stages, joined
from pessimal.tasks.search_setup import Setup

BASELINES = {
    "random search": "random search",
    "coordinate ascent": "coordinate ascent",
    "beam search": "beam",
}
"""Names of their stages, and in the tables."""


@dataclass(frozen=True)
class Evidence:
    """Everything that is known when a search is over."""

    setup: Setup
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
    rungs: list[Rung]

    @property
    def sign(self) -> int:
        return self.setup.spec.goal.sign


def tables_and_facts(evidence: Evidence) -> tuple[dict[str, pd.DataFrame], dict]:
    """The tables by name, and what sentences need besides."""
    sequences = _sequences(evidence)
    tables = {
        "sequences": sequences,
        "curve": _curve(evidence),
        "phases": _phases(evidence),
        "neighbours": _neighbours(evidence),
        "gradient_quality": _gradient_quality(evidence),
        "levels": _levels(evidence),
        "ladder": as_table(evidence.rungs),
        "provenance": _provenance(evidence),
    }
    return tables, _facts(evidence, sequences)


def _names(setup: Setup) -> pd.DataFrame:
    return setup.vocabulary.rows.set_index("candidate_id")[["token", "text"]]


def _sequences(evidence: Evidence) -> pd.DataFrame:
    setup, names = evidence.setup, _names(evidence.setup)
    responses = [final.point.response for final in evidence.finals]
    return pd.DataFrame(
        {
            "rank": range(1, len(responses) + 1),
            "restart": [final.restart for final in evidence.finals],
            "start": [final.start for final in evidence.finals],
            "token_ids": [list(response) for response in responses],
            "tokens": [[names.loc[i, "token"] for i in response] for response in responses],
            "text": setup.survival.text_of(torch.tensor(responses)),
            "reward": evidence.own,
            "search_reward": [evidence.sign * final.point.value for final in evidence.finals],
            "survives": setup.survival(torch.tensor(responses)).tolist(),
            "one_opt": pd.array([final.one_opt for final in evidence.finals], dtype="boolean"),
            "evaluations": [final.point.evaluations for final in evidence.finals],
        }
    )


def _curve(evidence: Evidence) -> pd.DataFrame:
    """Best reward so far against evaluations, for the search and each baseline; the last row of each is its budget."""
    rows = []

    def add(method: str, points: list, spent: int, before: int = 0) -> None:
        rows.extend((method, before + point.evaluations, evidence.sign * point.value) for point in points)
        if points and before + points[-1].evaluations < spent:
            rows.append((method, spent, evidence.sign * points[-1].value))

    stages, before = evidence.stages, evidence.single_evaluations
    curve = joined([stage for stage in stages.done if stage.phase in SEARCH])
    add("search", curve, before + stages.spent(phases=SEARCH), before)
    if evidence.setup.spec.length == 1:
        best = evidence.sign * evidence.finals[0].point.value
        rows.append(("search", int(evidence.setup.mask.sum()), best))
    for stage in stages.done:
        if stage.phase == "baseline":
            add(BASELINES[stage.name], stage.curve, stage.evaluations)
    return pd.DataFrame(rows, columns=["method", "evaluations", "reward"])


def _phases(evidence: Evidence) -> pd.DataFrame:
    """Evaluations and seconds of each phase of the search."""
    rows = [("start", evidence.single_evaluations, 0.0)]
    rows += [(s.phase, s.evaluations, s.seconds) for s in evidence.stages.done if s.phase in SEARCH]
    rows.append(("certificate", evidence.certificate.evaluations, evidence.certificate_seconds))
    phases = pd.DataFrame(rows, columns=["phase", "evaluations", "seconds"])
    return phases.groupby("phase", sort=False).sum().reset_index()


def _neighbours(evidence: Evidence) -> pd.DataFrame:
    names, response = _names(evidence.setup), evidence.finals[0].point.response
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
                "reward": evidence.sign * neighbour.value,
                "margin": neighbour.margin,
            }
            for neighbour in evidence.certificate.neighbours
        ]
    )


def _gradient_quality(evidence: Evidence) -> pd.DataFrame:
    """At the result, and at a random response of its length."""
    setup, objective = evidence.setup, evidence.objective
    allowed = setup.allowed.nonzero()[:, 0]
    generator = torch.Generator().manual_seed(setup.config.seed)
    start = allowed[torch.randint(len(allowed), (setup.spec.length,), generator=generator)]
    result = torch.tensor(evidence.finals[0].point.response)
    points = {
        "start": (start, neighbour_values(objective, start, setup.allowed)),
        "result": (result, evidence.neighbour_values),
    }
    found = [
        gradient_quality(values, objective.gradient(response), response, top_k=setup.spec.top_k).assign(
            point=point
        )
        for point, (response, values) in points.items()
    ]
    quality = pd.concat(found, ignore_index=True)
    return quality.assign(best=quality["best_id"].map(_names(setup)["text"]), allowed=quality["n"])


def _levels(evidence: Evidence) -> pd.DataFrame:
    """The best of each length that the beam went through, from the best single token on."""
    rows = [(1, evidence.sign * float(evidence.single.max()), "scan")]
    for stage in evidence.stages.done:
        if stage.name == "beam":
            rows += [
                (lv["length"], evidence.sign * lv["value"], "beam")
                for lv in stage.facts["levels"]
                if lv["length"] > 1
            ]
    levels = pd.DataFrame(rows, columns=["length", "reward", "what"])
    return levels.assign(reference="", verdict="")


def _provenance(evidence: Evidence) -> pd.DataFrame:
    setup, model = evidence.setup, evidence.setup.model
    return pd.DataFrame(
        [
            {
                "model": model.name,
                "revision": model.revision,
                "weights_digest": model.weights_digest[:12],
                "tokenizer_digest": model.tokenizer_digest[:12],
                "template_digest": model.template_digest[:12],
                "dtype": model.spec.dtype.value,
                "mode": setup.config.mode.value,
                "path": setup.path,
                "allowed": int(setup.mask.sum()),
                "seed": setup.config.seed,
            }
        ]
    )


def _facts(evidence: Evidence, sequences: pd.DataFrame) -> dict:
    setup, certificate = evidence.setup, evidence.certificate
    closest = min(certificate.neighbours, key=lambda neighbour: neighbour.margin, default=None)
    return {
        "model": setup.model.name,
        "prompts": {key: setup.config.prompts[key] for key in setup.config.prompt_keys},
        "goal": setup.spec.goal.value,
        "length": setup.spec.length,
        "mode": setup.config.mode.value,
        "method": setup.spec.method.value,
        "restarts": sum(stage.phase == "gradient" for stage in evidence.stages.done),
        "allowed": int(setup.mask.sum()),
        "vocabulary": len(setup.mask),
        "filters": [f.value for f in setup.spec.allowed]
        + ([setup.spec.allowed_path] if setup.spec.allowed_path else []),
        "spent": evidence.stages.spent(phases=SEARCH) + evidence.single_evaluations,
        "budget": setup.spec.evaluations if setup.spec.length > 1 else None,
        "seed": setup.config.seed,
        "noise": evidence.noise,
        "verdict": certificate.verdict,
        "smallest_margin": certificate.smallest_margin,
        "smallest_margin_position": closest and closest.position,
        "best_reward": float(evidence.own[0]),
        "best_text": sequences["text"].iloc[0],
        "survival_share": float(sequences["survives"].mean()),
        "dtype": setup.model.spec.dtype.value,
        "path": setup.path,
    }
