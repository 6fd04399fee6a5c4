"""What a template reads beside the turns is pinned, in the key, and can be set; what it leaves out
of an encoder's input is put there; OpenRLHF's models are read at their end token."""

import datetime
import hashlib
import json
import logging

import pytest
import transformers.utils.chat_template_utils as templates
from transformers import (
    BartConfig,
    BartForSequenceClassification,
    DistilBertConfig,
    DistilBertForSequenceClassification,
    T5Config,
    T5ForSequenceClassification,
)

import pessimal
from pessimal.checking.loop import LOOPS, check_loop
from pessimal.errors import ConfigError
from pessimal.rewards.reward_model import wrap
from pessimal.rewards.weights import template_digest
from tiny_language_models import CHAT, tokenizer
from tiny_reward_models import (
    PROMPT,
    WORDS,
    encoder_tokenizer,
    messages_to,
    own_rewards,
    rename,
    rewards,
    save,
    save_llama,
    template_ids,
    templated,
)

DATED = "{{ '<|start|>Today: ' + strftime_now('%d %b %Y') + '<|end|>' }}" + CHAT
# Granite's and Mistral's ask for the date only where no system turn stands.
SOMETIMES = "{% if messages[0].role != 'system' %}" + DATED + "{% else %}" + CHAT + "{% endif %}"
THINKING = CHAT + "{% if enable_thinking is defined and not enable_thinking %}<|sep|>{% endif %}"
LLAMA = (
    "{% if not date_string is defined %}{% set date_string = strftime_now('%d %b %Y') %}{% endif %}"
    "{{ '<|start|>' + date_string + '<|end|>' }}" + CHAT
)


@pytest.fixture
def on(monkeypatch):
    """Set today's date."""

    def set_day(day: str) -> None:
        class Then(datetime.datetime):
            @classmethod
            def now(cls, tz=None):
                return datetime.datetime.fromisoformat(day)

        monkeypatch.setattr(templates, "datetime", Then)

    return set_day


@pytest.mark.parametrize("template", [SOMETIMES, LLAMA])
def test_a_template_that_asks_for_the_date_gives_one_reward_on_every_day(on, tmp_path, template):
    network = save_llama(tmp_path, template=template)
    scores = []
    for day in ("2026-11-26", "2026-12-01"):
        on(day)
        model = pessimal.load(str(tmp_path))
        scores.append((rewards(model), model.template_digest))
    assert scores[0] == scores[1]
    on("2024-07-26")  # which pessimal takes
    right = own_rewards(network, template_ids(tokenizer(template=template)))
    assert scores[0][0] == pytest.approx(right, abs=1e-5)


@pytest.mark.parametrize("template", [SOMETIMES])
def test_the_date_can_be_set_and_is_part_of_the_key(on, tmp_path, caplog, template):
    network = save_llama(tmp_path, template=template)
    with caplog.at_level(logging.INFO):
        fixed = pessimal.load(str(tmp_path))
    assert sum("2024-07-26" in message for message in caplog.messages) == 1
    model = pessimal.load(str(tmp_path), template_options={"strftime_now": "2026-11-26"})
    on("2026-11-26")
    right = own_rewards(network, template_ids(tokenizer(template=template)))
    assert rewards(model) == pytest.approx(right, abs=1e-5)
    assert model.template_digest != fixed.template_digest


@pytest.mark.parametrize(
    ("template", "options"),
    [(THINKING, {"enable_thinking": False}), (LLAMA, {"date_string": "1 May 2020"})],
)
def test_options_of_a_template_reach_it_and_the_key(tmp_path, template, options):
    network = save_llama(tmp_path, template=template)
    plain = pessimal.load(str(tmp_path))
    model = pessimal.load(str(tmp_path), template_options=options)
    right = own_rewards(network, template_ids(tokenizer(template=template), **options))
    assert rewards(model) == pytest.approx(right, abs=1e-5)
    assert rewards(plain) != pytest.approx(right, abs=1e-2)
    assert model.template_digest != plain.template_digest


def test_a_template_that_reads_the_turns_alone_keeps_its_digest():
    words = tokenizer(template=CHAT)
    assert template_digest(words) == hashlib.sha256(json.dumps(CHAT).encode()).hexdigest()


@pytest.mark.parametrize("options", [{"enable_thinkin": True}])
def test_an_option_that_the_template_does_not_read_is_refused(tmp_path, options):
    save_llama(tmp_path, template=THINKING)
    with pytest.raises(ConfigError, match=next(iter(options))):
        pessimal.load(str(tmp_path), template_options=options)


ONE = "{{ messages[0].content }} {{ messages[1].content }}"
SIZES = {"dim": 32, "hidden_dim": 48, "n_layers": 2, "n_heads": 4, "max_position_embeddings": 128}


