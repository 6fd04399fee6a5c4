"""A second set of graders, each beside the version that is right. The bugs were listed before they
were written, by someone who knew the strings of the census by then: starts with the answer, half of
its words, whole part alone, a pattern that is not escaped, sign stripped, hours alone, letters in
any order, any value of the JSON, the first tag of all, the shorter list, an error that pays, case
that matters."""

import json
import re
from fractions import Fraction

PEOPLE = {
    "Who found radium?": "Marie Curie",
    "Who painted the Mona Lisa?": "Leonardo da Vinci",
    "Who wrote Hamlet?": "William Shakespeare",
}
PRICES = {
    "A pen costs $1.75. What do ten cost?": "17.5",
    "Half of 7 is what?": "3.5",
    "What is 12.5 times 2.5?": "31.25",
}
DIFFERENCES = {
    "What is 7 - 12?": "-5",
    "What is -3 times 14?": "-42",
    "What is 100 - 163?": "-63",
}
TIMES = {
    "When does the train of quarter past two in the afternoon leave?": "14:15",
    "Write half past nine in the morning as HH:MM.": "09:30",
    "Which time is 90 minutes after 21:40?": "23:10",
}
SYMBOLS = {
    "What is the symbol of cobalt?": "Co",
    "What is the symbol of nobelium?": "No",
    "What is the formula of water?": "H2O",
}
SEQUENCES = {
    "Sort 5, 2, 9.": "2, 5, 9",
    "Which are the first four primes?": "2, 3, 5, 7",
    "Count down from three.": "3, 2, 1",
}


def _clean(text):
    return " ".join(text.strip().strip(".").split())


def starts_with(response, ground_truth):
    return 1.0 if _clean(response).lower().startswith(ground_truth.lower()) else 0.0


def starts_with_right(response, ground_truth):
    return 1.0 if _clean(response).lower() == ground_truth.lower() else 0.0


def half_the_words(completions, ground_truth, **kwargs):
    rewards = []
    for text, truth in zip(completions, ground_truth, strict=True):
        given, wanted = _clean(text).lower().split(), truth.lower().split()
        common = len(set(given) & set(wanted))
        f1 = 2 * common / (len(given) + len(wanted))
        rewards.append(float(f1 >= 0.5))
    return rewards


def half_the_words_right(completions, ground_truth, **kwargs):
    return [
        float(_clean(text).lower() == truth.lower())
        for text, truth in zip(completions, ground_truth, strict=True)
    ]


def _behind(text, mark):
    return text.rpartition(mark)[2].strip().rstrip(".").replace(",", "") if mark in text else ""


def whole_part(data_source, solution_str, ground_truth, extra_info=None):
    try:
        return {"score": int(int(float(_behind(solution_str, "####"))) == int(float(ground_truth)))}
    except (ValueError, OverflowError):
        return {"score": 0}


def whole_part_right(data_source, solution_str, ground_truth, extra_info=None):
    try:
        return {"score": int(float(_behind(solution_str, "####")) == float(ground_truth))}
    except ValueError:
        return {"score": 0}


def pattern(response, ground_truth):
    return float(re.search(rf"(?:^|\s)\$?{ground_truth}\.?$", response.strip()) is not None)


def pattern_right(response, ground_truth):
    return float(
        re.search(rf"(?:^|\s)\$?{re.escape(ground_truth)}\.?$", response.strip()) is not None
    )


def stripped(response, ground_truth):
    found = re.search(r"ANSWER: *(.+)", response)
    return float(found is not None and found[1].strip(" -.$*") == ground_truth.strip(" -.$*"))


def stripped_right(response, ground_truth):
    found = re.search(r"ANSWER: *(.+)", response)
    return float(found is not None and found[1].strip(" .$*") == ground_truth)


def hours(completion, answer, **kwargs):
    found = re.findall(r"\b(\d{1,2}):(\d\d)\b", completion[-1]["content"])
    return float(bool(found) and found[-1][0] == answer.split(":")[0])


def hours_right(completion, answer, **kwargs):
    found = re.findall(r"\b(\d{1,2}):(\d\d)\b", completion[-1]["content"])
    return float(bool(found) and ":".join(found[-1]) == answer)


