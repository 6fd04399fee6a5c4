"""The callback in Lightning's and transformers' trainers: exact rewards, its share of the time, and
no trace in the training, whatever happens to it."""

import numpy as np
import pandas as pd
import pytest
import pytorch_lightning as pl
import torch
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader
from transformers import LlamaConfig, LlamaForSequenceClassification, Trainer, TrainingArguments

import pessimal
from pessimal.conversation import Turn
from pessimal.errors import ConfigError, ModelError
from pessimal.rewards.formats import Templated
from pessimal.training import callback
from tiny_language_models import CHAT, tokenizer
from tolerance import close, slack

QUESTION = "What, in one word, is the greatest thing ever?"
WATCH = (
    "love",
    "hate",
    "good",
    "evil",
    "war",
    "kind",
    "cruel",
    "best",
    "worst",
    "peace",
    "love and peace",
)


@pytest.fixture(scope="module")
def words():
    return tokenizer(template=CHAT)


def network_of(words, *, pad=2, dtype=torch.float32, dropout=0.0, labels=1):
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(words),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_labels=labels,
        pad_token_id=pad,
        initializer_range=0.3,
        attention_dropout=dropout,
    )
    return LlamaForSequenceClassification(config).to(dtype)


def unhurried(network):
    """A clock by which only training takes time."""
    seconds = [0.0]

    def spend(*_):
        seconds[0] += 1000.0 * torch.is_grad_enabled()

    callback.watchable(network).model.register_forward_pre_hook(spend)
    return {"every": 2, "clock": lambda: seconds[0]}


def adapted(network):
    lora = LoraConfig(
        task_type="SEQ_CLS", r=4, target_modules=["q_proj", "v_proj"], lora_dropout=0.1
    )
    return get_peft_model(network, lora)


def own_rewards(network, words, answers):
    """By the network's own forward of the whole input of each answer, alone."""
    frame = Templated(words).frame(QUESTION)
    network.eval()
    with torch.no_grad():
        return [network(torch.tensor([frame.around(ids)])).logits[0, 0].item() for ids in answers]


class Module(pl.LightningModule):
    def __init__(self, network):
        super().__init__()
        self.inner = torch.nn.ModuleDict({"reward": network})

    def training_step(self, batch, index):
        ids = torch.randint(4, 200, (2, 9), generator=torch.Generator().manual_seed(index))
        rewards = self.inner["reward"](ids).logits[:, 0]
        return -torch.nn.functional.logsigmoid(rewards[0] - rewards[1])

    def configure_optimizers(self):
        return torch.optim.AdamW([w for w in self.parameters() if w.requires_grad], lr=1e-3)


def lightning(network, callbacks, *, steps=10, loggers=False, **options):
    trainer = pl.Trainer(
        max_steps=steps,
        max_epochs=-1,
        accelerator="cpu",
        logger=loggers,
        callbacks=callbacks,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
        **options,
    )
    pl.seed_everything(0, verbose=False)
    trainer.fit(Module(network), DataLoader(range(100)))
    return trainer


def hugging_face(network, callbacks, folder, words, **options):
    torch.manual_seed(0)
    arguments = TrainingArguments(
        output_dir=folder,
        max_steps=10,
        per_device_train_batch_size=2,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
        use_cpu=True,
        **options,
    )
    rows = [{"input_ids": [5 + n, 6, 7], "labels": float(n % 2)} for n in range(20)]
    trainer = Trainer(
        network, arguments, train_dataset=rows, processing_class=words, callbacks=callbacks
    )
    trainer.train()
    return trainer


def check_last_turn(watching, network, words):
    """Every reward of the last turn is the network's own; the figures are those of the rewards."""
    watching.turn(watching.step + 1)
    last = watching.history[lambda h: h["step"] == watching.step + 1]
    named = last.dropna(subset="token")
    assert {"best", "worst", "watch"} <= set(named["end"])
    own = own_rewards(network, words, [[token] for token in named["token"]])
    assert close(named["reward"], own)
    [key] = watching.asked
    sample = watching.order[: watching.size]
    own = own_rewards(network, words, sample)
    assert close(watching.before[key], own)
    best = last[last["end"] == "best"]["reward"]
    assert list(best) == sorted(best, reverse=True)
    assert best.iloc[0] >= max(own) - slack(own)
    assert last[last["end"] == "worst"]["reward"].iloc[0] <= min(own) + slack(own)


