"""One question in many wordings: what of a model's taste is the question's, and what its wording's."""

from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from pessimal.analysis.paraphrase import ANY, OPPOSITE, Paraphrases, paraphrase
from pessimal.analysis.variance_components import ALL_MODELS, Wordings, variance_components
from pessimal.config.schema import CompareConfig, Join
from pessimal.errors import TableError
from pessimal.figures import paraphrase as paraphrase_figures
from pessimal.figures import variance as variance_figures
from pessimal.figures.words import literal
from pessimal.report.contents import Contents, Entry, Section
from pessimal.tables import reward_matrix
from pessimal.tasks.findings.factorial import balanced, levels_of, sign_of, some
from pessimal.tasks.findings.group import Group


@dataclass(frozen=True)
class _Scene:
    """The wordings that are used, and where what they say goes."""

    members: dict[str, Group]
    """By prompt; each has every model."""
    frames: dict[str, int]
    levels: dict[str, dict[str, str]]
    config: CompareConfig
    contents: Contents
    section: Section

    @property
    def first(self) -> Group:
        return next(iter(self.members.values()))

    @property
    def stem(self) -> str:
        """Beginning of file names and summary keys."""
        candidates = self.first.candidates
        return "wording" if candidates == "vocabulary" else f"{candidates}-wording"

    @property
    def where(self) -> dict[str, str]:
        return {"candidates": self.first.candidates}

    def counted(self) -> str:
        """How many wordings of each frame, for sentences."""
        signs = list(self.frames.values())
        return f"{signs.count(1)} positive and {signs.count(-1)} negative wordings"


def wording(members: Mapping[str, Group], config: CompareConfig, contents: Contents) -> None:
    """A section on one candidate set: variance components, and how often the extreme token survives a paraphrase.

    Args:
        members: by prompt, of one candidate set; prompts outside the factorial of `config.wording` are not used.
        config: wording, frames, top, confidence, seed, join.
        contents: gets the section, the tables variance_components, wording_factors, wording_correlations, paraphrase and
            paraphrase_tokens, and their figures.
    """
    levels = {prompt: found for prompt in members if (found := levels_of(prompt, config))}
    frames = {prompt: sign for prompt in levels if (sign := sign_of(prompt, config))}
    used, left_out = balanced({prompt: members[prompt] for prompt in frames})
    if unsigned := sorted(set(levels) - set(frames)):
        left_out.append(
            f"{len(unsigned)} wordings without a frame ({some(unsigned)}; type +frames.LEVEL=1 or -1)"
        )
    if not levels:
        return
    possible = 1
    for found in config.wording.factors.values():
        possible *= len(found)
    candidates = next(iter(members.values())).candidates
    told = (
        f"One question in {len(used)} of {possible} wordings: {' × '.join(config.wording.factors)}. Used are models that "
        f"were scanned on all of them. Left out: {'; '.join(left_out) or 'nothing'}."
    )
    section = contents.section(f"Wording · {candidates}", told)
    kept = {prompt: frames[prompt] for prompt in used}
    scene = _Scene(used, kept, {prompt: levels[prompt] for prompt in used}, config, contents, section)
    if max(list(kept.values()).count(sign) for sign in (1, -1)) < 2:
        section.entries.append(
            Entry(
                "Not compared",
                f"{len(used)} wordings are there for the models that have most, and two of one frame are needed. Scan "
                "more: pessimal scan prompts=factorial54",
            )
        )
        return
    _components(scene)
    _paraphrases(scene)


