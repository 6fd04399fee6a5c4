"""Does a trainer's loop hand a reward model what its card's template says? Writes what TRL, verl
and OpenRLHF make of a policy's tokens, and compares it with the template, token by token.

Knows two tokenizers, and networks by a function. Does not know servers, policies' weights or
trainers' packages: what each writes was recorded from its own code
(experiments/trainers/record_loops.py).
"""

import difflib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from pessimal.checking.checks import NAMED
from pessimal.conversation import Conversation, Turn
from pessimal.errors import FrameError, ModelError
from pessimal.rewards.formats import Templated
from pessimal.rewards.frame import Format
from pessimal.rewards.rendering import Messages, messages_of, rendered
from pessimal.tables.result import Estimate, Result, weight_of
from pessimal.texts import literal

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

log = logging.getLogger(__name__)

CONVERSATIONS, LONG = 200, 4
"""Conversations compared; of these, beyond 2,048 tokens where the reward model reads so many."""
LONGEST, ENOUGH = 2600, 4096
"""Tokens of the long responses, and a context that holds them."""
SHOWN = 160
"""Characters of a difference."""
PARSED = ("response_template", "response_schema")
"""Attributes of a tokenizer by which TRL parses what its policy wrote."""
AROUND = 2
"""Equal tokens shown beside those that differ."""
COLUMNS = ["conversation", "faults", "n_expected", "n_sent", "expected_reward", "sent_reward"]
COLUMNS += ["difference"]
Place = tuple[int, int, int, int]
FAULTS: dict[str, dict[str, str]] = NAMED["loop"]
"""By name: what it is, and what to do (mend)."""


@dataclass(frozen=True)
class Loop:
    """The way in which a trainer has a reward model read what a policy wrote."""

    text: "Callable[[Any, Any, Messages, list[int]], str]"
    """From the policy's tokenizer, the reward model's, the messages before the response and its ids
    to the text that is tokenized for the reward model."""
    special: bool = False
    """Whether the tokenizer adds special tokens to this text."""
    limit: int | None = None
    """Tokens beyond which it is cut off, at its end."""

    def ids(self, policy: Any, reads: Any, prompt: Messages, response: list[int]) -> list[int]:
        """Ids that the reward model would read without a limit."""
        text = self.text(policy, reads, prompt, response)
        return reads(text, add_special_tokens=self.special)["input_ids"]


def trl_text(policy: Any, reads: Any, prompt: Messages, response: list[int]) -> str:
    """TRL 1.16.0, GRPOTrainer with a reward model."""
    answer = policy.decode(response, skip_special_tokens=True)
    return rendered(reads, [*prompt, {"role": "assistant", "content": answer}])


def verl_text(policy: Any, reads: Any, prompt: Messages, response: list[int]) -> str:
    """verl 0.9.1, RewardLoopWorker._preprocess_reward_inputs."""
    answer = policy.decode(response).replace(policy.eos_token, "")
    text = rendered(reads, [*prompt, {"role": "assistant", "content": answer}])
    return text.removeprefix(reads.bos_token or "")


def openrlhf_text(policy: Any, reads: Any, prompt: Messages, response: list[int]) -> str:
    """OpenRLHF 0.11.2, PromptDataset with data.apply_chat_template and SingleTurnAgentExecutor: the
    query, in the policy's template."""
    text = rendered(policy, prompt, add_generation_prompt=True)
    return policy.decode([*policy(text, add_special_tokens=False)["input_ids"], *response])


LOOPS = {
    "trl": Loop(trl_text),
    # vLLM's and SGLang's servers tokenize with special tokens.
    "verl": Loop(verl_text, special=True),
    # serve_rm's data.max_len.
    "openrlhf": Loop(openrlhf_text, limit=2048),
}


@dataclass
class Compared:
    """One conversation as the card's template has it, and as the loop sends it."""

    expected: list[int]
    sent: list[int]
    faults: list[str]
    difference: str
    """Their tokens where they differ: -[the template's] +[the loop's]."""
    rewards: tuple[float, float] | tuple[None, None] = (None, None)
    """Rewards of what is expected, and of what is sent; None where they were not asked."""


