"""Dictionaries of words under categories, from files: layouts, and what is refused."""

from pathlib import Path

import pytest

from experiments.inherited_values.word_categories import read_dictionary
from pessimal.errors import InputError


def written(tmp_path, text: str, name: str = "list.csv") -> Path:
    file = tmp_path / name
    file.write_text(text, encoding="utf-8")
    return file


# dictionaries


def test_a_dictionary_keeps_a_word_under_each_of_its_categories(tmp_path):
    file = written(
        tmp_path, "Category,Word\nCare, love \nLoyalty,love\nCare,love\nCare,null\nCare,\n"
    )
    found = read_dictionary(file)
    assert found.to_dict("list") == {
        "category": ["Care", "Loyalty", "Care"],
        "word": ["love", "love", "null"],
    }


def test_the_published_big_two_dictionary_is_read(shared_data):
    found = read_dictionary(shared_data / "big_two" / "dict_big2_nouns.csv")
    assert found["category"].value_counts().to_dict() == {"Communion": 159, "Agency": 104}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "category,term\na,love\n",
            "has the columns category, term; a dictionary has category and word",
        ),
        ("kind,word\na,love\n", "a dictionary has category and word"),
        ("category,word\na,love\na,hate\n", "has 1 category; at least two are compared"),
    ],
)
def test_a_dictionary_of_another_layout_is_refused(tmp_path, text, message):
    with pytest.raises(InputError, match=message):
        read_dictionary(written(tmp_path, text))


def test_a_missing_dictionary_is_named(tmp_path):
    with pytest.raises(InputError, match="there is no dictionary"):
        read_dictionary(tmp_path / "nowhere.csv")


def test_an_empty_word_stands_under_no_category(tmp_path):
    assert read_dictionary(written(tmp_path, "category,word\na,x\nb,y\nb, \n"))[
        "word"
    ].tolist() == ["x", "y"]


# wildcards


def test_an_asterisk_at_the_end_is_kept_and_one_elsewhere_refused(tmp_path):
    assert read_dictionary(written(tmp_path, "category,word\na,safe*\nb,harm\n"))[
        "word"
    ].tolist() == ["safe*", "harm"]
    for wrong in ("sa*fe", "*safe", "*", "safe**"):
        with pytest.raises(
            InputError, match=r"has an asterisk that is not the end of a word; write safe\*"
        ):
            read_dictionary(written(tmp_path, f"category,word\na,{wrong}\nb,harm\n"))


# LIWC files

FOUNDATIONS = """%
01\tHarmVirtue
02\tHarmVice
11\tMoralityGeneral
12\tNobodysCategory
%

safe*\t01
 preserve \t\t1 11
war\t02\t
common good\t11
catch 22\t02
null\t02
safe*\t01
"""


@pytest.mark.parametrize("name", ["mfd.dic", "MFD.DIC"])
def test_a_liwc_file_is_read_by_its_ending(tmp_path, name):
    found = read_dictionary(written(tmp_path, FOUNDATIONS, name))
    assert list(found.itertuples(index=False, name=None)) == [
        ("HarmVirtue", "safe*"),
        ("HarmVirtue", "preserve"),
        ("MoralityGeneral", "preserve"),
        ("HarmVice", "war"),
        ("MoralityGeneral", "common good"),
        ("HarmVice", "catch 22"),
        ("HarmVice", "null"),
    ]


def test_spaces_may_stand_for_tabs_and_a_byte_order_mark_ahead(tmp_path):
    text = "\ufeff%\r\n1  Care virtue\r\n2 Harm\r\n%\r\nsafe*    1\r\ncommon good 1  2\r\n"
    found = read_dictionary(written(tmp_path, text, "mfd.dic"))
    assert list(found.itertuples(index=False, name=None)) == [
        ("Care virtue", "safe*"),
        ("Care virtue", "common good"),
        ("Harm", "common good"),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("love\t1\n", "no header between two lines `%`; a LIWC file has a line `%`"),
        ("%\n1\ta\n2\tb\nlove\t1\n", "no header between two lines `%`"),
        ("category,word\na,b\n%\n1\ta\n%\n", "no header between two lines `%`"),
        (
            "%\n1\ta\n2\tb\n%\nlove\t1\nwar\t2 3\n",
            r"line 6: '3' of 'war' is no category number of the header, which has 1, 2",
        ),
        ("%\n1\ta\n2\tb\n%\nlike\t(02 134)\n", r"line 5: '\(02' of 'like' is no category number"),
        ("%\n1\ta\n2\tb\n%\n\nlove\n", "line 6: 'love' has no category number"),
        ("%\n1\ta\nb\n%\nlove\t1\n", "line 3: 'b' is no number and category"),
        ("%\n1\ta\n01\tb\n%\nlove\t1\n", "line 3: the header names 01 or 'b' twice"),
        ("%\n1\ta\n2\ta\n%\nlove\t1\n", "line 3: the header names 2 or 'a' twice"),
        ("%\n1\ta\n2\tb\n%\nlove\t1\n", "has 1 category; at least two are compared"),
        ("%\n1\ta\n%\nlove\t1\n", "has 1 category; at least two are compared"),
        ("%\n1\ta\n2\tb\n%\n", "has 0 category"),
        ("%\n1\ta\n2\tb\n%\nlo*ve\t1\nwar\t2\n", "asterisk that is not the end"),
    ],
)
def test_a_liwc_file_of_another_layout_is_refused_with_its_line(tmp_path, text, message):
    with pytest.raises(InputError, match=message):
        read_dictionary(written(tmp_path, text, "x.dic"))


def test_a_liwc_file_that_is_not_utf8_says_so(tmp_path):
    file = tmp_path / "x.dic"
    file.write_bytes("%\n1\ta\n2\tb\n%\ncafé\t1\nwar\t2\n".encode("latin-1"))
    with pytest.raises(InputError, match="is not UTF-8 text"):
        read_dictionary(file)


# wide dictionaries, as LIWC-22 writes them


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "mfd.dicx",
            "DicTerm,Care_Virtue,Care_Vice\nsafe,X,\nwar,,X\ncommon good,X,\nnull,,X\nsafe,X,\n",
        ),
        (
            "big2.csv",
            '"DicTerm","Care_Virtue","Care_Vice"\n"safe","X",NA\n"war",NA,"X"\n"common '
            'good","X",NA\n"null",NA,"X"\n',
        ),
    ],
)
def test_a_wide_dictionary_has_a_category_in_each_column(tmp_path, name, text):
    found = read_dictionary(written(tmp_path, text, name))
    assert list(found.itertuples(index=False, name=None)) == [
        ("Care_Virtue", "safe"),
        ("Care_Vice", "war"),
        ("Care_Virtue", "common good"),
        ("Care_Vice", "null"),
    ]


def test_a_word_of_two_columns_stands_under_both(tmp_path):
    found = read_dictionary(written(tmp_path, "DicTerm,A,B\nlove,X,X\nwar,,X\n", "x.dicx"))
    assert list(found.itertuples(index=False, name=None)) == [
        ("A", "love"),
        ("B", "love"),
        ("B", "war"),
    ]


def test_a_cell_that_is_neither_marked_nor_empty_is_named(tmp_path):
    with pytest.raises(InputError, match=r"column 'B', row 2: '0.5' is neither X nor empty nor NA"):
        read_dictionary(written(tmp_path, "DicTerm,A,B\nlove,X,\nwar,,0.5\n", "x.dicx"))
