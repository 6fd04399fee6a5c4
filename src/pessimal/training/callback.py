"""Watches what a reward model comes to want while it is trained: `PessimalCallback`, for Lightning
and transformers (TRL).

Knows networks, tokenizers, time and the hooks of both trainers. Does not know what is trained, or
how.
"""

import contextlib
import copy
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytorch_lightning as pl
import torch
from scipy import stats
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase, TrainerCallback, TrainerState

from pessimal.catalogue import named_prompts
from pessimal.conversation import Asked, filled
from pessimal.errors import ConfigError, FrameError, ModelError
from pessimal.rewards.formats import Templated
from pessimal.rewards.frame import Frame, slot_frame
from pessimal.scoring.candidates import vocabulary
from pessimal.scoring.contexts import check_contexts, find_contexts
from pessimal.tables.word_lists import read_lexicon, word_means
from pessimal.training.panel import Aside
from pessimal.training.preferences import is_adapted, score_answers

LEAST, MOST = 32, 2048
"""Tokens of the sample."""
FOREVER = 10**9
"""Steps of a training that nobody knows the end of."""
LEAST_RATED = 10
"""Rated words that a correlation with valence is given for."""
MARGIN = 0.8
"""The share of the time between two turns that the sample is sized for: what is over is
for turns that take longer."""
ROWS = 64
"""Answers that go through the network at once."""
NEAR = 0.05
"""Between two ways to one reward r, in units of 1 + |r|: rounding in bfloat16, and far below an
error."""
COLUMNS = ["step", "prompt", "end", "rank", "token", "text", "reward"]
KEPT = ("rows", "size", "turns", "known", "before", "position", "seen")
"""The state that a training which goes on from a checkpoint keeps; names in Lightning's
checkpoints."""
SHARDED = ("FullyShardedDataParallel", "FlatParameter", "DTensor")

Tokenizer = PreTrainedTokenizerBase | None
Ids = tuple[int, ...]
"""Ids of an answer, without those that close it."""


