"""How the optimum grows with the length of the response: this search's beam, and what the registry holds of others."""

import pandas as pd

from pessimal.search.identity import SearchIdentity
from pessimal.tasks.search_found import Found
from pessimal.tracking.registry import Manifest, Registry

_SAME = ("model", "goal", "mode", "weights_digest", "allowed_digest")


def growth(registry: Registry, identity: SearchIdentity, found: Found) -> pd.DataFrame:
    """One row a length and way: length, reward, what (scan, beam, search), reference, verdict; rows of other lengths
    are the newest searches of the same model, prompts, goal, mode and allowed tokens."""
    rows = found.tables.pop("levels").to_dict("records")
    others: dict[int, Manifest] = {}
    for _, manifest in registry.manifests("search-result"):
        if _alike(manifest, identity) and manifest.summary["length"] != identity.length:
            others[manifest.summary["length"]] = manifest
    for length, manifest in others.items():
        rows.append(
            _row(length, manifest.summary["best_reward"], manifest.summary["verdict"], manifest.reference)
        )
    rows.append(_row(identity.length, found.facts["best_reward"], found.facts["verdict"], ""))
    return pd.DataFrame(rows).sort_values(["length", "what"], ignore_index=True)


def _alike(manifest: Manifest, identity: SearchIdentity) -> bool:
    told = manifest.summary
    same = all(told.get(name) == getattr(identity, name) for name in _SAME)
    return same and set(told.get("prompts", ())) == set(identity.prompts)


def _row(length: int, reward: float, verdict: str, reference: str) -> dict:
    return {
        "length": length, "reward": reward, "what": "search", "reference": reference, "verdict": verdict
    }  # fmt: skip
