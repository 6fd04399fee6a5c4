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


@pytest.mark.parametrize("name", ["MFD.DIC"])
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


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("love\t1\n", "no header between two lines `%`; a LIWC file has a line `%`"),
        (
            "%\n1\ta\n2\tb\n%\nlove\t1\nwar\t2 3\n",
            r"line 6: '3' of 'war' is no category number of the header, which has 1, 2",
        ),
        ("%\n1\ta\nb\n%\nlove\t1\n", "line 3: 'b' is no number and category"),
        ("%\n1\ta\n2\ta\n%\nlove\t1\n", "line 3: the header names 2 or 'a' twice"),
    ],
)
def test_a_liwc_file_of_another_layout_is_refused_with_its_line(tmp_path, text, message):
    with pytest.raises(InputError, match=message):
        read_dictionary(written(tmp_path, text, "x.dic"))


# wide dictionaries, as LIWC-22 writes them


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "big2.csv",
            '"DicTerm","Care_Virtue","Care_Vice"\n"safe","X",NA\n"war",NA,"X"\n"common '
            'good","X",NA\n"null",NA,"X"\n',
        )
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


def test_a_cell_that_is_neither_marked_nor_empty_is_named(tmp_path):
    with pytest.raises(InputError, match=r"column 'B', row 2: '0.5' is neither X nor empty nor NA"):
        read_dictionary(written(tmp_path, "DicTerm,A,B\nlove,X,\nwar,,0.5\n", "x.dicx"))