@dataclass
class LoopCheck:
    """Effect of a loop on a reward."""

    compared: list[Compared]
    spread: float | None = None
    """Standard deviation of the rewards of what is expected."""
    counts: dict[str, int] = field(default_factory=dict)
    """Conversations by fault; one may have several."""

    @property
    def different(self) -> list[Compared]:
        return [each for each in self.compared if each.faults]


def check_loop(
    loop: Loop,
    policy: "PreTrainedTokenizerBase",
    conversations: Format,
    reads: "PreTrainedTokenizerBase",
    *,
    prompts: Sequence[str],
    context: int | None = None,
    reward: Callable[[list[int]], float] | None = None,
    sample: int = 64,
    seed: int = 0,
    n: int = CONVERSATIONS,
) -> LoopCheck:
    """Compare what a loop sends with what the template says, in `n` conversations.

    Args:
        policy, reads: the policy's tokenizer and the reward model's.
        conversations: how the reward model's inputs are written.
        prompts: user turns to begin with.
        context: most tokens that the reward model reads.
        reward: of token ids; asked for at most `sample` conversations that differ.
        seed: of the conversations.

    Raises:
        ModelError, FrameError: a tokenizer has no chat template, or fails on every conversation;
            TRL would parse the policy's responses.
    """
    if loop.text is trl_text and any(getattr(policy, name, None) for name in PARSED):
        raise ModelError("TRL parses by the policy's response_template: give a tokenizer without")
    for tokenizer, owner in ((policy, "the policy"), (reads, "the reward model")):
        if not tokenizer.chat_template or tokenizer.eos_token is None:
            raise ModelError(f"{owner} has no chat template or no eos_token: trainers need both")
    random, compared = np.random.default_rng(seed), []
    stop, short = _stop(policy), n - LONG if context is None or context > ENOUGH else n
    for number in range(n):
        drafts = _drafts(random, prompts, number, reads, long=number >= short)
        compared.append(_compare(loop, policy, stop, conversations, reads, drafts, context))
    counts = {fault: sum(fault in each.faults for each in compared) for fault in FAULTS}
    check = LoopCheck(compared, counts={fault: count for fault, count in counts.items() if count})
    if reward and check.different:
        sampled = random.permutation(len(check.different))[:sample]
        for each in [check.different[i] for i in sampled]:
            each.rewards = (reward(each.expected), reward(each.sent))
        expected = [each.rewards[0] for each in compared if each.rewards[0] is not None]
        check.spread = float(np.std(expected))
    return check


WORDS = (
    "The answer depends on what you value. I would say that kindness, patience and courage matter "
    "most; 42 of 100 people agree (see above). First, think it over: is it true? Second, write it "
    "down. Été, naïve, Straße and 東京 are words, too! def f(x): return x + 1"
)
"""Text that the responses are made of."""
EARLIER = (Turn("user", "Hello! Can you help me?"), Turn("assistant", "Yes. Ask me anything."))


def _drafts(
    random: np.random.Generator, prompts: Sequence[str], number: int, reads: Any, *, long: bool
) -> list[list[Turn]]:
    """A conversation, and simpler ones for templates that refuse it: with a system turn, with
    earlier turns, and of two turns."""
    ask = Turn("user", prompts[number % len(prompts)])
    words = random.choice(WORDS.split(), size=2200 if long else int(random.integers(1, 60)))
    spaces = random.choice([" ", " ", " ", " ", "\n", "\n\n"], size=len(words))
    text = "".join(part for pair in zip(words, spaces, strict=True) for part in pair).strip()
    if long:  # some way beyond 2,048 tokens
        length = len(reads(text, add_special_tokens=False)["input_ids"])
        text = text[: int(LONGEST * len(text) / length)]
    drafts = [[ask, Turn("assistant", text)]]
    if number % 3 == 1:
        drafts.insert(0, [*EARLIER, *drafts[0]])
    if number % 5 == 2:
        drafts.insert(0, [Turn("system", "Be brief and honest."), *drafts[0]])
    return drafts


