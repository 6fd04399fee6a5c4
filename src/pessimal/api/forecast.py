"""`pessimal.forecast`: what optimising a reward does to a policy's answers."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pessimal.analyses.forecast import analyse
from pessimal.api.compare import join_tables
from pessimal.api.load import load, to_reward
from pessimal.api.scan import scan_tables
from pessimal.api.store import Store, store_at
from pessimal.catalogue import named_prompts
from pessimal.errors import ConfigError
from pessimal.rewards.base import Reward
from pessimal.scoring.candidates import Candidates, tokens_for
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
    store: Store | str | Path | None = None,
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
    texts = named_prompts(prompt)
    states = any(one.startswith("null_space") for one in mitigations)
    how: dict[str, Any] = {
        "trainer": trainer,
        "store": store_at(store),
        "cache": cache,
        "progress": progress,
    }
    if answers is not None and (isinstance(model, ScoreTable) or isinstance(policy, ScoreTable)):
        raise ConfigError("answers=N: give a reward and a language model that writes, no table")
    if isinstance(policy, ScoreTable):
        name, tables = policy.provenance.model, [policy]
        if not isinstance(model, ScoreTable):
            reward = to_reward(model)
            words = tokens_for(reward, Candidates("vocabulary", policy.rows), name=f"{name}-tokens")
            tables += scan_tables(reward, texts, words, states=states, **how)
    elif isinstance(model, ScoreTable):
        name, tables = policy.name, scan_tables(policy, texts, states=False, **how)
    else:
        name, asked = policy.name, {"answer_tokens": answer_tokens, "seed": seed, "states": states}
        tables = scan_tables(
            to_reward(model), texts, policy=policy, answers=answers, **asked, **how
        )
    if isinstance(model, ScoreTable):
        tables.append(model)
    given = {"policy": name, "mitigations": list(mitigations), **options}
    sets, read, _ = join_tables(tables, given)
    return Results(analyse(next(one for one in sets if one.models), read))
