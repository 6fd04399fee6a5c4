"""The factorial of wordings: which prompts belong to it, with what levels and frame, and which of them are balanced.

Knows keys of prompts and groups of score tables; knows no rewards.
"""

from collections.abc import Mapping

from pessimal.config.schema import CompareConfig
from pessimal.tasks.findings.group import Group


def levels_of(prompt: str, config: CompareConfig) -> dict[str, str] | None:
    """The level of each factor in a prompt's key; None where it is not of the factorial."""
    parts, factors = prompt.split("_"), config.wording.factors
    if not factors or len(parts) != len(factors):
        return None
    if any(part not in found for part, found in zip(parts, factors.values(), strict=True)):
        return None
    return dict(zip(factors, parts, strict=True))


def sign_of(prompt: str, config: CompareConfig) -> int | None:
    """1 where good words answer the prompt, −1 where bad words do: by its key, else by a level of the factorial in it.

    None where neither says, or two levels say opposite things. A key that is not of the factorial is not taken apart:
    `not_good` would pass for `good`.
    """
    if prompt in config.frames:
        return config.frames[prompt]
    levels = levels_of(prompt, config) or {}
    signs = {config.frames[level] for level in levels.values() if level in config.frames}
    return signs.pop() if len(signs) == 1 else None


def balanced(members: Mapping[str, Group]) -> tuple[dict[str, Group], list[str]]:
    """The wordings that the models with most wordings share, with these models only; and what that leaves out."""
    scanned: dict[str, set[str]] = {}
    for prompt, group in members.items():
        for table in group.tables:
            scanned.setdefault(table.identity.model, set()).add(prompt)
    left_out = []
    if several := not_in_one_mode(members):
        left_out.append(f"models scanned in several modes ({some(several)}; type mode=ids)")
    most = max((len(found) for model, found in scanned.items() if model not in several), default=0)
    models = {model for model, found in scanned.items() if len(found) == most and model not in several}
    if fewer := sorted(set(scanned) - models - set(several)):
        left_out.append(f"models with fewer wordings ({some(fewer)})")
    kept = {
        prompt: Group(
            group.candidates, prompt, [table for table in group.tables if table.identity.model in models]
        )
        for prompt, group in members.items()
        if models and models <= {table.identity.model for table in group.tables}
    }
    if lost := sorted(set(members) - set(kept)):
        left_out.append(f"wordings that not all of these models have ({some(lost)})")
    return kept, left_out


def not_in_one_mode(members: Mapping[str, Group]) -> list[str]:
    """Models that were scanned in one mode for one prompt and in another for the next: the mode would pass for the
    wording."""
    modes: dict[str, set[str]] = {}
    for group in members.values():
        for table in group.tables:
            modes.setdefault(table.identity.model, set()).add(table.identity.mode)
    return sorted(model for model, found in modes.items() if len(found) > 1)


def some(names: list[str]) -> str:
    """The first few of many names."""
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
