"""Is a model served right? Compares a server's answers with what the model on this machine gives,
and with what every known fault would give, and names the fault that is closest.

Answers are judged by their likelihood: normal around what a hypothesis predicts, as wide as
rounding makes it in float32 and, measured on the network itself, in float16, bfloat16 and int8. A
head of unknown weights is a Gaussian process that is linear in the states. Knows nothing of HTTP: a
server is a function from inputs to scores.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from scipy.stats import kendalltau

from pessimal.checking.served_asking import BUDGET, Hypothesis, Interview, Scores
from pessimal.checking.served_faults import LEVELS, Local, Part, in_level, last_states
from pessimal.errors import ConfigError
from pessimal.rewards.base import NetworkReward
from pessimal.rewards.spec import Dtype
from pessimal.scoring.trust import TOLERANCE, allowed

TEXTS, FURTHER = 12, 12
"""Conversations sent in another form than the first; inputs of one attempt to tell two hypotheses
apart."""
EXACT = 3e-5
"""Standard deviation of float32 answers, in those of the rewards: a deep float32 network shows as
much between batches."""
ADEQUATE = 3.0
"""Root mean square difference that fits, in standard deviations of the noise."""
STATE_NOISE, OTHER_STATES = (1e-10, 1e-6, 1e-4), (1e-3, 1e-2, 1e-1)
"""Squared noise of the states, as a share of their squares: float32, float16 and bfloat16; and what
only other states than the model's explain."""
LINEAR = 0.01
"""Share of the scores' variance that a linear function of the rewards may leave."""
RIVAL, FAULT, FREE, PLAIN = 7.0, 3.0, 5.0, 10.0
# Differences of log-likelihood: within which two hypotheses remain (1 : 1000); what each fault must
# earn, and each free parameter; and by how much a hypothesis of free weights must beat answers that
# depend on nothing.
CPU = torch.device("cpu")
FINENESS = ("float32", *LEVELS)
IDS = "token ids, where the server has an API that takes them, such as endpoint.api=vllm-classify"
APART = {
    (
        "random_head",
        "adapter_head",
    ): "the head of the checkpoint that training began from: base=DIR_OR_ID",
    ("two_outputs", "random_head"): "num_labels in the served config.json: 1 or 2",
    ("unknown", "another_template"): IDS,
    ("pad_read_as_end", "missing_end"): IDS,
    ("missing_end", "pad_read_as_end"): IDS,
    (
        "left_padding",
        "pad_read_as_end",
    ): "which token the server pads with, and on which side: its tokenizer_config.json",
}
"""What would tell two faults apart that no further input does."""
OTHERWISE = (
    "inputs on which the two differ, and none of the random ones does: prompts=[…] with another "
    "prompt"
)


@dataclass(frozen=True)
class Fit:
    """How well answers fit a hypothesis."""

    hypothesis: Hypothesis
    predicted: np.ndarray
    sigma: float
    """Standard deviation of its noise, in units of the scores."""
    noise: float
    """The same around what float32 gives, in standard deviations of the predictions."""
    level: str
    """`float32`, or the lower precision whose noise it takes."""
    log_likelihood: float
    residual: float
    """Root mean square."""

    @property
    def adequate(self) -> bool:
        return self.residual <= ADEQUATE * self.sigma


@dataclass(frozen=True)
class Diagnosis:
    """What a server does wrong, if anything, and the numbers that this rests on."""

    faults: tuple[Part, ...]
    """Keys of FAULTS, and their kind."""
    remaining: tuple[str, ...]
    """Of an ambiguous case: other faults that fit as well as the first."""
    apart: str
    """What would tell these apart."""
    level: str
    """Precision of the server, as far as its answers say; empty where they do not."""
    served: np.ndarray
    own: np.ndarray
    """Scores (n,), and the model's own rewards of the same inputs, in the order sent."""
    forms: np.ndarray
    """What each input was sent as (n,)."""
    fault_difference: float | None
    """Largest |served − what the named faults give|; None where that is not one number."""
    repeat_difference: float
    """Largest difference between two answers to one input, sent alone."""
    batch_difference: float
    """Largest difference between an input alone and in a batch of unlike lengths."""
    outputs: tuple[int, int]
    """Outputs that the server gives, and that the model has."""

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
        """Right, or a lower precision that moves no reward by 0.3 standard deviations."""
        only = {part.fault for part in self.faults} <= {"lower_precision"}
        return only and self.own_difference <= max(TOLERANCE.values()) * self.spread


