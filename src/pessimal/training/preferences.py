"""People's preferences between named items, as EloEverything gives them: a rating each, and how
many matches it rests on.

Knows the file and how items are split; nothing of models.
"""

import hashlib
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeGuard, cast

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn
from transformers import DynamicCache, PreTrainedModel, PreTrainedTokenizerBase

from pessimal.conversation import Turn
from pessimal.errors import FrameError, InputError
from pessimal.rewards.formats import Templated
from pessimal.tables.files import read_csv, require_columns
from pessimal.tables.published import numbers, whole_numbers

if TYPE_CHECKING:
    from peft import PeftModel


@dataclass(frozen=True)
class Answers:
    """Items as the answers to one question: token ids of what stands ahead of all of them, and of
    each with what closes it."""

    prefix: tuple[int, ...]
    ids: tuple[tuple[int, ...], ...]

    @classmethod
    def from_names(
        cls, tokenizer: PreTrainedTokenizerBase, question: str, names: Sequence[str]
    ) -> "Answers":
        """As the tokenizer's chat template writes them. FrameError where a conversation does not
        begin with the frame."""
        conversations = Templated(tokenizer)
        prefix, answers = conversations.frame(question).prefix, []
        for name in names:
            ids = conversations.encode((Turn("user", question), Turn("assistant", name))).ids
            if ids[: len(prefix)] != prefix:
                raise FrameError(f"the chat template writes no {name!r} behind the question")
            answers.append(tuple(ids[len(prefix) :]))
        return cls(prefix, tuple(answers))


def is_adapted(network: nn.Module | None) -> "TypeGuard[PeftModel]":
    """Whether PEFT wrapped the network."""
    # An extra, and seconds to import: who wrapped it has imported it.
    peft = sys.modules.get("peft")
    return peft is not None and isinstance(network, peft.PeftModel)


def score_answers(
    network: "PreTrainedModel | PeftModel",
    prefix: Sequence[int],
    answers: Sequence[Sequence[int]],
    *,
    rows: int,
) -> Tensor:
    """Rewards (n,) float32 of answers; what stands ahead of them is run once. With gradients where
    they are enabled.

    Args:
        network: a sequence classifier, or one with adapters.
        rows: answers of a batch; those of like length share one.
    """
    bare = network.get_base_model() if is_adapted(network) else network
    backbone, head = cast(PreTrainedModel, bare).base_model, bare.get_submodule("score")
    device = next(network.parameters()).device
    shared = DynamicCache()
    ids = torch.tensor([list(prefix)], device=device)
    backbone(input_ids=ids, past_key_values=shared, use_cache=True)
    order, rewards = np.argsort([len(ids) for ids in answers], kind="stable"), []
    for start in range(0, len(order), rows):
        batch = [answers[row] for row in order[start : start + rows]]
        ends = torch.tensor([len(ids) for ids in batch], device=device) - 1
        # What fills a row up stands behind the position that is read.
        ids = torch.zeros(len(batch), int(ends.max()) + 1, dtype=torch.long, device=device)
        for row, answer in enumerate(batch):
            ids[row, : len(answer)] = torch.tensor(answer)
        cache, shape = DynamicCache(), (len(batch), -1, -1, -1)
        for number, (keys, values, *_) in enumerate(shared):
            cache.update(keys.expand(shape), values.expand(shape), number)
        states = backbone(input_ids=ids, past_key_values=cache, use_cache=True).last_hidden_state
        read = states[torch.arange(len(batch), device=device), ends]
        rewards.append(head(read)[:, 0].float())
    return torch.cat(rewards)[torch.tensor(np.argsort(order, kind="stable"), device=device)]


LEAST = 50
"""Items that training and its held-out accuracy need at least, each."""
NATS = math.log(10) / 400
"""One point of Elo in nats of the Bradley-Terry model: 400 points are odds of ten to one."""