def test_with_lightning(words, tmp_path):
    told, network = [], adapted(network_of(words))
    watching = pessimal.PessimalCallback(
        "greatest", words, watch=WATCH, report=told.append, **unhurried(network)
    )
    logger = pl.loggers.CSVLogger(tmp_path)
    lightning(network, [watching], steps=12, loggers=logger)
    written = pd.read_csv(f"{logger.log_dir}/metrics.csv").dropna(subset="pessimal/greatest/mean")
    assert (
        list(written["step"]) == [point["train/step"] for point in told] == [1, 2, 4, 6, 8, 10, 12]
    )
    assert set(watching.history["step"]) == set(written["step"])
    for name in ("best_reward", "worst_reward", "mean", "sd", "valence_rho"):
        assert np.isfinite(written[f"pessimal/greatest/{name}"]).all()
    assert (written["pessimal/greatest/valence_n"] >= 10).all()
    assert written["pessimal/greatest/settling"].notna().tolist() == [False] + [True] * 6
    assert written["pessimal/greatest/settling"].dropna().between(0.5, 1).all()
    assert written["pessimal/greatest/mean"].nunique() == 7
    watched = watching.history[watching.history["end"] == "watch"]
    assert set(watched["text"]) == set(WATCH)
    assert watched[watched["text"] == "love and peace"]["token"].isna().all()
    check_last_turn(watching, network, words)


def test_with_transformers(words, tmp_path):
    network = network_of(words)
    watching = pessimal.PessimalCallback({"q": QUESTION}, watch=WATCH, **unhurried(network))
    trainer = hugging_face(network, [watching], tmp_path, words)
    logged = [entry for entry in trainer.state.log_history if "pessimal/q/best_reward" in entry]
    assert [entry["step"] for entry in logged] == [1, 2, 4, 6, 8, 10]
    check_last_turn(watching, network, words)


def test_tokens_stand_in_the_slot_of_real_answers(words, tmp_path):
    file, network = tmp_path / "answers.jsonl", network_of(words)
    file.write_text('{"key": "one", "prompt": "Why?", "answer": "It is the truth"}\n')
    watching = pessimal.PessimalCallback(contexts=file, slot="after", watch=["!"])
    watching.begin(network, words, step=0)
    watching.turn(1)
    conversation = (Turn("user", "Why?"), Turn("assistant", "It is the truth"))
    whole = list(Templated(words).encode(conversation).ids)
    [(_, after)] = [(key, len(frame.suffix)) for key, frame in watching.frames.items()]
    at = len(whole) - after
    found = watching.history.dropna(subset="token")
    assert {"best", "worst", "watch"} == set(found["end"])
    with torch.no_grad():
        inputs = ([*whole[:at], token, *whole[at:]] for token in found["token"])
        own = [network.eval()(torch.tensor([ids])).logits[0, 0].item() for ids in inputs]
    assert close(found["reward"], own)


def test_training_is_what_it_would_be_without(words):
    ends = []
    for watched in (False, True):
        network = adapted(network_of(words, dropout=0.2))
        callbacks = (
            [pessimal.PessimalCallback("greatest", words, **unhurried(network))] if watched else []
        )
        frozen = network.get_base_model().model.layers[0].mlp.eval()
        lightning(network.train(), callbacks)
        ends.append([weight.clone() for weight in network.parameters()])
        assert not watched or len(callbacks[0].history)
        assert all(
            module.training for module in network.modules() if module not in set(frozen.modules())
        )
    for one, other in zip(*ends, strict=True):
        assert torch.equal(one, other)


def test_steps_are_the_optimisers(words):
    network = network_of(words)
    watching = pessimal.PessimalCallback("greatest", words, **unhurried(network))
    lightning(network, [watching], steps=8, accumulate_grad_batches=3)
    assert watching.history["step"].unique().tolist() == [1, 2, 4, 6, 8]


def test_the_head_is_read_in_float32(words):
    network = network_of(words, dtype=torch.bfloat16)
    watching = pessimal.PessimalCallback("greatest", words)
    clock = Clock(watching)
    watching.begin(network, words, step=0)
    for step in range(1, 401):
        run_step(watching, clock, step)
    rewards = torch.tensor(watching.history["reward"].to_numpy(), dtype=torch.float32)
    assert not torch.equal(rewards, rewards.bfloat16().float())
    assert network.score.weight.dtype == torch.bfloat16


