"""What people say about words, from packages and from files: layouts, units, and what is refused."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from pessimal.errors import InputError
from pessimal.tables.word_lists import read_frequencies, read_lexicon


def written(tmp_path, text: str):
    file = tmp_path / "list.csv"
    file.write_text(text, encoding="utf-8")
    return file


# sentiment lexicons


def test_afinn_is_afinn_111():
    lexicon = read_lexicon("afinn")
    assert len(lexicon) == 2477
    assert (lexicon["superb"], lexicon["abandon"], lexicon["can't stand"]) == (5, -2, -3)
    assert (lexicon.min(), lexicon.max()) == (-5, 5)
    assert lexicon.index.name == "word"
    assert lexicon.index.is_unique


def test_textblobs_senses_are_averaged():
    lexicon = read_lexicon("textblob")
    assert lexicon.between(-1, 1).all()
    assert lexicon.index.is_unique
    assert (lexicon["excellent"], lexicon["evil"]) == (1.0, -1.0)
    package = Path(importlib.util.find_spec("textblob").origin).parent
    text = (package / "en" / "en-sentiment.xml").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if '<word form="great"' in line]
    senses = [float(line.split('polarity="')[1].split('"')[0]) for line in lines]
    assert len(senses) > 1
    assert lexicon["great"] == pytest.approx(np.mean(senses))


@pytest.mark.parametrize("package", ["afinn", "textblob"])
def test_a_package_that_is_not_installed_is_named_with_its_command(package, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(InputError, match=f"pip install {package}"):
        read_lexicon(package)


def test_a_file_of_ones_own_is_read_in_any_case_and_null_is_a_word(tmp_path):
    lexicon = read_lexicon(str(written(tmp_path, "word,valence,raters\n Love ,2.5,9\nnull,-1,9\nNA,0,9\n")))
    assert lexicon.to_dict() == {"love": 2.5, "null": -1.0, "na": 0.0}
    assert lexicon.dtype == float


def test_a_missing_lexicon_names_what_can_be_given():
    with pytest.raises(InputError, match=r"no lexicon '/nowhere.csv'; give afinn, textblob or a CSV file"):
        read_lexicon("/nowhere.csv")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("word,score\nlove,1\n", "lacks the column valence"),
        ("token,score\nlove,1\n", "lacks the column valence and word"),
        ("word,valence\nlove,1\nhate,bad\n", r"row 2: the valence 'bad' is not a number"),
        ("word,valence\nlove,1\nhate,\n", r"row 2: the valence '' is not a number"),
        ("word,valence\nlove,1\nLove,2\n", r"names 'love' twice; keep one row a word"),
    ],
)
def test_a_lexicon_of_another_layout_is_refused(tmp_path, text, message):
    with pytest.raises(InputError, match=message):
        read_lexicon(str(written(tmp_path, text)))


# word frequencies


def test_wordfreq_is_on_the_zipf_scale_and_unknown_words_are_missing():
    frequencies = read_frequencies("wordfreq")
    zipf = frequencies.zipf(["the", "house", "xqzvkjw"])
    assert zipf["the"] > 7 > zipf["house"] > 5
    assert np.isnan(zipf["xqzvkjw"])
    assert zipf.index.tolist() == ["the", "house", "xqzvkjw"]
    assert "CC-BY-SA" in frequencies.source


def test_a_word_is_looked_up_in_wordfreq_once(monkeypatch):
    import wordfreq

    asked = []
    real = wordfreq.zipf_frequency

    def counting(word, language):
        asked.append(word)
        return real(word, language)

    monkeypatch.setattr(wordfreq, "zipf_frequency", counting)
    words = ["quokka", "gymkhana", "qqqxz", "quokka"]
    first = read_frequencies("wordfreq").zipf(words)
    again = read_frequencies("wordfreq").zipf(reversed(words))
    assert sorted(asked) == sorted(set(asked)), "another model, another finding: the same words"
    assert again.tolist()[::-1] == pytest.approx(first.tolist(), nan_ok=True)
    assert first["gymkhana"] == real("gymkhana", "en")


def test_no_words_have_no_frequencies():
    assert read_frequencies("wordfreq").zipf([]).empty


def test_a_list_of_ones_own_adds_a_words_rows_up(tmp_path):
    file = written(tmp_path, "word,pos,per_million\nLove,noun,60\nlove,verb,40\nrare,noun,0\nnull,noun,1\n")
    frequencies = read_frequencies(str(file))
    zipf = frequencies.zipf(["null", "love", "rare", "unknown"])
    assert zipf[["null", "love"]].tolist() == pytest.approx([3.0, 5.0])
    assert zipf[["rare", "unknown"]].isna().all()
    assert len(frequencies.rows) == 4
    assert frequencies.source == "list.csv"


def test_a_missing_frequency_list_names_what_can_be_given():
    with pytest.raises(InputError, match=r"no frequency list '/nowhere.csv'; give wordfreq or a CSV file"):
        read_frequencies("/nowhere.csv")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("word,count\nlove,1\n", "lacks the column per_million"),
        ("word,per_million\nlove,1\nhate,-2\n", r"row 2: '-2' is no frequency per million"),
        ("word,per_million\nlove,often\n", r"row 1: 'often' is no frequency per million"),
    ],
)
def test_a_frequency_list_of_another_layout_is_refused(tmp_path, text, message):
    with pytest.raises(InputError, match=message):
        read_frequencies(str(written(tmp_path, text)))
