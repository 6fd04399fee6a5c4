"""Is a model served right? Compares a server's answers with what the model on this machine gives,
and names a fault only where that explains every answer, and nothing of another name does nearly as
well.

Explanations are closed forms, or least squares with more answers than unknowns. First inputs alone,
then long ones, batches, and the further forms, each with what was found before. What nothing
explains has no name: what was seen stands in the numbers. Knows nothing of HTTP.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from scipy.stats import kendalltau

from pessimal.checking.served_asking import BUDGET, Input, Interview, Scores
from pessimal.checking.served_faults import (
    LEVELS,
    PLAIN,
    RIGHT,
    Local,
    Made,
    Part,
    Read,
    Reading,
    cuts,
    fitted,
    in_batches,
    of_batch,
    readings,
    variants,
)
from pessimal.errors import ConfigError
from pessimal.rewards.base import NetworkReward
from pessimal.rewards.ceiling import LOW_PRECISION, NO_HEAD, Bounds, unbounded
from pessimal.rewards.spec import Dtype
from pessimal.scoring.scorer import ceiling
from pessimal.scoring.trust import TOLERANCE, allowed

MARGIN = 10.0
"""How many times as far off the next explanation of another name must be."""
ROUGH_MARGIN, NOISES, ROUGHEST = 4.0, 2.5, 0.05
"""The same in a lower precision, whose root mean square error may be this many times what is
measured here, and never more than this share of a standard deviation."""
JITTERS = 8.0
"""Times that what a server differs from itself by is allowed: it is the largest of a few."""
ALIKE = 0.6
"""Correlation of the differences with those of a precision here from which on it is named."""
CUTS = (128, 256, 512, 1024, 2048, 3072, 4096, 8192)
"""Tokens that servers cut at."""
HARMLESS = max(TOLERANCE.values())
CPU = torch.device("cpu")
FINENESS = ("float32", *LEVELS)
ROUNDED = {"lower_precision", "small_difference"}
UNKNOWN = unbounded(NO_HEAD)


@dataclass(frozen=True)
class Diagnosis:
    """What a server does wrong, if anything, and the numbers that this rests on."""

    faults: tuple[Part, ...]
    """Keys of FAULTS, and their kind."""
    level: str
    """Precision of the server, as far as its answers say; empty where they do not."""
    served: np.ndarray
    own: np.ndarray
    """Scores (n,), and the model's own rewards of the same inputs, in the order sent."""
    forms: np.ndarray
    kinds: np.ndarray
    """What each input was sent as (n,), and how: alone, again, batch or long."""
    limit: float
    """Largest difference that rounding explains."""
    repeat_difference: float
    """Largest difference between two answers to one input, sent alone."""
    batch_difference: float
    """Largest difference between an input alone and in a batch of unlike lengths."""
    outputs: tuple[int, int]
    """Outputs that the server gives, and that the model has."""
    refused: tuple[tuple[str, int], ...] = ()
    """Long inputs that the server does not take: their form and words."""
    bounds: Bounds = UNKNOWN
    """What the model's head can give at all, in any precision."""

    @property
    def right(self) -> bool:
        return not self.faults

    @property
    def spread(self) -> float:
        """Standard deviation of the model's own rewards."""
        return scale_of(self.own)

    @property
    def own_difference(self) -> float:
        """Largest |served − own|, in units of reward."""
        return float(np.abs(self.served - self.own).max())

    @property
    def kendall(self) -> float:
        """Tau between served and own; not a number where all scores are the same."""
        return float(kendalltau(self.served, self.own).statistic)

    @property
    def harmless(self) -> bool:
        """Right, or a rounding that moves no reward by 0.3 standard deviations."""
        rounded = {part.fault for part in self.faults} <= ROUNDED
        return self.right or (rounded and self.own_difference <= HARMLESS * self.spread)


def scale_of(values: np.ndarray) -> float:
    """What differences are measured by: the standard deviation, or of values that hardly vary their
    size."""
    return max(float(np.std(values)), 1e-3 * float(np.abs(values).max()), 1e-9)


class Explanation(NamedTuple):
    """What a server may do, and the scores (n,) that it would then give."""

    faults: tuple[Part, ...]
    predicted: np.ndarray
    reading: Reading
    link: Made = np.asarray
    variant: Part = RIGHT
    """How it reads what it is sent."""

    @property
    def names(self) -> frozenset[str]:
        return frozenset(part.fault for part in self.faults)


