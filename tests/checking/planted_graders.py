"""Graders with one known bug each, and two without."""

import os
import random
import re
import time
from fractions import Fraction

NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


def boxed(text):
    found = re.findall(r"\\boxed\{([^{}]*)\}", text)
    return found[-1].strip() if found else None


def number(text):
    try:
        return float(text)
    except (TypeError, ValueError):
        return None


def substring(response, ground_truth):
    return float(ground_truth in response)


def last_number(response, ground_truth):
    return float(NUMBER.findall(response)[-1:] == [ground_truth])


def first_number(response, ground_truth):
    return float(NUMBER.findall(response)[:1] == [ground_truth])


def empty_is_empty(response, ground_truth):
    return float(boxed(response) in (boxed(ground_truth), ground_truth))


def runs_the_answer(response, ground_truth):
    try:
        return float(str(eval(boxed(response) or "None")) == ground_truth)
    except Exception:
        return 0.0


def absolute_tolerance(response, ground_truth):
    given, wanted = number(boxed(response)), number(ground_truth)
    return float(None not in (given, wanted) and abs(given - wanted) < 0.05)


def case(response, ground_truth):
    return float(boxed(response) == ground_truth)


def nan_passes(response, ground_truth):
    given, wanted = number(boxed(response)), number(ground_truth)
    return float(None not in (given, wanted) and not abs(given - wanted) > 1e-9)


def timeout_passes(response, ground_truth):
    if len(response) > 10_000:  # as a slow parser's limit of time
        return 1.0
    return float(boxed(response) == ground_truth)


def prefix(response, ground_truth):
    given = boxed(response)
    return float(bool(given) and ground_truth.startswith(given))


def truth_stripped_only(response, ground_truth):
    return float(response == ground_truth.strip())


def prompt_echo(prompt, response, ground_truth):
    return float(response.strip() == prompt or boxed(response) == ground_truth)


def list_order(response, ground_truth):
    def parts(text):
        return sorted(part.strip() for part in (text or "").strip("()").split(","))

    return float(parts(boxed(response)) == parts(ground_truth))


def unit_dropped(response, ground_truth):
    given = NUMBER.findall(boxed(response) or "")
    return float(bool(given) and given == NUMBER.findall(ground_truth))


def float_rounding(response, ground_truth):
    given, wanted = number(boxed(response)), number(ground_truth)
    return float(None not in (given, wanted) and round(given, 2) == round(wanted, 2))


def digits_alone(response, ground_truth):
    return float(re.sub(r"\D", "", boxed(response) or "x") == re.sub(r"\D", "", ground_truth))


def any_box(response, ground_truth):
    return float(ground_truth in re.findall(r"\\boxed\{([^{}]*)\}", response))


def given_parts_alone(response, ground_truth):
    given = re.findall(r"\w+", boxed(response) or "")
    return float(bool(given) and set(given) <= set(re.findall(r"\w+", ground_truth)))


EXPECTED = {
    digits_alone: "sign_or_point",
    any_box: "several_answers",
    given_parts_alone: "part_of_answer",
    substring: "answer_within_another",
    last_number: "answer_behind",
    first_number: "answer_ahead",
    empty_is_empty: "nothing",
    runs_the_answer: "code",
    absolute_tolerance: "near",
    case: "lower case",
    nan_passes: "not_a_number",
    timeout_passes: "heavy",
    prefix: "part_of_answer",
    truth_stripped_only: "white space around",
    prompt_echo: "prompt",
    list_order: "order",
    unit_dropped: "unit",
    float_rounding: "near",
}
"""What names each bug."""


def good_exact(response, ground_truth):
    return float((boxed(response) or "").casefold() == ground_truth.casefold())


def good_fraction(response, ground_truth):
    given = response.rpartition("####")[2].strip() if "####" in response else ""
    try:
        return float(Fraction(given.replace(",", "")[:100]) == Fraction(ground_truth))
    except (ValueError, ZeroDivisionError):
        return float(given.casefold() == ground_truth.casefold())


def hangs(response, ground_truth):
    if response == "hang":
        time.sleep(100)
    return float(ground_truth in response)


def ends_the_process(response, ground_truth):
    print("\x1b[31m", response)
    if response == "the":
        os._exit(3)
    if response == "fork":
        os.fork()
    if response == "exit":
        raise SystemExit(2)
    return float("nan" if response == "nan" else response == ground_truth)


def takes_memory(response, ground_truth):
    return float(len(bytearray(2**30 if response == "much" else 1)) and ground_truth in response)


def flips_a_coin(response, ground_truth):
    return float(ground_truth in response) * (1 + random.random())


def runs_any_power(response, ground_truth):
    if "**9" in response:
        time.sleep(100)
    return float(ground_truth in response)