def scale_of(values: np.ndarray) -> float:
    """What differences are measured by: the standard deviation, or of values that hardly vary their
    size."""
    return max(float(np.std(values)), 1e-3 * float(np.abs(values).max()), 1e-9)


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
        base: the reward model that training began from, where there is one: whose head an adapter
            replaces.
        forms: of `ids`, `messages` and `text`, what the server takes. Faults of the chat template
            show in the last two only.
        budget: most inputs that are sent.

    Raises:
        ConfigError: nothing can be sent. WorkError: answers of another shape than (n,) or (n,
            outputs).
    """
    interview = Interview(
        scores,
        model,
        base=base,
        forms=forms,
        prompt=prompt,
        device=device,
        seed=seed,
        budget=budget,
    )
    if not interview.forms:
        raise ConfigError(
            f"nothing that this server takes can be made for {model.name!r}: type forms=[ids]"
        )
    first, *others = interview.forms
    interview.first_round(first)
    faults = outputs(interview)
    remaining: tuple[str, ...] = ()
    best: Fit | None = None
    if not faults:
        best, rivals = settle(interview, first, list(interview.hypotheses(first)))
        if best is None:
            faults, remaining = free(interview, first)
        else:
            remaining = rivals
            for form in others:
                best, rivals = another_form(interview, form, best)
                remaining = remaining or rivals
            faults = best.hypothesis.faults
            declared = model.spec.dtype.value
            if FINENESS.index(best.level) > FINENESS.index(declared):
                faults += (Part("lower_precision", best.level),)
    first_name = faults[0].fault if faults else ""
    return Diagnosis(
        faults=faults,
        remaining=remaining,
        apart=APART.get((first_name, remaining[0]), OTHERWISE) if remaining else "",
        level="" if best is None else best.level,
        served=interview.served,
        own=interview.predict(Hypothesis()),
        forms=np.array(interview.asked.form),
        fault_difference=None
        if best is None
        else float(np.abs(interview.served - best.predicted).max()),
        repeat_difference=interview.repeat_difference,
        batch_difference=interview.batch_difference,
        outputs=(len(interview.asked.answers[0]), interview.local.outputs),
    )


def outputs(interview: Interview) -> tuple[Part, ...]:
    """Faults that the answers' shape shows: another number of outputs than the model's, or what is
    no number."""
    answers, expected = interview.asked.answers, interview.local.outputs
    width = len(answers[0])
    if not np.isfinite(interview.served).all():
        return (Part("unknown", "scores that are not numbers"),)
    if width == expected:
        return ()
    if width != 2:
        state = width == interview.network.config.get_text_config().hidden_size
        return (
            Part("last_element" if state else "unknown", f"{width} outputs instead of {expected}"),
        )
    own = interview.predict(Hypothesis())
    for column in range(width):
        if np.abs(interview.asked.scores(column) - own).max() <= max(TOLERANCE.values()) * scale_of(
            own
        ):
            return (Part("two_outputs", f"number {column} is the reward"),)
    one = np.allclose(np.sum(answers, axis=1), 1, atol=1e-4)
    return (
        Part("two_outputs", "probabilities of two classes" if one else "neither is the reward"),
    )


def fit(
    interview: Interview,
    hypothesis: Hypothesis,
    *,
    predicted: np.ndarray | None = None,
    noise: float = EXACT,
    sharper: float = 1.0,
    level: str = "float32",
) -> Fit:
    """Answers against a hypothesis."""
    served = interview.served
    predicted = interview.predict(hypothesis) if predicted is None else predicted
    rounding = 4e-7 * float(np.abs(predicted).max()) + 1e-12
    repeat = min(interview.repeat_difference, 0.1 * scale_of(served))
    sigma = float(np.hypot(max(noise / sharper * scale_of(predicted), rounding), repeat))
    squares = (served - predicted) ** 2
    likelihood = (
        -len(served) * np.log(sigma)
        - squares.sum() / (2 * sigma**2)
        - FAULT * len(hypothesis.faults)
    )
    return Fit(
        hypothesis,
        predicted,
        sigma,
        noise,
        level,
        float(likelihood),
        float(np.sqrt(squares.mean())),
    )


def settle(
    interview: Interview,
    form: str,
    candidates: Sequence[Hypothesis],
    *,
    noise: float = EXACT,
    level: str = "float32",
) -> tuple[Fit | None, tuple[str, ...]]:
    """The hypothesis that fits best, after further inputs where several do, and the faults that
    remain beside it; None where none fits. The first candidate is taken at once where it does."""
    first = fit(interview, candidates[0], noise=noise, level=level)
    if first.adequate and level == "float32":
        return first, ()
    while True:
        fits = [fit(interview, one, noise=noise, level=level) for one in candidates]
        if level == "float32" and not any(one.adequate for one in fits):
            fits += in_lower_precision(interview, fits)
        fits = sorted((one for one in fits if one.adequate), key=lambda one: -one.log_likelihood)
        if not fits:
            return None, ()
        best, known = fits[0], len(candidates[0].faults)
        if len(best.hypothesis.faults) == known:
            return best, ()
        rivals = {
            one.hypothesis.names: one
            for one in reversed(fits)
            if one.log_likelihood > best.log_likelihood - RIVAL
            and one.hypothesis.names != best.hypothesis.names
            and len(one.hypothesis.faults) == len(best.hypothesis.faults)
        }
        if not any(tell_apart(interview, form, best, rival) for rival in rivals.values()):
            return best, tuple(
                sorted({name for names in rivals for name in names - best.hypothesis.names})
            )


def in_lower_precision(interview: Interview, fits: Sequence[Fit]) -> list[Fit]:
    """The closest of them again, in each lower precision: with that much noise around what float32
    gives, and by what this precision gives here, which another machine's comes close to."""
    closest = sorted(fits, key=lambda one: one.residual / scale_of(one.predicted))[:8]
    closest += [one for one in fits[:1] if one not in closest]
    fits_below = []
    for level in LEVELS:
        network = in_level(interview.model, interview.network, level, interview.device)
        local = Local(network)
        for one in closest:
            lower = interview.predict(one.hypothesis, local)
            apart = float(np.sqrt(((lower - one.predicted) ** 2).mean())) / scale_of(one.predicted)
            if np.isfinite(apart) and apart > EXACT:
                judged = partial(fit, interview, one.hypothesis, noise=apart, level=level)
                fits_below.append(judged(predicted=one.predicted))
                fits_below.append(judged(predicted=lower, sharper=4))
    return fits_below


