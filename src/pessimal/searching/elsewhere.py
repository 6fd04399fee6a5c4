"""The found response elsewhere: in the contexts that were searched and in those held out, as
a text that a person would type; and how rare it is under a policy.

Knows a search's context. Does not know how a response was found.
"""

import json
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy import stats
from torch import Tensor

from pessimal.conversation import MARK, Asked, Context, filled
from pessimal.plots import Forest
from pessimal.scoring.common_prefix import ResponseScorer
from pessimal.scoring.proposals import answers_of
from pessimal.scoring.texts import text_scorer
from pessimal.searching.climb import random_responses
from pessimal.searching.context import SearchContext
from pessimal.statistics import LEVEL
from pessimal.tables.result import Estimate, Result, weight_of
from pessimal.texts import significant

RANDOM = 32
"""Random responses of as many tokens that are put where the found one is, as a control."""
SEARCHED, HELD_OUT = "searched", "held out"
_RARITY = ["context", "way", "n", "as_good", "share", "share_high", "best_of"]


def contexts_table(
    context: SearchContext, text: str, *, token: int, single: Tensor | None
) -> pd.DataFrame:
    """The effect of a response, as a `text`; one row per prompt or context: `context`, `part`
    (searched, held out), `conversation` (JSON, {slot} where the response stands); then the columns
    of `_gains` where it stands in an answer or something was held out, and those of `rarity` with
    a policy."""
    parts = {SEARCHED: context.prompts, HELD_OUT: context.held_out}
    asked = [(part, key, one) for part, some in parts.items() for key, one in some.items()]
    turns = [json.dumps([vars(turn) for turn in filled(one, MARK)]) for _, _, one in asked]
    table = pd.DataFrame(asked, columns=["part", "context", "conversation"])
    table = table[["context", "part", "conversation"]].assign(conversation=turns)
    if context.held_out or context.named_slot:
        gains = _gains(context, text, [one for _, _, one in asked])
        table = pd.concat([table, pd.DataFrame(gains)], axis=1)
    shares = rarity(context, text, token=token, single=single)
    return table.join(shares, on="context") if len(shares) else table


def _gains(context: SearchContext, text: str, asked: Sequence[Asked]) -> Iterator[dict[str, Any]]:
    """For each prompt or context `reward`, `untouched` (of the answer as it is), `random` (the mean
    of random responses), `change` (reward − untouched, of whole answers − random), `above_random`
    (share of random ones that the goal prefers it to), `random_moved` (share of them that move the
    answer's reward the goal's way); of a judge `was_yes` and `is_yes`."""
    spec, sign = context.spec, context.spec.goal.sign
    draw = partial(random_responses, length=spec.length, allowed=context.allowed)
    random = draw(RANDOM, generator=torch.Generator().manual_seed(context.seed))
    before = spec.answer if context.edits else "" if context.named_slot else None
    texts = [text, *context.round_trip.text_of(random), *([] if before is None else [before])]
    conversations = [[filled(one, text) for text in texts] for one in asked]
    scorer = text_scorer(context.model, conversations[0][:2], device=context.device)
    limit = context.model.says_yes_above
    for some in conversations:
        rewards = scorer.rewards(some)
        found, control = float(rewards[0]), rewards[1 : 1 + RANDOM]
        untouched = np.nan if before is None else float(rewards[-1])
        base = float(control.mean()) if before is None else untouched
        above, moved = (sign * gains > 0 for gains in (found - control, control - untouched))
        row = {"reward": found, "untouched": untouched, "random": float(control.mean())}
        row |= {"change": found - base, "above_random": float(above.mean())}
        row |= {"random_moved": np.nan if before is None else float(moved.mean())}
        if limit is not None:
            row |= {"was_yes": untouched > limit, "is_yes": found > limit}
        yield row


def contexts_result(table: pd.DataFrame, *, sign: int, survives: bool, policy: str) -> Result:
    """The effect of the response in contexts that were not searched, or in those that were where
    none was held out; else how rare it is under the `policy`. `survives`: whether the text that is
    scored has the ids that were found."""
    make = partial(Result, "contexts", table, method="search")
    rare = _rarity_options(table, policy) if "best_of" in table else {}
    if "change" not in table:
        return make(**rare)
    part = HELD_OUT if (table["part"] == HELD_OUT).any() else SEARCHED
    rows = table[table["part"] == part]
    n, change = len(rows), rows["change"].to_numpy()
    within = bool(rows["untouched"].notna().all())
    moved, mean = int((sign * change > 0).sum()), float(change.mean())
    over = "the answer as it is" if within else "random responses"
    flips = ""
    if "was_yes" in rows and within:
        names = ("no", "yes") if sign > 0 else ("yes", "no")
        wrong = rows["was_yes"] == (sign < 0)
        turned = int((rows["is_yes"] == (sign > 0))[wrong].sum())
        flips = f"; {turned} of {int(wrong.sum())} {names[0]} become {names[1]}"
    control = f" (random ones {rows['random_moved'].mean():.0%})" if within else ""
    reach = np.nan
    if n > 2:
        reach = float(stats.sem(change) * stats.t.ppf(1 - LEVEL / 2, n - 1))
    ends = (None, None) if np.isnan(reach) else (mean - reach, mean + reach)
    verb = "raises" if sign > 0 else "lowers"
    other = "No text gives the ids that were found: as a text it is other ids, scored here."
    return make(
        headline=f"It {verb} {moved} of {n} {part.replace(' ', '-')} contexts{control}; "
        f"mean change {significant(mean, digits=3)} over {over}{flips}.",
        plot=Forest(
            row="context",
            estimate="change",
            low=None,
            high=None,
            group="part",
            reference=0.0,
            xlabel=f"change of the reward, over {over}",
        ),
        weight=weight_of(1.0 if part == HELD_OUT else 0.5),
        estimate=Estimate("mean change, reward", mean, n, "contexts", ends[0], ends[1], null=0.0),
        notes=(*(() if survives else (other,)), *([rare["headline"]] if rare else [])),
        summary={"contexts_moved": moved, "contexts_n": n, "contexts_part": part}
        | rare.get("summary", {}),
    )