def _stop(policy: Any) -> int:
    """The token that ends the policy's turn: what its template writes behind a response, where that
    is a special token; else its eos_token."""
    try:
        closing = Templated(policy).frame("Why?").suffix
    except FrameError:
        closing = ()
    added = {token for token, item in policy.added_tokens_decoder.items() if item.special}
    is_special = bool(closing) and closing[0] in {*policy.all_special_ids, *added}
    return closing[0] if is_special else policy.eos_token_id


def _compare(
    loop: Loop,
    policy: Any,
    stop: int,
    conversations: Format,
    reads: Any,
    drafts: list[list[Turn]],
    context: int | None,
) -> Compared:
    for draft in drafts:
        *before, answer = draft
        response = [*policy(answer.content, add_special_tokens=False)["input_ids"]]
        # What the policy's tokens say is what it wrote.
        wrote = Turn("assistant", policy.decode(response, skip_special_tokens=True))
        try:
            expected = [*conversations.encode((*before, wrote)).ids]
            sent = loop.ids(policy, reads, messages_of(before), [*response, stop])
        except FrameError as error:
            failed = error
            continue
        if context is not None and len(expected) > context:
            shorter = [*before, Turn("assistant", answer.content[: len(answer.content) // 2])]
            return _compare(loop, policy, stop, conversations, reads, [shorter], context)
        slot = _slot(conversations, (*before, wrote), expected)
        added = {str(token) for token in policy.added_tokens_decoder.values() if token.special}
        specials = {*policy.all_special_tokens, *reads.all_special_tokens, *added}
        faults = name_faults(expected, sent, slot, reads, specials)
        if loop.limit is not None and len(sent) > loop.limit:
            sent, faults = sent[: loop.limit], [*faults, "truncated"]
        return Compared(expected, sent, faults, difference(expected, sent, reads))
    raise failed


def _slot(conversations: Format, conversation: Conversation, ids: list[int]) -> tuple[int, int]:
    """Where the response stands: from the first id that depends on it to behind the last one."""
    *before, _ = conversation
    texts = [(*before, Turn("assistant", text)) for text in ("love", "9 z")]
    other_ids = [[*conversations.encode(text).ids] for text in texts]
    start = min(_shared(ids, other) for other in other_ids)
    end = len(ids) - min(_shared(ids[::-1], other[::-1]) for other in other_ids)
    return start, max(start, end)


def _shared(ids: Sequence[Any], other: Sequence[Any]) -> int:
    """Number of items that are the same from the start on."""
    pairs = enumerate(zip(ids, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(ids), len(other)))


def name_faults(
    expected: list[int], sent: list[int], slot: tuple[int, int], reads: Any, specials: set[str]
) -> list[str]:
    """The names of all that is different; none where nothing is. `unknown` where no other name
    accounts for a difference.

    Args:
        expected, sent: token ids.
        slot: where the response begins and ends in what is expected.
        reads: the tokenizer of both.
        specials: texts of special tokens, of both models.
    """
    bos = [reads.bos_token_id] * len(expected)
    wants, has = _shared(expected, bos), _shared(sent, bos)
    names = [] if wants == has else ["bos_missing" if has < wants else "bos_doubled"]
    expected, sent = expected[wants:], sent[has:]
    start, end = slot[0] - wants, slot[1] - wants
    if expected == sent:
        return names
    if len(sent) < end and expected[: len(sent)] == sent:
        return [*names, "truncated"]
    if len(sent) < len(expected) - start and expected[len(expected) - len(sent) :] == sent:
        return ["truncated"]
    for place in _places(expected, sent):
        names.append(_name_of(reads, specials, expected, sent, (start, end), place))
    if "template" in names:  # which accounts for its ends
        names = [name for name in names if name not in ("eos_missing", "eos_doubled")]
    return list(dict.fromkeys(names))


def _name_of(
    reads: Any,
    specials: set[str],
    expected: list[int],
    sent: list[int],
    slot: tuple[int, int],
    place: Place,
) -> str:
    """The name of one difference: its texts, without what they share at both ends, and where it
    stands."""
    (i, j, k, m), (start, end) = place, slot
    _, gone, added = _trim(reads.decode(expected[i:j]), reads.decode(sent[k:m]))
    if i < start:
        return "template"
    if not gone and _only(added, specials):
        doubled = set(sent[k:m]) & set(expected[end:]) if k != m and i >= end - (j - i) else set()
        return "eos_doubled" if doubled and m - k == len(doubled) else "special_left"
    if not added and i >= end and _only(gone, specials):
        return "eos_missing"
    return "template" if j > end or i >= end else "unknown"


def _only(text: str, specials: set[str]) -> bool:
    """Whether a text is nothing but special tokens."""
    rest = text
    for special in sorted(specials, key=len, reverse=True):
        rest = rest.replace(special, "")
    return rest != text and not rest.strip()


def _trim(left: Sequence[Any], right: Sequence[Any]) -> tuple[int, Any, Any]:
    """The length of the start that two sequences share, and both without the start and the end that
    they share."""
    ahead = _shared(left, right)
    left, right = left[ahead:], right[ahead:]
    end = _shared(left[::-1], right[::-1])
    return ahead, left[: len(left) - end], right[: len(right) - end]


def _places(expected: Sequence[int], sent: Sequence[int]) -> list[Place]:
    """Where they differ: [i, j) of what is expected stands for [k, m) of what is sent."""
    ahead, left, right = _trim(expected, sent)
    matcher = difflib.SequenceMatcher(None, left, right, autojunk=False)
    edits = [edit for edit in matcher.get_opcodes() if edit[0] != "equal"]
    return [(ahead + i, ahead + j, ahead + k, ahead + m) for _, i, j, k, m in edits]


def difference(expected: Sequence[int], sent: Sequence[int], reads: Any) -> str:
    """The tokens that differ, each time with a few around them; of long ones the first."""

    def decode(ids: Sequence[int]) -> str:
        return " ".join(literal(reads.decode([token])) for token in ids)

    pieces = []
    for i, j, k, m in _places(expected, sent):
        parts = [decode(expected[max(0, i - AROUND) : i])]
        parts += [f"-[{decode(expected[i:j])}]"] * (i < j) + [f"+[{decode(sent[k:m])}]"] * (k < m)
        pieces.append(" ".join(filter(None, [*parts, decode(expected[j : j + AROUND])])))
    text = " … ".join(pieces)
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"


def loop_results(check: LoopCheck, *, loop: str, model: str) -> list[Result]:
    """One row a fault, and one row a conversation that differs."""
    n, different = len(check.compared), len(check.different)
    rows = [
        (number, c.faults, len(c.expected), len(c.sent), *c.rewards, c.difference)
        for number, c in enumerate(check.compared)
        if c.faults
    ]
    table = pd.DataFrame(rows, columns=COLUMNS)
    table = table.astype({"expected_reward": float, "sent_reward": float})
    moved = (table["sent_reward"] - table["expected_reward"]).abs() / (check.spread or np.nan)
    cases = table.assign(moved=moved, fault=table["faults"]).explode("fault").groupby("fault")
    faults = cases.agg(
        conversations=("fault", "size"),
        moved=("moved", "mean"),
        moved_most=("moved", "max"),
        n_moved=("moved", "count"),
        difference=("difference", "first"),
    )
    faults = faults.reindex([*check.counts]).rename_axis("fault").reset_index()
    for column in ("what", "mend"):
        faults[column] = [FAULTS[fault][column] for fault in faults["fault"]]
    kinds = ", ".join(fault.replace("_", " ") for fault in check.counts)
    headline = f"{model} reads something else in {different} of {n} conversations in {loop}"
    headline += f": {kinds}." if different else "."
    if moved.notna().any():
        headline += f" Rewards move by {moved.mean():.2g} SD on average."
    loops = Result(
        "loop",
        faults.assign(of=n),
        headline=headline,
        method="loop",
        weight=weight_of(different / n),
        estimate=Estimate("conversations read differently", different, n, "conversations"),
        summary={"different": different, "conversations": n, "faults": " ".join(check.counts)},
    )
    table["faults"] = table["faults"].str.join(" ")
    return [loops, Result("loop_conversations", table, method="loop")]