class PessimalCallback(Aside, pl.Callback, TrainerCallback):
    """The best and worst answers of a reward model while it is trained, in the trainer's own run:
    for a Lightning Trainer, a transformers Trainer and TRL's RewardTrainer. Where a reward trains a
    policy: `RewardPanel`.

    After the first step of the optimiser, every `every` steps, and after the last one it scores
    some of the vocabulary's tokens as the answer to each prompt, with the network as it is then, in
    evaluation mode, its head in float32: a sample that is the same at every turn, so that curves
    compare; as many others, new ones at each turn; `watch`; and the best and worst of all earlier
    turns once more. The prompt is run once and shared. Every reward is the network's own, but the
    best and worst are those **of what was looked at** (`seen` tokens so far) and not certified over
    the vocabulary: for that, `pessimal scan` the checkpoint.

    But for the first and the last turn it keeps to `share` of the time since training began. The
    first turn sets the sample's size, which the second may lessen. A turn that there is no time for
    is taken as soon as there is; the first time is logged as a warning. Training goes on as it
    would without it: an error in here is logged once, and what raised it is left out from then on.

    Figures, as `pessimal/PROMPT/NAME`: `best_reward`, `worst_reward`; `mean`, `sd` of the sample;
    `valence_rho` (Spearman with AFINN over `valence_n` words of the sample and `watch`); `settling`
    (Kendall's τ of the sample with the turn before); `seen`. They go to the loggers of Lightning's
    trainer (whose checkpoints keep the history); with transformers to W&B, if a run is live, and
    into `trainer.state.log_history`.

    Args:
        prompts: a user turn, or a key such as "greatest", the default; several of them, or key →
            user turn.
        tokenizer: the network's, with its chat template; not needed where the trainer has a
            processing_class.
        contexts: instead, a JSONL file of real answers, as for a scan: tokens and words of `watch`
            are put into their slot.
        slot: `after` or `before` these; by default where the file has the mark `{slot}`.
        every: steps of the optimiser between two turns.
        watch: further answers, words or longer, that are followed by name.
        tails: best answers, and as many worst ones, that are followed.
        share: of the training's time; by default a tenth up to a minute, then a hundredth.
        seed: of the sample.
        report: called with the figures of each turn, and `train/step`.
        clock: seconds.

    With several processes the first one watches; weights that are sharded over them (FSDP,
    DeepSpeed ZeRO-3) cannot be watched.

    Raises:
        ConfigError, InputError: an option makes no sense.
    """

    def __init__(
        self,
        prompts: str | Sequence[str] | Mapping[str, str] | None = None,
        tokenizer: Tokenizer = None,
        *,
        contexts: str | Path | None = None,
        slot: str | None = None,
        every: int = 100,
        watch: Sequence[str] = (),
        tails: int = 10,
        share: float | None = None,
        seed: int = 0,
        report: Callable[[dict[str, float]], None] | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ):
        super().__init__(share, clock)
        if every < 1 or tails < 1 or isinstance(watch, str):
            options = f"every={every}, tails={tails}, watch={watch!r}"
            raise ConfigError(f"{options}: give 1 or more, 1 or more, a list")
        check_contexts(contexts, slot, prompts)
        prompts = "greatest" if prompts is None else prompts
        self.asked: Mapping[str, Asked] = (
            named_prompts(prompts) if contexts is None else find_contexts(contexts, slot)
        )
        self.tokenizer, self.report = tokenizer, report
        self.every, self.watch, self.tails, self.seed = every, tuple(watch), tails, seed
        self.lexicon = self.attempt("valence_rho", read_lexicon, "afinn")
        self.step = self.turn_at = 0
        """The last step, and the last one with a turn."""
        self.due = False
        self.rows: list[tuple] = []
        self.size: int | None = None
        self.turns = self.position = self.seen = 0
        self.known: dict[str, list[Ids]] = {}
        """Best and worst answers so far, by prompt."""
        self.before: dict[str, list[float]] = {}
        """Rewards of the sample at the last turn, by prompt."""

    @property
    def history(self) -> pd.DataFrame:
        """Best, worst and watched answers of each turn: step, prompt, end (best, worst, watch),
        rank (1 is the most extreme), token (id; none for answers of several), text, reward."""
        return pd.DataFrame(self.rows, columns=COLUMNS).astype({"token": "Int64"})

    # --- What is scored, and when.

    def begin(
        self, module: nn.Module, tokenizer: Tokenizer, *, step: int, steps: float = FOREVER
    ) -> None:
        """Before the first step of so many.

        Raises:
            ConfigError: there is no tokenizer.
            ModelError: the network is no decoder that ends in a head of one number, or a question
                that is run once and shared gives another reward than its own forward of the whole
                input.
            FrameError: its chat template writes no fixed text around a response.
        """
        self.started, self.spent = self.clock(), 0.0
        self.step = self.turn_at = self.first_step = step
        self.steps = max(int(min(steps, FOREVER)) - step, 1)
        self.network = watchable(module)
        if tokenizer is None:
            raise ConfigError("there is no tokenizer: type PessimalCallback(prompts, tokenizer)")
        self.pad = self.network.config.get_text_config().pad_token_id
        embedding = self.network.get_input_embeddings().get_parameter("weight")
        rows = vocabulary(tokenizer, size=embedding.shape[0]).rows
        normal = rows[(rows["kind"] == "normal") & (rows["candidate_id"] != self.pad)]
        shuffled = normal.sample(frac=1, random_state=self.seed)[["candidate_id", "text"]]
        self.texts: dict[Ids, str] = {(int(token),): text for token, text in shuffled.to_numpy()}
        self.order: list[Ids] = list(self.texts)
        self.most = min(MOST, len(self.order))
        conversations = Templated(tokenizer)
        self.frames: dict[str, Frame] = {}
        self.watched: dict[str, list[Ids]] = {}
        for key, prompt in self.asked.items():
            frame = self.frames[key] = slot_frame(conversations, prompt, tokenizer)
            self.watched[key] = [self._ids_of(word, conversations, frame) for word in self.watch]
        trial = self.order[: 2 * LEAST]
        with _as_it_is(self.network):
            for key, frame in self.frames.items():
                [shared] = self._rewards(key, self.order[:1]).values()
                ids = torch.tensor([frame.around(self.order[0])], device=embedding.device)
                whole = self.network(input_ids=ids, use_cache=False).logits[0, 0].item()
                if not abs(shared - whole) <= NEAR * (1 + abs(whole)):
                    rewards = (
                        f"{whole:.4g} for a whole input, {shared:.4g} behind a shared question"
                    )
                    raise ModelError(f"PessimalCallback cannot watch this network: {rewards}")
            began = self.clock()
            self._rewards(key, trial)
        self.seconds_an_answer = (self.clock() - began) / len(trial)

    def _ids_of(self, word: str, conversations: Templated, frame: Frame) -> Ids:
        ids = tuple(frame.inside(conversations.encode(filled(frame.question, word)).ids) or ())
        if not ids:
            raise FrameError(f"the chat template writes no {word!r} between the ids of its frame")
        self.texts.setdefault(ids, word)
        return ids

    def after(self, step: int, *, is_last: bool = False) -> dict[str, float]:
        """The figures after a step of the optimiser, however many batches it took: of the first
        step, of the last, and of those that are due as soon as there is time; otherwise none. An
        error is logged, and not raised."""
        figures = self.attempt("watching", self._turn_if_due, step, is_last) or {}
        if figures and self.report:
            self.attempt("report", self.report, {"train/step": step, **figures})
        return figures

    def _turn_if_due(self, step: int, is_last: bool) -> dict[str, float]:
        if step > self.step:
            self.step, self.due = step, self.due or step % self.every == 0
        elif not is_last:
            return {}
        insist = is_last or not self.rows
        answers = 2 * (self.size or 0) + 2 * self.tails + len(self.watch)
        seconds = self.seconds_an_answer * answers * len(self.frames)
        if step == self.turn_at or not (insist or (self.due and self.affords(seconds, step))):
            return {}
        self.turn_at, self.due = step, False
        return self.turn(step)

    def turn(self, step: int) -> dict[str, float]:
        """The figures of a look: under each prompt, the sample, which is the same at every turn; as
        many tokens more, others at each turn; the words of `watch`; and the `tails` best and worst
        answers of all earlier turns."""
        began = self.clock()
        if self.turns < 2:
            self.size = min(self.size or self.most, self._affordable_size(step))
        assert self.size is not None
        at = self.position if self.size <= self.position < len(self.order) else self.size
        self.position = at + self.size
        self.seen = min(max(self.seen, self.position), len(self.order))
        sampled = [*self.order[: self.size], *self.order[at : self.position]]
        rewards: dict[str, dict[Ids, float]] = {}
        with _as_it_is(self.network):
            for key in self.frames:
                answers = [*sampled, *self.watched[key], *self.known.get(key, ())]
                rewards[key] = self._rewards(key, list(dict.fromkeys(answers)))
        figures: dict[str, float] = {}
        for key in rewards:
            for name, value in self._figures(key, rewards[key], step).items():
                if np.isfinite(value):
                    figures[f"pessimal/{key}/{name}"] = float(value)
        self.turns += 1
        self.seconds_an_answer = (self.clock() - began) / sum(map(len, rewards.values()))
        return figures

    def _affordable_size(self, step: int) -> int:
        """Tokens of the sample, for a turn to take its share of the time between two."""
        a_step = max(self.elapsed - self.spent, 1e-9) / max(step - self.first_step, 1)
        available = self.allowed(self.steps * a_step) * min(self.every / self.steps, 1)
        answers = MARGIN * available / max(self.seconds_an_answer, 1e-9) / len(self.frames)
        size = (answers - 2 * self.tails - len(self.watch)) / 2
        return int(min(max(size, LEAST), self.most))

    def _rewards(self, key: str, answers: Sequence[Ids]) -> dict[Ids, float]:
        """Rewards of answers; the question is run once."""
        frame = self.frames[key]
        inputs = [[*ids, *frame.suffix] for ids in answers]
        for ids in inputs:
            while ids[-1] == self.pad:  # transformers takes these at the end for padding
                ids.pop()
        rewards = score_answers(self.network, frame.prefix, inputs, rows=ROWS)
        return dict(zip(answers, rewards.double().tolist(), strict=True))

    def _figures(self, key: str, rewards: dict[Ids, float], step: int) -> dict[str, float]:
        """The figures of one prompt at a turn; its best, worst and watched answers go to the
        history."""
        ordered = sorted(rewards, key=rewards.__getitem__)
        worst, best = ordered[: self.tails], ordered[: -self.tails - 1 : -1]
        self.known[key] = list(dict.fromkeys([*best, *worst]))
        for end, answers in (("best", best), ("worst", worst), ("watch", self.watched[key])):
            for rank, ids in enumerate(answers, 1):
                token = ids[0] if len(ids) == 1 else None
                self.rows.append((step, key, end, rank, token, self.texts[ids], rewards[ids]))
        sample = self.order[: self.size]
        sampled = [rewards[ids] for ids in sample]
        ends = {"best_reward": rewards[best[0]], "worst_reward": rewards[worst[0]]}
        figures: dict[str, Any] = ends | {"seen": self.seen}
        figures |= {"mean": np.mean(sampled), "sd": np.std(sampled)}
        if self.lexicon is not None:
            fixed = dict.fromkeys([*sample, *self.watched[key]])
            values = {"reward": [rewards[ids] for ids in fixed]}
            column = pd.DataFrame(values, index=[self.texts[ids] for ids in fixed])
            rated = word_means(column).join(self.lexicon, how="inner")
            if len(rated) >= LEAST_RATED:
                rho = stats.spearmanr(rated["reward"], rated["valence"]).statistic
                figures |= {"valence_rho": rho, "valence_n": len(rated)}
        if before := self.before.get(key):
            # The second turn's sample may be shorter than the first's.
            figures["settling"] = stats.kendalltau(before[: len(sampled)], sampled).statistic
        self.before[key] = sampled
        return figures

    # --- Lightning.

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if trainer.is_global_zero:
            steps = self.attempt("watching", lambda: trainer.estimated_stepping_batches)
            counts = {"step": trainer.global_step, "steps": steps}
            self.attempt("watching", self.begin, pl_module, self.tokenizer, **counts)

    def on_train_batch_end(self, trainer: pl.Trainer, *_: Any, is_last: bool = False) -> None:
        if trainer.is_global_zero and (figures := self.after(trainer.global_step, is_last=is_last)):
            for logger in trainer.loggers:
                self.attempt("logging", logger.log_metrics, figures, step=trainer.global_step)

    def state_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in KEPT}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        vars(self).update(state_dict)

    # --- transformers, TRL.

    def on_train_begin(self, args: Any, state: TrainerState, *_: Any, **arguments: Any) -> None:
        if state.is_world_process_zero:
            tokenizer = self.tokenizer or arguments.get("processing_class")
            steps = {"step": state.global_step, "steps": state.max_steps}
            self.attempt("watching", self.begin, arguments["model"], tokenizer, **steps)

    def on_step_end(self, args: Any, state: TrainerState, *_: Any, **arguments: Any) -> None:
        # At the very end the network may be the best one, not the last.
        is_last = arguments.get("is_last", state.global_step >= state.max_steps)
        if state.is_world_process_zero and (
            figures := self.after(state.global_step, is_last=is_last)
        ):
            state.log_history.append({**figures, "step": state.global_step})
            wandb = sys.modules.get("wandb")
            if wandb and wandb.run:
                point = {**figures, "train/global_step": state.global_step}
                self.attempt("logging", wandb.run.log, point)

    def on_train_end(self, *arguments: Any, **_: Any) -> None:
        """The one hook of both trainers, which hand it different things."""
        if isinstance(arguments[0], pl.Trainer):
            self.on_train_batch_end(arguments[0], is_last=True)
        elif not arguments[0].load_best_model_at_end:
            self.on_step_end(*arguments, is_last=True)