# --- How rare it is.


def rarity(context: SearchContext, text: str, *, token: int, single: Tensor | None) -> pd.DataFrame:
    """The share of answers by the policy that the goal likes as much as the found `text`, or
    more; one row per prompt, its key as index, none where the response stands in an answer.

    Of one token, `token`, by the probability of each of those whose values (V,) are `single`, where
    the policy has the same tokens; else by samples of as many tokens as the response has.

    Returns:
        way (`exact`, `samples`); n tokens or samples; as_good, how many of them are; share
        of the policy's answers that are; share_high, its one-sided bound of 95 % (of none among n
        3 / n); best_of, how many answers are needed for one as good (1 / share; of samples, at
        least this many: 1 / share_high).

    Source: Hanley & Lippman-Hand 1983 (the rule of three); Clopper & Pearson 1934.
    """
    policy, sign = context.policy, context.spec.goal.sign
    if policy is None or context.named_slot:
        return pd.DataFrame()
    if (exact := _exact(context, token, single)) is not None or context.answers is None:
        return pd.DataFrame() if exact is None else exact
    rows, scorer, causal = [], None, policy.network().to(context.device).causal
    for key, prompt in context.prompts.items():
        assert not isinstance(prompt, Context)  # which has a slot
        options = {"n": context.answers, "tokens": context.spec.length, "seed": context.seed}
        written = answers_of(policy, causal, prompt, progress=False, **options).rows
        some = [filled(prompt, one) for one in (text, *written["text"])]
        scorer = scorer or text_scorer(context.model, some[:8], device=context.device)
        rewards = sign * scorer.rewards(some)
        good, n = (
            int(written["drawn"][rewards[1:] >= rewards[0]].sum()),
            int(written["drawn"].sum()),
        )
        high = float(stats.beta.ppf(1 - LEVEL, good + 1, n - good)) if 0 < good < n else 1.0
        high = high if good else min(3 / n, 1.0)
        rows.append((key, "samples", n, good, good / n, high, 1 / high))
    return pd.DataFrame(rows, columns=_RARITY).set_index("context")


def _exact(context: SearchContext, token: int, single: Tensor | None) -> pd.DataFrame | None:
    """The share of one token and prompt; None where the policy has other tokens."""
    [key, *more], policy = list(context.prompts), context.policy
    if more or single is None or policy is None or context.fluent or not context.is_scan:
        return None
    if policy.tokenizer.get_vocab() != context.model.tokenizer.get_vocab():
        return None
    scorer = SearchContext(policy, context.prompts, context.spec).scorer(key, policy.spec.dtype)
    assert isinstance(scorer, ResponseScorer)
    p = scorer.following(torch.empty(1, 0, dtype=torch.long))[0].double().exp().cpu()
    as_good = single >= single[token]
    share = float(p[: len(single)][as_good[: len(p)]].sum())
    row = (key, "exact", int(context.mask.sum()), int(as_good.sum()), share, share)
    rows = [(*row, 1 / share if share else np.inf)]
    return pd.DataFrame(rows, columns=_RARITY).set_index("context")


def _rarity_options(table: pd.DataFrame, policy: str) -> dict[str, Any]:
    """Options of a Result: how many answers of the policy one would need for one that is as
    good."""
    rarest = table.loc[table["best_of"].idxmax()]
    exact, best_of = rarest["way"] == "exact", float(rarest["best_of"])
    n = significant(np.ceil(best_of), digits=3)
    return {
        "headline": f"One answer of {policy} in {'' if exact else 'at least '}{n} is as good on "
        f"{rarest['context']}: best of n needs n ≥ {n}.",
        "weight": weight_of(0.6),
        "estimate": Estimate("answers for one as good", best_of, int(rarest["n"]), "answers"),
        "summary": {"best_of": best_of, "best_of_exact": bool(exact)},
    }
