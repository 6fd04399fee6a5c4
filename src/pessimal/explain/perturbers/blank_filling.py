"""A baseline: words of the response are blanked out, and a masked language model fills the blanks.

In the manner of Polyjuice (Wu et al. 2021), without its control codes: it fills blanks at random places, knows neither
attribute nor direction, and shows what changes of such a size do by themselves. Polyjuice itself is a GPT-2 fine-tuned to
fill several words at once; this puts one word for each. Knows texts and one masked language model. Does not know rewards.
"""

import re
from collections.abc import Sequence

import numpy as np

from pessimal.errors import ConfigError
from pessimal.explain.chat.checkpoints import check_named
from pessimal.explain.chat.masked_model import MaskedModel
from pessimal.explain.chat.question import digest_of
from pessimal.explain.perturbation import Perturbation, Request, Status
from pessimal.explain.rules.draw import generator

_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")


class BlankFilling:
    """Fills blanks (see `Perturber`)."""

    name = "blank-filling"

    def __init__(
        self,
        model: str | None,
        *,
        revision: str | None = None,
        share: float = 0.15,
        longest: int = 3,
        temperature: float = 1.0,
        device: str = "auto",
    ):
        """
        Args:
            model: masked language model: a Hub repository or a local folder. Its network is loaded with the first request.
            share: of the response's words that is blanked out, 0 to 1; at least one word.
            longest: words of one blanked span, at most; spans of 1 to so many are drawn.
            temperature: of the sampling; 0 always takes the likeliest word, so that seeds choose the blanks alone.
            device: cpu, cuda, cuda:N, mps or auto.

        Raises:
            ConfigError: no model, or an impossible option.
        """
        check_named(model, revision, kind="a masked language model", example="FacebookAI/roberta-base")
        if not 0 < share <= 1:
            raise ConfigError(
                f"perturber.share={share}: the share of words to blank out, above 0 and up to 1"
            )
        if longest < 1:
            raise ConfigError(f"perturber.longest={longest}, but at least 1 word is needed")
        if not temperature >= 0:
            raise ConfigError(f"perturber.temperature={temperature}, but at least 0 is needed")
        self.share, self.longest, self.temperature = share, longest, temperature
        self._model = MaskedModel(model, revision, device=device)

    def provenance(self) -> dict:
        """The model's weights and words, and the options."""
        return {
            "perturber": self.name,
            "model": self._model.provenance(),
            "share": self.share,
            "longest": self.longest,
            "temperature": self.temperature,
            "words": digest_of(_WORD.pattern),
        }

    def perturb(self, requests: Sequence[Request]) -> list[Perturbation]:
        """One perturbation a request, in their order; attribute and direction only make them differ from one another.
        ModelError where the model is no masked language model."""
        return [self._perturb(request) for request in requests]

    def _perturb(self, request: Request) -> Perturbation:
        text = request.text
        random = generator(
            self.name,
            request.comparison.key,
            request.response,
            request.attribute.name,
            request.direction.value,
            request.seed,
        )
        words = [match.span() for match in _WORD.finditer(text)]
        if not words:
            return Perturbation(request, Status.not_applicable, note="the response has no words")
        blanks = [words[index] for index in draw_blanks(len(words), self.share, self.longest, random)]
        edited, moved = text, 0  # how much longer the text has become left of the next blank
        for start, end in blanks:
            old = text[start:end]
            before, after = edited[: start + moved], edited[end + moved :]
            new = self._model.fill(before, after, old=old, temperature=self.temperature, random=random)
            edited = before + new + after
            moved += len(new) - len(old)
        note = f"{len(blanks)} of {len(words)} words blanked out and filled"
        # No spans: nobody said that these words bear on the attribute.
        return Perturbation(request, Status.changed, edited, note=note)


def draw_blanks(words: int, share: float, longest: int, random: np.random.Generator) -> list[int]:
    """Which of so many words are blanked out, in order: spans of 1 to `longest` words, `share` of all in sum."""
    wanted = min(words, max(1, round(share * words)))
    chosen: set[int] = set()
    for start in random.permutation(words).tolist():
        if start in chosen:
            continue
        length = min(int(random.integers(1, longest + 1)), wanted - len(chosen))
        for index in range(start, min(start + length, words)):
            if index in chosen:
                break
            chosen.add(index)
        if len(chosen) == wanted:
            break
    return sorted(chosen)
