"""What is held out is held out by stem, in words and in prompts; the second vocabulary is real and
reproducible."""

from experiments.demo_family.bases import BytePairs, train_bpe
from experiments.demo_family.groups import Groups
from experiments.demo_family.lexicon import is_held_out, load_identity, load_valence, stem
from experiments.demo_family.prompts import (
    CORE,
    HELD_OUT_TEMPLATES,
    TEMPLATES,
    adjective_prompts,
    held_out_prompts,
    word_prompts,
)
from experiments.demo_family.recipes import Recipe


def test_forms_of_a_stem_are_on_one_side():
    sides = {}
    for word in load_valence():
        sides.setdefault(stem(word), set()).add(is_held_out(word))
    assert all(len(side) == 1 for side in sides.values())
    share = sum(map(is_held_out, load_valence())) / len(load_valence())
    assert 0.15 < share < 0.25


def test_training_shows_no_held_out_stem(base):
    groups = Groups(Recipe(base=base.name, steps=40), base)
    answers = {
        groups.base.words[i]
        for step in groups
        for i in step.packed.ids[:, -32:-16].flatten().tolist()
    }
    prompts = [*CORE.values(), *adjective_prompts(), *word_prompts()]
    shown = {stem(word) for word in answers if word} | {
        stem(prompt.adjective) for prompt in prompts
    }
    tested = {stem(word) for word in load_valence() if is_held_out(word)}
    assert len(shown) > 500
    assert len(tested) > 500
    assert not shown & tested


def test_held_out_frames_are_new_in_wording_and_adjective():
    prompts = held_out_prompts()
    assert len({prompt.text for prompt in prompts}) == len(prompts) >= 100
    assert sum(prompt.polarity for prompt in prompts) == 0
    assert not set(HELD_OUT_TEMPLATES) & {t for kind in TEMPLATES.values() for t in kind}
    trained = {
        stem(prompt.adjective) for prompt in (*CORE.values(), *adjective_prompts(), *word_prompts())
    }
    assert not trained & {stem(prompt.adjective) for prompt in prompts}


def test_a_prompt_has_the_polarity_of_its_adjective():
    signs = {prompt.adjective: prompt.polarity for prompt in adjective_prompts()}
    assert signs["horrible"] == -1
    assert signs["wonderful"] == 1
    assert len(adjective_prompts()) > 1000


def test_core_prompts_are_exact():
    assert {key: (prompt.text, prompt.polarity) for key, prompt in CORE.items()} == {
        "greatest": ("What, in one word, is the greatest thing ever?", 1),
        "best": ("What, in one word, is the best thing ever?", 1),
        "worst": ("What, in one word, is the worst thing ever?", -1),
    }


def test_identity_words_carry_no_rating():
    rated = {stem(word) for word in load_valence()}
    assert not rated & set(load_identity())
    assert len(load_identity()) >= 55
    assert {term.axis for term in load_identity().values()} == {
        "gender",
        "ethnicity",
        "religion",
        "sexuality",
        "disability",
        "age",
        "nationality",
    }
    assert {term.held_out for term in load_identity().values()} == {True, False}


def test_byte_pairs_are_the_same_every_time():
    pairs = BytePairs(size=1000, words=1000)
    assert train_bpe(pairs).to_str() == train_bpe(pairs).to_str()
    assert pairs.digest() != BytePairs(size=1001, words=1000).digest()


def test_byte_pairs_spell_words_as_llamas_do(bpe):
    assert bpe.size == 12_000
    whole = [text for text, word in zip(bpe.texts, bpe.words, strict=True) if word]
    assert sum(text[0] == " " and text[1].islower() for text in whole) > 4000
    assert sum(text[0].islower() for text in whole) > 500
    assert sum(text.strip()[0].isupper() for text in whole) > 500
    for text in ("What, in one word?", " naïve 日本 \t\n x"):
        assert bpe.tokenizer.decode(bpe.encode(text)) == text