def tell_apart(interview: Interview, form: str, first: Fit, second: Fit) -> bool:
    """Send the inputs on which two hypotheses differ most, where any of a random pool is clear and
    the budget allows."""
    pool = interview.pool(form)
    predicted = [interview.predict(one.hypothesis, asked=pool) for one in (first, second)]
    apart = np.abs(predicted[0] - predicted[1]) / (first.sigma + second.sigma)
    clear = [
        row for row in np.argsort(-apart)[: min(FURTHER, interview.left)] if apart[row] > ADEQUATE
    ]
    for row in clear:
        interview.send(form, [pool.inputs[row]])
    return bool(clear)


def another_form(interview: Interview, form: str, best: Fit) -> tuple[Fit, tuple[str, ...]]:
    """What the server reads of conversations in another form, with what it does to the first form
    given."""
    lengths, known = interview.lengths(), best.hypothesis
    for number in range(min(TEXTS, interview.left)):
        interview.send(form, [interview.item(form, lengths[number % len(lengths)] + 2)])
    candidates = [known] + [
        Hypothesis(known.reading, known.link, (*known.variants, (form, variant)))
        for variant in interview.wrong_variants(form)
    ]
    found, rivals = settle(interview, form, candidates, noise=best.noise, level=best.level)
    if found is not None:
        return found, rivals
    none = Hypothesis(
        known.reading,
        known.link,
        (*known.variants, (form, Part("another_template", "none of those known"))),
    )
    return fit(
        interview, none, noise=best.noise, level=best.level
    ), ()  # whose prediction is the right template's