def watchable(module: nn.Module) -> PreTrainedModel:
    """The network in what is trained, without what stands around it. ModelError where it cannot be
    watched."""
    parts = [*module.modules(), *module.parameters()]
    if any(type(part).__name__ in SHARDED or hasattr(part, "ds_id") for part in parts):
        raise ModelError("PessimalCallback cannot watch weights that are sharded over processes")
    adapted = [part for part in module.modules() if is_adapted(part)]
    if adapted and adapted[0].active_peft_config.is_prompt_learning:
        raise ModelError("PessimalCallback watches adapters such as LoRA, and no learned prompts")
    inner = [adapted[0].get_base_model()] if adapted else module.modules()
    bare = next((m for m in inner if isinstance(m, PreTrainedModel)), None)
    if bare is None or not hasattr(bare, "score") or bare.config.num_labels != 1:
        kind = type(module if bare is None else bare).__name__
        words = f"PessimalCallback watches decoders with a head `score` of one number, not {kind}"
        raise ModelError(f"{words}. Where a reward trains a policy: pessimal.RewardPanel")
    if bare.config.get_text_config().pad_token_id is None:
        setting = "network.config.pad_token_id = tokenizer.pad_token_id"
        raise ModelError(f"the network reads no batch without a pad_token_id; type: {setting}")
    return bare


@contextlib.contextmanager
def _as_it_is(network: PreTrainedModel) -> Iterator[None]:
    """Evaluation mode without gradients, the head in float32; all as it was afterwards."""
    training = [module for module in network.modules() if module.training]
    score = network.get_submodule("score")
    head = copy.deepcopy(score).float().eval()
    in_float32 = score.register_forward_hook(lambda _, inputs, output: head(inputs[0].float()))
    device = next(network.parameters()).device.type
    try:
        network.eval()
        with torch.no_grad(), torch.autocast(device, enabled=False):
            yield
    finally:
        in_float32.remove()
        for module in training:
            module.training = True