@dataclass(frozen=True)
class Noise:
    """By how much a server's scores may differ from what explains them."""

    jitter: float
    """What the server differs from itself by."""
    rough: float = 0.0
    """Root mean square error of a lower precision, in standard deviations; 0 for float32."""

    def limit(self, predicted: np.ndarray) -> float:
        """Largest difference that is no fault; long inputs and batches round more than what is seen
        alone."""
        exact = max(allowed(predicted, dtype=Dtype.float32), JITTERS * self.jitter)
        return max(exact, HARMLESS * scale_of(predicted)) if self.rough else exact

    def takes(self, served: np.ndarray, predicted: np.ndarray) -> bool:
        """Whether these predicted scores are the served ones."""
        off = served - predicted
        if not np.isfinite(off).all():
            return False
        if self.rough:
            return float(np.sqrt((off**2).mean())) <= self.rough * scale_of(predicted)
        return float(np.abs(off).max()) <= self.limit(predicted)

    def best(self, served: np.ndarray, explanations: Iterable[Explanation]) -> Explanation | None:
        """The one that fits, where none of another name does nearly as well; of one name the
        nearest, without its detail where another detail does as well."""

        def error(one: Explanation) -> float:
            off, least = served - one.predicted, 1e-6 * scale_of(one.predicted) + self.jitter
            return float(np.sqrt((off**2).mean())) + least if np.isfinite(off).all() else np.inf

        ranked = sorted(((error(one), i, one) for i, one in enumerate(explanations)))
        if not ranked or not self.takes(served, ranked[0][2].predicted):
            return None
        least, _, best = ranked[0]
        margin = ROUGH_MARGIN if self.rough else MARGIN
        near = [one for far, _, one in ranked if far <= margin * least]
        if any(one.names != best.names for one in near):
            return None
        sure = all(one.faults == best.faults for one in near)
        return best if sure else best._replace(faults=tuple(Part(p.fault) for p in best.faults))


@dataclass
class Found:
    """What is known so far: how single inputs are scored, and by how much that may be off."""

    alone: Explanation
    noise: Noise = Noise(0.0)
    level: str = ""
    """Precision; empty where nothing explains the answers."""
    faults: list[Part] = field(default_factory=list)

    @property
    def limit(self) -> float:
        return self.noise.limit(self.alone.predicted)

    def predict(self, reads: Sequence[Read]) -> np.ndarray:
        return self.alone.link(self.alone.reading(reads))

    def add(self, best: Explanation | None, otherwise: Part) -> None:
        self.faults += best.faults if best else [otherwise]


