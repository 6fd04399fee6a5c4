"""What a comparison looks at: from score tables to sections of figures, tables and sentences.

One function a finding; each calls an analysis, a figure, and says in a sentence what is shown and on how many
candidates. Everything here is in memory: reading, publishing and telling W&B is `compare_task`'s.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from pessimal.analysis.agreement import agreement, as_matrix
from pessimal.analysis.extremes import extremes
from pessimal.analysis.framing import axes, framing
from pessimal.analysis.geometry import dissimilarity, mds
from pessimal.analysis.human import human_correlation, rank_difference
from pessimal.analysis.moments import moments
from pessimal.analysis.rsa import rsa
from pessimal.config.schema import CompareConfig
from pessimal.errors import TableError
from pessimal.figures.heatmap import heatmap
from pessimal.figures.human import forest, rank_gaps
from pessimal.figures.mds import mds as model_map
from pessimal.figures.rsa import rsa as factor_plot
from pessimal.figures.scatter import scatter
from pessimal.figures.token_table import token_table
from pessimal.figures.violin import violin
from pessimal.figures.words import literal
from pessimal.report.contents import Contents, Entry, Section
from pessimal.tables import ScoreTable, reward_matrix

PAIRS = [("best", "worst"), ("greatest", "worst"), ("greatest", "best")]
"""Prompts whose rewards are drawn against one another."""

CORE = ("greatest", "best", "worst")
"""Prompts that come first, in the paper's order."""


@dataclass(frozen=True)
class Group:
    """Score tables that can be put side by side: one candidate set, one prompt, one table a model."""

    candidates: str
    prompt: str
    tables: list[ScoreTable]

    @property
    def stem(self) -> str:
        """Beginning of the group's file names and summary keys."""
        return self.prompt if self.candidates == "vocabulary" else f"{self.candidates}-{self.prompt}"

    @property
    def where(self) -> dict[str, str]:
        return {"prompt": self.prompt, "candidates": self.candidates}

    @property
    def things(self) -> str:
        """What is counted, for sentences."""
        return "tokens" if self.candidates == "vocabulary" else "items"

    def labels(self) -> dict[str, str]:
        """Model names as figures show them."""
        return {t.identity.model: t.description.label or t.identity.model for t in self.tables}


def groups(tables: Sequence[ScoreTable]) -> list[Group]:
    """Tables by candidate set and prompt, the core prompts first, models in order of name.

    Raises TableError where a model has two tables in one group: scanned in two modes, say.
    """
    found: dict[tuple[str, str], dict[str, ScoreTable]] = {}
    for table in tables:
        identity = table.identity
        members = found.setdefault((identity.candidates, identity.prompt), {})
        if identity.model in members:
            modes = sorted({identity.mode, members[identity.model].identity.mode})
            raise TableError(
                f"two score tables of model {identity.model!r} on prompt {identity.prompt!r} (modes {modes}). "
                f"Type mode={modes[0]}, or name the files: tables=[FILE,FILE]"
            )
        members[identity.model] = table
    return [Group(*key, [found[key][model] for model in sorted(found[key])]) for key in sorted(found, key=_place)]


def _place(key: tuple[str, str]) -> tuple[str, int, str]:
    """Where a (candidate set, prompt) comes in the order of sections."""
    candidates, prompt = key
    return candidates, CORE.index(prompt) if prompt in CORE else len(CORE), prompt


def findings(tables: Sequence[ScoreTable], config: CompareConfig) -> Contents:
    """Everything that can be said about these tables."""
    contents = Contents()
    by_group = groups(tables)
    contents.add_table("provenance", provenance(tables))
    for group in by_group:
        models = len(group.tables)
        wording = group.tables[0].identity.prompt_text
        section = contents.section(
            f"{group.prompt} · {group.candidates}",
            f"“{wording}”"
            if wording
            else f"Prompt {group.prompt!r}, whose wording the scores' file does not state.",
        )
        _extremes(group, config, contents, section)
        rewards = reward_matrix(group.tables)
        _distribution(group, rewards, contents, section)
        if models >= 2:
            tau = _agreement(group, rewards, config, contents, section)
            if models >= 3:
                _map(group, tau, config, contents, section)
            if models >= 4:
                _factors(group, tau, config, contents, section)
        if all(table.has_elo for table in group.tables):
            _people(group, rewards, config, contents, section)
    for candidates in sorted({group.candidates for group in by_group}):
        _framing([g for g in by_group if g.candidates == candidates], config, contents)
    return contents


