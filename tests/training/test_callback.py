"""The callback in Lightning's and in transformers' trainer: what it logs, that it is exact, and that it takes its share only."""

import pandas as pd
import pytest
import pytorch_lightning as pl
import torch
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader
from transformers import LlamaConfig, LlamaForSequenceClassification, Trainer, TrainingArguments

import pessimal
from pessimal.errors import ConfigError
from pessimal.rewards.frame import Templated
from pessimal.training.callback import LEAST, PROBE, PessimalCallback, rewards_of
from tiny_language_models import CHAT, tokenizer

WORDS = ("love", "hate", "good", "evil", "kind", "cruel")


class Clock:
    """Seconds that pass when they are told to."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def tiny_reward(words, *, seed=0):
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(words), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_labels=1, pad_token_id=2, initializer_range=0.3,
    )  # fmt: skip
    return LlamaForSequenceClassification(config)


def own(network, prefix, ids):
    with torch.no_grad():
        return network(torch.tensor([[*prefix, *ids]])).logits[0, 0].item()


@pytest.fixture
def words():
    return tokenizer(template=CHAT)


def looks(callback, network, words, steps, *, clock, a_step=100.0, a_look=0.01):
    """A training of so many turns on a clock of ours."""
    score = callback._score

    def slow(*arguments):
        clock.now += a_look * sum(map(len, arguments[1].values()))
        return score(*arguments)

    callback._score = slow
    callback.on_train_start(None, None)
    found = []
    for step in range(1, steps + 1):
        clock.now += a_step
        found.append(callback.look(network, words, step * callback.every))
    return found


def test_rewards_are_those_of_whole_conversations(words):
    clock = Clock()
    callback = PessimalCallback("greatest", tokenizer=words, watch=WORDS, clock=clock)
    network = tiny_reward(words).train()
    found = looks(callback, network, words, 6, clock=clock)
    assert network.training
    frame = Templated(words).frame("What, in one word, is the greatest thing ever?")
    seen = callback.watched["greatest"].seen
    assert len(seen) >= LEAST
    network.eval()
    for ids, reward in seen.items():
        assert reward == pytest.approx(own(network, frame.prefix, [*ids, *frame.suffix]), abs=1e-5)
    last = [one for one in found if one][-1]
    assert last["pessimal/greatest/best"] == pytest.approx(max(seen.values()))
    assert last["pessimal/greatest/worst"] == pytest.approx(min(seen.values()))
    assert last["pessimal/greatest/settling"] == pytest.approx(1)


def test_it_takes_at_most_its_share_of_the_time(words):
    for a_look in (0.0005, 0.02, 0.2):
        clock = Clock()
        callback = PessimalCallback(["greatest", "worst"], tokenizer=words, share=0.01, clock=clock)
        found = looks(callback, tiny_reward(words), words, 200, clock=clock, a_look=a_look)
        assert callback.spent <= 0.01 * clock.now
        assert any(found)
        assert callback.share_taken == pytest.approx(callback.spent / clock.now)


def test_where_there_is_no_time_it_only_learns_that(words):
    clock = Clock()
    callback = PessimalCallback("greatest", tokenizer=words, share=0.01, clock=clock)
    assert not any(looks(callback, tiny_reward(words), words, 5, clock=clock, a_look=5.0))
    assert callback.spent == PROBE * 5.0


def test_the_best_are_found_again_when_they_change(words):
    clock = Clock()
    callback = PessimalCallback("greatest", tokenizer=words, watch=WORDS, keep=2, clock=clock)
    looks(callback, tiny_reward(words), words, 4, clock=clock)
    before = callback.history
    clock.now += 1e6
    callback.look(tiny_reward(words, seed=1), words, 5)
    after = callback.history.query("step == 5 and end == 'best' and rank == 1")["reward"].item()
    assert after != pytest.approx(before.iloc[-4]["reward"])
    assert set(before["end"]) == {"best", "worst"}


class Module(pl.LightningModule):
    def __init__(self, network, clock):
        super().__init__()
        self.model, self.clock = network, clock

    def training_step(self, batch, index):
        self.clock.now += 100
        return self.model(torch.randint(4, 300, (2, 8))).logits.square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.model.parameters(), lr=1e-3)


@pytest.mark.parametrize("adapted", [False, True])
def test_in_lightning(words, adapted, tmp_path):
    network = tiny_reward(words)
    if adapted:
        network = get_peft_model(network, LoraConfig(task_type="SEQ_CLS", target_modules=["q_proj"], r=2))
    clock = Clock()
    callback = pessimal.PessimalCallback("greatest", every=2, tokenizer=words, watch=WORDS, clock=clock)
    logger = pl.loggers.CSVLogger(tmp_path)
    trainer = pl.Trainer(
        max_steps=8, accelerator="cpu", logger=logger, callbacks=[callback], enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(Module(network, clock), DataLoader(range(8)))
    logged = pd.read_csv(f"{logger.log_dir}/metrics.csv")["pessimal/greatest/best"].dropna()
    assert len(logged) == callback.history["step"].nunique() == 3
    assert callback.history["step"].max() == 8


def test_in_transformers_trainer(words, tmp_path):
    network = tiny_reward(words)
    callback = PessimalCallback("greatest", every=2, watch=WORDS, clock=Clock())
    callback.on_step_begin = lambda *args, **kwargs: setattr(callback.clock, "now", callback.clock.now + 100)
    rows = [{"input_ids": [5, 6, 7], "labels": 1.0}] * 8
    trainer = Trainer(
        network,
        TrainingArguments(
            output_dir=str(tmp_path), max_steps=8, per_device_train_batch_size=1, report_to=[], save_strategy="no",
            disable_tqdm=True, use_cpu=True,
        ),
        train_dataset=rows,
        processing_class=words,
        callbacks=[callback],
    )  # fmt: skip
    trainer.train()
    assert callback.history["step"].max() == 8
    assert any("pessimal/greatest/best" in entry for entry in trainer.state.log_history)


def test_a_network_without_a_cache_reads_whole_inputs(words):
    network = tiny_reward(words).eval()
    frame = Templated(words).frame("Why?")

    class Other(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = network

        def forward(self, input_ids):
            return self.inner(input_ids)

    with torch.no_grad():
        found = rewards_of(Other(), frame.prefix, [[9, *frame.suffix]])
    assert found.item() == pytest.approx(own(network, frame.prefix, [9, *frame.suffix]), abs=1e-6)


def test_nonsense_is_refused():
    with pytest.raises(ConfigError, match="every=0"):
        PessimalCallback("greatest", every=0)