@pytest.mark.parametrize(
    "options", [{"one_text": True}, {"chat_template": "{{ cls_token }}" + ONE + "{{ sep_token }}"}]
)
def test_an_encoder_reads_one_text_with_its_special_tokens(tmp_path, options):
    words = encoder_tokenizer()
    config = DistilBertConfig(vocab_size=len(words), num_labels=1, **SIZES)
    network = save(DistilBertForSequenceClassification(config), words, tmp_path)
    right = own_rewards(network, [words(f"{PROMPT} {word}")["input_ids"] for word in WORDS])
    assert rewards(pessimal.load(str(tmp_path), **options)) == pytest.approx(right, abs=1e-5)
    pair = own_rewards(network, [words(PROMPT, word)["input_ids"] for word in WORDS])
    assert rewards(pessimal.load(str(tmp_path))) == pytest.approx(pair, abs=1e-5)
    assert right != pytest.approx(pair, abs=1e-2)


def test_a_network_in_memory_takes_the_same_options(tmp_path):
    network, words = save_llama(tmp_path, template=THINKING), tokenizer(template=THINKING)
    options = {"enable_thinking": False}
    model = pessimal.reward(network, words, template_options=options)
    right = own_rewards(network, template_ids(words, **options))
    assert rewards(model) == pytest.approx(right, abs=1e-5)
    right = own_rewards(network, template_ids(words))
    assert rewards(pessimal.reward(network, words)) == pytest.approx(right, abs=1e-5)
    right = own_rewards(network, [words(f"{PROMPT} {word}")["input_ids"] for word in WORDS])
    model = pessimal.reward(network, words, one_text=True)
    assert rewards(model) == pytest.approx(right, abs=1e-5)
    assert words.chat_template == THINKING


def test_bart_and_t5_are_read_by_their_own_forward(tmp_path):
    words = encoder_tokenizer()
    bart = BartConfig(
        vocab_size=len(words),
        num_labels=1,
        d_model=32,
        **{f"{part}_layers": 2 for part in ("encoder", "decoder")},
        **{f"{part}_attention_heads": 2 for part in ("encoder", "decoder")},
        **{f"{part}_ffn_dim": 48 for part in ("encoder", "decoder")},
        max_position_embeddings=128,
        eos_token_id=words.sep_token_id,
        decoder_start_token_id=words.sep_token_id,
        pad_token_id=3,
    )
    network = save(BartForSequenceClassification(bart), words, tmp_path / "bart")
    texts = [words(f"{PROMPT} {word}")["input_ids"] for word in WORDS]
    model = pessimal.load(str(tmp_path / "bart"), one_text=True)
    assert rewards(model) == pytest.approx(own_rewards(network, texts), abs=1e-5)
    # Of a pair BART reads the last end token.
    pairs = own_rewards(network, [words(PROMPT, word)["input_ids"] for word in WORDS])
    assert rewards(pessimal.load(str(tmp_path / "bart"))) == pytest.approx(pairs, abs=1e-5)

    t5 = T5Config(
        vocab_size=len(words),
        num_labels=1,
        d_model=32,
        d_kv=8,
        d_ff=48,
        num_layers=2,
        num_heads=4,
        eos_token_id=words.sep_token_id,
        pad_token_id=3,
        decoder_start_token_id=3,
    )
    network = save(T5ForSequenceClassification(t5), words, tmp_path / "t5")
    model = pessimal.load(str(tmp_path / "t5"), one_text=True)
    assert rewards(model) == pytest.approx(own_rewards(network, texts), abs=1e-5)


def trained_ids(words) -> list[list[int]]:
    """Inputs for WORDS as OpenRLHF's RewardDataset writes them."""
    inputs = []
    for word in WORDS:
        text = templated(words, messages_to(word)).rstrip("\n")
        text += "" if text.endswith(words.eos_token) else " " + words.eos_token
        inputs.append(words(text, add_special_tokens=False)["input_ids"])
    return inputs


LINE = CHAT.replace("<|end|>", "<|end|>\n")


@pytest.mark.parametrize(
    ("template", "fields"),
    [
        (LINE, {"architectures": ["RewardModel"], "value_head_prefix": "score"}),
        (CHAT, {"value_head_prefix": "score"}),
    ],
)
def test_a_model_of_openrlhf_is_read_at_its_end_token(tmp_path, template, fields):
    network = save_llama(tmp_path, template=template)
    plain = pessimal.load(str(tmp_path))
    rename(tmp_path, str, fields)
    model, words = pessimal.load(str(tmp_path)), tokenizer(template=template)
    right = own_rewards(network, trained_ids(words))
    assert rewards(model) == pytest.approx(right, abs=1e-5)
    if template == CHAT:
        assert rewards(plain) == pytest.approx(right, abs=1e-5)
    else:
        assert rewards(plain) != pytest.approx(right, abs=1e-2)
    assert model.config_digest != plain.config_digest
    network.config.value_head_prefix = "score"
    assert rewards(wrap(network, words)) == pytest.approx(right, abs=1e-5)


def test_openrlhfs_loop_sends_its_own_models_what_they_read(tmp_path):
    save_llama(tmp_path, template=LINE)
    words, prompts = tokenizer(template=LINE), [PROMPT]
    plain, n = pessimal.load(str(tmp_path)).parts[0].conversations, 6
    loop = LOOPS["openrlhf"]
    assert check_loop(loop, words, plain, words, prompts=prompts, context=256, n=n).different
    rename(tmp_path, str, {"value_head_prefix": "score"})
    own = pessimal.load(str(tmp_path)).parts[0].conversations
    assert not check_loop(loop, words, own, words, prompts=prompts, context=256, n=n).different
