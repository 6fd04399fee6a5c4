"""Watches what a reward model comes to want while it is trained: `PessimalCallback`, for Lightning
and transformers (TRL).

Knows networks, tokenizers, time and the hooks of both trainers. Does not know what is trained, or
how.
"""

import contextlib
import copy
import logging
import sys
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pandas as pd
import pytorch_lightning as pl
import torch
from scipy import stats
from torch import nn
from transformers import PreTrainedModel, TrainerCallback

from pessimal.catalogue import named_prompts
from pessimal.errors import ConfigError, FrameError, MissingExtraError, ModelError
from pessimal.rewards.frame import Frame, Templated, Turn
from pessimal.scoring.candidates import vocabulary
from pessimal.tables.word_lists import read_lexicon
from pessimal.tables.words import by_word
from pessimal.training.answers import is_adapted, score_answers

log = logging.getLogger(__name__)

LEAST, MOST = 32, 2048
"""Tokens of the sample."""
LEAST_RATED = 10
"""Rated words that a correlation with valence is given for."""
MARGIN = 0.8
"""Of the time there is between two turns, the share that the sample is sized for: what is over is
for turns that take longer."""
ROWS = 64
"""Answers that go through the network at once."""
NEAR = 0.05
"""Between two ways to one reward r, in units of 1 + |r|: rounding in bfloat16, and far below an
error."""
COLUMNS = ["step", "prompt", "end", "rank", "token", "text", "reward"]

Ids = tuple[int, ...]
"""Of an answer, without what closes it."""


