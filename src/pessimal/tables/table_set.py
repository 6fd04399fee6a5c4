"""Score tables side by side: which table stands for a model, which prompts belong together, what
can be compared.

Knows tables and what people said about prompts (polarity, wordings). Knows no statistic.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import pandas as pd

from pessimal.catalogue import described
from pessimal.errors import TableError, did_you_mean
from pessimal.tables.score_table import REWARD, ScoreProvenance, ScoreTable
from pessimal.tables.word_lists import word_means

CORE = ("greatest", "best", "worst")
"""Prompts that come first, in the paper's order."""
OPPOSITE = (("greatest", "worst"), ("best", "worst"))
"""Pairs of opposite prompts, the first that is there."""
MANY_PROMPTS = 6
"""Where there are more, analyses over words average those of one polarity: 54 wordings are no 54
findings."""
WORDINGS = 4
"""Number of prompts from which the factorial is one question in many wordings, and is not analysed
one by one."""
MODES = ("ids", "text", "paper", "published")
"""The first of these that a model was scanned in stands for it wherever modes are not compared."""
SAME = (
    *("weights_digest", "config_digest", "tokenizer_digest", "template_digest"),
    *("output", "prompt_text", "candidates_digest"),
)
"""Fields in which the scans of one model may not differ, if it is the mode or the computing that
makes their rewards differ."""


@dataclass(frozen=True)
class Reading:
    """The way tables are put side by side, and what people say about their prompts."""

    paper: bool = False
    """As published: texts that are one input count as often as they occur."""
    stripped: bool | None = None
    """Tokens are matched without outer white space; None: where vocabularies differ
    (`TableSet.stripped`)."""
    polarity: Mapping[str, int] = field(default_factory=dict)
    """1 for a prompt that good words answer, −1 for one that bad words do, by prompt key or by a
    level in the key."""
    factors: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The factorial of wordings: levels by factor, in the order in which they stand in a prompt's
    key."""
    pairs: Sequence[tuple[str, str]] = ()
    """Prompts that are compared two by two; chosen by polarity where empty."""

    def levels_of(self, prompt: str) -> dict[str, str] | None:
        """The level of each factor in a prompt's key; None where it is not of the factorial."""
        parts = prompt.split("_")
        fits = len(parts) == len(self.factors) and all(
            part in levels for part, levels in zip(parts, self.factors.values(), strict=True)
        )
        return dict(zip(self.factors, parts, strict=True)) if fits else None

    def polarity_of(self, prompt: str) -> int | None:
        """1, −1, or None where neither the key nor a level of the factorial in it says, or two
        levels disagree.

        A key that is not of the factorial is not taken apart: `not_good` would pass for `good`.
        """
        if prompt in self.polarity:
            return self.polarity[prompt]
        levels = self.levels_of(prompt) or {}
        signs = {self.polarity[level] for level in levels.values() if level in self.polarity}
        return signs.pop() if len(signs) == 1 else None


