"""What people say about words, from packages and from files: layouts, units, and what is
refused."""

import numpy as np
import pandas as pd
import pytest

from pessimal.errors import InputError
from pessimal.tables.word_lists import add_half_sums, read_frequencies, read_lexicon, read_terms


def written(tmp_path, text: str, name: str = "list.csv"):
    file = tmp_path / name
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
    senses = [1.0, 1.0, 0.4, 0.8]  # of "great", as Pattern's authors rated them
    assert lexicon["great"] == pytest.approx(np.mean(senses))
    assert len(lexicon) == 1528


def test_a_file_of_ones_own_is_read_in_any_case_and_null_is_a_word(tmp_path):
    lexicon = read_lexicon(
        str(written(tmp_path, "word,valence,raters\n Love ,2.5,9\nnull,-1,9\nNA,0,9\n"))
    )
    assert lexicon.to_dict() == {"love": 2.5, "null": -1.0, "na": 0.0}
    assert lexicon.dtype == float


@pytest.mark.parametrize(
    ("text", "message"), [("word,score\nlove,1\n", "lacks the column valence")]
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


def test_a_list_of_ones_own_adds_a_words_rows_up(tmp_path):
    file = written(
        tmp_path, "word,pos,per_million\nLove,noun,60\nlove,verb,40\nrare,noun,0\nnull,noun,1\n"
    )
    frequencies = read_frequencies(str(file))
    zipf = frequencies.zipf(["null", "love", "rare", "unknown"])
    assert zipf[["null", "love"]].tolist() == pytest.approx([3.0, 5.0])
    assert zipf[["rare", "unknown"]].isna().all()
    assert len(frequencies.rows) == 4
    assert frequencies.source == "list.csv"


@pytest.mark.parametrize(
    ("text", "message"), [("word,count\nlove,1\n", "lacks the column per_million")]
)
def test_a_frequency_list_of_another_layout_is_refused(tmp_path, text, message):
    with pytest.raises(InputError, match=message):
        read_frequencies(str(written(tmp_path, text)))


# the British National Corpus list

BNC = (
    "\tWord\tPoS\tFreq\tRa\tDisp\n"
    "\t'60s\tNoC\t:\t12\t90\t0.90\n"
    "\tabandon\tVerb\t%\t44\t99\t0.96\n"
    "\t@\t@\tabandon\t12\t97\t0.95\n"
    "\t@\t@\tabandoned\t26\t99\t0.95\n"
    '\t"quoted\tAdj\t:\t3\t9\t0.50\n'
    "\tlove\tNoC\t:\t150\t100\t0.93\n"
    "\tlove\tVerb\t%\t124\t100\t0.94\n"
    "\t@\t@\tlove\t90\t100\t0.94\n"
    "\t@\t@\tloves\t34\t99\t0.92\n"
    "\tNULL\tNoC\t%\t7\t40\t0.80\n"
    "\tlove\tAdj\t%\t5\t40\t0.80\n"
    "\tcaf\xe9\tNoC\t:\t9\t95\t0.89\n"
    "\tnothing to see\n"
    "\n"
)


def test_the_bnc_list_is_read_as_it_is_given_out(tmp_path):
    (tmp_path / "1_1_all_alpha.txt").write_bytes(BNC.encode("latin-1"))
    frequencies = read_frequencies(str(tmp_path / "1_1_all_alpha.txt"))
    zipf = frequencies.zipf(
        ["abandon", "abandoned", "love", "loves", "null", "café", '"quoted', "@", "%"]
    )
    used = {
        "abandon": 12,
        "abandoned": 26,
        "love": 245,
        "loves": 34,
        "null": 7,
        "café": 9,
        '"quoted': 3,
    }
    assert (10 ** (zipf.dropna() - 3)).to_dict() == pytest.approx(used), "no form counts twice"
    assert frequencies.source == "1_1_all_alpha.txt (1 lines of another layout left out)"
    headwords = frequencies.rows.groupby("word")["per_million"].apply(list).to_dict()
    assert headwords["love"] == [150, 124, 5], (
        "the published join matches headwords, a lemma with its sum"
    )
    assert headwords["abandon"] == [44]
    assert headwords["NULL"] == [7], "the published join does not match capitals"
    assert "loves" not in headwords


# lists of terms


def test_the_token_intersection_is_read_beside_its_row_numbers(tmp_path):
    file = tmp_path / "token_intersection.csv"
    file.write_bytes(b',token_decoded\n0,\r\n1, love\n2,NA\n3,"\n"\n')
    assert read_terms(file).tolist() == ["\r", " love", "NA", "\n"]
    with pytest.raises(InputError, match="a column name, token_decoded or word"):
        read_terms(written(tmp_path, ",text\n0,love\n"))


def test_a_half_sum_is_measured_on_the_scale_of_one_prompt():
    words = pd.DataFrame({"good": [1.0, 2.0, 6.0], "bad": [-1.0, -4.0, -6.0], "x": [9.0, 0.0, 1.0]})
    outcomes, scales = add_half_sums(words, [("good", "bad")])
    assert outcomes["good × bad"].tolist() == [0, -1, 0]
    assert scales["good × bad"] == pytest.approx((words["good"].std(ddof=0) + scales["bad"]) / 2)
