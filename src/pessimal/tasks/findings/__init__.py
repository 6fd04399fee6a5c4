"""What a comparison looks at: from score tables to sections of figures, tables and sentences.

One function a finding; each calls an analysis, a figure, and says in a sentence what is shown and on how many
candidates. Everything here is in memory: reading, publishing and telling W&B is `compare_task`'s.
"""

from collections.abc import Mapping, Sequence

from pessimal.config.schema import CompareConfig
from pessimal.report.contents import Contents
from pessimal.tables import ScoreTable, reward_matrix
from pessimal.tasks.findings.between_models import agreement_of_models, map_of_models, what_agreement_follows
from pessimal.tasks.findings.between_prompts import framings
from pessimal.tasks.findings.group import Group, Modes, Scene, by_mode, groups, in_several_modes
from pessimal.tasks.findings.modes import title_of, what_the_mode_changes
from pessimal.tasks.findings.people import agreement_with_people
from pessimal.tasks.findings.provenance import provenance
from pessimal.tasks.findings.within_models import best_and_worst, distribution


def findings(tables: Sequence[ScoreTable], config: CompareConfig) -> Contents:
    """Everything that can be said about these tables; TableError where they cannot be put side by side.

    Where a model was scanned in several modes, the first of `group.MODES` stands for it, and a section of its own
    compares the modes.
    """
    contents = Contents()
    contents.add_table("provenance", provenance(tables))
    scans = by_mode(tables)
    found = groups([next(iter(modes.values())) for modes in scans.values()])
    for group in found:
        _on_one_prompt(group, config, contents, several=in_several_modes(group, scans))
    for candidates in dict.fromkeys(group.candidates for group in found):
        framings([group for group in found if group.candidates == candidates], config, contents)
    for group in found:
        if several := in_several_modes(group, scans):
            what_the_mode_changes(group, several, config, contents)
    return contents


def _on_one_prompt(
    group: Group, config: CompareConfig, contents: Contents, *, several: Mapping[str, Modes]
) -> None:
    wording = group.tables[0].identity.prompt_text
    told = (
        f"“{wording}”"
        if wording
        else f"Prompt {group.prompt!r}, whose wording the scores' file does not state."
    )
    if several:
        mode = next(iter(next(iter(several.values()))))
        told += f" Rewards of mode {mode}; what the other modes change stands under “{title_of(group)}”."
    section = contents.section(f"{group.prompt} · {group.candidates}", told)
    scene = Scene(group, reward_matrix(group.tables, paper=config.paper), config, contents, section)
    best_and_worst(scene)
    distribution(scene)
    models = len(group.tables)
    if models >= 2:
        tau = agreement_of_models(scene)
        if models >= 3:
            map_of_models(scene, tau)
        if models >= 4:
            what_agreement_follows(scene, tau)
    if all(table.has_elo for table in group.tables):
        agreement_with_people(scene)