@dataclass(frozen=True)
class TableSet:
    """The score tables of one candidate set."""

    candidates: str
    """`vocabulary`, or the name of a list of items."""
    tables: list[ScoreTable]
    """Everything that was given, rescans and other modes included."""
    by_prompt: dict[str, list[ScoreTable]]
    """Rewards, one table a model, models in order of name; the core prompts first."""
    modes: dict[tuple[str, str], dict[str, ScoreTable]]
    """By (prompt, model): a table for each mode that it was scanned in, the one that stands for the
    model first."""
    rescans: dict[tuple[str, str], dict[str, ScoreTable]]
    """By (prompt, model): further scans in that mode, by what differs from the first: `bfloat16`,
    `again`."""
    no_rescans: dict[tuple[str, str], list[str]]
    """Scans that are not compared with the one that stands for the model, and why."""
    language: dict[str, list[ScoreTable]]
    """Log-probabilities of language models by prompt, one table a model."""
    reading: Reading = field(default_factory=Reading)
    other_tables: list[ScoreTable] = field(default_factory=list)
    """Tables of other candidate sets."""

    @property
    def things(self) -> str:
        """Name of what is counted, for people."""
        return "tokens" if self.candidates == "vocabulary" else "items"

    @cached_property
    def prompts(self) -> list[str]:
        """The prompts that are looked at one by one; of the wordings, and of those behind personas,
        only those of a pair that was chosen."""
        variants = {*self.wordings, *self.prefixed}
        return [p for p in self.by_prompt if p not in variants or p in self._pair_prompts]

    @cached_property
    def prefixed(self) -> list[str]:
        """Prompts with a persona or its control ahead."""
        by_prompt = self.by_prompt.items()
        return [p for p, tables in by_prompt if any(t.provenance.prefixed for t in tables)]

    @cached_property
    def _pair_prompts(self) -> list[str]:
        """The prompts of the pairs that a user names."""
        return list(dict.fromkeys(prompt for pair in self.reading.pairs for prompt in pair))

    @cached_property
    def wordings(self) -> list[str]:
        """Prompts of the factorial, where they are so many that they are one question in many
        wordings."""
        factorial = [prompt for prompt in self.by_prompt if self.reading.levels_of(prompt)]
        return factorial if len(factorial) >= WORDINGS else []

    @cached_property
    def models(self) -> list[str]:
        """Reward models in order of name."""
        return sorted({table.model for tables in self.by_prompt.values() for table in tables})

    @cached_property
    def labels(self) -> dict[str, str]:
        """Models as people see them: the models' own names where two labels are the same."""
        return labels_of(table for tables in self.by_prompt.values() for table in tables)

    @cached_property
    def descriptors(self) -> pd.DataFrame:
        """Facts about each reward model: index = model; base, developer, parameters, rank."""
        firsts = {t.model: t for tables in self.by_prompt.values() for t in tables[::-1]}
        columns = ["base", "developer", "parameters", "rank"]
        rows = [
            described(model, {c: getattr(firsts[model].description, c) for c in columns})
            for model in self.models
        ]
        index = pd.Index(self.models, name="model")
        frame = pd.DataFrame(rows, index=index, columns=columns)
        return frame.astype({"parameters": float, "rank": float})

    @cached_property
    def has_elo(self) -> bool:
        """Whether people rated these items."""
        return any(table.has_elo for tables in self.by_prompt.values() for table in tables)

    @cached_property
    def contexts(self) -> list[ScoreTable]:
        """Candidates in real answers, which answer no prompt."""
        return [table for table in self.tables if table.provenance.slot is not None]

    def matrix(self, prompt: str) -> pd.DataFrame:
        """Rewards of the shared candidates: index = text, one column a model (see
        `reward_matrix`)."""
        if ("matrix", prompt) not in self.memo:
            self.memo["matrix", prompt] = self.shared(self.by_prompt[prompt])
        return self.memo["matrix", prompt]

    def shared(self, members: Sequence[ScoreTable]) -> pd.DataFrame:
        """The `reward_matrix` of these tables, read as the set is."""
        return reward_matrix(members, paper=self.reading.paper, stripped=self.stripped(members))

    def stripped(self, members: Sequence[ScoreTable]) -> bool:
        """Whether tokens of these tables are matched without outer white space: where none of them
        has the texts of all others."""
        if self.reading.stripped is not None or self.candidates != "vocabulary":
            return bool(self.reading.stripped)
        texts = sorted((table.rows["text"] for table in members), key=len)
        other_texts = [column for column in texts[:-1] if not column.equals(texts[-1])]
        largest = frozenset(texts[-1]) if other_texts else frozenset()
        return not all(largest.issuperset(column) for column in other_texts)

    @cached_property
    def memo(self) -> dict[tuple[str, ...], pd.DataFrame]:
        """Values that several analyses need and one has computed, by what it is and its prompt or
        model."""
        return {}

    def model_tables(self, model: str) -> dict[str, ScoreTable]:
        """A model's tables by prompt, all in the mode of its first prompt: beside one another,
        another mode would pass for another prompt."""
        tables = {p: t for p in self.prompts for t in self.by_prompt[p] if t.model == model}
        alike = {p: (t.provenance.mode, t.provenance.candidates_digest) for p, t in tables.items()}
        return {p: t for p, t in tables.items() if alike[p] == next(iter(alike.values()))}

    @cached_property
    def columns(self) -> dict[str, list[str]]:
        """Columns that analyses over words look at: each prompt, or where there are many those of
        the chosen pairs, else the mean of those of one polarity."""
        each = {prompt: [prompt] for prompt in self.prompts}
        if len(each) <= MANY_PROMPTS:
            return each
        if selection := {p: prompts for p, prompts in each.items() if p in self._pair_prompts}:
            return selection
        averaged = {}
        for sign, name in ((1, "positive"), (-1, "negative")):
            if prompts := [p for p in each if self.reading.polarity_of(p) == sign]:
                averaged[f"{len(prompts)} {name}"] = prompts
        return averaged or each

    @cached_property
    def polarity(self) -> dict[str, int]:
        """1 or −1 by column of `columns`, where it is known."""
        return {
            name: sign
            for name, (first, *_) in self.columns.items()
            if (sign := self.reading.polarity_of(first)) is not None
        }

    def opposite_pairs(self) -> list[tuple[str, str]]:
        """Pairs of columns of opposite polarity, the positive one first: the chosen ones, else at
        most one: that of `OPPOSITE`, else of the first columns, that most models have both of."""
        positive = [name for name in self.columns if self.polarity.get(name) == 1]
        negative = [name for name in self.columns if self.polarity.get(name) == -1]
        selection = [pair if pair[0] in positive else pair[::-1] for pair in self.reading.pairs]
        if selection := [pair for pair in selection if pair[0] in positive and pair[1] in negative]:
            return list(dict.fromkeys(selection))
        published = [pair for pair in OPPOSITE if pair[0] in positive and pair[1] in negative]
        pairs = list(dict.fromkeys([*published, *((a, b) for a in positive for b in negative)]))
        columns_by_model = [set(self.columns_of(model)) for model in self.models]
        models = {pair: sum(set(pair) <= columns for columns in columns_by_model) for pair in pairs}
        largest = max(models.values(), default=0)
        return [next(pair for pair in pairs if models[pair] == largest)] if largest else []

    def columns_of(self, model: str) -> dict[str, list[str]]:
        """The columns that a model has all prompts of; an average over other wordings is another
        column."""
        by_prompt = self.model_tables(model)
        return {name: some for name, some in self.columns.items() if {*some} <= {*by_prompt}}

    def tokens(self, model: str) -> pd.DataFrame:
        """Rewards of a model's own tokens that can be words: index = text, a column for each of
        `columns_of`."""
        by_prompt = self.model_tables(model)
        columns = self.columns_of(model).items()
        first = next(iter(by_prompt.values()))
        return tokens_of(
            first, {name: [by_prompt[p] for p in prompts] for name, prompts in columns}
        )

    def words(self, model: str) -> pd.DataFrame:
        """Rewards of words, the spellings of a word averaged: index = word, a column for each of
        `columns_of`."""
        if ("words", model) not in self.memo:
            self.memo["words", model] = word_means(self.tokens(model))
        return self.memo["words", model]

    def pairs_of(self, model: str) -> list[tuple[str, str]]:
        """The opposite pairs that this model has both of; none in `paper`, which knows none."""
        columns = {} if self.reading.paper else self.columns_of(model)
        return [pair for pair in self.opposite_pairs() if {*pair} <= {*columns}]

    def without_columns(self) -> list[str]:
        """Notes on models that lack columns, and why."""
        notes = [
            f"prompt {p}: polarity not known, and the other prompts are averaged"
            for p in self.prompts
            if not any(p in prompts for prompts in self.columns.values())
        ]
        for model in self.models:
            by_prompt, columns = self.model_tables(model), self.columns_of(model)
            expected = {p for p in self.prompts for t in self.by_prompt[p] if t.model == model}
            label = self.labels[model]
            other = [p for p in self.prompts if p in expected and p not in by_prompt]
            notes += [f"{label} on {p}: scanned in another mode" for p in other]
            for name, prompts in self.columns.items():
                n = len({*prompts} - expected)
                if n and name not in columns:
                    notes.append(f"{label} on {name}: {n} of {len(prompts)} prompts not scanned")
        return notes


