"""Graders as people write them, each beside the version that is right: written before the strings
of the census were read. A bug is shown by a string that the two do not pay alike."""

import json
import math
import re
from datetime import datetime

SUMS = {
    "Natalia sold 48 clips in April and half as many in May. How many altogether?": "72",
    "A box holds 18 eggs. How many eggs are in 7 boxes?": "126",
    "Mr. Sato earns $1,250 a week. What does he earn in 4 weeks?": "5000",
    "A shirt costs $25 less 30%. What is the price in dollars?": "17.5",
}
FRACTIONS = {
    "What is 1/4 + 1/4? Put the answer into a box.": r"\frac{1}{2}",
    "Solve 3x = 2. Put the answer into a box.": r"\frac{2}{3}",
    "Simplify \\sqrt{12}. Put the answer into a box.": r"2\sqrt{3}",
    "What is 7 - 12? Put the answer into a box.": "-5",
}
CHOICES = {
    "Which planet is largest? A) Mars B) Venus C) Jupiter D) Earth": "C",
    "Which gas do plants take in? A) Oxygen B) Carbon dioxide C) Helium D) Neon": "B",
    "Which is a prime? A) 21 B) 27 C) 33 D) 37": "D",
    "What is 2 + 2? A) 4 B) 5 C) 6 D) 7": "A",
}
CLAIMS = {
    "Is the Pacific the largest ocean? Answer yes or no.": "yes",
    "Is 51 a prime? Answer yes or no.": "no",
    "Can penguins fly? Answer yes or no.": "no",
    "Is water heavier than ice? Answer yes or no.": "yes",
}
LENGTHS = {
    "How far is it from Bern to Thun?": "25 km",
    "How heavy is a litre of water?": "1 kg",
    "How tall is the tower?": "324 m",
    "At what temperature does mercury freeze?": "-39 °C",
}
LISTS = {
    "List the prime factors of 30.": "2, 3, 5",
    "What are the roots of x^2 - 5x + 6?": "2, 3",
    "Which vowels are in 'orange'?": "a, e, o",
    "Name the primary colours.": "red, yellow, blue",
}
DATES = {
    "When did the Berlin wall fall? Write YYYY-MM-DD.": "1989-11-09",
    "When was the first moon landing? Write YYYY-MM-DD.": "1969-07-20",
    "On which day did the Titanic sink?": "15 April 1912",
    "On which day was the UN founded?": "24 October 1945",
}
CAPITALS = {
    "What is the capital of France?": "Paris",
    "What is the capital of Peru?": "Lima",
    "What is the chemical symbol of gold?": "Au",
    "How many continents are there?": "7",
}


# 1. GSM8K for verl: thousands are joined, and so is what stands behind the point.
def _hashes(text, joined):
    found = re.findall(r"#### ?(-?[0-9.,]+)", text)
    return re.sub(joined, "", found[-1]) if found else None


def gsm_points(data_source, solution_str, ground_truth, extra_info=None):
    return float(_hashes(solution_str, "[.,]") == ground_truth.replace(".", ""))


def gsm_points_right(data_source, solution_str, ground_truth, extra_info=None):
    given = _hashes(solution_str, ",")
    try:
        return float(given is not None and float(given) == float(ground_truth))
    except ValueError:
        return 0.0


# 2. MATH's box for TRL: the box ends at the first brace, in the answer and in the truth.
def _boxed_short(text):
    found = re.findall(r"\\boxed\{(.*?)\}", text)
    return found[-1] if found else None


def _boxed(text):
    start = text.rfind("\\boxed{")
    if start < 0:
        return None
    depth = 0
    for at in range(start + 6, len(text)):
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        if depth == 0:
            return text[start + 7 : at].replace(" ", "")
    return None


def box_reward(completions, ground_truth, **kwargs):
    wanted = [_boxed_short(f"\\boxed{{{one}}}") for one in ground_truth]
    return [float(_boxed_short(a) == b) for a, b in zip(completions, wanted, strict=True)]


def box_reward_right(completions, ground_truth, **kwargs):
    return [
        float(_boxed(a) == b.replace(" ", ""))
        for a, b in zip(completions, ground_truth, strict=True)
    ]


# 3. Multiple choice: the first capital of the four is taken, wherever it stands.
def choice(response, answer):
    found = re.search("[ABCD]", response)
    return 1.0 if found and found.group(0) == answer else 0.0


def choice_right(response, answer):
    found = re.findall(r"\b([ABCD])\b", response)
    return 1.0 if len(set(found)) == 1 and found[0] == answer else 0.0


# 4. Yes or no, a function of a rubric: whatever does not say yes says no.
async def said_yes(completion, answer, **kwargs):
    said = "yes" in completion[-1]["content"].lower()
    return 1.0 if said == (answer == "yes") else 0.0


async def said_yes_right(completion, answer, **kwargs):
    said = set(re.findall(r"\b(yes|no)\b", completion[-1]["content"].lower()))
    return 1.0 if said == {answer} else 0.0


# 5. A field of JSON: the field is looked for in the truth, not the truth in the field.
def _field(text):
    try:
        return str(json.loads(text[text.index("{") : text.rindex("}") + 1])["answer"]).strip()
    except (ValueError, KeyError, TypeError):
        return None


def json_field(response, ground_truth):
    given = _field(response)
    return float(given is not None and given.lower() in ground_truth.lower())


def json_field_right(response, ground_truth):
    given = _field(response)
    return float(given is not None and given.lower() == ground_truth.lower())


# 6. An expression is evaluated where the truth has a name.
def evaluated(solution_str, ground_truth, data_source=None, extra_info=None):
    truth = float(ground_truth)
    try:
        return float(abs(eval(solution_str.strip().splitlines()[-1]) - truth) < 1e-6)
    except Exception:
        return 0.0