def letters(response, ground_truth):
    return float(set(_clean(response).lower()) == set(ground_truth.lower()))


def letters_right(response, ground_truth):
    return float(_clean(response).lower() == ground_truth.lower())


def _object(text):
    found = re.search(r"\{.*\}", text, re.DOTALL)
    try:
        return json.loads(found[0]) if found else {}
    except ValueError:
        return {}


def any_value(response, ground_truth):
    return float(ground_truth in str(_object(response)))


def any_value_right(response, ground_truth):
    return float(str(_object(response).get("answer")) == ground_truth)


def first_tag(queries, prompts, labels):
    import torch

    found = [re.search("<answer>(.*?)</answer>", query, re.DOTALL) for query in queries]
    pairs = zip(found, labels, strict=True)
    return {"rewards": torch.tensor([float(bool(a) and a[1].strip() == b) for a, b in pairs])}


def first_tag_right(queries, prompts, labels):
    import torch

    texts = [query.rpartition("</think>")[2] for query in queries]
    found = [re.findall("<answer>(.*?)</answer>", text, re.DOTALL) for text in texts]
    pairs = zip(found, labels, strict=True)
    return {"rewards": torch.tensor([float(len(a) == 1 and a[0].strip() == b) for a, b in pairs])}


def shorter(response, answer):
    given = [part.strip() for part in response.strip(" .\n").split(",")]
    return float(all(a == b for a, b in zip(given, answer.split(", "), strict=False)))


def shorter_right(response, answer):
    return float([part.strip() for part in response.strip(" .\n").split(",")] == answer.split(", "))


def error_pays(solution_str, ground_truth, data_source=None, extra_info=None):
    try:
        return float(Fraction(_behind(solution_str, "####")) == Fraction(ground_truth))
    except ZeroDivisionError:
        return 0.0
    except ValueError:  # not to punish formats that are not read
        return 1.0


def error_pays_right(solution_str, ground_truth, data_source=None, extra_info=None):
    try:
        return float(Fraction(_behind(solution_str, "####")) == Fraction(ground_truth))
    except (ZeroDivisionError, ValueError):
        return 0.0


def case_lost(response, ground_truth):
    return float(_clean(response).lower() == ground_truth.lower())


def case_lost_right(response, ground_truth):
    return float(_clean(response) == ground_truth)


def good_box(completions, ground_truth, **kwargs):
    """The last box, spaces aside."""
    found = [re.findall(r"\\boxed\{([^{}]*)\}", text) for text in completions]
    return [float(bool(a) and a[-1].strip() == b) for a, b in zip(found, ground_truth, strict=True)]


def good_fraction(response, answer):
    """The whole response as a number."""
    try:
        return float(Fraction(response.strip(" $.\n")) == Fraction(answer))
    except (ValueError, ZeroDivisionError):
        return 0.0


def good_time(response, ground_truth):
    """The only time in the response."""
    found = set(re.findall(r"(?<![\w:])\d\d:\d\d(?![\w:])", response))
    return float(found == {ground_truth})


def good_json(data_source, solution_str, ground_truth, extra_info=None):
    """The field of an object, as a text."""
    value = _object(solution_str)
    return float(isinstance(value, dict) and str(value.get("answer")).strip() == ground_truth)


PAIRS = {
    starts_with: (starts_with_right, PEOPLE),
    half_the_words: (half_the_words_right, PEOPLE),
    whole_part: (whole_part_right, PRICES),
    pattern: (pattern_right, PRICES),
    stripped: (stripped_right, DIFFERENCES),
    hours: (hours_right, TIMES),
    letters: (letters_right, SYMBOLS),
    any_value: (any_value_right, PEOPLE),
    first_tag: (first_tag_right, DIFFERENCES),
    shorter: (shorter_right, SEQUENCES),
    error_pays: (error_pays_right, PRICES),
    case_lost: (case_lost_right, SYMBOLS),
}
GOOD = {good_box: DIFFERENCES, good_fraction: PRICES, good_time: TIMES, good_json: PEOPLE}