class Watcher:
    """What is scored at a turn, when there is time for one, and what has come of it. Knows no
    trainer.

    A turn scores, under each prompt: the sample, which is the same at every turn; as many tokens
        more, others at each turn; the
    words of `watch`; and the `tails` best and worst answers of all earlier turns.
    """

    def __init__(self, prompts, *, every, watch, tails, share, seed, clock):
        self.prompts, self.every, self.watch, self.tails = (
            named_prompts(prompts),
            every,
            tuple(watch),
            tails,
        )
        self.share, self.seed, self.clock = share, seed, clock
        self.started = self.rate = self.network = None
        self.spent = 0.0
        # What a training that goes on from a checkpoint keeps.
        self.rows: list[dict] = []
        self.size: int | None = None
        self.turns = 0
        self.known: dict[str, list[Ids]] = {}
        self.before: dict[str, list[float]] = {}

    def begin(self, module: nn.Module, tokenizer, *, step: int) -> None:
        """Before the first step.

        Raises:
            ConfigError: there is no tokenizer.
            ModelError: the network is no decoder that ends in a head of one number, or a question
                that is run once and shared gives another reward than its own forward of the whole
                input.
            FrameError: its chat template writes no fixed text around a response.
        """
        self.started, self.spent, self.rate, self.first = self.clock(), 0.0, None, step
        if tokenizer is None:
            raise ConfigError(
                "PessimalCallback needs the network's tokenizer: PessimalCallback(prompts, "
                "tokenizer) with Lightning, "
                "processing_class=tokenizer in the trainer with transformers"
            )
        self.network = watchable(module)
        self.pad = self.network.config.get_text_config().pad_token_id
        rows = vocabulary(tokenizer, size=self.network.get_input_embeddings().weight.shape[0]).rows
        normal = rows[(rows["kind"] == "normal") & (rows["candidate_id"] != self.pad)]
        self.texts = {
            (int(i),): t for i, t in zip(normal["candidate_id"], normal["text"], strict=True)
        }
        order = np.random.default_rng(self.seed).permutation(len(normal))
        self.order = [(int(i),) for i in normal["candidate_id"].to_numpy()[order]]
        self.most = min(MOST, len(self.order))
        conversations = Templated(tokenizer)
        self.frames: dict[str, Frame] = {
            key: conversations.frame(text) for key, text in self.prompts.items()
        }
        self.watched = {
            key: self._answer_ids(conversations, frame) for key, frame in self.frames.items()
        }
        try:
            self.lexicon = read_lexicon("afinn")
        except MissingExtraError as missing:
            log.warning("without valence_rho: %s", missing)
            self.lexicon = pd.Series(dtype=float, name="valence")
        with _as_it_is(self.network):
            for key, frame in self.frames.items():
                [shared] = self._look(key, self.order[:1]).values()
                device = next(self.network.parameters()).device
                whole = torch.tensor([frame.around(self.order[0])], device=device)
                own = self.network(input_ids=whole, use_cache=False).logits[0, 0].item()
                if not abs(shared - own) <= NEAR * (1 + abs(own)):
                    raise ModelError(
                        f"{type(self.network).__name__} gives {own:.4g} for a whole input and "
                        f"{shared:.4g} where the question is "
                        "run once and shared; PessimalCallback cannot watch it"
                    )
        self.spent = self.clock() - self.started

    def _answer_ids(self, conversations: Templated, frame: Frame) -> list[Ids]:
        found = []
        for word in self.watch:
            ids = frame.inside(
                conversations.encode((Turn("user", frame.prompt), Turn("assistant", word))).ids
            )
            if not ids:
                raise FrameError(
                    f"the chat template does not write {word!r} between the ids of its frame"
                )
            found.append(tuple(ids))
            self.texts.setdefault(found[-1], word)
        return found

    def turn(self, step: int) -> dict[str, float]:
        """The figures after a step of the optimiser; none where there was no time for a turn, or
        the turn was a trial."""
        began = self.clock()
        available = self.share * (began - self.started) - self.spent
        with _as_it_is(self.network):
            if self.rate is None:  # one answer: how long a token takes at most
                key = next(iter(self.frames))
                self._look(key, self.order[:1])
                return self._timed(began, self._cost(key, 1), {})
            if self.size is None and not self.turns:
                trial = sum(self._cost(key, 2 * LEAST) for key in self.frames)
                if trial * self.rate > available:
                    return self._skipped(step)
                for key in self.frames:
                    self._look(key, self.order[: 2 * LEAST])
                self.turns = 1
                return self._timed(began, trial, {})
            self.size = self.size or self._sized((began - self.started) / max(step - self.first, 1))
            answers = {key: self._answers(key) for key in self.frames}
            cost = sum(self._cost(key, len(own)) for key, own in answers.items())
            if cost * self.rate > available:
                return self._skipped(step)
            found = {}
            for key, own in answers.items():
                rewards = self._look(key, own)
                named = self._kept(key, rewards, step) | self._figures(key, rewards)
                found |= {
                    f"pessimal/{key}/{name}": float(v)
                    for name, v in named.items()
                    if np.isfinite(v)
                }
            self.turns += 1
            return self._timed(began, cost, found)

    def _timed(self, began: float, cost: int, found: dict) -> dict:
        taken = self.clock() - began
        self.spent, self.rate = self.spent + taken, max(taken, 1e-9) / cost
        return found

    def _skipped(self, step: int) -> dict:
        log.info(
            "step %d: no look at the best and worst tokens; %.1f s of the training's %.1f are "
            "spent on them already",
            step,
            self.spent,
            self.clock() - self.started,
        )
        return {}

    def _cost(self, key: str, answers: int) -> int:
        """Token positions that a look runs through the network."""
        frame = self.frames[key]
        return len(frame.prefix) + answers * (1 + len(frame.suffix))

    def _sized(self, seconds_a_step: float) -> int:
        """Tokens of the sample, for a turn to take its share of the time between two."""
        room = MARGIN * self.share * seconds_a_step * self.every / self.rate
        fixed = sum(self._cost(key, 2 * self.tails + len(self.watch)) for key in self.frames)
        a_row = sum(1 + len(frame.suffix) for frame in self.frames.values())
        return int(min(max((room - fixed) / (2 * a_row), LEAST), self.most))

    def _answers(self, key: str) -> list[Ids]:
        """The sample first; each answer once."""
        sample, rest = self.order[: self.size], self.order[self.size :]
        at = ((self.turns - 1) * self.size) % max(len(rest), 1)
        others = rest[at : at + self.size]
        return list(dict.fromkeys([*sample, *others, *self.watched[key], *self.known.get(key, ())]))

    def _look(self, key: str, answers: Sequence[Ids]) -> dict[Ids, float]:
        """Rewards of answers; the question is run once."""
        frame = self.frames[key]
        own = [self._read([*ids, *frame.suffix]) for ids in answers]
        found = score_answers(self.network, frame.prefix, own, rows=ROWS)
        return dict(zip(answers, found.double().tolist(), strict=True))

    def _read(self, ids: list[int]) -> list[int]:
        """Up to where the network reads: transformers takes whatever is the padding's at the end
        for padding."""
        while ids[-1] == self.pad:
            ids = ids[:-1]
        return ids

    def _figures(self, key: str, rewards: dict[Ids, float]) -> dict[str, float]:
        sampled = [rewards[ids] for ids in self.order[: self.size]]
        found = {"mean": np.mean(sampled), "sd": np.std(sampled)}
        fixed = dict.fromkeys([*self.order[: self.size], *self.watched[key]])
        words = by_word(
            pd.DataFrame(
                {"reward": [rewards[i] for i in fixed]}, index=[self.texts[i] for i in fixed]
            )
        )
        rated = words.join(self.lexicon, how="inner")
        if len(rated) >= LEAST_RATED:
            rho = stats.spearmanr(rated["reward"], rated["valence"]).statistic
            found |= {"valence_rho": rho, "valence_n": len(rated)}
        if key in self.before:
            found["settling"] = stats.kendalltau(self.before[key], sampled).statistic
        self.before[key] = sampled
        return found

    def _kept(self, key: str, rewards: dict[Ids, float], step: int) -> dict[str, float]:
        ordered = sorted(rewards, key=rewards.get)
        worst, best = ordered[: self.tails], ordered[: -self.tails - 1 : -1]
        self.known[key] = list(dict.fromkeys([*best, *worst]))
        for end, answers in (("best", best), ("worst", worst), ("watch", self.watched[key])):
            self.rows += [
                {
                    "step": step,
                    "prompt": key,
                    "end": end,
                    "rank": rank,
                    "token": ids[0] if len(ids) == 1 else None,
                    "text": self.texts[ids],
                    "reward": rewards[ids],
                }
                for rank, ids in enumerate(answers, 1)
            ]
        seen = min(self.size * (self.turns + 1), len(self.order))
        return {"best_reward": rewards[best[0]], "worst_reward": rewards[worst[0]], "seen": seen}