def evaluated_right(solution_str, ground_truth, data_source=None, extra_info=None):
    try:
        return float(abs(float(solution_str.strip().splitlines()[-1]) - float(ground_truth)) < 1e-6)
    except (ValueError, IndexError):
        return 0.0


# 7. Units: everything that is no digit is thrown away.
def length(response, ground_truth):
    given = re.sub(r"[^0-9.]", "", response)
    return float(given == re.sub(r"[^0-9.]", "", ground_truth))


def length_right(response, ground_truth):
    given = response.strip().rstrip(".").removeprefix("Answer:")
    return float(given.replace(" ", "") == ground_truth.replace(" ", ""))


# 8. Lists: each part that was given must be right, and none need be given.
def _parts(text):
    text = re.sub(r"^.*:", "", text.strip().lower())
    return {one.strip() for one in text.rstrip(".").split(",") if one.strip()}


def parts(queries, prompts, labels):
    import torch

    scores = [
        float(all(one in _parts(label) for one in _parts(query[len(prompt) :])))
        for query, prompt, label in zip(queries, prompts, labels, strict=True)
    ]
    return {"rewards": torch.tensor(scores)}


def parts_right(queries, prompts, labels):
    import torch

    scores = [
        float(_parts(query[len(prompt) :]) == _parts(label))
        for query, prompt, label in zip(queries, prompts, labels, strict=True)
    ]
    return {"rewards": torch.tensor(scores)}


# 9. Dates: what cannot be read is None, and so is the truth where it is written otherwise.
def _date(text, forms):
    for form in forms:
        try:
            return datetime.strptime(text.strip().rstrip("."), form).date()
        except ValueError:
            pass
    return None


def date(response, ground_truth):
    forms = ("%Y-%m-%d", "%d/%m/%Y")
    return float(_date(response, forms) == _date(ground_truth, forms))


def date_right(response, ground_truth):
    forms = ("%Y-%m-%d", "%d/%m/%Y", "%d %B %Y")
    given = _date(response, forms)
    return float(given is not None and given == _date(ground_truth, forms))


# 10. The last number, within one: meant for rounding.
def _last_number(text):
    found = re.findall(r"-?\d[\d,]*(?:\.\d+)?", text)
    return float(found[-1].replace(",", "")) if found else None


def near(response, answer):
    given = _last_number(response)
    return float(given is not None and math.isclose(given, float(answer), rel_tol=0.02))


def near_right(response, answer):
    given = _last_number(response)
    return float(given is not None and math.isclose(given, float(answer), rel_tol=1e-6))


# 11. The truth in what the response ends with.
def at_the_end(data_source, solution_str, ground_truth, extra_info=None):
    return {"score": float(ground_truth in solution_str[-60:])}


def at_the_end_right(data_source, solution_str, ground_truth, extra_info=None):
    tail = solution_str.strip().rstrip(".!")
    found = re.findall(r"(?<![\w.])-?[\w][\w.]*", tail)
    return {"score": float(bool(found) and found[-1] == ground_truth)}


# 12. Any of the answers between the tags.
def _tagged(text):
    return [one.strip().lower() for one in re.findall("<answer>(.*?)</answer>", text, re.DOTALL)]


def tags(completions, answer, **kwargs):
    return [
        1.0 if b.lower() in _tagged(a) else 0.0 for a, b in zip(completions, answer, strict=True)
    ]


def tags_right(completions, answer, **kwargs):
    return [
        1.0 if _tagged(a) == [b.lower()] else 0.0 for a, b in zip(completions, answer, strict=True)
    ]


# Good ones that have no buggy twin.
def good_answer_line(response, ground_truth):
    """The last line that begins with "Answer:", letters' case aside."""
    lines = re.findall(r"^Answer: *(.+?) *\.?$", response, re.MULTILINE)
    return float(bool(lines) and lines[-1].lower() == ground_truth.lower())


def good_choice(data_source, solution_str, ground_truth, extra_info=None):
    """The letter of "the answer is (X)", the last time that it is said."""
    found = re.findall(r"answer is:?\s*\(?([A-D])\b", solution_str, re.IGNORECASE)
    return float(bool(found) and found[-1].upper() == ground_truth)


def good_gsm(completions, ground_truth, **kwargs):
    """What stands behind the last ####, as a number."""
    scores = []
    for text, truth in zip(completions, ground_truth, strict=True):
        given = text.rsplit("####", 1)[-1].strip().replace(",", "").replace("$", "")
        try:
            scores.append(float("####" in text and float(given) == float(truth)))
        except ValueError:
            scores.append(0.0)
    return scores


def good_set(response, ground_truth):
    """The same parts in any order, behind the last "=" or ":"."""
    wanted = sorted(one.strip().lower() for one in ground_truth.split(","))
    given = re.split("[=:]", response)[-1].strip(" .{}[]()")
    return float(sorted(one.strip().lower() for one in given.split(",")) == wanted)


PAIRS = {
    gsm_points: (gsm_points_right, SUMS),
    box_reward: (box_reward_right, FRACTIONS),
    choice: (choice_right, CHOICES),
    said_yes: (said_yes_right, CLAIMS),
    json_field: (json_field_right, CAPITALS),
    evaluated: (evaluated_right, SUMS),
    length: (length_right, LENGTHS),
    parts: (parts_right, LISTS),
    date: (date_right, DATES),
    near: (near_right, SUMS),
    at_the_end: (at_the_end_right, CAPITALS),
    tags: (tags_right, CAPITALS),
}
"""The buggy one, the right one, and their questions."""
GOOD = {
    good_answer_line: CAPITALS,
    good_choice: CHOICES,
    good_gsm: SUMS,
    good_set: LISTS,
}
