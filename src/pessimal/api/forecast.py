"""`pessimal.forecast`: what optimising a reward does to a policy's answers."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pessimal.analyses.forecast import analyse
from pessimal.api.compare import join_tables
from pessimal.api.load import load, to_reward, trainer_for
from pessimal.api.scan import scan_tables
from pessimal.api.store import Store
from pessimal.catalogue import named_prompts
from pessimal.errors import ConfigError
from pessimal.rewards.base import Reward
from pessimal.rewards.log_probability import LogProbability
from pessimal.rewards.spec import Mode
from pessimal.scoring.candidates import (
    Candidates,
    has_tokens_of,
    listed,
    texts_of,
    vocabulary_of,
)
from pessimal.scoring.sampling import answers_of
from pessimal.scoring.spec import TrainerSpec
from pessimal.tables import ScoreTable
from pessimal.tables.result import Results


def forecast(
    model: Reward | ScoreTable | str | Path | Any,
    policy: Reward | ScoreTable | str | Path,
    prompt: str | Mapping[str, Any] = "greatest",
    *,
    mitigations: Sequence[str] = (),
    answers: int | None = None,
    answer_tokens: int = 8,
    seed: int = 0,
    trainer: TrainerSpec | None = None,
    store: Store | None = None,
    cache: str = "runs/cache",
    progress: bool = True,
    **options,
) -> Results:
    """What optimising a reward will do to a policy's one-token answers, exactly, by the KL spent;
    or to longer ones, from answers that it writes, as far as these reach.

    Args:
        model: of `load` or `reward`, or what these take; or its score table.
        policy: a language model, likewise; or its log-probabilities, of `scan`.
        prompt: as for `scan`.
        mitigations: other rewards to forecast beside it: without:FEATURE, null_space:AXIS or
            mix:MODEL.
        answers: how many answers the policy writes, in place of all of one token.
        answer_tokens: most tokens of such an answer.
        seed: of what it writes.
        trainer, store, cache, progress: as for `scan`.
        options: as of `pessimal compare`, such as `lexicons={"mine": "valence.csv"}`.

    Returns:
        Results: `forecast`, `forecast_drift`, `forecast_tokens`, and `forecast_mitigations`.

    Raises:
        ConfigError, ModelError, TableError: one of them cannot be scanned, or nothing can be
            forecast from both; says why.
    """
    if isinstance(policy, str | Path):
        policy = load(str(policy), kind="log_probability", cache=cache)
    wanted: Any = model if isinstance(model, ScoreTable) else to_reward(model)
    named = named_prompts(prompt)

    def scan(reward: Reward, candidates: Candidates, mode: Mode, states: bool) -> list[ScoreTable]:
        place = trainer or trainer_for(reward)
        how: dict[str, Any] = {"mode": mode, "states": states, "store": store, "trainer": place}
        return list(scan_tables(reward, named, candidates, cache=cache, progress=progress, **how))

    words: Candidates | None = None
    tables: list[ScoreTable] = []
    if answers is not None:
        if isinstance(model, ScoreTable) or not isinstance(policy, LogProbability):
            raise ConfigError("answers=N: give a reward and a language model that writes, no table")
        [text] = named.values()
        causal, name = policy.network().causal, policy.name
        words = answers_of(policy, causal, text, n=answers, tokens=answer_tokens, seed=seed)
    else:
        if isinstance(policy, ScoreTable):
            tables = [policy]
        else:
            tables = scan(policy, vocabulary_of(policy), Mode.ids, False)
        name = tables[0].provenance.model
        if not (isinstance(model, ScoreTable) or has_tokens_of(tables[0], wanted)):
            words = listed(texts_of(tables[0]), name=f"{name}-tokens")
    if isinstance(model, ScoreTable):
        tables.append(model)
    else:
        mode = Mode.ids if words is None else Mode.text
        states = any(one.startswith("null_space") for one in mitigations)
        tables += scan(wanted, words or vocabulary_of(wanted), mode, states)
    given = {"policy": name, "mitigations": list(mitigations), **options}
    sets, read, _ = join_tables(tables, given)
    return Results(analyse(next(one for one in sets if one.models), read))
