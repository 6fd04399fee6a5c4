"""`pessimal.audit`: a verdict for each check, before a training on a reward."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pessimal.analyses.preferences import preference_results
from pessimal.api.check import check
from pessimal.api.compare import compare
from pessimal.api.grade import census
from pessimal.api.load import device_of, to_reward
from pessimal.api.scan import scan
from pessimal.api.search import ceiling, search
from pessimal.auditing.evidence import Evidence
from pessimal.auditing.one_word import one_word
from pessimal.auditing.verdicts import audit_result, facts, overall, push, verdicts
from pessimal.auditing.verdicts import ceiling as ceiling_result
from pessimal.checking.grading import distinct_words
from pessimal.explaining.comparison import EMBEDDED
from pessimal.explaining.contexts import read_contexts, sample
from pessimal.explaining.pairs import labelled_pairs, score_pairs, wrong_pairs
from pessimal.rewards.base import NetworkReward, Reward
from pessimal.scoring.texts import text_scorer
from pessimal.tables import ScoreTable
from pessimal.tables.result import Results


def audit(
    model: Reward | str | Path | Any,
    prompts: str | Sequence[str] = ("greatest", "best", "worst"),
    *,
    pairs: str | Path | None = None,
    tasks: str | Path | None = None,
    length: int = 3,
    evaluations: int = 10_000,
    n_contexts: int = 8,
) -> Results:
    """A verdict per check (pass, fail, review, not_measured) on a reward in memory: its reading,
    whether it prefers good answers, its words, what tokens add to real answers, how far a search
    pushes it; of a function with tasks, the census.

    `pessimal audit` does more: servers and loops, a forecast, a baseline, a budget.

    Args:
        model: of `load` or `reward`, or what these take.
        prompts: as for `scan`.
        pairs: file of labelled pairs; by default those that come with pessimal.
        tasks: of a grader: JSONL file of prompts with their true answers.
        length, evaluations: of the search.
        n_contexts: real answers that tokens are added to.

    Returns:
        Results; `audit` first, one row per check and fact, its headline the overall verdict; then
        what these rest on.
    """
    one, evidence = to_reward(model, tasks=tasks), Evidence()
    if tasks is not None:
        evidence.results += census(one, tasks)
    else:
        keys = [prompts] if isinstance(prompts, str) else list(prompts)
        with evidence.measure("prefers"):
            labelled = labelled_pairs(None if pairs is None else str(pairs))
            some = [pair.conversation(text) for pair in labelled[:8] for text in pair.responses]
            scorer = text_scorer(one, some, device=device_of(one))
            scored = score_pairs(scorer, labelled, model=one.name)
            evidence.results += [*preference_results(scored), wrong_pairs(scored, labelled)]
        words = None
        if not isinstance(one, NetworkReward):
            words = distinct_words(one)
        with evidence.measure("one_word"):
            scanned = scan(one, keys, candidates=words)
            evidence.tables = [scanned] if isinstance(scanned, ScoreTable) else list(scanned)
            evidence.results += [one_word(evidence.tables), *compare(evidence.tables)]
        with evidence.measure("additions"):
            contexts = sample(read_contexts(str(EMBEDDED), "after"), n_contexts, seed=0)
            words = words and [f" {word}" for word in words]
            behind = scan(one, contexts=contexts, candidates=words)
            behind = [behind] if isinstance(behind, ScoreTable) else behind
            evidence.results += [r for r in compare(behind) if r.method == "additions"]
        if isinstance(one, NetworkReward):
            with evidence.measure("read"):
                evidence.results += check(one, keys[0])
        if isinstance(one, NetworkReward) and evidence.tables:
            found = search(one, keys[0], length=length, evaluations=evaluations, baselines=0)
            evidence.results += push(found.results, evidence.tables[0], evaluations)
            if (bounds := ceiling(one)).finite:
                evidence.results.append(ceiling_result(bounds, evidence.tables[0]))
    about = (evidence.by_name, evidence.left_out)
    checks = verdicts(*about)
    decided = overall(checks, one.core_checks)
    return Results([audit_result(checks, facts(*about), *decided), *evidence.results])
