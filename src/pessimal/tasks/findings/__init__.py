"""What a comparison looks at: from score tables to sections of figures, tables and sentences.

One function a finding; each calls an analysis, a figure, and says in a sentence what is shown and on how many
candidates. Everything here is in memory: reading, publishing and telling W&B is `compare_task`'s.
"""

from collections.abc import Mapping

from pessimal.config.schema import CompareConfig, Join
from pessimal.report.contents import Contents, Entry
from pessimal.tables import reward_matrix
from pessimal.tasks.findings.arranged import Arranged
from pessimal.tasks.findings.base_models import base_models
from pessimal.tasks.findings.between_models import agreement_of_models, map_of_models, what_agreement_follows
from pessimal.tasks.findings.between_prompts import framings
from pessimal.tasks.findings.dictionaries import dictionaries
from pessimal.tasks.findings.factorial import levels_of
from pessimal.tasks.findings.group import Group, Scene, in_several_modes
from pessimal.tasks.findings.identity import identity_terms
from pessimal.tasks.findings.model_words import read_words
from pessimal.tasks.findings.modes import title_of, what_the_mode_changes
from pessimal.tasks.findings.people import agreement_with_people, people_across_prompts
from pessimal.tasks.findings.provenance import provenance
from pessimal.tasks.findings.sources import Sources
from pessimal.tasks.findings.valence import sentiment_of
from pessimal.tasks.findings.within_models import best_and_worst, distribution
from pessimal.tasks.findings.word_frequency import frequency_of
from pessimal.tasks.findings.wording import wording

WORDINGS = 4
"""So many prompts of the factorial are one question asked in many ways: they get one section, and none of their own."""


def findings(arranged: Arranged, config: CompareConfig, sources: Sources) -> Contents:
    """Everything that can be said about these tables."""
    contents = Contents()
    contents.add_table("provenance", provenance(arranged.tables))
    for candidates in dict.fromkeys(table.identity.candidates for table in arranged.tables):
        members = {g.prompt: g for g in arranged.groups if g.candidates == candidates}
        spoken = [table for table in arranged.language if table.identity.candidates == candidates]
        apart = _apart(members, config)
        for group in apart.values():
            _on_one_prompt(group, config, contents, arranged)
        if members:
            _across_prompts(members, apart, config, contents, sources)
        if spoken:
            base_models(spoken, members, config, contents)
        for group in apart.values():
            if several := in_several_modes(group, arranged.scans):
                what_the_mode_changes(group, several, config, contents)
    return contents


def _apart(members: Mapping[str, Group], config: CompareConfig) -> dict[str, Group]:
    """The prompts that are looked at one by one: all but the many wordings of one question."""
    reworded = {prompt for prompt in members if levels_of(prompt, config)}
    return {
        prompt: group
        for prompt, group in members.items()
        if prompt not in reworded or len(reworded) < WORDINGS
    }


def _across_prompts(
    members: Mapping[str, Group],
    apart: Mapping[str, Group],
    config: CompareConfig,
    contents: Contents,
    sources: Sources,
) -> None:
    """What compares prompts; `apart` are those of the members that are looked at one by one."""
    if apart:
        framings(apart, config, contents)
        people_across_prompts(apart, config, contents)
        read = read_words(apart, config)
        sentiment_of(read, config, contents, sources)
        frequency_of(read, config, contents, sources)
        identity_terms(read, config, contents, sources)
    if len(members) > len(apart):
        wording(members, config, contents)
        if any(table.has_elo for group in members.values() for table in group.tables):
            contents.sections[-1].entries.append(
                Entry(
                    "Not compared with people",
                    f"The items have an Elo, but {len(members) - len(apart)} wordings are looked at together here. One "
                    "wording at a time is compared with people: prompts=[KEY]",
                )
            )
    dictionaries(members, config, contents, sources)


def _on_one_prompt(group: Group, config: CompareConfig, contents: Contents, arranged: Arranged) -> None:
    wording = group.tables[0].identity.prompt_text
    told = (
        f"“{wording}”"
        if wording
        else f"Prompt {group.prompt!r}, whose wording the scores' file does not state."
    )
    if several := in_several_modes(group, arranged.scans):
        mode = next(iter(next(iter(several.values()))))
        told += f" Rewards of mode {mode}; what the other modes change stands under “{title_of(group)}”."
    section = contents.section(f"{group.prompt} · {group.candidates}", told)
    stripped = config.join is Join.stripped
    rewards = reward_matrix(group.tables, paper=config.paper, stripped=stripped)
    scene = Scene(group, rewards, config, contents, section)
    best_and_worst(scene)
    distribution(scene)
    models = len(group.tables)
    if models >= 2:
        keys = {model: (group.candidates, group.prompt, model) for model in group.labels()}
        own = {model: arranged.rescans.get(key, {}) for model, key in keys.items()}
        none = [why for key in keys.values() for why in arranged.no_rescans.get(key, [])]
        tau = agreement_of_models(scene, own, none)
        if models >= 3:
            map_of_models(scene, tau)
        if models >= 4:
            what_agreement_follows(scene, tau)
    if any(table.has_elo for table in group.tables):
        agreement_with_people(scene)