# --- The vocabulary that several models share.


def reward_matrix(
    tables: Sequence[ScoreTable], *, paper: bool = False, stripped: bool = False
) -> pd.DataFrame:
    """Rewards of the texts that every table holds exactly once, sorted; the *shared vocabulary* of
    the paper: index = text, one column per table, named by its model.

    A text that two tokens of one model decode to (byte tokens, duplicates) is left out for all
    models, since it has no single reward. Texts are compared as they decode: ' love' and 'love' are
    two. Special and unused tokens take part only where every model has them. (Christian et al.
    2025, Fig. 2)

    Where a table's tokens were scored as text, ' love' and 'love' were one and the same input to
    templates that trim; counted twice they would inflate n and agreement. So of texts that differ
    only in outer white space one is kept, the barest; `paper` keeps all, as published.

    Args:
        tables: of one candidate set and one prompt, and of different models.
        paper: count texts that are one input as often as they occur.
        stripped: compare texts without outer white space, so that ' love' of one vocabulary meets
            'love' of another; of a model's several such tokens the barest counts.

    Raises:
        TableError: a model occurs twice, prompts differ, or fewer than 3 items are shared.
    """
    models = [t.model for t in tables]
    prompts = sorted({t.provenance.prompt for t in tables})
    if len(prompts) > 1:
        raise TableError(f"one prompt at a time: got tables for {prompts}")
    if len(set(models)) < len(models):
        twice = sorted({m for m in models if models.count(m) > 1})
        raise TableError(f"two score tables of the same model: {twice}. Type tables=[FILE,FILE]")
    rows = _rows_by_text(tables, stripped=stripped)
    items = _shared(tables, rows, paper=paper)
    if len(items) < 3:
        raise TableError(
            f"the models {models} share {len(items)} candidates on prompt {prompts[0]!r}: at least "
            "3 are needed"
        )
    places = {id(positions): positions.reindex(items).to_numpy() for positions in rows}
    columns = {
        model: table.rewards[places[id(positions)]]
        for model, table, positions in zip(models, tables, rows, strict=True)
    }
    return pd.DataFrame(columns, index=pd.Index(items, name="text"))


