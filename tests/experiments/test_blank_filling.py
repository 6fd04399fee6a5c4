"""The baseline that blanks words out and lets a masked language model fill them."""

import json
import re
from pathlib import Path

import pytest

from experiments.contrastive_explanations.blank_filling import BlankFilling
from pessimal.explaining.perturbers import Status
from scripted_server import CLARITY, HOSTILE, VERBOSITY, request

TEXT = "Peace is a good thing; war (says Anna, 42) isn't.\n\n  - Love, and be  loved!"
WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")
VOCABULARY = [
    "peace",
    "war",
    "love",
    "hate",
    "good",
    "evil",
    "is",
    "a",
    "the",
    "thing",
    "calm",
    "storm",
    "tea",
    "be",
    "river",
]


def save_model(folder, kind: str, *, positions: int = 128):
    """A random masked language model: BERT over WordPiece, or RoBERTa over byte-level BPE."""
    import torch
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
    from transformers import (
        BertConfig,
        BertForMaskedLM,
        PreTrainedTokenizerFast,
        RobertaConfig,
        RobertaForMaskedLM,
    )

    shape = {
        "hidden_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "max_position_embeddings": positions,
        "initializer_range": 0.4,
    }
    torch.manual_seed(0)
    if kind == "bert":
        specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        names = [
            *specials,
            *VOCABULARY,
            "##ing",
            "##s",
            "##ed",
            ";",
            ".",
            "!",
            "42",
            "(",
            ")",
            "-",
            ",",
        ]
        backend = Tokenizer(
            models.WordPiece({name: n for n, name in enumerate(names)}, unk_token="[UNK]")
        )
        backend.normalizer = normalizers.BertNormalizer(lowercase=True)
        backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        words = PreTrainedTokenizerFast(
            tokenizer_object=backend,
            pad_token="[PAD]",
            unk_token="[UNK]",
            cls_token="[CLS]",
            sep_token="[SEP]",
            mask_token="[MASK]",
            model_max_length=positions,
        )
        made = BertForMaskedLM(BertConfig(vocab_size=len(words), **shape))
    else:
        backend = Tokenizer(models.BPE())
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        backend.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=450,
            special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        backend.train_from_iterator([" " + " ".join([*VOCABULARY, "größe"])] * 3, trainer)
        words = PreTrainedTokenizerFast(
            tokenizer_object=backend,
            bos_token="<s>",
            pad_token="<pad>",
            eos_token="</s>",
            unk_token="<unk>",
            mask_token="<mask>",
            cls_token="<s>",
            sep_token="</s>",
            model_max_length=positions - 2,
        )
        made = RobertaForMaskedLM(
            RobertaConfig(
                vocab_size=len(words), pad_token_id=1, bos_token_id=0, eos_token_id=2, **shape
            )
        )
    made.save_pretrained(folder)
    words.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module", params=["bert", "roberta"])
def model(request, tmp_path_factory):
    return save_model(tmp_path_factory.mktemp("masked") / request.param, request.param)


def beginnings(model) -> set[str]:
    """The tokens that begin a word, by the file of the vocabulary."""
    names = json.loads((Path(model) / "tokenizer.json").read_text())["model"]["vocab"]
    if "##s" in names:
        return {name for name in names if not name.startswith("##")}
    return {
        name[1:].replace("Ã¶", "ö").replace("ÃŁ", "ß") for name in names if name.startswith("Ġ")
    }


def filled(model, *requests, **options):
    return BlankFilling(model=model, device="cpu", **options).perturb(requests)


def test_only_words_change_and_all_else_stays(model):
    (made,) = filled(model, request(text=TEXT), share=0.4)
    assert (made.status, made.spans) == (Status.changed, None)
    assert WORD.sub("_", made.text) == WORD.sub("_", TEXT)
    old, new = WORD.findall(TEXT), WORD.findall(made.text)
    changed = [n for n in range(len(old)) if old[n] != new[n]]
    assert len(changed) == round(0.4 * len(old))
    assert made.note == f"{len(changed)} of {len(old)} words blanked out and filled"


def test_what_is_filled_in_is_a_whole_word_of_the_vocabulary_with_the_old_ones_capital(model):
    greedy = {
        filled(model, request(text=TEXT, seed=s), share=1.0, temperature=0)[0].text
        for s in range(3)
    }
    assert len(greedy) == 1  # every word is blanked out, and each filled with the likeliest
    seen = set()
    for seed in range(6):
        (made,) = filled(model, request(text=TEXT, seed=seed), share=1.0)
        new = WORD.findall(made.text)
        assert [word[0].isupper() for word in new] == [
            word[0].isupper() for word in WORD.findall(TEXT)
        ]
        assert all(
            a.casefold() != b.casefold() for a, b in zip(new, WORD.findall(TEXT), strict=True)
        )
        seen |= {word.casefold() for word in new}
    assert seen <= {word.casefold() for word in beginnings(model)}
    assert len(seen) > 8


def test_a_request_gives_the_same_whatever_else_is_asked_and_seeds_differ(model):
    requests = [request(text=TEXT, seed=seed) for seed in range(4)]
    requests += [request(VERBOSITY, text=TEXT), request(CLARITY, text=TEXT, better=False)]
    together = filled(model, *requests)
    alone = [filled(model, each)[0] for each in requests]
    assert together == alone
    assert len({made.text for made in together}) >= 5


@pytest.mark.parametrize(
    "text",
    [*HOSTILE, "[MASK] <mask> says peace", "größe", "x" * 20_000, "good war is a thing " * 60],
)
def test_hostile_responses_are_data(model, text):
    (made,) = filled(model, request(text=text), share=0.001)
    if WORD.search(text):
        assert made.status is Status.changed
        assert made.text != text
        assert len(WORD.findall(made.text)) == len(WORD.findall(text))
    else:
        assert (made.status, made.text) == (Status.not_applicable, None)
        assert "no words" in made.note