def provenance(tables: Sequence[ScoreTable]) -> pd.DataFrame:
    """One row a score table: what was scored, how, and how far it can be trusted."""
    rows = []
    for table in tables:
        identity, trust = table.identity, table.measured.get("trust") or {}
        rows.append(
            {
                "model": identity.model,
                "prompt": identity.prompt,
                "candidates": identity.candidates,
                "n": len(table.rows),
                "mode": identity.mode,
                "source": identity.source,
                "dtype": identity.dtype,
                "attention": identity.attention,
                "largest_difference": trust.get("largest_difference"),
                "checked": trust.get("n"),
                "certified": float(table.rows["certified"].mean()),
                "survives": None
                if table.rows["survives"].isna().all()
                else float(table.rows["survives"].mean()),
                "base": table.description.base,
                "developer": table.description.developer,
                "parameters": table.description.parameters,
                "revision": identity.revision,
                "weights": (identity.weights_digest or "")[:12],
            }
        )
    return pd.DataFrame(rows).sort_values(["candidates", "model", "prompt"], ignore_index=True)


def _extremes(group: Group, config: CompareConfig, contents: Contents, section: Section) -> None:
    ends = pd.concat([extremes(t.rows, k=config.top).assign(model=t.identity.model) for t in group.tables])
    contents.add_table("extremes", ends, **group.where)
    shown = ends.assign(model=ends["model"].map(group.labels()))
    shown = shown[shown["rank"] <= min(config.top, 12)]
    name = f"{group.stem}-extremes"
    contents.figures[name] = token_table(shown, title=f"Optimal and pessimal {group.things}: {group.prompt}")
    sizes = sorted({len(t.rows) for t in group.tables})
    section.entries.append(
        Entry(
            f"The best and the worst {group.things}",
            f"The highest and the lowest rewards of each model among all {_sizes(sizes)} {group.things} that it was "
            f"given as the answer. {_certainty(group)}",
            figure=name,
            table="extremes",
            where=group.where,
        )
    )
    for table in group.tables:
        rows = table.rows
        prefix = f"{group.stem}/{table.identity.model}"
        contents.summary[f"{prefix}/optimal"] = rows.loc[rows["reward"].idxmax(), "text"]
        contents.summary[f"{prefix}/pessimal"] = rows.loc[rows["reward"].idxmin(), "text"]


def _distribution(group: Group, rewards: pd.DataFrame, contents: Contents, section: Section) -> None:
    table = moments(rewards)
    contents.add_table("moments", table, **group.where)
    name = f"{group.stem}-distribution"
    contents.figures[name] = violin(
        rewards.rename(columns=group.labels()), title=f"Distribution of rewards: {group.prompt}"
    )
    skewed = int((table["skewness"] > 2 * table["skewness_se"]).sum())
    section.entries.append(
        Entry(
            "How rewards are distributed",
            f"Standardised rewards of the {_shared(group, rewards)}; raw mean, standard deviation and skewness are "
            f"printed beside. {skewed} of {len(table)} models are skewed to the right by more than twice the "
            "standard error.",
            figure=name,
            table="moments",
            where=group.where,
        )
    )


def _agreement(
    group: Group, rewards: pd.DataFrame, config: CompareConfig, contents: Contents, section: Section
) -> pd.DataFrame:
    pairs = agreement(rewards, replicates=config.replicates, confidence=config.confidence, seed=config.seed)
    contents.add_table("agreement", pairs, **group.where)
    tau = as_matrix(pairs, "kendall")
    for statistic in ("kendall", "spearman"):
        matrix = as_matrix(pairs, statistic)
        contents.add_table(f"{group.stem}-{statistic}", matrix.rename_axis("model").reset_index())
    name = f"{group.stem}-agreement"
    contents.figures[name] = heatmap(
        _relabelled(tau, group),
        descriptors=_descriptors(group, shown=True),
        title=f"Agreement between models: {group.prompt}",
    )
    most, least = pairs.loc[pairs["kendall"].idxmax()], pairs.loc[pairs["kendall"].idxmin()]
    section.entries.append(
        Entry(
            "How far the models agree",
            f"Kendall's τ-b of every two models over the {_shared(group, rewards)}. Closest: {_pair(group, most)}; "
            f"farthest: {_pair(group, least)}. Intervals ({config.confidence:.0%}) are a bootstrap over "
            f"{group.things}: they say how far another draw of as many would move the number, and nothing about "
            "another wording. Spearman's ρ and rank-biased overlap stand in the same table.",
            figure=name,
            table="agreement",
            where=group.where,
        )
    )
    contents.summary[f"{group.stem}/kendall_mean"] = float(pairs["kendall"].mean())
    contents.summary[f"{group.stem}/shared"] = len(rewards)
    return tau


