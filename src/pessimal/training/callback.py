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
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytorch_lightning as pl
import torch
from scipy import stats
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase, TrainerCallback, TrainerState

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
KEPT = ("rows", "size", "turns", "known", "before")
"""What a training that goes on from a checkpoint keeps; names in Lightning's checkpoints."""

Ids = tuple[int, ...]
"""Of an answer, without what closes it."""


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
        report: called with the figures of each turn, and `train/step`.
        clock: seconds.

    With several processes the first one watches; weights that are sharded over them (FSDP,
    DeepSpeed ZeRO-3) cannot be watched.

    Raises:
        ConfigError, InputError: an option makes no sense.
    """

    def __init__(
        self,
        prompts: str | Sequence[str] | Mapping[str, str] = "greatest",
        tokenizer: PreTrainedTokenizerBase | None = None,
        *,
        every: int = 100,
        watch: Sequence[str] = (),
        tails: int = 10,
        share: float = 0.01,
        seed: int = 0,
        report: Callable[[dict[str, float]], None] | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ):
        if every < 1 or tails < 1 or not 0 < share <= 1 or isinstance(watch, str):
            raise ConfigError(
                f"every={every}, tails={tails}, share={share}, watch={watch!r}: give 1 or more, 1 "
                "or more, above 0 up to 1, a list"
            )
        self.prompts, self.tokenizer, self.report = named_prompts(prompts), tokenizer, report
        self.every, self.watch, self.tails, self.share = every, tuple(watch), tails, share
        self.seed, self.clock = seed, clock
        self.started: float | None = None
        self.spent = 0.0
        self.seconds_a_token: float | None = None
        self.last_step: int | None = None
        self.rows: list[dict[str, Any]] = []
        self.size: int | None = None
        self.turns = 0
        self.known: dict[str, list[Ids]] = {}
        """Best and worst answers so far, by prompt."""
        self.before: dict[str, list[float]] = {}
        """Rewards of the sample at the last turn, by prompt."""

    @property
    def history(self) -> pd.DataFrame:
        """Best, worst and watched answers of each turn: step, prompt, end (best, worst, watch),
        rank (1 is the most extreme), token (id; none for answers of several), text, reward."""
        return pd.DataFrame(self.rows, columns=COLUMNS).astype({"token": "Int64"})

    @property
    def share_taken(self) -> float:
        """What it took of the time since training began."""
        if self.started is None:
            return 0.0
        return self.spent / max(self.clock() - self.started, 1e-9)

    # --- What is scored, and when.

    def begin(
        self, module: nn.Module, tokenizer: PreTrainedTokenizerBase | None, *, step: int
    ) -> None:
        """Before the first step.

        Raises:
            ConfigError: there is no tokenizer.
            ModelError: the network is no decoder that ends in a head of one number, or a question
                that is run once and shared gives another reward than its own forward of the whole
                input.
            FrameError: its chat template writes no fixed text around a response.
        """
        self.started, self.spent, self.seconds_a_token = self.clock(), 0.0, None
        self.first_step = step
        if tokenizer is None:
            raise ConfigError(
                "PessimalCallback needs the network's tokenizer: PessimalCallback(prompts, "
                "tokenizer) with Lightning, processing_class=tokenizer in the trainer with "
                "transformers"
            )
        self.network = watchable(module)
        self.pad = self.network.config.get_text_config().pad_token_id
        embedding = self.network.get_input_embeddings().get_parameter("weight")
        rows = vocabulary(tokenizer, size=embedding.shape[0]).rows
        normal = rows[(rows["kind"] == "normal") & (rows["candidate_id"] != self.pad)]
        tokens = normal["candidate_id"].to_numpy()
        self.texts: dict[Ids, str] = {
            (int(token),): text for token, text in zip(tokens, normal["text"], strict=True)
        }
        shuffled = np.random.default_rng(self.seed).permutation(tokens)
        self.order: list[Ids] = [(int(token),) for token in shuffled]
        self.most = min(MOST, len(self.order))
        conversations = Templated(tokenizer)
        self.frames = {key: conversations.frame(text) for key, text in self.prompts.items()}
        self.watched = {
            key: [self._ids_of(word, conversations, frame) for word in self.watch]
            for key, frame in self.frames.items()
        }
        try:
            self.lexicon = read_lexicon("afinn")
        except MissingExtraError as missing:
            log.warning("without valence_rho: %s", missing)
            self.lexicon = pd.Series(dtype=float, name="valence")
        with _as_it_is(self.network):
            for key, frame in self.frames.items():
                [shared] = self._rewards(key, self.order[:1]).values()
                ids = torch.tensor([frame.around(self.order[0])], device=embedding.device)
                own = self.network(input_ids=ids, use_cache=False).logits[0, 0].item()
                if not abs(shared - own) <= NEAR * (1 + abs(own)):
                    raise ModelError(
                        f"{type(self.network).__name__} gives {own:.4g} for a whole input and "
                        f"{shared:.4g} where the question is run once and shared; PessimalCallback "
                        "cannot watch it"
                    )
        self.spent = self.clock() - self.started

    def _ids_of(self, word: str, conversations: Templated, frame: Frame) -> Ids:
        turns = (Turn("user", frame.prompt), Turn("assistant", word))
        ids = tuple(frame.inside(conversations.encode(turns).ids) or ())
        if not ids:
            raise FrameError(
                f"the chat template does not write {word!r} between the ids of its frame"
            )
        self.texts.setdefault(ids, word)
        return ids

    def turn(self, step: int) -> dict[str, float]:
        """The figures after a step of the optimiser; none where there was no time for a turn, or
        the turn was a trial.

        A turn scores, under each prompt: the sample, which is the same at every turn; as many
        tokens more, others at each turn; the words of `watch`; and the `tails` best and worst
        answers of all earlier turns.
        """
        began = self.clock()
        assert self.started is not None  # `begin` came first
        # 1. What to score: one answer, for how long a token takes at most; a trial; a whole turn.
        timing = self.seconds_a_token is None
        trial = not timing and self.size is None and not self.turns
        if timing:
            answers = {next(iter(self.frames)): self.order[:1]}
        elif trial:
            answers = dict.fromkeys(self.frames, self.order[: 2 * LEAST])
        else:
            if self.size is None:
                steps = max(step - self.first_step, 1)
                self.size = self._affordable_size((began - self.started) / steps)
            answers = {key: self._due(key, self.size) for key in self.frames}
        # 2. Whether there is time for it.
        cost = sum(self._cost(key, len(due)) for key, due in answers.items())
        available = self.share * (began - self.started) - self.spent
        if self.seconds_a_token is not None and cost * self.seconds_a_token > available:
            text = "step %d: no look at the best and worst tokens; %.1f s of the training's %.1f "
            log.info(text + "are spent on them already", step, self.spent, began - self.started)
            return {}
        # 3. The rewards, and their figures.
        with _as_it_is(self.network):
            rewards = {key: self._rewards(key, due) for key, due in answers.items()}
        figures = {}
        if not timing and not trial:
            figures = {
                f"pessimal/{key}/{name}": float(value)
                for key, one in rewards.items()
                for name, value in self._figures(key, one, step).items()
                if np.isfinite(value)
            }
        self.turns += not timing
        taken = self.clock() - began
        self.spent, self.seconds_a_token = self.spent + taken, max(taken, 1e-9) / cost
        return figures

    def _cost(self, key: str, answers: int) -> int:
        """Token positions that a look at so many answers runs through the network."""
        frame = self.frames[key]
        return len(frame.prefix) + answers * (1 + len(frame.suffix))

    def _affordable_size(self, seconds_a_step: float) -> int:
        """Tokens of the sample, for a turn to take its share of the time between two."""
        assert self.seconds_a_token is not None
        available = MARGIN * self.share * seconds_a_step * self.every / self.seconds_a_token
        fixed = sum(self._cost(key, 2 * self.tails + len(self.watch)) for key in self.frames)
        a_token = sum(1 + len(frame.suffix) for frame in self.frames.values())
        return int(min(max((available - fixed) / (2 * a_token), LEAST), self.most))

    def _due(self, key: str, size: int) -> list[Ids]:
        """The answers of a turn: the sample first; each once."""
        sample, rest = self.order[:size], self.order[size:]
        at = ((self.turns - 1) * size) % max(len(rest), 1)
        others = rest[at : at + size]
        return list(dict.fromkeys([*sample, *others, *self.watched[key], *self.known.get(key, ())]))

    def _rewards(self, key: str, answers: Sequence[Ids]) -> dict[Ids, float]:
        """Rewards of answers; the question is run once."""
        frame = self.frames[key]
        read = [self._until_read([*ids, *frame.suffix]) for ids in answers]
        rewards = score_answers(self.network, frame.prefix, read, rows=ROWS)
        return dict(zip(answers, rewards.double().tolist(), strict=True))

    def _until_read(self, ids: list[int]) -> list[int]:
        """Up to where the network reads: transformers takes whatever is the padding's at the end
        for padding."""
        while ids[-1] == self.pad:
            ids = ids[:-1]
        return ids

    def _figures(self, key: str, rewards: dict[Ids, float], step: int) -> dict[str, float]:
        """The figures of one prompt at a turn; its best, worst and watched answers go to the
        history."""
        assert self.size is not None
        ordered = sorted(rewards, key=rewards.__getitem__)
        worst, best = ordered[: self.tails], ordered[: -self.tails - 1 : -1]
        self.known[key] = list(dict.fromkeys([*best, *worst]))
        for end, answers in (("best", best), ("worst", worst), ("watch", self.watched[key])):
            for rank, ids in enumerate(answers, 1):
                token = ids[0] if len(ids) == 1 else None
                row = (step, key, end, rank, token, self.texts[ids], rewards[ids])
                self.rows.append(dict(zip(COLUMNS, row, strict=True)))
        sample = self.order[: self.size]
        sampled = [rewards[ids] for ids in sample]
        figures: dict[str, float] = {
            "best_reward": rewards[best[0]],
            "worst_reward": rewards[worst[0]],
            "seen": min(self.size * (self.turns + 1), len(self.order)),
            "mean": float(np.mean(sampled)),
            "sd": float(np.std(sampled)),
        }
        fixed = dict.fromkeys([*sample, *self.watched[key]])
        column = pd.DataFrame(
            {"reward": [rewards[ids] for ids in fixed]}, index=[self.texts[ids] for ids in fixed]
        )
        rated = by_word(column).join(self.lexicon, how="inner")
        if len(rated) >= LEAST_RATED:
            rho = stats.spearmanr(rated["reward"], rated["valence"]).statistic
            figures |= {"valence_rho": rho, "valence_n": len(rated)}
        if key in self.before:
            figures["settling"] = stats.kendalltau(self.before[key], sampled).statistic
        self.before[key] = sampled
        return figures

    def _after(self, step: int) -> dict[str, float]:
        """The figures of a step that is due; once, however many batches the step took."""
        if step == 0 or step % self.every or step == self.last_step:
            return {}
        self.last_step, figures = step, self.turn(step)
        if figures and self.report:
            self.report({"train/step": step, **figures})
        return figures

    # --- Lightning.

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if trainer.is_global_zero:
            self.begin(pl_module, self.tokenizer, step=trainer.global_step)

    def on_train_batch_end(self, trainer: pl.Trainer, *_: Any, **__: Any) -> None:
        if trainer.is_global_zero and (figures := self._after(trainer.global_step)):
            for logger in trainer.loggers:
                logger.log_metrics(figures, step=trainer.global_step)

    def state_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in KEPT}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        vars(self).update(state_dict)

    # --- transformers, TRL.

    def on_train_begin(self, args: Any, state: TrainerState, *_: Any, **given: Any) -> None:
        if state.is_world_process_zero:
            tokenizer = self.tokenizer or given.get("processing_class")
            self.begin(given["model"], tokenizer, step=state.global_step)

    def on_step_end(self, args: Any, state: TrainerState, *_: Any, **__: Any) -> None:
        if state.is_world_process_zero and (figures := self._after(state.global_step)):
            state.log_history.append({**figures, "step": state.global_step})
            wandb = sys.modules.get("wandb")
            if wandb and wandb.run:
                wandb.run.log({**figures, "train/global_step": state.global_step})

    def on_train_end(self, *args, **kwargs) -> None:
        """The one hook of both trainers, which hand it different things."""


def watchable(module: nn.Module) -> PreTrainedModel:
    """The network in what is trained, without what stands around it. ModelError where it cannot be
    watched."""
    adapted = [part for part in module.modules() if is_adapted(part)]
    if adapted and adapted[0].active_peft_config.is_prompt_learning:
        raise ModelError(
            "PessimalCallback watches adapters within layers, such as LoRA; this one adds to the "
            "prompt"
        )
    parts = [adapted[0].get_base_model()] if adapted else module.modules()
    bare = next((m for m in parts if isinstance(m, PreTrainedModel)), None)
    if bare is None or not hasattr(bare, "score") or bare.config.num_labels != 1:
        raise ModelError(
            "PessimalCallback watches decoders with a head `score` of one number, such as "
            "LlamaForSequenceClassification with num_labels=1; what is trained is "
            f"{type(module if bare is None else bare).__name__}"
        )
    if bare.config.get_text_config().pad_token_id is None:
        raise ModelError(
            "the network has no pad_token_id, and reads no batch without one: "
            "network.config.pad_token_id = tokenizer.pad_token_id"
        )
    return bare


@contextlib.contextmanager
def _as_it_is(network: PreTrainedModel) -> Iterator[None]:
    """Evaluation mode without gradients, the head in float32; all as it was afterwards."""
    training = [module for module in network.modules() if module.training]
    score = network.get_submodule("score")
    head = copy.deepcopy(score).float().eval()
    in_float32 = score.register_forward_hook(lambda _, inputs, output: head(inputs[0].float()))
    network.eval()
    device = next(network.parameters()).device.type
    try:
        with torch.no_grad(), torch.autocast(device, enabled=False):
            yield
    finally:
        in_float32.remove()
        for module in training:
            module.training = True