def free(interview: Interview, form: str) -> tuple[tuple[Part, ...], tuple[str, ...]]:
    """The fault where no weights that are at hand explain the answers, and what remains beside
    it."""
    if alone_right(interview):
        return (Part("left_padding", "by an unknown pad token"),), ("pad_read_as_end",)
    lengths = interview.lengths()
    for number in range(interview.left):  # weights are many, so all that the budget allows
        interview.send(form, [interview.item(form, lengths[number % len(lengths)])])
    likelihoods = free_weights(interview)
    plain = max(
        likelihoods.pop("unknown") + PLAIN, likelihoods.pop("other_states", -np.inf) - RIVAL
    )
    name = max(likelihoods, key=likelihoods.__getitem__, default=None)
    if name is None or likelihoods[name] < plain:
        tau = kendalltau(interview.served, interview.predict(Hypothesis())).statistic
        unread = () if form == "ids" else ("another_template",)
        return (Part("unknown", f"Kendall's tau with the model's own rewards {tau:.2f}"),), unread
    if name == "two_outputs":
        return (Part(name, "one probability of two"),), ("random_head",)
    return (Part(name),), (
        "adapter_head",
    ) if name == "random_head" and interview.base is None else ()


def alone_right(interview: Interview) -> bool:
    """Whether inputs sent alone get the model's rewards, and others do not."""
    request = np.array(interview.asked.request)
    alone = np.isin(
        request,
        [
            one
            for one, count in zip(*np.unique(request, return_counts=True), strict=True)
            if count == 1
        ],
    )
    off = np.abs(interview.served - interview.predict(Hypothesis()))
    limit = allowed(interview.served, dtype=Dtype.float32)
    return bool(off[alone].max() <= limit < off[~alone].max())


def free_weights(interview: Interview) -> dict[str, float]:
    """Log-likelihoods of explanations with free weights: `random_head` and `two_outputs` (one
    probability of two), Gaussian processes linear in the last states, of weights of unknown size;
    `scale`, a linear function of the rewards; `unknown`, answers that depend on nothing;
    `other_states`, those that are linear in states somewhat like the model's.

    Every input counts once: answers to an input that is sent again say nothing about weights.
    """
    rows = interview.asked.distinct
    y, n, rewards = interview.served[rows], len(rows), interview.predict(Hypothesis())[rows]
    floor = (4e-7 * np.abs(y).max() + 1e-12) ** 2
    line = np.polynomial.Polynomial.fit(rewards, y, 1)
    found = {"unknown": _at_best_variance(y.var() + floor, n) - FREE}
    off_line = ((y - line(rewards)) ** 2).mean()
    if off_line < LINEAR * y.var():
        found["scale"] = _at_best_variance(off_line + floor, n) - 2 * FREE
    if interview.local.decoder is None:
        return found
    seen = interview.seen(Hypothesis())
    x = last_states(interview.local, [seen[row] for row in rows])
    energy = (x**2).sum(1).mean()
    processes: dict[str, list[float]] = {"random_head": [], "two_outputs": []}
    for noise in (*STATE_NOISE, *OTHER_STATES):
        values, vectors = np.linalg.eigh(x @ x.T + noise * energy * np.eye(n))
        values = np.maximum(values, 1e-12 * energy)

        def process(z: np.ndarray, values=values, vectors=vectors) -> float:
            variance = ((vectors.T @ z) ** 2 / values).mean()
            return float(_at_best_variance(variance, n) - np.log(values).sum() / 2 - FREE)

        if noise in OTHER_STATES:
            found["other_states"] = max(found.get("other_states", -np.inf), process(y))
            continue
        processes["random_head"].append(process(y))
        if y.min() > 0 and y.max() < 1:
            density = -np.log(y * (1 - y)).sum()  # of the logit's derivative
            processes["two_outputs"].append(process(np.log(y / (1 - y))) + density)
    return found | {name: max(values) for name, values in processes.items() if values}


def _at_best_variance(variance: float, n: int) -> float:
    """Log-likelihood of n normal numbers of the variance that suits them best, less the constant
    that all share."""
    return -n / 2 * (np.log(variance) + 1)