def _shared(tables: Sequence[ScoreTable], rows: Sequence[pd.Series], *, paper: bool) -> pd.Index:
    """The texts that all tables have by `rows`, sorted; see `reward_matrix`."""
    if not tables:
        raise TableError("no score tables given: scan or import some first")
    first, *rest = {id(positions): positions.index for positions in rows}.values()
    for positions in rest:
        first = first.intersection(positions)
    shared = first.sort_values()
    as_text = any(
        t.provenance.candidates == "vocabulary" and t.provenance.mode != "ids" for t in tables
    )
    return shared[_barest(shared)] if as_text and not paper else shared


def _rows_by_text(tables: Sequence[ScoreTable], *, stripped: bool) -> list[pd.Series]:
    """Row of each text in each table, index = text, without texts that it holds twice; one
    series for all tables of one vocabulary, as sorting 30,000 texts takes longer than everything
    that is then done with them."""
    cache: list[tuple[pd.Series, pd.Series]] = []
    positions = []
    for table in tables:
        texts = table.rows["text"]
        of_table = next((rows for other, rows in cache if other.equals(texts)), None)
        if of_table is None:
            of_table = _row_by_text(texts, stripped=stripped)
            cache.append((texts, of_table))
        positions.append(of_table)
    return positions


def _row_by_text(texts: pd.Series, *, stripped: bool) -> pd.Series:
    once = np.flatnonzero(~texts.duplicated(keep=False).to_numpy())
    rows = pd.Series(once, index=pd.Index(texts.iloc[once], name="text"))
    if not stripped:
        return rows
    rows = rows.iloc[_barest(rows.index)]
    names = [text.strip() for text in rows.index.tolist()]
    bare = rows.set_axis(pd.Index(names, dtype=rows.index.dtype, name="text"))
    return bare[bare.index != ""]


def _barest(texts: pd.Index) -> list[int]:
    """Positions, rising: of texts that differ only in outer white space the shortest, the first in
    order where two are as short."""
    # Not pandas' sorting: plain Python takes a fifth of its time.
    barest: dict[str, tuple[int, str, int]] = {}
    for position, text in enumerate(texts.tolist()):
        bare = text.strip()
        this = (len(text), text, position)
        if bare not in barest or this < barest[bare]:
            barest[bare] = this
    return sorted(position for _, _, position in barest.values())


