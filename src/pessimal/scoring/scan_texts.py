"""Scans of rewards that take texts, and of sums: a table of each term, then theirs.

Knows neither networks nor W&B nor the registry.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from pessimal.conversation import Context, Conversation, filled
from pessimal.progress import counted
from pessimal.rewards.base import Reward, TextReward
from pessimal.rewards.ceiling import read_bounds, weighted_sum
from pessimal.rewards.question import hardly_answers
from pessimal.rewards.spec import Dtype
from pessimal.scoring.candidates import Candidates
from pessimal.scoring.identify import (
    SLOT,
    answered,
    both_answers,
    score_table,
    slot_entries,
    term_provenance,
)
from pessimal.scoring.spec import TrainerSpec
from pessimal.scoring.texts import AskedAgain, KeptRewards
from pessimal.scoring.trust import (
    Trust,
    certify,
    judge,
    nearest,
    noise_sample,
    numerical_noise,
    uncertified,
)
from pessimal.tables import ScoreProvenance, ScoreTable

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ScanPlan:
    """Settings of a scan, whatever it is of."""

    work: Path
    """Folder of what an interrupted scan left, and leaves."""
    trainer: TrainerSpec
    """Where the loop runs."""
    root: Path | str
    """Folder for what Lightning writes."""
    batch_size: int | None = None
    """Candidates a batch; found from the memory there is where None."""
    progress: bool = True
    again: bool = False
    """Score anew what an interrupted scan has finished."""
    report: Callable[[int, float, int], None] | None = None
    """Called every few seconds with the candidates scored, how many a second, and the batch
    size."""


class Scanner(ABC):
    """Scores candidates on prompts with one reward."""

    candidates: Candidates
    plan: ScanPlan

    @property
    def texts(self) -> list[str]:
        return self.candidates.rows["text"].tolist()

    @abstractmethod
    def scan(self, provenance: ScoreProvenance) -> ScoreTable:
        """The table of one of the provenances; what an earlier, interrupted scan left is not scored
        again. Where the loop has several processes, all of them call this and get the same.

        Raises:
            ModelError: a reward is not a number.
        """

    def rate(self, provenance: ScoreProvenance, *, n: int = 64) -> float | None:
        """Candidates a second on a prompt or context, measured on `n` before anything is scanned;
        None for what runs no network here."""
        return None

    def terms_of(self, provenance: ScoreProvenance) -> Sequence[ScoreTable]:
        """The tables of the terms of a sum that is scanned."""
        return ()


class TextScanner(Scanner):
    """Scanner of a reward that takes texts."""

    def __init__(self, model: TextReward, candidates: Candidates, plan: ScanPlan):
        self.model, self.candidates, self.plan = model, candidates, plan

    def scan(self, provenance: ScoreProvenance) -> ScoreTable:
        """No rank is certain unless the reward gives the same numbers twice: a sample is asked
        again."""
        model, plan = self.model, self.plan
        label, folder = provenance.label, plan.work / provenance.key()
        prompt, n = provenance.question, len(self.candidates.rows)
        conversations: list[Conversation] = [filled(prompt, text) for text in self.texts]
        answers = both_answers(prompt) if isinstance(prompt, Context) else []
        with counted(label, unit="candidates", total=n, bar=plan.progress) as counter:

            def advance(n: int) -> None:
                counter.advance(n)
                if plan.report:
                    plan.report(counter.done, counter.rate, n)

            file = folder / "rewards.jsonl"
            if plan.again:
                file.unlink(missing_ok=True)
                (folder / "again.jsonl").unlink(missing_ok=True)
            stored = KeptRewards(model, file, advance)
            todo = stored.unknown(conversations)
            some = [conversations[i] for i in _sampled(np.arange(n))]
            second = KeptRewards(AskedAgain(model), folder / "again.jsonl")
            if todo and (cost := model.cost(todo, again=second.unknown(some))):
                log.info("%s: %s", label, cost)
            rewards = stored.rewards(conversations)
        candidates, places, measured = answered(model, self.candidates, rewards)
        if answers:
            cache = KeptRewards(model, file)
            untouched = [cache.rewards([answer])[0] if answer else np.nan for answer in answers]
            measured |= slot_entries(np.array(untouched))
        # Where all were answered, the sample whose cost was announced.
        sample = _sampled(places)
        once, twice = rewards[sample], second.rewards([conversations[i] for i in sample])
        noise = numerical_noise(once, twice)
        result = certify(rewards[places], noise=noise)
        measured |= model.describe_answers(conversations)
        if hardly_answers(measured):
            log.warning("%s: so no rank is certified", label)
            result = uncertified(result.rewards)
        return score_table(
            model,
            provenance,
            candidates,
            result,
            trust=judge(once, once, twice, once, rounding=0.0, dtype=Dtype.float32),
            noise=noise,
            attention="texts",
            **measured,
        )


class SumScanner(Scanner):
    """Scanner of a sum.

    Args:
        make: makes what scans a term, of its reward, its provenances and a plan.
        finished: the table of a term that has been scored before; None where there is none.
    """

    def __init__(
        self,
        model: Reward,
        provenances: Sequence[ScoreProvenance],
        candidates: Candidates,
        plan: ScanPlan,
        *,
        make: Callable[..., Scanner],
        finished: Callable[[ScoreProvenance], ScoreTable | None],
    ):
        self.model, self.candidates, self.plan, self.finished = model, candidates, plan, finished
        self.tables: dict[str, list[ScoreTable]] = {}
        """Tables of the terms, by the key of the sum's."""
        self.scanners: list[Scanner | None] = []
        """Scanners of the terms; None where all tables of one are finished."""
        for _, term in model.terms:
            todo = [
                provenance
                for provenance in (term_provenance(term, p) for p in provenances)
                if not finished(provenance)
            ]
            scanner = make(term, todo, candidates, plan, states=False) if todo else None
            self.scanners.append(scanner)

    def terms_of(self, provenance: ScoreProvenance) -> Sequence[ScoreTable]:
        """The tables of its terms."""
        return self.tables.get(provenance.key(), [])

    def scan(self, provenance: ScoreProvenance) -> ScoreTable:
        """A table of each term, and their sum: what a term says nothing of adds nothing."""
        model, tables = self.model, []
        for (_, term), scanner in zip(model.terms, self.scanners, strict=True):
            table = self.finished(term_provenance(term, provenance))
            if table is None:
                assert scanner is not None
                scanner.plan = replace(self.plan, work=self.plan.work / provenance.key())
                table = scanner.scan(term_provenance(term, provenance))
            tables.append(table)
        self.tables[provenance.key()] = tables
        ids = self.candidates.rows["candidate_id"]
        values = np.array(
            [table.rows.set_index("candidate_id")["reward"].reindex(ids) for table in tables]
        )
        weights = np.array([weight for weight, _ in model.terms])
        rewards = np.nansum(weights[:, None] * values, axis=0)
        rewards[np.isnan(values[weights != 0]).all(axis=0)] = np.nan
        candidates, places, measured = answered(model, self.candidates, rewards)
        if provenance.slot is not None:
            terms = [[t.measured["slot"][name] for t in tables] for name in SLOT]
            measured |= slot_entries(np.array(terms, dtype=float) @ weights)
        each = zip(weights, tables, strict=True)
        bounds = weighted_sum((w, read_bounds(table.measured.get("ceiling"))) for w, table in each)
        if bounds.is_bounded:
            measured["ceiling"] = bounds.stored()
        noise = float(np.dot(np.abs(weights), [table.measured["noise"] or 0.0 for table in tables]))
        pairs = zip(weights, tables, strict=True)
        unanswered = any(weight and hardly_answers(table.measured) for weight, table in pairs)
        exact = provenance.certain is None and not unanswered
        trust = nearest(Trust(**table.measured["trust"]) for table in tables)
        assert trust is not None
        return score_table(
            model,
            provenance,
            candidates,
            certify(rewards[places], noise=noise) if exact else uncertified(rewards[places]),
            trust=trust,
            noise=noise,
            attention=", ".join(
                dict.fromkeys(table.provenance.attention or "" for table in tables)
            ),
            terms=[
                {"model": term.name, "weight": weight, "key": table.provenance.key()}
                for (weight, term), table in zip(model.terms, tables, strict=True)
            ],
            **measured,
        )


def _sampled(rows: np.ndarray) -> np.ndarray:
    """The rows that are asked again, in their order."""
    return rows[np.sort(np.random.default_rng(1).permutation(len(rows))[: noise_sample(len(rows))])]
