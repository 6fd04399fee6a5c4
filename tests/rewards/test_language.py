"""Language models: which checkpoints are one, and what they have read when they are asked."""

import shutil

import pytest
from published import vocabularies
from transformers import BertConfig, BertForMaskedLM

from pessimal.conversation import Turn
from pessimal.errors import FrameError, ModelError
from pessimal.rewards.formats import Continued
from pessimal.rewards.log_probability import LogProbabilitySpec
from pessimal.rewards.obtain import open_model
from tiny_language_models import CHAT, checkpoint, tokenizer

PROMPT = "What, in one word, is the greatest thing ever?"


def conversations(words, *, chat):
    return Continued(words, chat, rows=len(words))


def asked(folder, **options):
    return open_model(LogProbabilitySpec(path=str(folder), **options), folder)


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return checkpoint(tmp_path_factory.mktemp("language") / "base")


@pytest.fixture
def copy(base, tmp_path):
    return shutil.copytree(base, tmp_path / "copy")


# What is asked.


@pytest.mark.parametrize(("words", "after"), [(tokenizer(), 0), (vocabularies.bert(), 1)])
def test_plain_text_has_one_beginning_token_and_nothing_after_the_prompt(words, after):
    whole = words(PROMPT)["input_ids"]
    frame = conversations(words, chat=False).frame(PROMPT)
    assert list(frame.prefix) == whole[: len(whole) - after]
    assert frame.suffix == ()


def test_chat_is_asked_where_the_assistant_begins_to_speak():
    words = tokenizer(template=CHAT)
    context = conversations(words, chat=True).context(PROMPT)
    turn = [{"role": "user", "content": PROMPT}]
    own = words.apply_chat_template(
        turn, add_generation_prompt=True, tokenize=True, return_dict=False
    )
    assert list(context) == own
    assert words.decode(context).endswith("<|start|>assistant<|sep|>")
    assert context.count(words.bos_token_id) == 1


def test_template_whose_answers_need_no_opening_is_asked_as_it_is():
    words = tokenizer(
        template="{{ bos_token }}{% for m in messages %}{% if m['role'] == 'user' %}<|start|>{{ "
        "m['content'] }}<|sep|>"
        "{% else %}{{ m['content'] }}<|end|>{% endif %}{% endfor %}"
    )
    context = conversations(words, chat=True).context(PROMPT)
    assert words.decode(context) == f"<|bos|><|start|>{PROMPT}<|sep|>"


def test_answers_go_on_after_a_space_in_plain_text_and_directly_in_a_chat():
    plain, chat = tokenizer(), tokenizer(template=CHAT)
    for words, is_chat, text in ((plain, False, " love"), (chat, True, "love")):
        asking = conversations(words, chat=is_chat)
        (first, _), apart = asking.continued(PROMPT, ["love", "peace and war"])
        assert words.decode(first[len(asking.context(PROMPT)) :]) == text
        assert apart == []
    [whole] = conversations(plain, chat=False).ids(PROMPT, ["peace and war"])
    assert whole == plain(f"{PROMPT} peace and war")["input_ids"]


def test_answer_that_the_tokenizer_merges_with_the_prompt_is_tokenised_by_itself_and_named():
    words = tokenizer(template=CHAT)
    # The assistant's turn opens with letters, which the answer's would be joined to.
    words.chat_template = CHAT.replace("assistant<|sep|>{% endif", "assistant<|sep|>great{% endif")
    asking = conversations(words, chat=True)
    (first, _), apart = asking.continued(PROMPT, ["est", "!"])
    assert apart == ["est"]
    assert first == [*asking.context(PROMPT), *words("est", add_special_tokens=False)["input_ids"]]
    assert (
        first
        != words(words.decode(asking.context(PROMPT)) + "est", add_special_tokens=False)[
            "input_ids"
        ]
    )


@pytest.mark.parametrize("chat", [True, False])
def test_conversation_that_is_explained_is_asked_as_one_that_is_scanned(chat):
    words = tokenizer(template=CHAT)
    asking = Continued(words, chat, rows=len(words), closing=(words.eos_token_id,))
    [scanned] = asking.ids(PROMPT, ["peace and war"])
    encoded = asking.encode([Turn("user", PROMPT), Turn("assistant", "peace and war")])
    assert list(encoded.ids) == scanned
    assert encoded.n_response == len(scanned) - len(asking.context(PROMPT))
    assert scanned[-1] == words.eos_token_id
    turns = [
        Turn("user", "Why?"),
        Turn("assistant", "So."),
        Turn("user", PROMPT),
        Turn("assistant", "love"),
    ]
    if not chat:
        with pytest.raises(FrameError, match="turns user"):
            asking.encode(turns)
        return
    messages = [{"role": turn.role, "content": turn.content} for turn in turns[:-1]]
    opened = words.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    love = words("love", add_special_tokens=False)["input_ids"]
    assert list(asking.encode(turns).ids) == [*opened, *love, words.eos_token_id]


# Which models are asked.


def test_template_is_taken_where_there_is_one_unless_chosen_otherwise(tmp_path, base):
    chatting = checkpoint(tmp_path / "chatting", template=CHAT)
    assert asked(base).template_digest == "plain text"
    assert asked(base, chat=False).template_digest == "plain text"
    assert not asked(base).parts[0].conversations.chat
    apart = asked(chatting, chat=False)
    assert not apart.parts[0].conversations.chat
    in_chat = asked(chatting)
    assert in_chat.parts[0].conversations.chat
    assert in_chat.template_digest == asked(chatting, chat=True).template_digest
    assert len({m.template_digest for m in (asked(base), apart, in_chat)}) == 3, (
        "or one replaces another"
    )
    with pytest.raises(ModelError, match="no chat template"):
        asked(base, chat=True)


def test_encoder_has_no_next_token(tmp_path):
    folder = tmp_path / "encoder"
    words = vocabularies.bert()
    BertForMaskedLM(
        BertConfig(
            vocab_size=len(words),
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=16,
        )
    ).save_pretrained(folder)
    words.save_pretrained(folder)
    with pytest.raises(ModelError, match="Bert"):
        asked(folder)


def test_checkpoint_that_lacks_its_output_embedding_is_refused(copy):
    from safetensors.torch import load_file, save_file

    weights = load_file(copy / "model.safetensors")
    del weights["lm_head.weight"]
    save_file(weights, copy / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"lacks \['lm_head\.weight'\]"):
        asked(copy).network()