class PessimalCallback(pl.Callback, TrainerCallback):
    """The best and worst answers of a reward model while it is trained, in the trainer's own run:
    for a Lightning Trainer, a transformers Trainer and TRL's RewardTrainer.

    Every `every` steps of the optimiser it scores some of the vocabulary's tokens as the answer to
    each prompt, with the network as it is then, in evaluation mode, its head in float32: a sample
    that is the same at every turn, so that curves compare; as many others, new ones at each turn;
    `watch`; and the best and worst of all earlier turns once more. The prompt is run once and
    shared. Every reward is the network's own, but the best and worst are those **of what was looked
    at** (`seen` tokens so far) and not certified over the vocabulary: for that, `pessimal scan` the
    checkpoint.

    It keeps to `share` of the time since training began. The first two turns measure what a turn
    costs, and set the sample's size; a turn for which there is no time is left out, and logged.
    Training goes on as it would without it.

    Figures, as `pessimal/PROMPT/NAME`: `best_reward`, `worst_reward`; `mean`, `sd` of the sample;
    `valence_rho` (Spearman with AFINN over `valence_n` words of the sample and `watch`); `settling`
    (Kendall's τ of the sample with the turn before); `seen`. They go to the loggers of Lightning's
    trainer (whose checkpoints keep the history); with transformers to W&B, if a run is live, and
    into `trainer.state.log_history`.

    Args:
        prompts: a user turn, or a key such as "greatest"; several of them, or key → user turn.
        tokenizer: the network's, with its chat template; not needed where the trainer has a
            processing_class.
        every: steps of the optimiser between two turns.
        watch: further answers, words or longer, that are followed by name.
        tails: best answers, and as many worst ones, that are followed.
        share: of the training's time.
        seed: of the sample.
        report: told the figures of each turn, with `train/step`.
        clock: seconds.

    With several processes the first one watches; weights that are sharded over them (FSDP,
    DeepSpeed ZeRO-3) cannot be watched.

    Raises:
        ConfigError, InputError: an option makes no sense.
    """

    def __init__(
        self,
        prompts: str | Sequence[str] | Mapping[str, str] = "greatest",
        tokenizer=None,
        *,
        every: int = 100,
        watch: Sequence[str] = (),
        tails: int = 10,
        share: float = 0.01,
        seed: int = 0,
        report: Callable[[dict], None] | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ):
        if every < 1 or tails < 1 or not 0 < share <= 1 or isinstance(watch, str):
            raise ConfigError(
                f"every={every}, tails={tails}, share={share}, watch={watch!r}: give 1 or more, 1 "
                f"or more, above 0 up to 1, a list"
            )
        self.watcher = Watcher(
            prompts, every=every, watch=watch, tails=tails, share=share, seed=seed, clock=clock
        )
        self.tokenizer, self.report, self.last = tokenizer, report, None

    @property
    def history(self) -> pd.DataFrame:
        """Best, worst and watched answers of each turn: step, prompt, end (best, worst, watch),
        rank (1 is the most extreme), token (id; none for answers of several), text, reward."""
        return pd.DataFrame(self.watcher.rows, columns=COLUMNS).astype({"token": "Int64"})

    @property
    def share_taken(self) -> float:
        """What it took of the time since training began."""
        started = self.watcher.started
        return (
            0.0
            if started is None
            else self.watcher.spent / max(self.watcher.clock() - started, 1e-9)
        )

    def _after(self, step: int) -> dict[str, float]:
        """The figures of a step that is due; once, however many batches the step took."""
        if step == 0 or step % self.watcher.every or step == self.last:
            return {}
        self.last, found = step, self.watcher.turn(step)
        if found and self.report:
            self.report({"train/step": step, **found})
        return found

    # Lightning
    def on_train_start(self, trainer, pl_module) -> None:
        if trainer.is_global_zero:
            self.watcher.begin(pl_module, self.tokenizer, step=trainer.global_step)

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx) -> None:
        if trainer.is_global_zero and (found := self._after(trainer.global_step)):
            for logger in trainer.loggers:
                logger.log_metrics(found, step=trainer.global_step)

    def state_dict(self) -> dict:
        kept = self.watcher
        return {name: getattr(kept, name) for name in ("rows", "size", "turns", "known", "before")}

    def load_state_dict(self, state_dict: dict) -> None:
        vars(self.watcher).update(state_dict)

    # transformers, TRL
    def on_train_begin(
        self, args, state, control, model=None, processing_class=None, **kwargs
    ) -> None:
        if state.is_world_process_zero:
            self.watcher.begin(model, self.tokenizer or processing_class, step=state.global_step)

    def on_step_end(self, args, state, control, **kwargs) -> None:
        if state.is_world_process_zero and (found := self._after(state.global_step)):
            state.log_history.append({**found, "step": state.global_step})
            wandb = sys.modules.get("wandb")
            if wandb and wandb.run:
                wandb.run.log({**found, "train/global_step": state.global_step})

    def on_train_end(self, *args, **kwargs) -> None:
        """The one hook of both trainers, which hand it different things."""


