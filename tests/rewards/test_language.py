"""Language models: which checkpoints are one, and what they have read when they are asked."""

import shutil

import pytest
import torch
from published import vocabularies
from transformers import BertConfig, BertForMaskedLM

from pessimal.errors import ConfigError, FrameError, ModelError
from pessimal.rewards.language import continuations, find_context
from pessimal.rewards.load import open_model
from pessimal.rewards.spec import Dtype, ModelSpec, RecipeSpec, Score
from tiny_language_models import CHAT, UNLISTED, checkpoint, tokenizer

PROMPT = "What, in one word, is the greatest thing ever?"


def asked(folder, **options):
    return open_model(ModelSpec(path=str(folder), score=Score.log_probability, **options), folder)


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
    context = find_context(words, PROMPT, chat=False)
    assert list(context.ids) == whole[: len(whole) - after]
    assert not context.chat


def test_chat_is_asked_where_the_assistant_begins_to_speak():
    words = tokenizer(template=CHAT)
    context = find_context(words, PROMPT, chat=True)
    turn = [{"role": "user", "content": PROMPT}]
    own = words.apply_chat_template(turn, add_generation_prompt=True, tokenize=True, return_dict=False)
    assert list(context.ids) == own
    assert words.decode(context.ids).endswith("<|start|>assistant<|sep|>")
    assert context.ids.count(words.bos_token_id) == 1


def test_template_that_does_not_open_the_assistants_turn_is_refused():
    words = tokenizer(template=CHAT.split("{% if add_generation_prompt")[0])
    with pytest.raises(FrameError, match=r"add_generation_prompt.*model\.chat=false"):
        find_context(words, PROMPT, chat=True)


def test_template_whose_answers_need_no_opening_is_asked_as_it_is():
    words = tokenizer(
        template="{{ bos_token }}{% for m in messages %}{% if m['role'] == 'user' %}<|start|>{{ m['content'] }}<|sep|>"
        "{% else %}{{ m['content'] }}<|end|>{% endif %}{% endfor %}"
    )
    assert words.decode(find_context(words, PROMPT, chat=True).ids) == f"<|bos|><|start|>{PROMPT}<|sep|>"


def test_answers_go_on_after_a_space_in_plain_text_and_directly_in_a_chat():
    plain, chat = tokenizer(), tokenizer(template=CHAT)
    for words, is_chat, text in ((plain, False, " love"), (chat, True, "love")):
        context = find_context(words, PROMPT, chat=is_chat)
        found = continuations(words, context, ["love", "peace and war"])
        assert words.decode(found.ids[0]) == text
        assert found.apart == []
    context = find_context(plain, PROMPT, chat=False)
    whole = [*context.ids, *continuations(plain, context, ["peace and war"]).ids[0]]
    assert whole == plain(f"{PROMPT} peace and war")["input_ids"]


def test_answer_that_the_tokenizer_merges_with_the_prompt_is_tokenised_by_itself_and_named():
    words = tokenizer(template=CHAT)
    # The assistant's turn opens with letters, which the answer's would be joined to.
    words.chat_template = CHAT.replace("assistant<|sep|>{% endif", "assistant<|sep|>great{% endif")
    context = find_context(words, PROMPT, chat=True)
    found = continuations(words, context, ["est", "!"])
    assert found.apart == ["est"]
    assert found.ids[0] == tuple(words("est", add_special_tokens=False)["input_ids"])


# Which models are asked.


def test_template_is_taken_where_there_is_one_unless_chosen_otherwise(tmp_path, base):
    chatting = checkpoint(tmp_path / "chatting", template=CHAT)
    assert asked(base).template_digest == "plain text"
    assert asked(base, chat=False).template_digest == "plain text"
    assert not asked(base).chat
    apart = asked(chatting, chat=False)
    assert not apart.chat
    in_chat = asked(chatting)
    assert in_chat.chat
    assert in_chat.template_digest == asked(chatting, chat=True).template_digest
    assert len({m.template_digest for m in (asked(base), apart, in_chat)}) == 3, "or one replaces another"
    with pytest.raises(ModelError, match="no chat template"):
        asked(base, chat=True)


def test_ids_with_a_row_in_both_embeddings_are_listed(base):
    model = asked(base)
    assert model.embedding_rows == len(model.tokenizer) + UNLISTED


def test_network_comes_in_the_precision_asked_for(base):
    assert asked(base, dtype=Dtype.bfloat16).network().dtype is torch.bfloat16
    assert not asked(base).network().training


def test_reward_model_has_no_log_probabilities(tiny_checkpoint):
    with pytest.raises(ModelError, match=r"is a reward model.*Leave out model\.score"):
        asked(tiny_checkpoint)


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
    with pytest.raises(ModelError, match="Bert, no causal language model"):
        asked(folder)


def test_language_model_given_as_a_reward_model_is_recognised_by_its_files(copy):
    with pytest.raises(ModelError, match=r"is a language model.*model\.score=log_probability"):
        open_model(ModelSpec(path=str(copy)), copy)


def test_checkpoint_that_lacks_its_output_embedding_is_refused(copy):
    from safetensors.torch import load_file, save_file

    weights = load_file(copy / "model.safetensors")
    del weights["lm_head.weight"]
    save_file(weights, copy / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"lacks \['lm_head\.weight'\]"):
        asked(copy).network()


def test_log_probabilities_are_only_scanned(base):
    with pytest.raises(ConfigError, match="pessimal scan") as raised:
        asked(base, name="mine").frame(PROMPT)
    assert f"scan model=auto model.path={base} model.name=mine model.score=log_probability" in str(
        raised.value
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"path": "a/b", "chat": True}, r"model\.score=log_probability"),
        ({"recipe": RecipeSpec(), "score": Score.log_probability}, "reward models"),
        ({"path": "a/b", "score": Score.log_probability, "output": 0}, r"model\.output=0"),
    ],
)
def test_options_that_do_not_fit_are_refused_before_anything_is_read(options, message):
    with pytest.raises(ConfigError, match=message):
        ModelSpec(**options)


def test_checkpoint_that_lost_a_shard_is_refused_before_its_network_is_loaded(copy):
    from transformers import AutoModelForCausalLM

    network = AutoModelForCausalLM.from_pretrained(copy)
    (copy / "model.safetensors").unlink()
    network.save_pretrained(copy, max_shard_size="50KB")
    shards = sorted(copy.glob("model-*.safetensors"))
    assert len(shards) > 1
    assert asked(copy)
    shards[0].unlink()
    with pytest.raises(ModelError, match=rf"{copy} lacks {shards[0].name}.*'copy'"):
        asked(copy)
