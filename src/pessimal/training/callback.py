"""Watches what a reward model comes to want while it is trained, with Lightning or with transformers' trainers (TRL's).

Scores a sample of the vocabulary with the network as it is, in a hundredth of the training's time.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
import pytorch_lightning as pl
import torch
from peft import PeftModel
from scipy import stats
from torch import nn
from transformers import TrainerCallback

from pessimal.api import named_prompts
from pessimal.errors import ConfigError
from pessimal.rewards.frame import Templated
from pessimal.scoring.candidates import vocabulary
from pessimal.tables.word_lists import read_lexicon
from pessimal.training.answers import score_answers

log = logging.getLogger(__name__)

LEAST, MOST = 32, 2048
"""Tokens of the sample."""
PROBE = 16
"""Tokens that the first turn scores, to learn how long one takes."""
LEAST_RATED = 20
"""Rated words that a correlation with valence needs."""


@dataclass
class Watched:
    """What is scored under one prompt: a fixed sample, words asked for, and the best and worst seen so far."""

    prefix: tuple[int, ...]
    suffix: tuple[int, ...]
    seen: dict[tuple[int, ...], float] = field(default_factory=dict)
    """Latest reward of each answer's ids."""
    before: np.ndarray | None = None
    """The sample's rewards of the last turn."""