class Answers:
    """The answers of one server beside the model's."""

    def __init__(self, interview: Interview, local: Local, column: int):
        self.interview, self.asked, self.local = interview, interview.asked, local
        self._variants: dict[tuple[str, Input], dict[Part, Read]] = {}
        self.column = column

    @property
    def served(self) -> np.ndarray:
        rows = self.asked.answers
        return np.array([row[min(self.column, len(row) - 1)] for row in rows], dtype=np.float64)

    @cached_property
    def alone(self) -> np.ndarray:
        """Rows of the first form that were sent alone."""
        return self.rows("alone", self.interview.forms[0])

    @cached_property
    def deviations(self) -> dict[str, np.ndarray]:
        """By how much the rewards of `alone` (n,) differ from float32 in each lower precision here,
        in standard deviations."""
        model, reads, found = self.interview.model, self.reads(self.alone), {}
        own = self.local.rewards(reads)
        for level in LEVELS:
            lower = Local(model.network(Dtype(level)).to(self.local.device)).rewards(reads) - own
            if np.isfinite(lower).all():
                found[level] = lower / scale_of(own)
        return found

    @property
    def noise(self) -> float:
        """The largest root mean square of them."""
        return max((np.sqrt((d**2).mean()) for d in self.deviations.values()), default=0.0)

    def rows(self, kind: str, form: str) -> np.ndarray:
        """Of this kind and form, in the order sent."""
        pairs = enumerate(zip(self.asked.kind, self.asked.form, strict=True))
        return np.array([row for row, pair in pairs if pair == (kind, form)], dtype=int)

    def batches(self, form: str) -> list[np.ndarray]:
        rows = self.rows("batch", form)
        requests = np.array(self.asked.request)[rows]
        return [rows[requests == request] for request in np.unique(requests)]

    def reads(self, rows: Iterable[int], variant: Part = RIGHT) -> list[Read]:
        """Inputs as a server reads them; the right way where the variant does not concern them."""
        known = [self._known(row) for row in rows]
        return [read.get(variant, read[RIGHT]) for read in known]

    def wrong_variants(self, rows: Iterable[int]) -> list[Part]:
        right = self.reads(rows)
        names = dict.fromkeys(name for row in rows for name in self._known(row))
        return [name for name in names if self.reads(rows, name) != right]

    def _known(self, row: int) -> dict[Part, Read]:
        key = self.asked.form[row], self.asked.inputs[row]
        if key not in self._variants:
            of = variants(self.interview.model, key[1], key[0], self.interview.frame.suffix)
            made: dict[Part, Read] = {}
            for part, read in of:
                if read.ids and max(read.ids) < self.interview.model.embedding_rows:
                    made.setdefault(part, read)
            self._variants[key] = made
        return self._variants[key]

    def apart(self, kind: str) -> float:
        """Largest difference between inputs of this kind and the same ones alone."""
        first, largest, served = dict[Input, float](), 0.0, self.served
        for row, one in enumerate(self.asked.inputs):
            if self.asked.kind[row] == "alone":
                first.setdefault(one, served[row])
            elif self.asked.kind[row] == kind and one in first:
                difference = abs(served[row] - first[one])
                largest = max(largest, difference if np.isfinite(difference) else 0.0)
        return float(largest)


def diagnose(
    scores: Scores,
    model: NetworkReward,
    *,
    prompt: str,
    base: NetworkReward | None = None,
    forms: Sequence[str] = ("ids", "messages"),
    device: torch.device = CPU,
    seed: int = 0,
    budget: int = BUDGET,
) -> Diagnosis:
    """Ask a server, and say what it does wrong.

    Args:
        scores: sends one request.
        model: what the server should serve; in `model.spec.dtype`.
        base: another checkpoint that may be served instead: the one that training began from, or an
            earlier one.
        forms: of `ids`, `messages`, `text` and `pairs`, what the server takes. Faults of the chat
            template show in all but the first.
        budget: most inputs that are sent.

    Raises:
        ConfigError: nothing can be sent. WorkError: answers of another shape than (n,) or (n,
            outputs).
    """
    local = Local(model.network(Dtype.float32).to(device))
    other = None if base is None else Local(base.network(Dtype.float32).to(device))
    config = local.network.config.get_text_config()
    interview = Interview(
        scores,
        model,
        forms=forms,
        prompt=prompt,
        context=getattr(config, "max_position_embeddings", None),
        seed=seed,
        budget=budget,
    )
    if not interview.forms:
        raise ConfigError(
            f"nothing that this server takes can be made for {model.name!r}: type forms=[ids]"
        )
    interview.ask()
    column = local.network.reward_output
    assert isinstance(column, int)  # of all outputs there is no check
    answers = Answers(interview, local, column)
    width = len(interview.asked.answers[0])
    outputs = (width, local.outputs(answers.reads([0])[0]))
    tokenizer = model.tokenizer
    tokens = tokenizer.pad_token_id, config.pad_token_id, tokenizer.eos_token_id
    usual, rows = (*tokens, tokenizer.unk_token_id, 0), model.embedding_rows
    pads = list(dict.fromkeys(one for one in usual if one is not None and 0 <= one < rows))
    found = explain(answers, outputs, readings(local, other, pads), pads)
    n = len(interview.asked.inputs)
    return Diagnosis(
        faults=tuple(dict.fromkeys(found.faults)),
        level=found.level,
        served=answers.served,
        own=local.rewards(answers.reads(range(n))),
        forms=np.array(interview.asked.form),
        kinds=np.array(interview.asked.kind),
        limit=found.limit,
        repeat_difference=answers.apart("again"),
        batch_difference=answers.apart("batch"),
        outputs=outputs,
        refused=tuple(interview.refused),
        bounds=_bounds(model, local),
    )


