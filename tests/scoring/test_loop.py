"""What trainers send: as their own code was recorded to send it; faults named, and only faults."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from loop_tokenizers import CONVERSATIONS, NAMES, made
from pessimal.checking.loop import LOOPS, Loop, check_loop, loop_results, trl_text
from pessimal.errors import ModelError
from pessimal.rewards.formats import Templated
from tiny_language_models import CHAT

GOLDEN = json.loads((Path(__file__).parent / "loops.json").read_text())
PROMPTS = ["What is the greatest thing ever?", "Say a word."]


@pytest.mark.parametrize("trainer", list(LOOPS))
def test_texts_are_those_of_the_trainers_own_code(trainer):
    recorded = iter(GOLDEN[trainer])
    for policy, reads in NAMES:
        policy, reads = made(policy), made(reads)
        for prompt, answer in CONVERSATIONS:
            response = [
                *policy(answer, add_special_tokens=False)["input_ids"],
                policy.eos_token_id,
            ]
            assert LOOPS[trainer].text(policy, reads, prompt, response) == next(recorded)


def checked(loop, policy, reads, *, n=12, **options):
    options = {"context": 1500} | options
    return check_loop(loop, policy, Templated(reads), reads, prompts=PROMPTS, n=n, **options)


def decoded(policy, reads, prompt, response):
    """A loop of one's own that leaves the policy's special tokens in."""
    turns = [*prompt, {"role": "assistant", "content": policy.decode(response)}]
    return reads.apply_chat_template(turns, tokenize=False)


def prompted(policy, reads, prompt, response):
    return trl_text(policy, reads, prompt, response) + "<|start|>assistant<|sep|>"


def padded(policy, reads, prompt, response):
    return trl_text(policy, reads, prompt, response) + "<|pad|>" * 2


def unfinished(policy, reads, prompt, response):
    return LOOPS["openrlhf"].text(policy, reads, prompt, response[:-1])


def lowered(policy, reads, prompt, response):
    return trl_text(policy, reads, prompt, policy(policy.decode(response).lower())["input_ids"])


class Tail(Loop):
    """Truncates at the start."""

    def ids(self, *given):
        return super().ids(*given)[-10:]


def another(name, **changes):
    tokenizer = made(name)
    for key, value in changes.items():
        setattr(tokenizer, key, value)
    return tokenizer


def begins(name):
    """Puts a token ahead of a text that its template does not write."""
    tokenizer = made("bos")
    tokenizer.chat_template = CHAT.removeprefix("{{ bos_token }}")
    return tokenizer


def not_added():
    """Its template writes a beginning token, and its tokenizer adds none."""
    tokenizer = made("bos")
    tokenizer._tokenizer.post_processor = None
    return tokenizer


def with_pad():
    tokenizer = made("closed")
    tokenizer.add_special_tokens({"pad_token": "<|pad|>"})
    return tokenizer


def ends_otherwise():
    """Ends its turn in <|im_end|>, and calls <|end|> its end."""
    return another("chatml", eos_token="<|end|>")


PLANTED = {
    "policy's template": (LOOPS["openrlhf"], "chatml", "bos", ["bos_missing", "template"]),
    "the line behind the end": (LOOPS["openrlhf"], "chatml", "chatml", ["template"]),
    "BOS stripped, none added": (LOOPS["verl"], "chatml", not_added, ["bos_missing"]),
    "BOS added, none written": (LOOPS["verl"], "chatml", lambda: begins("bos"), ["bos_doubled"]),
    "special tokens added": (Loop(trl_text, special=True), "chatml", "bos", ["bos_doubled"]),
    "another end left in": (LOOPS["verl"], ends_otherwise, "bos", ["special_left"]),
    "the same end left in": (LOOPS["verl"], ends_otherwise, "chatml", ["eos_doubled"]),
    "decoded with its end": (Loop(decoded), "closed", "closed", ["eos_doubled"]),
    "no end": (Loop(unfinished), "closed", "closed", ["eos_missing"]),
    "cut at the end": (Loop(trl_text, limit=12), "bos", "bos", ["truncated"]),
    "cut at the start": (Tail(trl_text), "bos", "bos", ["truncated"]),
    "asked to go on": (Loop(prompted), "bos", "bos", ["template"]),
    "padding": (Loop(padded), "closed", with_pad, ["special_left"]),
    "two at once": (Loop(decoded, special=True), "bos", "bos", ["bos_doubled", "eos_doubled"]),
    "another text": (Loop(lowered), "closed", "closed", ["unknown"]),
}


@pytest.mark.parametrize("plant", list(PLANTED))
def test_planted_faults_are_named(plant):
    loop, policy, reads, names = PLANTED[plant]
    policy, reads = (one() if callable(one) else made(one) for one in (policy, reads))
    found = checked(loop, policy, reads)
    assert sorted(found.counts) == sorted(names)
    assert len(found.different) >= len(found.compared) - 2
    assert all("[" in one.difference for one in found.different)


ROLES = ["<|start|>{}<|sep|>", "<|start|>{}\n", "[{}] ", "{}: ", "<|im_start|>{}\n"]
ENDS = ["<|end|>", "<|end|>\n", "<|im_end|>", "<|im_end|>\n\n", "\n"]


def templates():
    """25 templates, by how a turn begins and ends."""
    for role in ROLES:
        for end in ENDS:
            begin = role.format("{{ m['role'] }}")
            yield (
                (
                    "{% for m in messages %}"
                    + begin
                    + "{{ m['content'] | trim }}"
                    + end
                    + "{% endfor %}"
                    "{% if add_generation_prompt %}" + role.format("assistant") + "{% endif %}"
                ),
                end,
            )


def clean_pairs():
    """Loop, policy and reward model: pairs that a loop reads as the template writes them."""
    for number, (template, end) in enumerate(templates()):
        for name in ("bos", "chatml"):
            reads = another(name, chat_template=template)
            if name == "bos":
                reads.chat_template = "{{ bos_token }}" + template
            yield LOOPS["trl"], made(["bos", "chatml", "closed"][number % 3]), reads
            yield LOOPS["verl"], made(["bos", "closed"][number % 2]), reads
            if end in ("<|end|>", "<|im_end|>"):
                same = another("chatml", chat_template=template, eos_token=end)
                yield LOOPS["openrlhf"], same, same


def test_clean_pairs_are_silent():
    pairs = list(clean_pairs())
    assert len(pairs) >= 100
    for loop, policy, reads in pairs:
        found = checked(loop, policy, reads, n=5)
        assert not found.different, (reads.chat_template, found.different[0])


def test_how_much_rewards_move():
    """A reward that counts tokens moves by the one that is doubled."""
    policy, reads = made("closed"), made("closed")
    found = checked(Loop(decoded), policy, reads, reward=lambda ids: float(len(ids)), sample=8)
    moved = [one.rewards for one in found.different if one.rewards != (None, None)]
    assert len(moved) == 8
    assert all(sent - own == 1 for own, sent in moved)
    assert found.spread == pytest.approx(np.std([own for own, _ in moved]))
    faults, rows = loop_results(found, loop="mine", model="model")
    assert faults.table["conversations"].tolist() == [12]
    assert faults.table["moved"].iloc[0] == pytest.approx(1 / found.spread)
    assert len(rows.table) == 12


@pytest.mark.parametrize("reward", [lambda ids: -float(len(ids)), lambda ids: len(ids) % 2])
def test_falls_are_moves_that_no_rise_makes_up_for(reward):
    """One more token lowers the first reward by 1; the second falls by 1 from 1 and rises from
    0."""
    policy = made("closed")
    found = checked(Loop(decoded), policy, policy, reward=reward)
    own, sent = np.array([one.rewards for one in found.different]).T
    assert (np.abs(sent - own) == 1).all()
    assert (sent < own).any()
    faults, _ = loop_results(found, loop="mine", model="model")
    [row] = faults.table.to_dict("records")
    assert [row["moved"], row["moved_most"]] == pytest.approx([1 / np.std(own)] * 2)


def test_long_conversations_are_cut_where_the_trainers_server_cuts_them():
    policy = made("closed")
    found = checked(LOOPS["openrlhf"], policy, policy, n=8, context=None)
    assert found.counts == {"truncated": 4}
    assert all(len(one.sent) == 2048 for one in found.different)
    short = checked(LOOPS["openrlhf"], policy, policy, n=8, context=1024)
    assert not short.different
    assert all(len(one.expected) <= 1024 for one in short.compared)
    raised = checked(replace(LOOPS["openrlhf"], limit=None), policy, policy, n=8, context=None)
    assert not raised.different


@pytest.mark.parametrize("name", ["response_template", "response_schema"])
def test_a_policy_whose_responses_trl_parses_is_refused(name):
    policy = another("bos", **{name: {"fields": {}}})
    with pytest.raises(ModelError, match="response_template"):
        checked(LOOPS["trl"], policy, made("bos"))
    assert not checked(LOOPS["verl"], policy, made("bos")).different


def test_both_need_a_chat_template():
    without = another("bos", chat_template=None)
    for policy, reads in ((without, made("bos")), (made("bos"), without)):
        with pytest.raises(ModelError, match="chat template"):
            check_loop(LOOPS["trl"], policy, Templated(made("bos")), reads, prompts=PROMPTS)
