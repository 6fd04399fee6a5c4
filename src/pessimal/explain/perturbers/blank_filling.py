"""A baseline: words of the response are blanked out, and a masked language model fills the blanks.

In the manner of Polyjuice (Wu et al. 2021), without its control codes: it fills blanks at random places, knows neither
attribute nor direction, and shows what changes of such a size do by themselves. Polyjuice itself is a GPT-2 fine-tuned to
fill several words at once; this puts one word for each. Knows texts and one masked language model. Does not know rewards.
"""

import re
from collections.abc import Sequence
from typing import Annotated

import numpy as np
from annotated_types import Interval

from pessimal.errors import ConfigError, ModelError
from pessimal.explain.chat.question import digest_of, sendable
from pessimal.explain.edits import generator
from pessimal.explain.perturbation import Perturbation, Request, Status
from pessimal.explain.perturbers import check_named, folder_of
from pessimal.explain.perturbers.placebo import Placebo
from pessimal.tables.files import sha256_of

_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")
_STARTS = ("Ġ", "▁")  # how byte-level and unigram vocabularies mark a token that begins a word
_CONTINUES = "##"  # how WordPiece marks one that does not

# Characters at either side of a gap that are looked at: more than 512 tokens take, and a long text is not read again
# and again for each of its gaps.
_NEAR = 8_000


class BlankFilling:
    """Fills blanks (see `Perturber`)."""

    name = "blank-filling"

    def __init__(
        self,
        model: str,
        *,
        revision: str | None = None,
        share: Annotated[float, Interval(gt=0, le=1)] = 0.15,
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
        check_named(model, revision)
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

    def placebo(self) -> Placebo:
        """Who makes edits that keep the meaning: rules, since this one knows no meaning."""
        return Placebo()

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


class MaskedModel:
    """A masked language model that puts one word into one gap of a text; its files are looked for, and its network loaded, when they are first needed."""

    def __init__(self, model: str, revision: str | None, *, device: str):
        self.model, self.revision, self.device = model, revision, device
        self._folder = self._network = self._tokenizer = self._words = None

    def provenance(self) -> dict:
        """Name, weights and tokenizer."""
        from pessimal.models.digests import weights_digest

        files = self._files()
        return {
            "name": self.model,
            "revision": self.revision,
            "weights": weights_digest(files),
            "settings": {file.name: sha256_of(file) for file in sorted(files.glob("*.json"))},
        }

    def fill(
        self, before: str, after: str, *, old: str, temperature: float, random: np.random.Generator
    ) -> str:
        """A word for the gap between two texts, drawn by its probability among all whole words of the vocabulary but the
        old one; capitalised as the old one was.

        Args:
            old: what stood there.
            temperature: 0 takes the likeliest word.
            random: one draw is made.
        """
        import torch

        self._load()
        # A gap is a whole word: the blanks at its side belong to the text and not to the word.
        inside, at = self._window(self._ids(before[-_NEAR:].rstrip()), self._ids(after[:_NEAR]))
        with torch.inference_mode():
            logits = self._network(input_ids=torch.tensor([inside], device=self._network.device)).logits[
                0, at
            ]
        scores = logits.float().cpu().numpy().astype(np.float64)
        ids = np.array([index for index, word in self._words.items() if word.casefold() != old.casefold()])
        word = self._words[int(ids[draw(scores[ids], temperature, random.random())])]
        return word[:1].upper() + word[1:] if old[:1].isupper() else word

    def _ids(self, text: str) -> list[int]:
        # A response may quote a special token; it is text here.
        options = {"add_special_tokens": False, "split_special_tokens": True, "verbose": False}
        return self._tokenizer(sendable(text), **options)["input_ids"]

    def _window(self, before: list[int], after: list[int]) -> tuple[list[int], int]:
        """Ids with a mask between, and its place; of a text that is too long for the network, what is near the mask."""
        words = self._tokenizer
        first = words.cls_token_id if words.cls_token_id is not None else words.bos_token_id
        last = words.sep_token_id if words.sep_token_id is not None else words.eos_token_id
        opening, closing = ([] if end is None else [end] for end in (first, last))
        room = self._longest() - len(opening) - len(closing) - 1
        left = min(len(before), max(room // 2, room - len(after)))
        before, after = before[len(before) - left :], after[: room - left]
        return [*opening, *before, words.mask_token_id, *after, *closing], len(opening) + left

    def _longest(self) -> int:
        positions = getattr(self._network.config, "max_position_embeddings", None) or 512
        # RoBERTa's count includes two that are never used; its tokenizer knows.
        return min(positions, self._tokenizer.model_max_length, 512)

    def _files(self):
        if self._folder is None:
            self._folder = folder_of(self.model, self.revision)
        return self._folder

    def _load(self) -> None:
        if self._network is not None:
            return
        import torch
        from transformers import MODEL_FOR_MASKED_LM_MAPPING, AutoConfig, AutoModelForMaskedLM, AutoTokenizer

        folder = self._files()
        try:
            config = AutoConfig.from_pretrained(folder)
            tokenizer = AutoTokenizer.from_pretrained(folder)
        except Exception as error:
            raise ModelError(f"the masked language model in {folder} cannot be read: {error}") from error
        if type(config) not in MODEL_FOR_MASKED_LM_MAPPING or tokenizer.mask_token_id is None:
            raise ModelError(
                f"{self.model!r} ({type(config).__name__}) is no masked language model, or its tokenizer has no mask: it "
                "fills no blanks. Give a BERT or RoBERTa, for example: perturber.model=FacebookAI/roberta-base"
            )
        try:
            network, report = AutoModelForMaskedLM.from_pretrained(
                folder, use_safetensors=True, output_loading_info=True, dtype=torch.float32
            )
        except Exception as error:
            raise ModelError(f"the masked language model in {folder} cannot be loaded: {error}") from error
        if missing := sorted(report["missing_keys"]):
            raise ModelError(
                f"the checkpoint in {folder} lacks {missing[:5]}: these would be random, and so would what it fills in. "
                "Give a masked language model with its head"
            )
        device = self.device
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        self._tokenizer, self._words = tokenizer, whole_words(tokenizer, config.vocab_size)
        self._network = network.to(device).eval().requires_grad_(False)


def draw(scores: np.ndarray, temperature: float, uniform: float) -> int:
    """Which of some logits is drawn by a uniform number: by inversion, one number whatever the size of the vocabulary.
    At temperature 0 the highest one is."""
    if temperature == 0:
        return int(np.argmax(scores))
    weights = np.exp((scores - scores.max()) / temperature)
    total = np.cumsum(weights)
    return int(min(np.searchsorted(total, uniform * total[-1], side="right"), len(scores) - 1))


def whole_words(tokenizer, rows: int) -> dict[int, str]:
    """The tokens of a vocabulary that are a whole word of letters, by id.

    Raises:
        ModelError: there is none.
    """
    names = {index: name for name, index in tokenizer.get_vocab().items() if index < rows}
    marked = any(name.startswith(_STARTS) and len(name) > 1 for name in names.values())
    words = {}
    for index, name in sorted(names.items()):
        begins = name.startswith(_STARTS) if marked else not name.startswith(_CONTINUES)
        if not begins or index in tokenizer.all_special_ids:
            continue
        # Byte-level vocabularies write letters beyond ASCII as bytes; only decoding tells.
        word = tokenizer.decode([index]).strip()
        if word.isalpha():
            words[index] = word
    if not words:
        raise ModelError("the masked language model's vocabulary holds no whole words")
    return words
