"""Is a model served right? A server's answers beside the model's own rewards on this machine.

Random words are sent as responses: alone, again, in batches of unlike lengths, and longer than the
limits at which servers cut. A fault is named where a closed form explains every answer; otherwise
the numbers say what differs. Knows nothing of HTTP: a server is a function from inputs to scores.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from scipy.special import expit, logit
from scipy.stats import kendalltau

from pessimal.checking.checks import NAMED, Check, as_table, check_limit
from pessimal.conversation import Conversation, Turn
from pessimal.errors import ConfigError, FrameError, ModelError, WorkError
from pessimal.rewards.base import NetworkReward
from pessimal.rewards.formats import takes_pairs
from pessimal.rewards.frame import Encoded
from pessimal.rewards.network import RewardNetwork
from pessimal.rewards.rendering import messages_of, rendered
from pessimal.rewards.spec import Dtype
from pessimal.scoring.candidates import vocabulary
from pessimal.scoring.engine import Decoder, own_rewards, rewards_in
from pessimal.scoring.trust import TOLERANCE, allowed
from pessimal.tables.result import Estimate, Result, weight_of

Ids: TypeAlias = tuple[int, ...]
Input: TypeAlias = Ids | Conversation
Scores = Callable[[Sequence], np.ndarray]
"""One request: scores (n,) or (n, outputs) of n inputs, all lists of token ids, all texts, or all
conversations."""
Link = Callable[[np.ndarray], np.ndarray]
"""From rewards (n,) to scores (n,)."""
FORMS = ("ids", "messages", "text", "pairs")
"""Forms of inputs, in the order in which they are sent."""
BUDGET, SINGLES, REPEATS, BATCHES, BATCH, BARE, FURTHER = 200, 40, 8, 4, 8, 8, 12
"""Inputs in all, and of the first form at the full budget; `BARE` lack what closes a response;
conversations in each further form."""
CONTEXTS: tuple[Conversation, ...] = (
    (Turn("system", "Be brief."),),
    (Turn("user", "Can you help me?"), Turn("assistant", "Yes, ask away.")),
)
"""Turns before the prompt, in turn with none, where the template takes them."""
LIMITS, BEYOND = (512, 2048, 4096), 40
"""Tokens at which servers cut, and how many more two inputs have, where the context allows."""
CUTS = (128, 256, 512, 1024, 2048, 3072, 4096, 8192)
WAYS: dict[str, Callable[[Ids, int], Ids]] = {
    "the end": lambda ids, size: ids[:size],
    "the end but the last token": lambda ids, size: (*ids[: size - 1], ids[-1]),
    "the beginning": lambda ids, size: ids[-size:],
    "the beginning but the first token": lambda ids, size: (ids[0], *ids[1 - size :]),
}
"""An input as truncation to a number of tokens leaves it, by what is lost."""
MARGIN, ROUGH_MARGIN = 10.0, 4.0
"""Multiple of an explanation's error that those of other names must have; in a lower precision."""
NOISES, ROUGHEST, JITTERS = 2.5, 0.2, 8.0
"""Largest error of a lower precision, in multiples of the largest that is measured here; most that
a link may be off in it, in standard deviations; multiples of a server's difference from itself."""
SEVERAL, FEW_BATCHED = 8, 3
"""Scores that must differ before their order has a name; inputs, before a batch has the blame."""
LEVELS = (Dtype.float16, Dtype.bfloat16)
"""Lower precisions, from the finest."""
HARMLESS = max(TOLERANCE.values())
CPU = torch.device("cpu")
FAULTS: dict[str, dict[str, str]] = NAMED["served"]
"""By name: what it is, and what to do about it (mend)."""


class Part(NamedTuple):
    """A fault, a key of FAULTS, and the numbers that go with it."""

    fault: str = ""
    detail: str = ""

    def __str__(self) -> str:
        return self.fault.replace("_", " ") + f" ({self.detail})" * bool(self.detail)