# --- Which tables stand for what.


def tokens_of(first: ScoreTable, columns: Mapping[str, Sequence[ScoreTable]]) -> pd.DataFrame:
    """Mean rewards of each column's tables, of the tokens that may be words: index = text, in the
    order of `first`, whose candidates all of them have."""
    of_words = first.rows["kind"].isin(("normal", "item")).to_numpy()
    rewards = {
        name: np.mean([t.rewards for t in members], axis=0)[of_words]
        for name, members in columns.items()
    }
    return pd.DataFrame(rewards, index=pd.Index(first.rows["text"][of_words], name="text"))


def runs_of(tables: Iterable[ScoreTable]) -> dict[str, dict[int, ScoreTable]]:
    """Tables of checkpoints by run, the model's name without the step, and by step in order."""
    runs: dict[str, dict[int, ScoreTable]] = {}
    for table in sorted(tables, key=lambda table: table.provenance.step or 0):
        if (step := table.provenance.step) is not None:
            run = table.model.removesuffix(f"@step-{step}")
            runs.setdefault(run, {})[step] = table
    return runs


def labels_of(tables: Iterable[ScoreTable]) -> dict[str, str]:
    """Model names as people see them: the models' own where two labels are the same."""
    labels = {t.model: t.description.label or t.model for t in tables}
    return labels if len({*labels.values()}) == len(labels) else {model: model for model in labels}


def table_sets(tables: Sequence[ScoreTable], reading: Reading | None = None) -> list[TableSet]:
    """Score tables by candidate set, the vocabulary first.

    Raises:
        TableError: tables of one prompt key with different wordings, several of one model and
            prompt that cannot stand for one another, or a chosen pair with a prompt that no table
            is of.
    """
    reading = reading or Reading()
    rewards = [t for t in tables if t.provenance.score == REWARD and t.provenance.slot is None]
    language = [table for table in tables if table.provenance.score != REWARD]
    keys = list(dict.fromkeys(table.provenance.prompt for table in rewards))
    if missing := [key for pair in reading.pairs for key in pair if key not in keys]:
        reason = f"of {', '.join(keys)}.{did_you_mean(missing[0], keys)}".removesuffix(".")
        raise TableError(f"pairs names the prompt {missing[0]!r}; the score tables are {reason}")

    def table_set(candidates: str) -> TableSet:
        def select(several: Sequence[ScoreTable]) -> list[ScoreTable]:
            return [table for table in several if table.provenance.candidates == candidates]

        scans = _scans(select(rewards))
        modes = _group_modes(scans)
        return TableSet(
            candidates,
            select(tables),
            _side_by_side([next(iter(by_mode.values())) for by_mode in modes.values()]),
            modes,
            *_rescans(scans, modes),
            _side_by_side(_one_a_model(select(language))),
            reading,
            [table for table in tables if table.provenance.candidates != candidates],
        )

    names = {table.provenance.candidates for table in tables}
    return [table_set(name) for name in sorted(names, key=lambda c: (c != "vocabulary", c))]


def _side_by_side(tables: Sequence[ScoreTable]) -> dict[str, list[ScoreTable]]:
    by_prompt: dict[str, dict[str, ScoreTable]] = {}
    for table in tables:
        members = by_prompt.setdefault(table.provenance.prompt, {})
        for other in members.values():
            _check_comparable(table.provenance, other.provenance)
        members[table.model] = table
    order = sorted(by_prompt, key=lambda p: (CORE.index(p) if p in CORE else len(CORE), p))
    return {
        prompt: [by_prompt[prompt][model] for model in sorted(by_prompt[prompt])]
        for prompt in order
    }


def _check_comparable(a: ScoreProvenance, b: ScoreProvenance) -> None:
    """TableError where two tables have the same names but different wordings, items or modes."""
    message = f"models {a.model!r} and {b.model!r} cannot be compared on {a.prompt!r}: "
    if a.prompt_text and b.prompt_text and a.prompt_text != b.prompt_text:
        raise TableError(f"{message}one was asked {a.prompt_text!r}, the other {b.prompt_text!r}")
    if a.candidates != "vocabulary" and a.candidates_digest != b.candidates_digest:
        raise TableError(f"{message}their lists of items named {a.candidates!r} differ")
    if a.mode != b.mode and "published" not in (a.mode, b.mode):
        raise TableError(f"{message}type mode={a.mode} or mode={b.mode}, as they were scanned in")


