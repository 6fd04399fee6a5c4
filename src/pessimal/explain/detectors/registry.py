"""Which detector measures which attribute, and how much it must move to count.

Knows the detectors by name. Does not know what was asked of a response.

How right they are, on pairs that differ in one attribute. *Minimal*: 160 pairs of this project (tests/explain/
minimal_pairs.jsonl), written by the detectors' author, so optimistic; harmlessness and sensitivity were revised after
seeing some. *Contrasts*: the 109 attributes, besides correctness, named in 60 embedded comparisons by somebody else; the
two responses differ in more than the attribute, so harder than judging an edit; five detectors were revised after these.

    attribute         minimal   contrasts        attribute         minimal   contrasts
    appropriateness    10/10       6/7           harmlessness       14/14       6/9
    assertiveness      10/10       6/7           helpfulness         9/10       9/14
    avoid-to-answer    10/10       5/5           informativeness    10/10       9/14
    clarity             9/10       5/9           neutrality         10/10       4/5
    coherence          10/10       4/5           relevance          10/10       4/5
    complexity         10/10       5/5           sensitivity        12/14       7/9
    correctness         5/5  (7 without opinion) verbosity          10/10       6/6
    engagement         10/10       6/9

Clarity, engagement, harmlessness, helpfulness and informativeness are below 3 in 4 between different responses: their
amounts distinguish edits of one response, not responses from one another. Of 24 edits that keep the meaning, each detector
(but correctness) takes one to six for a move, up or down.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pessimal.explain.detectors import answering, content, tone, wording
from pessimal.explain.detectors.reading import Reading


@dataclass(frozen=True)
class Detector:
    """One attribute's measure."""

    amount: Callable[[Reading], float]
    """More where a response has more of the attribute; in the unit its docstring names."""
    threshold: float
    """In that unit: an edit of a whole response that moves the amount by no more than this has not moved it. Set so that
    about one in eight of 24 edits that keep the meaning moves it further, to either side."""
    blind: bool = False
    """It sees only some of the attribute: of an edit that leaves its amount as it was, the judge has no opinion."""


DETECTORS: Mapping[str, Detector] = {
    "appropriateness": Detector(tone.appropriateness, threshold=0.1),
    "assertiveness": Detector(tone.assertiveness, threshold=0.08),
    "avoid-to-answer": Detector(answering.avoid_to_answer, threshold=0.08),
    "clarity": Detector(wording.clarity, threshold=0.22),
    "coherence": Detector(content.coherence, threshold=0.04),
    "complexity": Detector(wording.complexity, threshold=0.22),
    "correctness": Detector(content.correctness, threshold=0.0, blind=True),
    "engagement": Detector(tone.engagement, threshold=0.1),
    "harmlessness": Detector(tone.harmlessness, threshold=0.08),
    "helpfulness": Detector(answering.helpfulness, threshold=0.1),
    "informativeness": Detector(content.informativeness, threshold=0.15),
    "neutrality": Detector(tone.neutrality, threshold=0.15),
    "relevance": Detector(answering.relevance, threshold=0.025),
    "sensitivity": Detector(tone.sensitivity, threshold=0.08),
    "verbosity": Detector(wording.verbosity, threshold=0.2),
}
"""By the attribute's name."""