def _components(scene: _Scene) -> None:
    """Variance components over all models, and for each model alone."""
    first, config, contents = scene.first, scene.config, scene.contents
    stripped = config.join is Join.stripped
    title = "What decides the order"
    try:
        matrices = {
            prompt: reward_matrix(group.tables, paper=config.paper, stripped=stripped)
            for prompt, group in scene.members.items()
        }
        found = variance_components(
            _aligned(matrices),
            frames=scene.frames,
            levels=scene.levels,
            confidence=config.confidence,
            seed=config.seed,
        )
    except TableError as error:
        scene.section.entries.append(Entry(title, f"No variance components: {error}"))
        return
    contents.add_table("variance_components", found.components, **scene.where)
    contents.add_table("wording_correlations", found.correlations, **scene.where)
    labelled = found.components.replace({"model": first.labels()})
    tokens, models = int(found.components["tokens"].iloc[0]), len(first.tables)
    rests = f"{tokens:,} {first.things} × {models} models × {scene.counted()}"
    if models >= 2:
        contents.figures[f"{scene.stem}-components"] = variance_figures.components(
            labelled, title=f"What decides the order of {first.things}"
        )
        scene.section.entries.append(
            Entry(
                title,
                f"Variance components of rewards standardised within each model, over {rests}. "
                f"{_shares(found.components)} {_correlation(found.correlations)} The intervals leave out {first.things}, "
                f"wordings{' and models' if models >= 3 else ', not models (there are two)'} in turn; they say nothing about "
                "questions of another kind. Negative estimates are components of about 0.",
                figure=f"{scene.stem}-components",
                table="variance_components",
                where=scene.where | {"model": ALL_MODELS},
            )
        )
        for row in found.components[found.components["model"] == ALL_MODELS].itertuples():
            if "token" in row.component:
                contents.summary[f"{scene.stem}/{row.part}/{row.component}"] = float(row.order_share)
    contents.figures[f"{scene.stem}-models"] = variance_figures.by_model(
        labelled, title=f"What each model's order of {first.things} follows"
    )
    scene.section.entries.append(
        Entry(
            "What each model's order follows",
            f"Each model alone, in its own raw units: {tokens:,} {first.things} × {scene.counted()}. “Token” is what it "
            "rewards whatever the question, “token × frame” what turns round with the question, “token × wording” what "
            "only one wording brings about, numerical noise included.",
            figure=f"{scene.stem}-models",
            table="variance_components",
            where=scene.where | {"units": "raw"},
        )
    )
    _factors(scene, found)


def _factors(scene: _Scene, found: Wordings) -> None:
    """Which part of the wording its components belong to."""
    title = "Which part of the wording matters"
    if found.factors.empty:
        scene.section.entries.append(
            Entry(
                title,
                "Not divided between its factors: that takes every combination of their levels in a frame.",
            )
        )
        return
    scene.contents.add_table("wording_factors", found.factors, **scene.where)
    who = ALL_MODELS if ALL_MODELS in set(found.factors["model"]) else found.factors["model"].iloc[0]
    rows = found.factors[
        (found.factors["model"] == who) & ~found.factors["component"].isin(["token", "token × model"])
    ]
    of_factor = rows.assign(factor=rows["component"].str.rsplit(" × ", n=1).str[-1])
    parts = []
    for part, piece in of_factor.groupby("part", sort=False):
        sums = piece.groupby("factor", sort=False)["order_share"].sum()
        parts.append(f"{part}: " + ", ".join(f"{factor} {share:.2%}" for factor, share in sums.items()))
    scene.section.entries.append(
        Entry(
            title,
            f"Share of the variance with a token in it that belongs to each factor of the wording, common to the models or "
            f"one model's own ({who}); “rest” are combinations of factors. {'; '.join(parts)}. Here the levels of each factor are the sample, above whole "
            "wordings are, as if none shared an adjective; so these shares are estimated apart, and do not add up to those "
            "of “token × wording” above. With so few levels a factor has no interval over other levels: theirs is over "
            "tokens and models.",
            table="wording_factors",
            where=scene.where | {"model": who},
        )
    )