@dataclass(frozen=True)
class Items:
    """Items with what people think of them."""

    names: tuple[str, ...]
    utility: np.ndarray
    """float64 (n,): Elo in nats; the probability that people prefer i to j is sigmoid(u_i -
    u_j)."""
    precision: np.ndarray
    """float64 (n,): matches that each rating rests on."""

    def take(self, rows: np.ndarray) -> "Items":
        """The items of some rows."""
        names = tuple(self.names[row] for row in rows)
        return Items(names, self.utility[rows], self.precision[rows])


def read_preferences(path: Path, *, without: frozenset[str] = frozenset()) -> Items:
    """Items of a file in the layout of EloEverything's: columns name, elo_score, elo_matches;
    others are not read.

    Args:
        path: a CSV file.
        without: names that are left out, in lower case.

    Raises:
        InputError: no such columns, a value that is no number, a name twice, or too few items.
    """
    table = read_csv(path)
    wanted = ("name", "elo_score", "elo_matches")
    message = f"preferences are a table of {', '.join(wanted)}, such as EloEverything's"
    require_columns(path, table, wanted, layout=message)
    if len(again := table["name"][table["name"].duplicated()]):
        raise InputError(f"{path} has the item {again.iloc[0]!r} twice; give each once")
    elo, matches = numbers(path, table, "elo_score"), whole_numbers(path, table, "elo_matches")
    names = table["name"].str.strip().str.lower()
    included = ~names.isin(without).to_numpy() & (np.asarray(matches) > 0)
    if (n := included.sum()) < 2 * LEAST:
        raise InputError(f"{path} has {n} items with matches; at least {2 * LEAST} are needed")
    utility, precision = (np.asarray(values, dtype=float)[included] for values in (elo, matches))
    return Items(tuple(table["name"][included]), utility * NATS, precision)


def split(items: Items, *, held_out: float, seed: int) -> tuple[Items, Items]:
    """Items to train on and items that are held out, at random; InputError where one of the two has
    fewer than LEAST."""
    order = np.random.default_rng(seed).permutation(len(items.names))
    cut = round(held_out * len(order))
    if min(cut, len(order) - cut) < LEAST:
        parts = f"{len(order) - cut} to train on and {cut} held out, of {LEAST} each"
        raise InputError(f"recipe.held_out={held_out} of {len(order)} items leaves {parts}")
    return items.take(np.sort(order[cut:])), items.take(np.sort(order[:cut]))


def agreement(rewards: np.ndarray, items: Items, *, confidence: float = 0.95) -> dict[str, float]:
    """The share of pairs of items that a reward puts into people's order.

    Of all pairs with different ratings, the share whose rewards differ the same way (ties count a
    half): `accuracy`; with the interval `low`, `high` of a U-statistic (Hájek's projection; items
    are the independent draws), `n` items, `pairs`. And `spearman` of reward and rating.
    """
    from scipy import stats

    higher = np.sign(items.utility[:, None] - items.utility)
    right = np.where(higher == 0, 0.0, (1 + higher * np.sign(rewards[:, None] - rewards)) / 2)
    n_compared = np.maximum((higher != 0).sum(axis=1), 1)
    share = right.sum(axis=1) / n_compared
    accuracy = right.sum() / (higher != 0).sum()
    error = 2 * share.std(ddof=1) / math.sqrt(len(share))
    half = float(stats.norm.ppf((1 + confidence) / 2)) * error
    spearman = float(stats.spearmanr(rewards, items.utility).statistic)
    ends = {"low": float(accuracy - half), "high": float(accuracy + half)}
    counts = {"n": len(share), "pairs": int((higher > 0).sum())}
    return {"accuracy": float(accuracy), **ends, **counts, "spearman": spearman}


def digest_of(items: Items) -> str:
    """sha256 of the items, as the table says them."""
    table = {"name": items.names, "utility": items.utility, "precision": items.precision}
    return hashlib.sha256(pd.DataFrame(table).to_csv(index=False).encode()).hexdigest()