def _bounds(model: NetworkReward, local: Local) -> Bounds:
    """What the network can give at all, as a server does: in any precision, without a weight."""
    alone = replace(model, parts=(replace(model.parts[0], weight=1.0),))
    known = ceiling(alone, device=local.device, network=lambda _: local.network)
    return known.widened(LOW_PRECISION)


def of_outputs(answers: Answers, outputs: tuple[int, int]) -> Part | None:
    """The fault that the answers' shape shows: another number of outputs than the model's."""
    width, expected = outputs
    if width == expected:
        return None
    hidden = answers.local.network.config.get_text_config().hidden_size
    known = {hidden: "last_element"} | ({2: "two_outputs"} if expected == 1 else {})
    return Part(known.get(width, "unknown"), f"{width} outputs instead of {expected}")


def explain(
    answers: Answers, outputs: tuple[int, int], known: dict[Part, Reading], pads: Sequence[int]
) -> Found:
    """What explains the answers, from inputs alone to further forms."""
    first, *others = answers.interview.forms
    own = known[RIGHT](answers.reads(answers.alone))
    right = Explanation((), own, known[RIGHT])
    different = of_outputs(answers, outputs)
    if different is None and batches_alone(answers, first):
        different = Part("batch_normalised")
    if different is None and not np.isfinite(answers.served).all():
        different = Part("unknown", "scores that are not numbers")
    if different is None and unrepeatable(answers):
        different = Part("unrepeatable")
    if different is not None:
        return Found(right, faults=[different])
    found = alone(answers, right, known)
    if found.level:
        beyond(answers, first, found)
        together(answers, first, found, pads)
        for form in others:
            another_form(answers, form, found)
    return found


def batches_alone(answers: Answers, form: str) -> bool:
    """Whether scores are normalised within a batch, and those of single inputs all the same, or no
    numbers."""
    alone = answers.served[answers.alone]
    given = [answers.served[rows] for rows in answers.batches(form)]
    own = [answers.local.rewards(answers.reads(rows)) for rows in answers.batches(form)]
    scores = np.concatenate(given)
    if not np.isfinite(scores).all() or (np.isfinite(alone).all() and np.ptp(alone) > 1e-6):
        return False
    return any(
        np.abs(scores - one).max() <= 1e-3 * scale_of(scores) for one in of_batch(given, own)
    )


def unrepeatable(answers: Answers) -> bool:
    """Whether an input's answers differ from one another by more than any precision here brings."""
    apart, served = answers.apart("again"), answers.served[answers.alone]
    if apart <= allowed(served, dtype=Dtype.float32):
        return False
    return apart > 3 * answers.noise * scale_of(served)


def alone(answers: Answers, right: Explanation, known: dict[Part, Reading]) -> Found:
    """How single inputs are scored. `level` of what is found is empty where nothing explains it."""
    served, own, reads = (
        answers.served[answers.alone],
        right.predicted,
        answers.reads(answers.alone),
    )
    exact = Noise(answers.apart("again"))
    if exact.takes(served, own):
        return Found(right, exact, "float32")
    plain = [Explanation((part,), read(reads), read) for part, read in known.items() if part.fault]
    plain += misread(answers, answers.alone, right)
    # What leaves nothing free goes before what is fitted, and one fault before two.
    tiers = [
        [*linked(right, PLAIN.items()), *plain],
        [*linked(right, fitted(served, own))],
        [two for one in plain for two in linked(one, PLAIN.items()) if "softmax" not in two.names],
        [two for one in plain for two in linked(one, fitted(served, one.predicted))],
    ]
    best, noise = None, exact
    fitting = [t for t in tiers if any(exact.takes(served, one.predicted) for one in t)]
    if fitting:
        best = exact.best(served, fitting[0])
    elif answers.noise:
        noise = Noise(exact.jitter, NOISES * answers.noise)
        if noise.takes(served, own):
            return rounded(answers, right, noise)
        noise = replace(noise, rough=min(noise.rough, ROUGHEST))
        best = noise.best(served, [right, *tiers[0], *tiers[1]])
    if best is None:
        return Found(right, exact, faults=[Part("unknown")])
    return Found(best, noise, "lower" if noise.rough else "float32", [*best.faults])