def _paraphrases(scene: _Scene) -> None:
    """How often the extreme candidates of one wording are those of another, for each model in its whole set."""
    first, contents = scene.first, scene.contents
    by_model: dict[str, Paraphrases] = {}
    for model in first.labels():
        try:
            by_model[model] = paraphrase(
                _own_rewards(scene.members, model),
                frames=scene.frames,
                levels=scene.levels,
                top=scene.config.top,
                confidence=scene.config.confidence,
            )
        except TableError as error:
            scene.section.entries.append(
                Entry(f"Paraphrases: {first.labels()[model]}", f"Not compared: {error}")
            )
    if not by_model:
        return
    survival = pd.concat([found.survival.assign(model=model) for model, found in by_model.items()])
    tokens = pd.concat([found.tokens.assign(model=model) for model, found in by_model.items()])
    contents.add_table("paraphrase", survival, **scene.where)
    contents.add_table("paraphrase_tokens", tokens, **scene.where)
    shown = survival.assign(model=survival["model"].map(first.labels()))
    for end in ("optimal", "pessimal"):
        rows = survival[(survival["end"] == end) & (survival["changed"] == ANY)]
        stem = f"{scene.stem}-{end}"
        contents.figures[stem] = paraphrase_figures.survival(shown, end=end)
        opposite = survival[(survival["end"] == end) & (survival["changed"] == OPPOSITE)]
        thing = first.things.removesuffix("s")
        scene.section.entries.append(
            Entry(
                f"Does the {end} {thing} survive a paraphrase?",
                f"In {rows['survives'].mean():.0%} of the ordered pairs of wordings of one frame (mean over frames and "
                f"{rows['model'].nunique()} models, {rows['survives'].min():.0%} to {rows['survives'].max():.0%} by model and "
                f"frame) the {end} {thing} of one is that of the other; in {rows['in_top'].mean():.0%} it is among the "
                f"{scene.config.top} most {end}. {_turned(opposite, end)}{_frequent(tokens, end, first.labels())} Each model "
                "over its whole own candidate set; a candidate that ties with the extreme counts as surviving.",
                figure=stem,
                table="paraphrase",
                where=scene.where | {"end": end},
            )
        )
        for row in rows.itertuples():
            contents.summary[f"{scene.stem}/{end}/{row.frame}/survives/{row.model}"] = float(row.survives)


def _own_rewards(members: Mapping[str, Group], model: str) -> pd.DataFrame:
    """One model's rewards, candidates × prompts, index = text; candidates that every scan holds, by their id."""
    columns, texts = {}, None
    for prompt, group in members.items():
        rows = next(t.rows for t in group.tables if t.identity.model == model).set_index("candidate_id")
        columns[prompt] = rows["reward"]
        texts = rows["text"] if texts is None else texts
    rewards = pd.concat(columns, axis=1, join="inner").sort_index()
    return rewards.set_axis(pd.Index(texts.reindex(rewards.index), dtype=object, name="text"))


def _aligned(matrices: Mapping[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """The rows that all have, in one order."""
    shared = next(iter(matrices.values())).index
    for matrix in matrices.values():
        shared = shared if matrix.index.equals(shared) else shared.intersection(matrix.index)
    return {p: m if m.index.equals(shared) else m.reindex(shared) for p, m in matrices.items()}


def _shares(components: pd.DataFrame) -> str:
    """The largest shares of the order in the widest part, in words."""
    rows = components[components["model"] == ALL_MODELS].dropna(subset="order_share")
    part = "both frames" if "both frames" in set(rows["part"]) else rows["part"].iloc[0]
    rows = rows[rows["part"] == part]
    told = ", ".join(
        f"{r.component} {r.order_share:.1%} [{r.order_share_low:.1%}, {r.order_share_high:.1%}]"
        for r in rows.itertuples()
    )
    return f"Of the variance that has the token in it, {part}: {told}."


def _correlation(correlations: pd.DataFrame) -> str:
    """What the components come to between two scans."""
    rows = correlations[correlations["model"] == ALL_MODELS]
    part = "both frames" if "both frames" in set(rows["part"]) else rows["part"].iloc[0]
    told = "; ".join(f"{r.between} {r.correlation:.2f}" for r in rows[rows["part"] == part].itertuples())
    return f"Two scans should then correlate: {told}.".replace("-0.", "−0.")


def _turned(opposite: pd.DataFrame, end: str) -> str:
    if opposite.empty:
        return ""
    return f"Between wordings of opposite frames it is so in {opposite['survives'].mean():.1%} of the pairs. "


def _frequent(tokens: pd.DataFrame, end: str, labels: Mapping[str, str]) -> str:
    """The most frequent extreme of the first few models."""
    rows = tokens[(tokens["end"] == end) & (tokens["frame"] == "positive")]
    first = rows.groupby("model", sort=False).head(1)
    told = [
        f"{labels[r.model]} {literal(r.text)} ({r.wordings} of {r.of}, {r.distinct} distinct)"
        for r in first.head(4).itertuples()
    ]
    more = (
        f"; {len(first) - len(told)} more models in the table paraphrase_tokens"
        if len(first) > len(told)
        else ""
    )
    return f"Most frequent in positive wordings: {', '.join(told)}{more}." if told else ""