class Answer(NamedTuple):
    """One input, how it was sent, and its outputs (outputs,)."""

    form: str
    kind: str
    """`alone`, `again`, `batch` or `long`."""
    content: Any
    outputs: np.ndarray


class Explanation(NamedTuple):
    """A fault, and the scores (n,) that the server would then give."""

    part: Part
    predicted: np.ndarray
    link: Link | None = None
    """From the model's own rewards to scores; None where that is not known."""


def scale_of(values: np.ndarray) -> float:
    """The standard deviation, by which differences are measured; of values that hardly vary their
    size."""
    return max(float(np.std(values)), 1e-3 * float(np.abs(values).max()), 1e-9)


@dataclass
class Interview:
    """One server, one tokenizer, a budget of inputs, and the answers so far."""

    server: Scores
    model: NetworkReward
    forms: Sequence[str]
    prompt: str
    context: int | None
    """Tokens that the model reads; None where that is unknown."""
    seed: int
    budget: int

    def __post_init__(self) -> None:
        tokenizer, pairs = self.model.tokenizer, takes_pairs(self.model.tokenizer)
        suitable = ("ids", "pairs") if pairs else FORMS[:3]
        self.forms = [form for form in suitable if form in self.forms]
        self.random = np.random.default_rng(self.seed)
        self.conversations = self.model.parts[0].conversations
        self.frame = self.conversations.frame(self.prompt)
        tokens = {turns: 0 if pairs else self._tokens(turns) for turns in CONTEXTS}
        self.contexts = itertools.cycle([(), *(turns for turns, n in tokens.items() if n)])
        self.answers, self.refused = list[Answer](), list[str]()
        around = len(self.frame.around([])) + max(tokens.values())
        room = (self.context or LIMITS[0] + 2 * BEYOND) - around - 8
        longest = max(min(64, room), 9)
        self.lengths = [1, 1, 2, 3, 5, 9, longest // 2, longest]
        self.long = [limit + BEYOND for limit in LIMITS if limit + BEYOND <= room]
        # Words, which a text can hold without being changed on its way; where they are few, all
        # tokens but special ones.
        rows = vocabulary(tokenizer, size=self.model.embedding_rows).rows
        rows = rows[~rows["candidate_id"].isin(tokenizer.all_special_ids)]
        words = rows[rows["text"].str.strip().str.isalnum()]
        self.words = (words if len(words) > 50 else rows)["candidate_id"].to_numpy()

    def _tokens(self, before: Conversation) -> int:
        """Tokens that turns before the prompt add; 0 where the template does not take or show
        them."""
        plain = (Turn("user", self.prompt), Turn("assistant", "yes"))
        encode = self.conversations.encode
        try:
            return len(encode((*before, *plain)).ids) - len(encode(plain).ids)
        except (FrameError, ModelError):
            return 0

    def requests(self) -> Iterator[tuple[str, str, list[Input]]]:
        """Form, kind and inputs of each request."""
        share, half = self.budget / BUDGET, BATCH // 2
        for form in self.forms:
            is_first = form == self.forms[0]
            count = max(round((SINGLES if is_first else FURTHER) * share), 8)
            alone = [self.item(form, self.lengths[index % 8]) for index in range(count)]
            bare = range(2, 2 + max(round(BARE * share), 4)) if form == "ids" else ()
            alone += [self.item(form, length, bare=True) for length in bare]
            yield from ((form, "alone", [item]) for item in alone)
            if is_first:
                for row in self.random.permutation(count)[: max(round(REPEATS * share), 6)]:
                    yield form, "again", [alone[row]]
                order = self.random.permutation(count)
                for batch in range(max(round(BATCHES * share), 2)):
                    inputs = [alone[i] for i in order[batch * half : (batch + 1) * half]]
                    inputs += [self.item(form, self.lengths[i]) for i in range(BATCH - len(inputs))]
                    yield form, "batch", [inputs[i] for i in self.random.permutation(BATCH)]
            for words in (self.long if share == 1 else self.long[:1]) * (1 + is_first):
                yield form, "long", [self.item(form, words)]

    def ask(self) -> None:
        """Send all inputs. WorkError for too small a budget, and for scores of another shape."""
        for form, kind, inputs in self.requests():
            if len(inputs) > self.budget - len(self.answers):
                if kind == "long":
                    continue
                raise WorkError(f"{self.budget} inputs are too few: type requests={BUDGET}")
            try:
                scores = self.server([self._body(form, content) for content in inputs])
            except ModelError:
                if kind != "long":
                    raise
                self.refused.append(form)  # understood: what one would wish for
                continue
            rows = np.asarray(scores, dtype=np.float64)
            if len(rows) != len(inputs) or rows.ndim > 2:
                raise WorkError(f"{len(inputs)} inputs got numbers of shape {rows.shape}")
            pairs = zip(inputs, rows.reshape(len(inputs), -1), strict=True)
            self.answers += [Answer(form, kind, content, row) for content, row in pairs]

    def _body(self, form: str, content: Any) -> Any:
        """Ids as a list, text as the chat template writes it, closing tokens and all, and other
        conversations as they are."""
        if form != "text":
            return list(content) if form == "ids" else content
        tokenizer, closing = self.model.tokenizer, getattr(self.conversations, "closing", ())
        text = rendered(tokenizer, messages_of(content), tokenize=False)
        return text + (str(tokenizer.decode(list(closing))) if closing else "")

    def item(self, form: str, length: int, *, bare: bool = False) -> Input:
        """A response of some random words in its frame, or behind its prefix alone."""
        ids = self.random.choice(self.words, length).tolist()
        if form == "ids":
            return (*self.frame.prefix, *ids, *(() if bare else self.frame.suffix))
        text = str(self.model.tokenizer.decode(ids, clean_up_tokenization_spaces=False)).strip()
        return *next(self.contexts), Turn("user", self.prompt), Turn("assistant", text)


@torch.no_grad()
def forward(network: RewardNetwork, inputs: Sequence[Encoded]) -> np.ndarray:
    """Rewards float64 (n,) of whole inputs by the model's own forward; inputs of one length are run
    together."""
    device, rewards = next(network.parameters()).device, dict[Encoded, float]()
    shapes: dict[tuple[int, bool], list[Encoded]] = {}
    for item in dict.fromkeys(inputs):
        shapes.setdefault((len(item.ids), item.types is None), []).append(item)
    for group in shapes.values():
        ids = torch.tensor([item.ids for item in group], device=device)
        typed = group[0].types is not None
        types = torch.tensor([item.types for item in group], device=device) if typed else None
        try:
            values = own_rewards(network, ids, types).double().tolist()
        except ModelError:  # a gate that does not find the prompt's end
            values = [np.nan] * len(group)
        rewards |= dict(zip(group, values, strict=True))
    return np.array([rewards[item] for item in inputs])


class Diagnosis:
    """The answers of one server beside the model's own rewards, and what it does wrong, if
    anything: `served` and `own` (n,) in the order sent, `forms` and `kinds` (n,) of the inputs,
    `outputs` that the server gives and that the model has, Kendall's tau of the scores, their
    largest difference and the rewards' spread, in units of reward. It is `right` without a fault,
    and `harmless` where rounding moves no reward by 0.3 standard deviations."""

    def __init__(self, interview: Interview, network: RewardNetwork):
        self.interview, self.network, self.refused = interview, network, interview.refused
        answers, encode = interview.answers, interview.conversations.encode
        self.tokens = [
            Encoded(a.content, None) if a.form == "ids" else encode(a.content) for a in answers
        ]
        column, width = network.reward_output, len(answers[0].outputs)
        assert isinstance(column, int)  # of all outputs there is no check
        self.outputs = width, _outputs(network, self.tokens[0])
        self.served = np.array([a.outputs[min(column, len(a.outputs) - 1)] for a in answers])
        self.own = forward(network, self.tokens)
        self.forms = np.array([answer.form for answer in answers])
        self.kinds = np.array([answer.kind for answer in answers])
        pairs = list(zip(answers, self.served, strict=True))
        first = {a.content: score for a, score in pairs[::-1] if a.kind == "alone"}
        self.alone = np.array([first.get(a.content, np.nan) for a in answers])
        """Score of each input (n,) alone; not a number where it was not sent so."""
        self.spread = scale_of(self.own)
        self.own_difference = float(np.abs(self.served - self.own).max())
        self.kendall = float(kendalltau(self.served, self.own).statistic)
        faults, self.limit = explain(self)
        """The largest difference that rounding explains."""
        self.faults = tuple(dict.fromkeys(faults))
        self.right, self.rounded = not faults, {part.fault for part in faults} == {"rounding"}
        is_small = self.own_difference <= HARMLESS * self.spread
        self.harmless = self.right or (self.rounded and is_small)

    def rows(self, kind: str, form: str) -> np.ndarray:
        """Numbers of the inputs of this kind and form, in the order sent."""
        return np.flatnonzero((self.kinds == kind) & (self.forms == form))

    def difference(self, kind: str) -> float:
        """Largest difference between inputs of this kind (again, batch) and the same ones alone."""
        differences = np.abs(self.served - self.alone)[self.kinds == kind]
        return float(max(differences[np.isfinite(differences)], default=0.0))

    @cached_property
    def deviations(self) -> dict[Dtype, float]:
        """Largest difference of rewards of inputs alone from float32 in each lower precision here,
        in standard deviations."""
        rows, deviations = self.rows("alone", self.interview.forms[0]), {}
        device = next(self.network.parameters()).device
        for level in LEVELS:
            lower = self.interview.model.network(level).to(device)
            errors = forward(lower, [self.tokens[row] for row in rows]) - self.own[rows]
            if np.isfinite(errors).all():
                deviations[level] = float(np.abs(errors).max()) / scale_of(self.own[rows])
        return deviations

    def edited(self, rows: np.ndarray, edit: Callable[[Ids, int], Ids], at: int) -> np.ndarray:
        """Rewards (n,) of inputs whose ids a server changes."""
        edits = [(self.tokens[row].types, edit(self.tokens[row].ids, at)) for row in rows]
        return forward(self.network, [Encoded(ids, t and t[: len(ids)]) for t, ids in edits])


@torch.no_grad()
def _outputs(network: RewardNetwork, item: Encoded) -> int:
    """Numbers that the model's class gives an input; of a gated head, the mixture alone."""
    decoder = Decoder.find(network)
    if decoder is not None and decoder.head.gated:
        return 1
    ids = torch.tensor([item.ids], device=next(network.parameters()).device)
    return rewards_in(network(input_ids=ids)).numel()


def diagnose(
    scores: Scores,
    model: NetworkReward,
    *,
    prompt: str,
    forms: Sequence[str] = ("ids", "messages"),
    device: torch.device = CPU,
    seed: int = 0,
    budget: int = BUDGET,
) -> Diagnosis:
    """Ask a server, and say what it does wrong.

    Args:
        scores: sends one request.
        model: what the server should serve; in `model.spec.dtype`.
        forms: of `ids`, `messages`, `text` and `pairs`, what the server takes. Faults of the chat
            template show in all but the first.
        budget: most inputs that are sent.

    Raises:
        ConfigError: nothing can be sent. WorkError: answers of another shape than (n,) or (n,
            outputs).
    """
    network = model.network(Dtype.float32).to(device)
    context = getattr(network.config.get_text_config(), "max_position_embeddings", None)
    interview = Interview(scores, model, forms, prompt, context, seed, budget)
    if not interview.forms:
        raise ConfigError(f"this server takes no input of {model.name!r}: type forms=[ids]")
    interview.ask()
    return Diagnosis(interview, network)


@dataclass(frozen=True)
class Noise:
    """By how much a server's scores may differ from what explains them."""

    jitter: float
    """Largest difference of the server from itself."""
    share: float = 0.0
    """Largest error of a lower precision, in standard deviations; 0 for float32."""

    def limit(self, predicted: np.ndarray) -> float:
        """Largest difference that is no fault."""
        scale = scale_of(predicted)
        jitter = min(JITTERS * self.jitter, HARMLESS * scale)
        return max(allowed(predicted, dtype=Dtype.float32), jitter, self.share * scale)

    def takes(self, served: np.ndarray, predicted: np.ndarray) -> bool:
        """Whether these predicted scores are the served ones."""
        return float(np.abs(served - predicted).max()) <= self.limit(predicted)

    def best(self, served: np.ndarray, candidates: Iterable[Explanation]) -> Explanation | None:
        """The nearest that fits, where none of another name does nearly as well; without its detail
        where another detail does."""

        def error(candidate: Explanation) -> float:
            floor = 1e-6 * scale_of(candidate.predicted) + self.jitter
            return float(np.sqrt(((served - candidate.predicted) ** 2).mean())) + floor

        ranked = sorted((c for c in candidates if np.isfinite(c.predicted).all()), key=error)
        if not ranked or not self.takes(served, ranked[0].predicted):
            return None
        limit = (ROUGH_MARGIN if self.share else MARGIN) * error(ranked[0])
        near, name = {c.part for c in ranked if error(c) <= limit}, ranked[0].part.fault
        if any(part.fault != name for part in near):
            return None
        return ranked[0] if len(near) == 1 else ranked[0]._replace(part=Part(name))


def explain(d: Diagnosis) -> tuple[list[Part], float]:
    """The faults that explain the answers, and the largest difference that rounding explains: of
    inputs alone first, then of batches, long inputs and further forms with what explains those."""
    first = d.interview.forms[0]
    rows, batch = d.rows("alone", first), d.rows("batch", first)
    exact = Noise(d.difference("again"))
    served, limit, (width, expected) = d.served[rows], exact.limit(d.own[rows]), d.outputs
    if width != expected:
        return [Part("outputs", f"{width} instead of {expected}")], limit
    if not np.isfinite(d.served).all():
        return [Part("unknown", "scores that are not numbers")], limit
    differs = exact.jitter > allowed(served, dtype=Dtype.float32)
    if differs and exact.jitter > max(d.deviations.values(), default=0) * scale_of(served):
        return [Part("unrepeatable")], limit
    if np.ptp(served) <= 1e-6 < np.ptp(d.served[batch]):
        return [Part("batch", "alone, all inputs get the same score")], limit
    best, noise = explain_alone(d, rows, exact)
    faults, link = [best.part] if best.part.fault else [], best.link
    # Batches and long inputs round more in a lower precision than inputs alone.
    wide = replace(noise, share=HARMLESS) if noise.share else noise
    wide_limit = wide.limit(best.predicted)
    unlike = np.abs(d.served - (d.alone if link is None else link(d.own))) > wide_limit
    if n := int(unlike[batch].sum()):
        name = "batch" if n >= FEW_BATCHED else "unknown"
        faults.append(Part(name, f"{n} of {len(batch)} inputs in batches"))
    if link is None:
        return faults, limit
    for form in d.interview.forms:
        rows = d.rows("alone", form)
        if form != first and unlike[rows].any():
            misread = noise.best(d.served[rows], doubled_beginning(d, rows, link))
            # Other tokens move every input of a form; what moves some of them has another cause.
            name = "other_tokens" if unlike[rows].all() else "unknown"
            faults.append(misread.part if misread else Part(name, f"of {form}"))
        elif unlike[d.rows("long", form)].any():
            faults.append(explain_long(d, form, unlike, link, noise))
    return faults, wide_limit


def explain_alone(d: Diagnosis, rows: np.ndarray, exact: Noise) -> tuple[Explanation, Noise]:
    """The scores of single inputs, and by how much they may be off."""
    served, rewards, declared = d.served[rows], d.own[rows], d.interview.model.spec.dtype
    right, links = Explanation(Part(), rewards, np.asarray), list(linked(served, rewards))
    if exact.takes(served, rewards):
        return right, exact
    if best := exact.best(served, [*links, *doubled_beginning(d, rows, np.asarray)]):
        return best, exact
    order = (Dtype.float32, *LEVELS)
    for level, largest in d.deviations.items():
        share = NOISES * largest
        rough = replace(exact, share=share if level is declared else min(share, HARMLESS))
        if rough.takes(served, rewards):
            lower = order.index(level) > order.index(declared)
            part = Part("rounding", f"no more than {level.value} makes here") if lower else Part()
            return right._replace(part=part), rough
    deviation = max(d.deviations.values(), default=0.0)
    rough = replace(exact, share=min(NOISES * deviation, ROUGHEST))
    # Rounding changes some places; where the order is exact, what differs is a link.
    best = None if ordered(served, rewards) else rough.best(served, [right, *links])
    if rough.share and best and best.part.fault:
        return best, rough
    slope, shift = np.polyfit(rewards, served, 1)
    rest = float(np.std(served - slope * rewards)) / scale_of(served)
    detail = f"largest difference {np.abs(served - rewards).max():.3g}, Kendall's tau "
    detail += f"{kendalltau(served, rewards).statistic:.2f}; {slope:.3g} · reward {shift:+.3g} "
    detail += f"leaves {rest:.0%} of a standard deviation"
    # Scores in order that differ from few of the rewards are so by chance.
    moved = np.abs(served - rewards) > HARMLESS * scale_of(rewards)
    several = min(moved.sum(), len(np.unique(served))) >= SEVERAL
    name = "monotone" if several and ordered(served, rewards) else "unknown"
    # Without a link, a batch may differ from inputs alone by the rounding of any precision.
    return Explanation(Part(name, detail), served), replace(exact, share=HARMLESS)


def ordered(served: np.ndarray, rewards: np.ndarray) -> bool:
    """Whether scores (n,) are in the order of the rewards, or in its reverse, to float32."""
    steps, slack = np.diff(served[np.argsort(rewards)]), allowed(served, dtype=Dtype.float32)
    return bool((steps >= -slack).all() or (steps <= slack).all())


def linked(served: np.ndarray, rewards: np.ndarray) -> Iterator[Explanation]:
    """The sigmoid of rewards (n,), a softmax over one logit, and the line and the sigmoid of a line
    that come closest to scores (n,) by least squares."""

    def fit(name: str, values: np.ndarray, weights: np.ndarray, outer: Link) -> Explanation:
        slope, shift = np.polyfit(rewards, values, 1, w=weights)
        link = lambda rewards: outer(slope * rewards + shift)  # noqa: E731
        return Explanation(Part(name, f"of {slope:.4g} · reward {shift:+.4g}"), link(rewards), link)

    ones = np.ones_like(rewards)
    yield Explanation(Part("activation", "a sigmoid"), expit(rewards), expit)
    yield Explanation(Part("activation", "a softmax over one logit"), ones, np.ones_like)
    if np.ptp(served) > 1e-9:
        yield fit("scale", served, ones, np.asarray)
        if served.min() >= 0 and served.max() <= 1:
            inner = np.clip(served, 1e-12, 1 - 1e-12)
            yield fit("activation", logit(inner), inner * (1 - inner), expit)


def doubled_beginning(d: Diagnosis, rows: np.ndarray, link: Link) -> list[Explanation]:
    """A second token at the beginning, where the tokenizer has one."""
    bos = d.interview.model.tokenizer.bos_token_id
    if bos is None or d.forms[rows[0]] == "pairs":
        return []
    part = Part("other_tokens", "a second beginning-of-sequence token")
    return [Explanation(part, link(d.edited(rows, lambda ids, at: (at, *ids), bos)))]


def explain_long(d: Diagnosis, form: str, unlike: np.ndarray, link: Link, noise: Noise) -> Part:
    """Where long inputs are cut, of which some are `unlike` (n,) what they should be."""
    rows, lengths = d.rows("long", form), np.array([len(item.ids) for item in d.tokens])
    wrong, right = rows[unlike[rows]], [*rows[~unlike[rows]], *d.rows("alone", form)]
    shortest, longest = lengths[wrong].min(), lengths[right].max()
    sizes = [size for limit in CUTS for size in (limit, limit - 1, limit - 2)]
    candidates = list[Explanation]()
    for size in [size for size in sizes if longest <= size < shortest]:
        for name, cut in WAYS.items():
            part = Part("truncation", f"{size} tokens, {name} is lost")
            candidates.append(Explanation(part, link(d.edited(wrong, cut, size))))
    best = noise.best(d.served[wrong], candidates)
    return best.part if best else Part("unknown", f"beyond {longest} tokens")


def checks_of(d: Diagnosis) -> list[Check]:
    """One row a question. Allowed is what rounding explains: in the model's precision, or in a
    lower one that is harmless; `notes` of a failed one say how many inputs differ by more."""
    harmless = HARMLESS * d.spread
    exact = allowed(d.own, dtype=Dtype.float32)
    limit = harmless if d.rounded else max(exact, min(d.limit, harmless))
    errors = np.nan_to_num(np.abs(d.served - d.own), nan=np.inf)
    texts = [f"{part}: {FAULTS[part.fault]['what'].rstrip('.')}" for part in d.faults]
    texts += [FAULTS[part.fault]["mend"].rstrip(".") for part in d.faults]
    note, (width, expected), n = ". ".join(dict.fromkeys(texts)), d.outputs, len(errors)
    wrong = "" if width == expected else note
    rows = [Check("served_outputs", not wrong, width, expected, "outputs", n, wrong)]
    masks = {f: (d.kinds == "alone") & (d.forms == f) for f in d.interview.forms}
    for name, mask in (masks | {"long": d.kinds == "long"}).items():
        if mask.any():
            several = f"{(errors[mask] > limit).sum()} of {mask.sum()} differ. {note}"
            largest = float(errors[mask].max())
            rows.append(
                check_limit(f"served_{name}", largest, limit, n=int(mask.sum()), note=several)
            )
    if d.refused:
        rows.append(Check("served_refused", n=len(d.refused), note=", ".join(d.refused)))
    for name, kind in (("served_batch", "batch"), ("served_repeat", "again")):
        count = int((d.kinds == kind).sum())
        rows.append(check_limit(name, d.difference(kind), limit, n=count, note=note))
    tau = d.kendall if np.isfinite(d.kendall) else None
    return [*rows, Check("served_order", measured=tau, unit="tau", n=n)]


def served_result(d: Diagnosis, name: str) -> Result:
    """The diagnosis as a Result: one row a check."""
    checks, n = checks_of(d), len(d.served)
    verdict = " and ".join(map(str, d.faults)) + (" (harmless)" if d.harmless else "")
    summary: dict[str, Any] = {
        "right": d.right,
        "harmless": d.harmless,
        "faults": [part.fault for part in d.faults],
        "failed_checks": [check.check for check in checks if check.passed is False],
        "requests": n,
        "kendall": d.kendall,
        "largest_difference": d.own_difference,
    }
    return Result(
        "conformance",
        as_table(checks),
        headline=f"{name}: {'served right' if d.right else verdict}.",
        method="served",
        weight=weight_of(0.0 if d.right else 0.2 if d.harmless else 1.0),
        estimate=Estimate("largest difference (SD)", d.own_difference / d.spread, n, "inputs"),
        summary=summary,
    )