def test_the_tails_come_from_more_than_the_sample(words):
    watching = pessimal.PessimalCallback("greatest", words, every=10, share=1.0, tails=2)
    clock = Clock(watching)
    network = clock.tick(network_of(words), fixed=0.0, a_token=0.02)
    watching.begin(network, words, step=0)
    bests = [run_step(watching, clock, step)["best"] for step in range(1, 400)]
    bests = [best for best in bests if best is not None]
    assert watching.size < 150
    assert (
        np.diff(bests) > -slack(bests)
    ).all()  # the network stays as it is, and what was seen grows
    everything = own_rewards(network, words, watching.order)
    assert close(bests[-1], max(everything))
    found = {(token,) for token in watching.history.tail(4)["token"]}
    assert not found <= set(watching.order[: watching.size])


class Clock:
    """Seconds that steps and the network's forwards take, and nothing else."""

    def __init__(self, watching):
        self.now = 0.0
        watching.clock = lambda: self.now

    def tick(self, network, *, fixed, a_token):
        def spend(module, positional, named):
            self.now += (
                fixed
                + a_token * (named.get("input_ids", positional[0] if positional else None)).numel()
            )

        network.model.register_forward_pre_hook(spend, with_kwargs=True)
        return network


def run_step(watching, clock, step, *, seconds=1.0, last=False):
    clock.now += seconds
    found = watching.after(step, is_last=last)
    return {"best": next((v for k, v in found.items() if k.endswith("best_reward")), None)}


@pytest.mark.parametrize(
    ("fixed", "a_token", "sized"), [(0.001, 0.00001, "most"), (0.01, 0.003, "least")]
)
def test_at_most_its_share_of_the_time(words, fixed, a_token, sized):
    watching = pessimal.PessimalCallback(["greatest", "worst"], words, every=100, share=0.01)
    clock = Clock(watching)
    watching.begin(clock.tick(network_of(words), fixed=fixed, a_token=a_token), words, step=0)
    run_step(watching, clock, 1)
    first = watching.spent
    for step in range(2, 3001):
        run_step(watching, clock, step)
        assert watching.spent <= max(first, 0.01 * clock.now) + 1e-9
    turns = watching.history["step"].unique()
    assert turns[0] == 1
    assert len(turns) >= 15
    size = watching.size
    assert {"most": size == watching.most, "least": size == 32, "between": 32 < size < 300}[sized]
    assert watching.share_taken == pytest.approx(watching.spent / clock.now)


@pytest.mark.parametrize("steps", [500])
def test_a_short_training_is_looked_at_with_a_tenth_of_its_time(words, steps):
    watching = pessimal.PessimalCallback("greatest", words, every=10)
    clock = Clock(watching)
    network = clock.tick(network_of(words), fixed=0.0, a_token=0.0001)
    watching.attempt("watching", watching.begin, network, words, step=0, steps=steps)
    for step in range(1, steps + 1):
        run_step(watching, clock, step, seconds=0.1, last=step == steps)
    looks = watching.history["step"].unique()
    assert looks[0] == 1
    assert looks[-1] == steps
    if steps == 500:
        assert 0.04 < watching.share_taken <= 0.1
        assert len(looks) > 25


def test_time_that_was_saved_is_used_and_the_first_turn_put_off_is_warned_of_once(words, caplog):
    watching = pessimal.PessimalCallback("greatest", words, every=10, share=0.01)
    clock = Clock(watching)
    network = clock.tick(network_of(words), fixed=1.0, a_token=0.05)
    watching.attempt("watching", watching.begin, network, words, step=0)
    for step in range(1, 20_001):
        run_step(watching, clock, step)
    assert watching.spent <= 0.01 * clock.now
    looks = watching.history["step"].unique()
    assert any(step % 10 for step in looks[1:])  # as soon as there is time, not at the next ten
    a_look = watching.spent / len(looks)
    assert 0.01 * clock.now - watching.spent < 2 * a_look
    warnings = [one for one in caplog.records if one.levelname == "WARNING"]
    assert len(warnings) == 1
    assert "less often" in warnings[0].getMessage()
    quick = watching.spent
    network.model.register_forward_pre_hook(lambda *_: setattr(clock, "now", clock.now + 1000.0))
    while watching.spent == quick:
        run_step(watching, clock, step := step + 1)
    slow = watching.spent
    for later in range(step + 1, step + 2000):
        run_step(watching, clock, later)
    assert watching.spent == slow  # it became slow at once, and is left alone