Key = tuple[str, str]  # prompt, model
Scans = dict[Key, dict[str, list[ScoreTable]]]
"""By mode."""


def _group_modes(scans: Scans) -> dict[Key, dict[str, ScoreTable]]:
    """One table a mode; of several the one in float32, else the first given."""
    selection = {}
    for key, by_name in scans.items():
        low_precision_last = {
            mode: min(by_name[mode], key=lambda t: t.provenance.dtype not in (None, "float32"))
            for mode in MODES
            if mode in by_name
        }
        published = by_name.get("published", [])
        if published and (len(low_precision_last) > 1 or len(published) > 1):
            raise TableError(
                f"two score tables of model {key[1]!r} on prompt {key[0]!r} ("
                f"{' and '.join(sorted(low_precision_last))}): name files, tables=[FILE,FILE]"
            )
        first, *rest = low_precision_last.values()
        for other in rest:
            _check_same(first.provenance, other.provenance)
        selection[key] = low_precision_last
    return selection


def _rescans(
    scans: Scans, selection: Mapping[Key, Mapping[str, ScoreTable]]
) -> tuple[dict[Key, dict[str, ScoreTable]], dict[Key, list[str]]]:
    """Every further scan in the mode that stands for a model; and which scans are none, and why."""
    rescans: dict[Key, dict[str, ScoreTable]] = {}
    left_out: dict[Key, list[str]] = {}
    for key, modes in selection.items():
        mode, first = next(iter(modes.items()))
        for other in scans[key][mode]:
            if other is first:
                continue
            differs = other.provenance.dtype != first.provenance.dtype
            name = str(other.provenance.dtype) if differs else "again"
            if differ := _differing(first.provenance, other.provenance):
                reason = (
                    f"of another model under the same name ({', '.join(differ)}); scan it again "
                )
                left_out.setdefault(key, []).append(f"{key[1]}, {name}: {reason}with force=true")
            elif first.rows["reward"].equals(other.rows["reward"]):  # a copy
                left_out.setdefault(key, []).append(f"{key[1]}, {name}: the same to the last digit")
            else:
                tables = rescans.setdefault(key, {})
                number = sum(other_name.split()[0] == name for other_name in tables) + 1
                tables[name if number == 1 else f"{name} {number}"] = other
    return rescans, left_out


def _one_a_model(language: Sequence[ScoreTable]) -> list[ScoreTable]:
    """The scan of each language model and prompt in float32, else the first given."""
    by_mode = _group_modes(_scans(language))
    selection = {key: next(iter(modes.values())) for key, modes in by_mode.items()}
    for provenance in (table.provenance for table in language):
        first = selection[provenance.prompt, provenance.model].provenance
        if differ := _differing(first, provenance):
            raise TableError(
                f"two scans for log-probabilities of model {provenance.model!r} on prompt "
                f"{provenance.prompt!r} differ in {', '.join(differ)}. Name files: "
                f"tables=[FILE,FILE]. To compare both, scan one as model.name={provenance.model}-2"
            )
    return list(selection.values())


def _scans(tables: Sequence[ScoreTable]) -> Scans:
    scans: Scans = {}
    for table in tables:
        modes = scans.setdefault((table.provenance.prompt, table.model), {})
        modes.setdefault(table.provenance.mode, []).append(table)
    return scans


def _differing(a: ScoreProvenance, b: ScoreProvenance, fields: Sequence[str] = SAME) -> list[str]:
    return [field for field in fields if getattr(a, field) != getattr(b, field)]


def _check_same(a: ScoreProvenance, b: ScoreProvenance) -> None:
    if differ := _differing(a, b, (*SAME, "dtype")):
        raise TableError(
            f"the scans of model {a.model!r} on prompt {a.prompt!r} differ in more than the mode "
            f"({', '.join(differ)}): type mode={a.mode}, or name files, tables=[FILE,FILE]"
        )


def renamed(table: ScoreTable, model: str) -> ScoreTable:
    """The same table under another model's name."""
    return replace(table, provenance=replace(table.provenance, model=model))