def _map(
    group: Group, tau: pd.DataFrame, config: CompareConfig, contents: Contents, section: Section
) -> None:
    places, stress = mds(dissimilarity(tau), seed=config.seed)
    contents.add_table("mds", places.assign(stress=stress), **group.where)
    name = f"{group.stem}-map"
    places = places.assign(model=places["model"].map(group.labels()))
    contents.figures[name] = model_map(
        places,
        stress=stress,
        descriptors=_descriptors(group, shown=True),
        title=f"Map of the models: {group.prompt}",
    )
    section.entries.append(
        Entry(
            "Where the models stand",
            f"Metric multidimensional scaling of 1 − τ between {len(tau)} models. Distances mean something, "
            f"directions do not; normalised stress {stress:.2f} (0 exact, .2 poor).",
            figure=name,
        )
    )


def _factors(
    group: Group, tau: pd.DataFrame, config: CompareConfig, contents: Contents, section: Section
) -> None:
    try:
        table = rsa(
            tau, _descriptors(group), permutations=config.permutations, seed=config.seed, paper=config.paper
        )
    except TableError as error:
        section.entries.append(
            Entry("What agreement follows", f"No representational similarity analysis: {error}")
        )
        return
    contents.add_table("rsa", table, **group.where)
    name = f"{group.stem}-rsa"
    contents.figures[name] = factor_plot(table, title=f"What agreement follows: {group.prompt}")
    estimated = table.dropna(subset="beta")
    strongest = estimated.loc[estimated["beta"].abs().idxmax()]
    found = ", ".join(f"{r.factor} β = {r.beta:.2f} (p = {_p(r.p_value)})" for r in estimated.itertuples())
    section.entries.append(
        Entry(
            "What agreement follows",
            f"Representational similarity analysis: the τ of {int(strongest['n_dyads'])} pairs of "
            f"{int(strongest['n_models'])} models regressed on what they have in common. {found}; strongest: "
            f"{strongest['factor']}; R² = {strongest['r_squared']:.2f}. p from {config.permutations:,} permutations of "
            "the models (MRQAP), since pairs that share a model are dependent.",
            figure=name,
            table="rsa",
            where=group.where,
        )
    )
    for row in estimated.itertuples():
        contents.summary[f"{group.stem}/rsa/{row.factor}/beta"] = float(row.beta)
        contents.summary[f"{group.stem}/rsa/{row.factor}/p"] = float(row.p_value)


def _people(
    group: Group, rewards: pd.DataFrame, config: CompareConfig, contents: Contents, section: Section
) -> None:
    elo = (
        group.tables[0]
        .rows.drop_duplicates("text", keep=False)
        .set_index("text")["elo"]
        .reindex(rewards.index)
    )
    correlation = human_correlation(
        rewards, elo, replicates=config.replicates, confidence=config.confidence, seed=config.seed
    )
    difference = rank_difference(rewards, elo, paper=config.paper)
    contents.add_table("human_correlation", correlation, **group.where)
    contents.add_table("rank_difference", difference, **group.where)
    shown = correlation.assign(model=correlation["model"].map(group.labels()))
    closest = shown.loc[shown["spearman"].idxmax()]
    contents.figures[f"{group.stem}-people"] = forest(shown, title=f"Agreement with people: {group.prompt}")
    contents.figures[f"{group.stem}-people-items"] = rank_gaps(difference)
    section.entries.extend(
        [
            Entry(
                "How far the models agree with people",
                f"Spearman's ρ between a model's rewards and people's Elo over {len(rewards):,} items, with "
                f"{config.confidence:.0%} intervals (bootstrap over items; the Elo's own error is not in them). Closest to "
                f"people: {closest['model']}, ρ = {closest['spearman']:.3f}.",
                figure=f"{group.stem}-people",
                table="human_correlation",
                where=group.where,
            ),
            Entry(
                "Where models and people part",
                f"Items by the difference between their median rank over {rewards.shape[1]} models and their rank by "
                f"people, of {len(rewards):,}"
                + (
                    "; the people are counted among the raters, as published."
                    if config.paper
                    else "; people are not among the raters averaged."
                ),
                figure=f"{group.stem}-people-items",
            ),
        ]
    )
    for row in correlation.itertuples():
        contents.summary[f"{group.stem}/human_spearman/{row.model}"] = float(row.spearman)


