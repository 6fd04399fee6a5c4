"""Score tables of language models: which one stands for a model, and how they are put beside one another and beside
rewards.
"""

from collections.abc import Sequence
from dataclasses import replace

import pandas as pd

from pessimal.analysis.implicit_reward import implicit_reward
from pessimal.config.schema import CompareConfig, Join
from pessimal.errors import TableError
from pessimal.tables import ScoreTable, reward_matrix
from pessimal.tasks.findings.group import Group
from pessimal.tasks.findings.scans import by_mode, differing


def one_a_model(language: Sequence[ScoreTable]) -> list[ScoreTable]:
    """Of each model's scans of one prompt and candidate set the one in float32, else the first given.

    Raises TableError where they are not of one model that was asked one way, so that more than a precision is chosen.
    """
    chosen = {key: next(iter(modes.values())) for key, modes in by_mode(language).items()}
    for identity in (table.identity for table in language):
        first = chosen[identity.candidates, identity.prompt, identity.model].identity
        if differ := differing(first, identity):
            asked = " (in which template, or after plain text)" if "template_digest" in differ else ""
            raise TableError(
                f"two scans for log-probabilities go by the name of model {identity.model!r} on prompt {identity.prompt!r}, "
                f"and differ in {', '.join(differ)}{asked}. To take one, name its file: tables=[FILE,FILE]. To compare "
                f"both, scan one again under another name, such as model.name={identity.model}-2, and name the files"
            )
    return list(chosen.values())


def bases_first(tables: Sequence[ScoreTable]) -> list[ScoreTable]:
    """Models asked after plain text, as base models are, before those asked in a chat: p is then the base."""
    return sorted(
        tables, key=lambda table: (table.measured.get("asked") == "chat template", table.identity.model)
    )


def matched(p: ScoreTable, q: ScoreTable, config: CompareConfig) -> tuple[pd.DataFrame, str]:
    """Both log-probabilities candidate by candidate, and how they were matched: by id where the two have the same
    candidates, otherwise by text."""
    if p.identity.candidates_digest == q.identity.candidates_digest:
        text = pd.Index(p.rows["text"], name="text")
        columns = [pd.Series(t.rows["reward"].to_numpy(dtype=float), index=text) for t in (p, q)]
        return implicit_reward(*columns), "that are the same in both models"
    matrix = reward_matrix([p, q], paper=config.paper, stripped=config.join is Join.stripped)
    return implicit_reward(*(matrix[t.identity.model] for t in (p, q))), "matched by their text"


def side_by_side(
    group: Group, rewarded: Group | None, config: CompareConfig
) -> tuple[pd.DataFrame, pd.DataFrame] | str:
    """Rewards and log-probabilities of the candidates that all models share, or why there are none."""
    if rewarded is None:
        return "No reward model was scanned on this prompt and these candidates: there is nothing to compare."
    asked, other = (g.tables[0].identity.prompt_text for g in (group, rewarded))
    if asked and other and asked != other:
        return f"Reward models were asked something else under this key: “{other}”."
    # A reward model may go by the name of the language model that it was made from.
    names = {f"language model {t.identity.model}": t.identity.model for t in group.tables}
    apart = [
        replace(table, identity=replace(table.identity, model=name))
        for name, table in zip(names, group.tables, strict=True)
    ]
    try:
        matrix = reward_matrix(
            [*rewarded.tables, *apart], paper=config.paper, stripped=config.join is Join.stripped
        )
    except TableError as error:
        return f"Reward models were not compared: {error}"
    return matrix.drop(columns=list(names)), matrix[list(names)].rename(columns=names)