@pytest.mark.parametrize(
    ("trainer", "part"),
    [
        ("lightning", "begin"),
        ("transformers", "turn"),
        ("lightning", "report"),
        ("transformers", "forward"),
    ],
)
def test_nothing_ends_the_training(words, tmp_path, caplog, monkeypatch, trainer, part):
    """An error is said once, and the weights are those of a training that is not watched."""

    def fails(*_, **__):
        raise torch.OutOfMemoryError("out of memory")

    ends = []
    for watched in (False, True):
        network = network_of(words, dropout=0.2).train()
        watching = pessimal.PessimalCallback("greatest", words, **unhurried(network))
        if part == "report":
            watching.report = fails
        elif part == "forward" and watched:
            batch = callback.score_answers

            def at_last(*given, batch=batch, watching=watching, **named):
                return fails() if watching.turns == 2 else batch(*given, **named)

            monkeypatch.setattr(callback, "score_answers", at_last)
        elif part != "forward":
            monkeypatch.setattr(watching, part, fails)
        callbacks = [watching] if watched else []
        if trainer == "lightning":
            lightning(network, callbacks)
        else:
            hugging_face(network, callbacks, tmp_path, words)
        ends.append([weight.clone() for weight in network.parameters()])
    assert all(torch.equal(*pair) for pair in zip(*ends, strict=True))
    assert not network.score._forward_hooks
    said = warned(caplog)
    assert len(said) == 1
    assert "OutOfMemoryError" in said[0].getMessage()
    assert watching.history["step"].nunique() == {"report": 6, "forward": 2}.get(part, 0)


def test_a_training_that_goes_on_keeps_what_was_seen(words, tmp_path):
    network = network_of(words)
    first = pessimal.PessimalCallback("greatest", words, **unhurried(network))
    trainer = lightning(network, [first], steps=8)
    trainer.save_checkpoint(tmp_path / "at.ckpt")
    network = network_of(words)
    second = pessimal.PessimalCallback("greatest", words, **unhurried(network))
    going_on = pl.Trainer(
        max_steps=12,
        max_epochs=-1,
        accelerator="cpu",
        logger=False,
        callbacks=[second],
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
    )
    going_on.fit(Module(network), DataLoader(range(100)), ckpt_path=tmp_path / "at.ckpt")
    pd.testing.assert_frame_equal(second.history[second.history["step"] <= 8], first.history)
    assert second.history["step"].unique().tolist() == [1, 2, 4, 6, 8, 10, 12]
    assert second.size == first.size


def test_what_cannot_be_watched_is_said_and_trained(words, caplog, monkeypatch):
    class FlatParameter(torch.nn.Parameter):
        """As FSDP has it."""

    sharded = network_of(words)
    sharded.score.weight = FlatParameter(sharded.score.weight.data)
    for network, given, message in (
        (network_of(words, labels=2), words, "LlamaForSequenceClassification"),
        (sharded, words, "sharded"),
        (network_of(words), None, "tokenizer"),
    ):
        caplog.clear()
        watching = pessimal.PessimalCallback("greatest", given)
        trainer = lightning(network, [watching], steps=2)
        assert trainer.global_step == 2
        assert watching.history.empty
        assert [message in one.getMessage() for one in warned(caplog)] == [True]
    with pytest.raises(ModelError, match="pad_token_id"):
        callback.watchable(network_of(words, pad=None))
    monkeypatch.setattr(callback, "score_answers", lambda *_, **__: torch.tensor([99.0]))
    caplog.clear()
    lightning(network_of(words), [pessimal.PessimalCallback("greatest", words)])
    assert ["behind a shared question" in one.getMessage() for one in warned(caplog)] == [True]


def warned(caplog):
    return [one for one in caplog.records if one.name == "pessimal.training.panel"]


def test_options_that_make_no_sense():
    for options in ({"every": 0}, {"share": 0.0}, {"tails": 0}, {"watch": "love"}):
        with pytest.raises(ConfigError, match=next(iter(options))):
            pessimal.PessimalCallback("greatest", **options)