def misread(answers: Answers, rows: np.ndarray, right: Explanation) -> list[Explanation]:
    """Every way to read what was sent but the right one."""
    found = []
    for part in answers.wrong_variants(rows):
        predicted = right.link(right.reading(answers.reads(rows, part)))
        found.append(right._replace(faults=(part,), predicted=predicted, variant=part))
    return found


def linked(one: Explanation, links: Iterable[tuple[Part, Made]]) -> Iterator[Explanation]:
    """The same with something done to its numbers."""
    for part, link in links:
        yield one._replace(faults=(part, *one.faults), predicted=link(one.predicted), link=link)


def rounded(answers: Answers, right: Explanation, noise: Noise) -> Found:
    """What small differences are: those of a precision here, or not."""
    off = (answers.served[answers.alone] - right.predicted) / scale_of(right.predicted)
    like = {
        level: float(off @ d / max(np.linalg.norm(off) * np.linalg.norm(d), 1e-30))
        for level, d in answers.deviations.items()
    }
    nearest = max(like, key=like.__getitem__)
    declared = answers.interview.model.spec.dtype.value
    if like[nearest] >= ALIKE:
        lower = FINENESS.index(nearest) > FINENESS.index(declared)
        return Found(right, noise, nearest, [Part("lower_precision", nearest)] if lower else [])
    if np.abs(off).max() > HARMLESS:
        return Found(right, noise, faults=[Part("unknown")])
    return Found(right, noise, "lower", [Part("small_difference")] * (declared == FINENESS[0]))


def beyond(answers: Answers, form: str, found: Found) -> None:
    """Long inputs, with what is known of short ones: whether and where they are cut."""
    rows = answers.rows("long", form)
    if not len(rows):
        return
    served, reads = answers.served[rows], answers.reads(rows, found.alone.variant)
    wrong = np.abs(served - found.predict(reads)) > found.limit
    if not wrong.any():
        return
    bad = [read for read, is_bad in zip(reads, wrong, strict=True) if is_bad]
    right = {*reads, *answers.reads(answers.rows("alone", form))} - {*bad}
    least, most = max(len(read.ids) for read in right), min(len(read.ids) for read in bad)
    candidates = [
        found.alone._replace(
            faults=(part,), predicted=found.predict([cuts(read, limit)[part] for read in bad])
        )
        for limit in (size + d for size in CUTS for d in (0, -1, -2))
        if least <= limit < most
        for part in cuts(bad[0], limit)
    ]
    best = found.noise.best(served[wrong], candidates)
    found.add(best, Part("unknown", f"beyond {least} tokens"))


def together(answers: Answers, form: str, found: Found, pads: Sequence[int]) -> None:
    """Batches, with what is known of single inputs."""
    batches = answers.batches(form)
    served = [answers.served[rows] for rows in batches]
    reads = [answers.reads(rows, found.alone.variant) for rows in batches]
    single = [found.predict(batch) for batch in reads]
    pairs = list(zip(served, single, strict=True))
    if all(np.abs(s - p).max() <= found.limit for s, p in pairs):
        return

    def candidates() -> Iterator[tuple[Part, np.ndarray]]:
        yield (
            Part("batch_order"),
            np.concatenate([np.sort(p)[s.argsort().argsort()] for s, p in pairs]),
        )
        for normalised in of_batch(served, single):
            yield Part("batch_normalised"), normalised
        if found.alone.reading == answers.local.rewards:
            for part, padded in in_batches(answers.local, pads):
                yield part, np.concatenate([found.alone.link(padded(batch)) for batch in reads])

    best = found.noise.best(
        np.concatenate(served),
        [
            found.alone._replace(faults=(part,), predicted=predicted)
            for part, predicted in candidates()
        ],
    )
    found.add(best, Part("unknown", "in batches only"))


def another_form(answers: Answers, form: str, found: Found) -> None:
    """What the server reads of conversations in another form, with what it does to the first."""
    rows = answers.rows("alone", form)
    served = answers.served[rows]
    right = found.alone._replace(variant=RIGHT)
    if np.abs(served - found.predict(answers.reads(rows))).max() > found.limit:
        best = found.noise.best(served, misread(answers, rows, right))
        found.add(best, Part("other_tokens", f"of {form}"))
        if best is None:
            return
        right = best
    beyond(answers, form, replace(found, alone=right))  # of the same list of faults