def watchable(module: nn.Module) -> nn.Module:
    """The network in what is trained, without what stands around it. ModelError where it cannot be
    watched."""
    found = next(
        (m for m in module.modules() if isinstance(m, PreTrainedModel) or is_adapted(m)), None
    )
    bare = found.get_base_model() if is_adapted(found) else found
    if is_adapted(found) and found.active_peft_config.is_prompt_learning:
        raise ModelError(
            "PessimalCallback watches adapters within layers, such as LoRA; this one adds to the "
            "prompt"
        )
    if not hasattr(bare, "score") or bare.config.num_labels != 1:
        raise ModelError(
            f"PessimalCallback watches decoders with a head `score` of one number, such as "
            f"LlamaForSequenceClassification with "
            f"num_labels=1; what is trained is {type(module if bare is None else bare).__name__}"
        )
    if bare.config.get_text_config().pad_token_id is None:
        raise ModelError(
            "the network has no pad_token_id, and reads no batch without one: "
            "network.config.pad_token_id = tokenizer.pad_token_id"
        )
    return bare


@contextlib.contextmanager
def _as_it_is(network: nn.Module):
    """Evaluation mode without gradients, the head in float32; all as it was afterwards."""
    training = [module for module in network.modules() if module.training]
    head = copy.deepcopy(network.score).float()
    in_float32 = network.score.register_forward_hook(
        lambda module, given, found: head(given[0].float())
    )
    network.eval()
    head.eval()
    device = next(network.parameters()).device.type
    try:
        with torch.no_grad(), torch.autocast(device, enabled=False):
            yield
    finally:
        in_float32.remove()
        for module in training:
            module.training = True