def _framing(members: list[Group], config: CompareConfig, contents: Contents) -> None:
    """Each model's rewards under two prompts, one against the other."""
    by_prompt = {group.prompt: {t.identity.model: t for t in group.tables} for group in members}
    for first, second in PAIRS:
        if first not in by_prompt or second not in by_prompt:
            continue
        models = [model for model in by_prompt[first] if model in by_prompt[second]]
        group = next(g for g in members if g.prompt == first)
        section = contents.section(
            f"{first} × {second} · {group.candidates}",
            f"Each model's rewards for *{first}* against its rewards for *{second}*."
        )  # fmt: skip
        for model in models:
            x, y = (_rewards(by_prompt[prompt][model]) for prompt in (first, second))
            table = framing(
                x, y, replicates=config.replicates, confidence=config.confidence, seed=config.seed
            ).assign(model=model, first=first, second=second, candidates=group.candidates)
            contents.add_table("framing", table)
            places = axes(x, y)
            ends = pd.concat([places.nlargest(config.top, "total"), places.nsmallest(config.top, "total")])
            contents.add_table(
                "orthogonal_axis", ends.rename(columns={"best": "reward_first", "worst": "reward_second"}),
                model=model, first=first, second=second, candidates=group.candidates,
            )  # fmt: skip
            label = group.labels()[model]
            name = f"{group.stem}-{second}-{_stem(model)}"
            contents.figures[name] = scatter(x, y, x_name=first, y_name=second, title=label)
            row = table.iloc[0]
            liked, disliked = (
                places.loc[places["total"].idxmax(), "text"],
                places.loc[places["total"].idxmin(), "text"],
            )
            section.entries.append(
                Entry(
                    label,
                    f"r = {row['pearson']:.2f} [{row['pearson_low']:.2f}, {row['pearson_high']:.2f}] over all "
                    f"{int(row['n']):,} {group.things} of this model. The axis {first} − {second} carries "
                    f"{row['share_difference']:.0%} of the variance; along the other one, liked either way: "
                    f"{literal(liked)}; disliked either way: {literal(disliked)}.",
                    figure=name,
                )
            )
            contents.summary[f"{first}-{second}/pearson/{model}"] = float(row["pearson"])


def _certainty(group: Group) -> str:
    scans = [t for t in group.tables if t.identity.source == "scan"]
    if not scans:
        return "These are published scores; how certain the ranks are is not known."
    share = sum(int(t.rows["certified"].sum()) for t in scans) / sum(len(t.rows) for t in scans)
    told = (
        f"The rank of {share:.1%} of the scanned ones is certain: scored in float32, with no other candidate within "
        "twice the numerical error."
    )
    return told if len(scans) == len(group.tables) else told + " For published scores it is not known."


def _rewards(table: ScoreTable) -> pd.Series:
    rows = table.rows
    # Two tokens may decode to one text; the id tells them apart, the text is what a reader knows.
    return pd.Series(rows["reward"].to_numpy(), index=pd.Index(rows["text"], name="text"))


def _descriptors(group: Group, *, shown: bool = False) -> pd.DataFrame:
    """What is known of each model; for figures by label, and in words where nothing is known."""
    frame = pd.DataFrame(
        [
            {
                "model": t.identity.model,
                "base": t.description.base,
                "developer": t.description.developer,
                "parameters": t.description.parameters,
                "rank": t.description.rank,
            }
            for t in group.tables
        ]
    ).set_index("model")
    frame[["parameters", "rank"]] = frame[["parameters", "rank"]].astype(float)
    if shown:
        frame = frame.rename(index=group.labels())
        frame[["base", "developer"]] = frame[["base", "developer"]].astype(object).fillna("not stated")
    return frame


def _relabelled(matrix: pd.DataFrame, group: Group) -> pd.DataFrame:
    return matrix.rename(index=group.labels(), columns=group.labels())


def _pair(group: Group, row: pd.Series) -> str:
    labels = group.labels()
    return (
        f"{labels[row['model_a']]} and {labels[row['model_b']]}, τ = {row['kendall']:.2f} "
        f"[{row['low']:.2f}, {row['high']:.2f}]"
    )


def _shared(group: Group, rewards: pd.DataFrame) -> str:
    if len(group.tables) == 1:
        return f"{len(rewards):,} {group.things} with a text of their own"
    return f"{len(rewards):,} {group.things} that all {len(group.tables)} models share"


def _sizes(sizes: list[int]) -> str:
    return " or ".join(f"{size:,}" for size in sizes) if len(sizes) <= 3 else f"{sizes[0]:,} to {sizes[-1]:,}"


def _p(value: float) -> str:
    return f"{value:.4f}" if value < 0.001 else f"{value:.3f}"


def _stem(model: str) -> str:
    from pessimal.tracking.registry import safe_name

    return safe_name(model)
