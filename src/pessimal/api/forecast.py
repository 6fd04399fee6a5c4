"""`pessimal.forecast`: what optimising a reward does to a policy's answers."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pessimal.analyses.forecast import analyse
from pessimal.api.compare import join_tables
from pessimal.api.load import load, to_reward
from pessimal.api.scan import scan
from pessimal.catalogue import named_prompts
from pessimal.conversation import with_prefixes
from pessimal.errors import ConfigError
from pessimal.rewards.base import Reward
from pessimal.rewards.log_probability import LogProbability
from pessimal.scoring.candidates import Candidates, has_tokens_of, texts_of
from pessimal.scoring.sampling import answers_of
from pessimal.tables import ScoreTable
from pessimal.tables.result import Results


def forecast(
    model: Reward | ScoreTable | str | Path | Any,
    policy: Reward | ScoreTable | str | Path,
    prompt: str = "greatest",
    *,
    mitigations: Sequence[str] = (),
    answers: int | None = None,
    answer_tokens: int = 8,
    seed: int = 0,
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
        options: as of `pessimal compare`, such as `lexicons={"mine": "valence.csv"}`.

    Returns:
        Results: `forecast`, `forecast_drift`, `forecast_tokens`, and `forecast_mitigations`.

    Raises:
        ConfigError, ModelError, TableError: one of them cannot be scanned, or nothing can be
            forecast from both; says why.
    """
    if isinstance(policy, str | Path):
        policy = load(str(policy), kind="log_probability")
    others: Sequence[str] | Candidates | None = None
    wanted: Any = model if isinstance(model, ScoreTable) else to_reward(model)
    if answers is not None:
        if isinstance(model, ScoreTable) or not isinstance(policy, LogProbability):
            raise ConfigError("answers=N: give a reward and a language model that writes, no table")
        [(text, _)] = with_prefixes(named_prompts(prompt), {}).values()
        causal = policy.network().causal
        others = answers_of(policy, causal, text, n=answers, tokens=answer_tokens, seed=seed)
        tables, name = [], policy.name
    else:
        said: Any = policy if isinstance(policy, ScoreTable) else scan(policy, prompt)
        if not (isinstance(model, ScoreTable) or has_tokens_of(said, wanted)):
            others = texts_of(said)
        tables, name = [said], said.provenance.model
    if not isinstance(model, ScoreTable):
        states = any(one.startswith("null_space") for one in mitigations)
        wanted = scan(wanted, prompt, candidates=others, states=states)
    tables.append(wanted)
    given = {"policy": name, "mitigations": list(mitigations), **options}
    sets, read, _ = join_tables(tables, given)
    return Results(analyse(next(one for one in sets if one.models), read))
