"""The found response elsewhere: in the contexts that were searched and in those held out, as
a text that a person would type.

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

from pessimal.conversation import MARK, Asked, filled
from pessimal.plots import Forest
from pessimal.scoring.texts import text_scorer
from pessimal.searching.climb import random_responses
from pessimal.searching.context import SearchContext
from pessimal.statistics import LEVEL
from pessimal.tables.result import Estimate, Result, weight_of
from pessimal.texts import significant

RANDOM = 32
"""Random responses of as many tokens that are put where the found one is, as a control."""
SEARCHED, HELD_OUT = "searched", "held out"


def contexts_table(context: SearchContext, text: str) -> pd.DataFrame:
    """The effect of a response, as a `text`; one row per prompt or context: `context`, `part`
    (searched, held out), `conversation` (JSON, {slot} where the response stands); then the columns
    of `_gains` where it stands in an answer or something was held out."""
    parts = {SEARCHED: context.prompts, HELD_OUT: context.held_out}
    conversations = [
        (part, key, conversation)
        for part, some in parts.items()
        for key, conversation in some.items()
    ]
    turns = [
        json.dumps([vars(turn) for turn in filled(conversation, MARK)])
        for _, _, conversation in conversations
    ]
    table = pd.DataFrame(conversations, columns=["part", "context", "conversation"])
    table = table[["context", "part", "conversation"]].assign(conversation=turns)
    if not (context.held_out or context.named_slot):
        return table
    gains = _gains(context, text, [conversation for _, _, conversation in conversations])
    return pd.concat([table, pd.DataFrame(gains)], axis=1)


def _gains(context: SearchContext, text: str, prompts: Sequence[Asked]) -> Iterator[dict[str, Any]]:
    """For each prompt or context `reward`, `untouched` (of the answer as it is), `random` (the mean
    of random responses), `change` (reward − untouched, of whole answers − random), `above_random`
    (share of random ones that the goal prefers it to), `random_moved` (share of them that move the
    answer's reward the goal's way); of a judge `was_yes` and `is_yes`."""
    spec, sign = context.spec, context.spec.goal.sign
    draw = partial(random_responses, length=spec.length, allowed=context.allowed)
    random = draw(RANDOM, generator=torch.Generator().manual_seed(context.seed))
    before = spec.answer if context.edits else "" if context.named_slot else None
    texts = [text, *context.round_trip.text_of(random), *([] if before is None else [before])]
    conversations = [[filled(conversation, text) for text in texts] for conversation in prompts]
    scorer = text_scorer(context.model, conversations[0][:2], device=context.device)
    limit = context.model.says_yes_above
    for some in conversations:
        rewards = scorer.rewards(some)
        reward, control = float(rewards[0]), rewards[1 : 1 + RANDOM]
        untouched = np.nan if before is None else float(rewards[-1])
        base = float(control.mean()) if before is None else untouched
        above, moved = (sign * gains > 0 for gains in (reward - control, control - untouched))
        row = {"reward": reward, "untouched": untouched, "random": float(control.mean())}
        row |= {"change": reward - base, "above_random": float(above.mean())}
        row |= {"random_moved": np.nan if before is None else float(moved.mean())}
        if limit is not None:
            row |= {"was_yes": untouched > limit, "is_yes": reward > limit}
        yield row


def contexts_result(table: pd.DataFrame, *, sign: int, survives: bool) -> Result:
    """The effect of the response in contexts that were not searched, or in those that were where
    none was held out. `survives`: whether the text that is scored has the ids that were found."""
    make = partial(Result, "contexts", table, method="search")
    if "change" not in table:
        return make()
    part = HELD_OUT if (table["part"] == HELD_OUT).any() else SEARCHED
    rows = table[table["part"] == part]
    n, change = len(rows), rows["change"].to_numpy()
    has_untouched = bool(rows["untouched"].notna().all())
    moved, mean = int((sign * change > 0).sum()), float(change.mean())
    over = "the answer as it is" if has_untouched else "random responses"
    flips = ""
    if "was_yes" in rows and has_untouched:
        names = ("no", "yes") if sign > 0 else ("yes", "no")
        wrong = rows["was_yes"] == (sign < 0)
        turned = int((rows["is_yes"] == (sign > 0))[wrong].sum())
        flips = f"; {turned} of {int(wrong.sum())} {names[0]} become {names[1]}"
    control = f" (random ones {rows['random_moved'].mean():.0%})" if has_untouched else ""
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
        notes=() if survives else (other,),
        summary={"contexts_moved": moved, "contexts_n": n, "contexts_part": part},
    )
