"""`pessimal.accuracy`: how often the better of two answers has the higher reward."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from pessimal.api.load import device_of, to_reward
from pessimal.errors import ConfigError
from pessimal.explaining.pairs import (
    accuracy_results,
    labelled_pairs,
    pair_frame,
    published_rewards,
    score_pairs,
)
from pessimal.progress import counted, quiet_libraries
from pessimal.rewards.base import Reward
from pessimal.scoring.texts import Scorers
from pessimal.tables.comparisons import Comparison
from pessimal.tables.result import Results


def accuracy(
    models: Reward | str | Path | Sequence[Any] | Any = (),
    pairs: str | Path | Sequence[Comparison] | None = None,
    *,
    batch_size: int | None = None,
    device: "torch.device | None" = None,
    keep: str | Path | None = None,
    confidence: float = 0.95,
    source: str = "",
    progress: bool = True,
    **options,
) -> Results:
    """Accuracy of each model: how often the better of two answers has the higher reward.

    Args:
        models: one, or a list of several, of `load` or `reward`, or what these take.
        pairs: a file of labelled pairs (.jsonl, .jsonl.gz, .json, .parquet), such as RewardBench's;
            by default the 210 pairs that come with pessimal. Models whose rewards stand in its
            rows take part too.
        batch_size: conversations a batch; found from the memory there is where None.
        device: where the models run; by default where one in memory is, else the CPU.
        keep: folder in which rewards are kept as they come, so that a second call does not ask for
            them again.
        confidence: level of the intervals.
        source: what the pairs are, for the notes; by default the file.
        options: of `load` or `reward`.

    Returns:
        Results `preferences` (accuracy by model and category), `preference_differences` and
        `margin_agreement` of several models, `margin_length`, and two tables: `preference_pairs`,
        ranked against their labels, and `scored_pairs`, every reward.

    Raises:
        ConfigError: no model is given, or two have one name.
        InputError: the file cannot be read, or none of its pairs has a label.
    """
    quiet_libraries()
    several = models if isinstance(models, list | tuple) else [models]
    rewards = [to_reward(model, **options) for model in several]
    if pairs is None or isinstance(pairs, str | Path):
        source = source or ("those of pessimal" if pairs is None else str(pairs))
        pairs = labelled_pairs(None if pairs is None else str(pairs), n=None)
    published = published_rewards(pairs)
    names = [*published, *(model.name for model in rewards)]
    if not names:
        raise ConfigError("whose accuracy? Give a model, or pairs with scores in their rows")
    if twice := [name for name in names if names.count(name) > 1]:
        raise ConfigError(f"two models are called {twice[0]!r}: leave one out, or rename it")
    tables = [pair_frame(scores, pairs, model=name) for name, scores in published.items()]
    texts = [pair.conversation(text) for pair in pairs[:8] for text in pair.responses]
    with counted("labelled pairs", unit="responses", bar=progress) as counter:
        for model in rewards:
            counter.begin(model.name, total=2 * len(pairs))
            place, folder = device or device_of(model), Path(keep) if keep else None
            scorers = Scorers(texts, place, batch_size, folder, counter)
            # No name holds a scorer: the next model is loaded once this one is freed.
            tables.append(
                score_pairs(scorers.make_scorer(model, sample=16)[1], pairs, model=model.name)
            )
    return Results(accuracy_results(tables, pairs, source=source, confidence=confidence))