class PessimalCallback(pl.Callback, TrainerCallback):
    """The best and worst answers of a reward model in training, live in the trainer's own W&B run.

    Every `every` steps of the optimiser a sample of the vocabulary is scored as the answer to each prompt: always the same
    tokens, so that curves compare, with `watch`, and with the `keep` best and worst answers that were seen so far, each
    scored again. All rewards are exact, by the network's own layers in evaluation mode. The best and worst are so among
    what was seen, and not certified over the vocabulary: for that, `pessimal scan` the checkpoint.

    It takes at most `share` of the time since training began: the first turn measures how long a token takes, the second sets
    the sample's size by it, and a turn that would cost too much is left out. Where several processes train, the first of them
    watches; networks that are sharded over devices cannot be watched.

    Logged under `pessimal/PROMPT/`: `best`, `worst` (rewards), `mean`, `sd` (of the sample), `valence_rho` (Spearman's ρ with
    AFINN over its rated words, of which there are `valence_n`), `settling` (Kendall's τ with the last turn). `history` has the
    best and worst answers of each turn by name.

    Args:
        prompts: a user turn, a key such as "greatest", several of them, or key → user turn.
        every: steps of the optimiser.
        tokenizer: with Lightning, the network's; transformers' trainers hand theirs over.
        watch: further answers.
        keep: best and worst answers that are scored again.
        share: of the training's time.
        network: with Lightning, takes the network from the module; by default its `network` or `model`, or itself.
        report: gets every turn's step and numbers, besides the trainer's own loggers.
    """

    def __init__(
        self,
        prompts: str | Sequence[str] | Mapping[str, str] = "greatest",
        *,
        every: int = 100,
        tokenizer=None,
        watch: Sequence[str] = (),
        keep: int = 10,
        share: float = 0.01,
        seed: int = 0,
        network: Callable[[pl.LightningModule], nn.Module] | None = None,
        report: Callable[[int, dict], None] | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ):
        if every < 1 or keep < 1 or not 0 < share <= 1:
            raise ConfigError(
                f"every={every}, keep={keep} and share={share}: give 1 or more, 1 or more, above 0 to 1"
            )
        self.prompts, self.every, self.tokenizer, self.watch = (
            named_prompts(prompts),
            every,
            tokenizer,
            tuple(watch),
        )
        self.keep, self.share, self.seed, self.network, self.report = keep, share, seed, network, report
        self.clock, self.started, self.spent = clock, None, 0.0
        self.cost, self.size, self.turned, self.turns = None, None, -1, 0
        self.rows: list[dict] = []

    @property
    def history(self) -> pd.DataFrame:
        """Best and worst answers of each turn: step, prompt, end (best or worst), rank (1 = the most extreme), text, reward."""
        return pd.DataFrame(self.rows, columns=["step", "prompt", "end", "rank", "text", "reward"])

    @property
    def share_taken(self) -> float:
        """Of the time since training began, what this took."""
        return self.spent / max(self.clock() - self.started, 1e-9) if self.started is not None else 0.0

    # Lightning
    def on_train_start(self, trainer, pl_module) -> None:
        self._begin()

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx) -> None:
        if self._due(trainer.global_step) and trainer.is_global_zero:
            if self.tokenizer is None:
                raise ConfigError(
                    "PessimalCallback needs the network's tokenizer: PessimalCallback(…, tokenizer=tokenizer)"
                )
            network = self.network(pl_module) if self.network else _network_of(pl_module)
            if found := self.look(network, self.tokenizer, trainer.global_step):
                for logger in trainer.loggers:
                    logger.log_metrics(found, step=trainer.global_step)

    # transformers, TRL
    def on_train_begin(self, args, state, control, **kwargs) -> None:
        self._begin()

    def on_step_end(self, args, state, control, model=None, processing_class=None, **kwargs) -> None:
        if self._due(state.global_step) and state.is_world_process_zero:
            tokenizer = self.tokenizer or processing_class
            if tokenizer is None:
                raise ConfigError(
                    "PessimalCallback needs the tokenizer: give the trainer its processing_class"
                )
            found = self.look(model, tokenizer, state.global_step)
            if found:
                state.log_history.append({"step": state.global_step, **found})
                _to_wandb(found | {"train/global_step": state.global_step})

    def on_train_end(self, *args, **kwargs) -> None:
        """Of both trainers, which call it with different things."""

    def _begin(self) -> None:
        self.started = self.clock()

    def _due(self, step: int) -> bool:
        """Once for each step of the optimiser, however many batches that took."""
        due = step > 0 and step % self.every == 0 and step != self.turned
        if due:
            self.turned = step
        return due

    def look(self, network: nn.Module, tokenizer, step: int) -> dict[str, float]:
        """Score what is to be scored, if there is time for it; the numbers by name, none where there was no time."""
        network = getattr(network, "module", network)  # of DistributedDataParallel
        began = self.clock()
        self.turns += 1
        if self.cost is None:
            self._prepare(tokenizer, len(network.get_input_embeddings().weight))
            self._score(network, dict.fromkeys(self.prompts, self.sample[:PROBE]))
            self.spent += self.clock() - began
            self.cost = max(self.spent / (PROBE * len(self.prompts)), 1e-9)
            return {}
        if self.size is None:
            tails = 2 * self.keep + len(self.watched_words)
            affordable = self.share * (began - self.started) / (self.turns * self.cost * len(self.prompts))
            self.size = int(np.clip(affordable - tails, LEAST, min(MOST, len(self.sample))))
        answers = {key: self._answers(self.watched[key]) for key in self.prompts}
        costs = self.cost * sum(map(len, answers.values()))
        if self.spent + costs > self.share * (began - self.started):
            log.info(
                "step %d: the best and worst tokens are not looked at, to stay within %.3g of the time",
                step,
                self.share,
            )
            return {}
        rewards = self._score(network, answers)
        found = {}
        for key, values in rewards.items():
            found |= {
                f"pessimal/{key}/{name}": value
                for name, value in self._figures(key, answers[key], values).items()
            }
            self._keep(key, step)
        if self.report:
            self.report(step, found)
        self.spent += self.clock() - began
        self.cost = max(self.cost, (self.clock() - began) / sum(map(len, answers.values())))
        return found

    def _prepare(self, tokenizer, rows: int) -> None:
        conversations = Templated(tokenizer)
        words = vocabulary(tokenizer, size=rows).rows
        words = words[words["kind"] == "normal"]
        order = np.random.default_rng(self.seed).permutation(len(words))[:MOST]
        self.texts = {(int(i),): text for i, text in zip(words["candidate_id"], words["text"], strict=True)}
        self.sample = [(int(i),) for i in words["candidate_id"].to_numpy()[order]]
        asked = {tuple(tokenizer(word, add_special_tokens=False)["input_ids"]): word for word in self.watch}
        self.watched_words = list(asked)
        self.texts |= asked
        self.watched = {}
        for key, text in self.prompts.items():
            frame = conversations.frame(text)
            self.watched[key] = Watched(frame.prefix, frame.suffix)
        valence = read_lexicon("afinn")
        self.valence = {ids: valence.get(text.strip().lower()) for ids, text in self.texts.items()}

    def _answers(self, own: Watched) -> list[tuple[int, ...]]:
        """The sample first; each answer once."""
        ordered = sorted(own.seen, key=own.seen.get)
        tails = [*ordered[: self.keep], *ordered[-self.keep :]]
        return list(dict.fromkeys([*self.sample[: self.size], *self.watched_words, *tails]))

    def _score(
        self, network: nn.Module, answers: Mapping[str, Sequence[tuple[int, ...]]]
    ) -> dict[str, np.ndarray]:
        training, rewards = network.training, {}
        network.eval()
        try:
            with torch.no_grad():
                for key, own in answers.items():
                    frame = self.watched[key]
                    ids = [[*answer, *frame.suffix] for answer in own]
                    rewards[key] = rewards_of(network, frame.prefix, ids).double().cpu().numpy()
                    frame.seen |= dict(zip(own, rewards[key].tolist(), strict=True))
        finally:
            network.train(training)
        return rewards

    def _figures(self, key: str, answers: Sequence[tuple[int, ...]], rewards: np.ndarray) -> dict[str, float]:
        sampled, own = rewards[: self.size], self.watched[key]
        found = {"best": rewards.max(), "worst": rewards.min(), "mean": sampled.mean(), "sd": sampled.std()}
        rated = [
            (self.valence[ids], r)
            for ids, r in zip(answers, rewards, strict=True)
            if self.valence[ids] is not None
        ]
        if len(rated) >= LEAST_RATED:
            found |= {
                "valence_rho": stats.spearmanr(*zip(*rated, strict=True)).statistic,
                "valence_n": len(rated),
            }
        if own.before is not None:
            found["settling"] = stats.kendalltau(own.before, sampled).statistic
        own.before = sampled
        return {name: float(value) for name, value in found.items()}

    def _keep(self, key: str, step: int) -> None:
        ordered = sorted(self.watched[key].seen.items(), key=lambda one: one[1])
        for end, named in (("best", ordered[::-1]), ("worst", ordered)):
            for rank, (ids, reward) in enumerate(named[: self.keep], 1):
                at = {"step": step, "prompt": key, "end": end, "rank": rank}
                self.rows.append(at | {"text": self.texts[ids], "reward": reward})


def rewards_of(
    network: nn.Module, prefix: Sequence[int], own: Sequence[Sequence[int]], *, rows: int = 64
) -> torch.Tensor:
    """Rewards (n,) of answers behind a prefix, which is run once where the network is a decoder with a linear head `score`;
    any other network reads whole inputs, one by one."""
    bare = network.get_base_model() if isinstance(network, PeftModel) else network
    if (
        hasattr(bare, "score")
        and hasattr(bare, bare.base_model_prefix)
        and bare.config.is_encoder_decoder is False
    ):
        return score_answers(network, prefix, own, rows=rows)
    device = next(network.parameters()).device
    wholes = (torch.tensor([[*prefix, *ids]], device=device) for ids in own)
    return torch.stack([network(input_ids=ids).logits.reshape(-1)[0].float() for ids in wholes])


def _network_of(module: pl.LightningModule) -> nn.Module:
    return next(
        (found for name in ("network", "model") if (found := getattr(module, name, None)) is not None), module
    )


def _to_wandb(found: Mapping[str, float]) -> None:
    import wandb

    if wandb.run is not None:
        wandb.log(dict(found))
