"""A baseline: words of the response are blanked out, and a masked language model fills the blanks.

In the manner of Polyjuice (Wu et al. 2021), without its control codes: it fills blanks at random
places, knows neither attribute nor direction, and shows what changes of such a size do by
themselves. Polyjuice itself is a GPT-2 fine-tuned to fill several words at once; this puts one word
for each. Does not know rewards.

    PYTHONPATH=. pessimal --config-dir experiments/contrastive_explanations/conf \\
        explain model=NAME perturber=blank_filling perturber.model=FacebookAI/roberta-base
"""

import re
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import numpy as np
from annotated_types import Ge, Interval
from pydantic.dataclasses import dataclass

from pessimal.errors import ConfigError, ModelError
from pessimal.explaining.chat import digest_of
from pessimal.explaining.language import generator
from pessimal.explaining.perturbers import Perturbation, Request, Status
from pessimal.explaining.perturbers.rules import OneByOne
from pessimal.options import DESCRIBED
from pessimal.tables.files import sha256_of
from pessimal.texts import WORD

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from pessimal.rewards.spec import CheckpointSpec

_STARTS = ("Ġ", "▁")  # how byte-level and unigram vocabularies mark a token that begins a word
_CONTINUES = "##"  # how WordPiece marks one that does not
# Characters at either side of a gap that are looked at: more than 512 tokens take, and a long text
# is not read again and again for each of its gaps.
_NEAR = 8_000


_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+|[A-Za-z0-9][\w.-]*")


@dataclass(kw_only=True, config=DESCRIBED)
class Checkpoint:
    """Options of a perturber that is a network. Importing and making it loads no torch."""

    model: str
    """Hub repository (`org/name`), or local folder."""
    revision: str | None = None
    """Commit, tag or branch of the repository."""
    device: str = "auto"
    """cpu, cuda, cuda:N, mps; auto is cuda where there is one."""

    def __post_init__(self) -> None:
        """ConfigError where the name can be neither a folder nor a repository."""
        folder = Path(self.model).expanduser().is_dir()
        if folder and self.revision is not None:
            raise ConfigError(
                f"perturber.revision={self.revision!r} was given for the local folder "
                f"{self.model!r}, which has none: leave it out"
            )
        if not folder and not _HUB_ID.fullmatch(self.model):
            raise ConfigError(
                f"perturber.model={self.model!r} is neither a folder on this machine nor a Hub "
                "repository of the form org/name"
            )

    @cached_property
    def folder(self) -> Path:
        """The files, fetched from the Hub where they are not here; ModelError where they cannot be
        had."""
        from pessimal.rewards.obtain import local_folder

        return local_folder(self.model, self.revision, local="perturber.model=DIR")

    @cached_property
    def spec(self) -> "CheckpointSpec":
        """The same checkpoint as rewards are opened by."""
        from pessimal.rewards.log_probability import LogProbabilitySpec

        return LogProbabilitySpec(name=self.model, path=str(self.folder))

    @cached_property
    def weights(self) -> str:
        """Digest of the weights."""
        from pessimal.rewards.weights import weights_digest

        return weights_digest(self.folder)

    @cached_property
    def tokenizer(self) -> "PreTrainedTokenizerBase":
        """Its tokenizer."""
        from pessimal.rewards.checkpoint_files import load_tokenizer

        return load_tokenizer(self.spec, self.folder)

    def load(self, task: str, wanted: str, *, dtype: str) -> "PreTrainedModel":
        """The network, in evaluation mode.

        Args:
            task: in the names of transformers, such as CausalLM.
            wanted: what it is to be, and what to give instead, for the error.
            dtype: auto, float32, bfloat16 or float16.

        Raises:
            ModelError: it is of another kind, cannot be read, or lacks weights.
        """
        import torch
        import transformers

        from pessimal.rewards.checkpoint_files import load_checkpoint, read_checkpoint
        from pessimal.rewards.language import has_reward_head
        from pessimal.rewards.spec import Dtype

        checkpoint = read_checkpoint(self.spec, self.folder)
        config, shapes = checkpoint.config, checkpoint.shapes
        of_task = {"CausalLM": transformers.MODEL_FOR_CAUSAL_LM_MAPPING}
        of_task["MaskedLM"] = transformers.MODEL_FOR_MASKED_LM_MAPPING
        if type(config) not in of_task[task] or has_reward_head(shapes):
            raise ModelError(f"{self.model!r} ({type(config).__name__}) is no {wanted}")
        make = partial(getattr(transformers, f"AutoModelFor{task}").from_pretrained, self.folder)
        if dtype == "auto":
            dtype = str(config.dtype or torch.float32).removeprefix("torch.")
        network = load_checkpoint(
            self.spec,
            self.folder,
            lambda config, **options: make(config=config, **options),
            dtype=Dtype(dtype),
            noun="model",
            advice=", and so would what it writes",
        )
        device = self.device
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        return cast("PreTrainedModel", network.to(device))


@dataclass(kw_only=True, config=DESCRIBED)
class BlankFilling(OneByOne, Checkpoint):
    """Fills blanks (see `Perturber`) by a masked language model, such as a BERT or RoBERTa."""

    share: Annotated[float, Interval(gt=0, le=1)] = 0.15
    """Of the response's words that is blanked out; at least one word."""
    temperature: Annotated[float, Ge(0)] = 1.0
    """Of sampling; 0 always takes the likeliest word, so that seeds choose the blanks alone."""

    name = "blank-filling"

    def provenance(self) -> dict[str, Any]:
        """The model's weights and words, and the options."""
        model = {
            "name": self.model,
            "revision": self.revision,
            "weights": self.weights,
            "settings": {file.name: sha256_of(file) for file in sorted(self.folder.glob("*.json"))},
        }
        sampling = {"share": self.share, "temperature": self.temperature}
        words = {"words": digest_of(WORD.pattern)}
        return {"perturber": self.name, "model": model, **sampling, **words}

    def perturbed(self, request: Request) -> Perturbation:
        """Attribute and direction only make requests differ from one another. ModelError where the
        model is no masked language model."""
        random = generator(self.name, *request.key, request.seed)
        words = [match.span() for match in WORD.finditer(request.text)]
        if not words:
            return Perturbation(request, Status.not_applicable, note="the response has no words")
        blanks = [words[index] for index in draw_blanks(len(words), self.share, random)]
        filled, position = "", 0  # the new text so far, and where it has come to in the response
        for start, end in blanks:
            filled += request.text[position:start]
            old, after = request.text[start:end], request.text[end:]
            filled += self._fill(filled, after, old=old, random=random)
            position = end
        note = f"{len(blanks)} of {len(words)} words blanked out and filled"
        # No spans: nobody said that these words bear on the attribute.
        return Perturbation(request, Status.changed, filled + request.text[position:], note=note)

    def _fill(self, before: str, after: str, *, old: str, random: np.random.Generator) -> str:
        """A word for the gap between two texts, drawn by its probability among all whole words of
        the vocabulary but the old one; capitalised as the old one was."""
        import torch
        from scipy.special import softmax

        # A gap is a whole word: the blanks at its side belong to the text and not to the word.
        ids, at = self._window(self._ids(before[-_NEAR:].rstrip()), self._ids(after[:_NEAR]))
        inputs = torch.tensor([ids], device=self._network.device)
        with torch.inference_mode():
            logits = self._network(input_ids=inputs).logits
        others = [index for index, word in self._words.items() if word.casefold() != old.casefold()]
        scores = logits[0, at].double().cpu().numpy()[others]
        if self.temperature == 0:
            word = self._words[others[int(np.argmax(scores))]]
        else:
            word = self._words[int(random.choice(others, p=softmax(scores / self.temperature)))]
        return word[:1].upper() + word[1:] if old[:1].isupper() else word

    def _ids(self, text: str) -> list[int]:
        # A response may quote a special token; it is text here.
        options = {"add_special_tokens": False, "split_special_tokens": True, "verbose": False}
        return self.tokenizer(text, **options)["input_ids"]

    def _window(self, before: list[int], after: list[int]) -> tuple[list[int], int]:
        """Ids with a mask between, and its place; of a text that is too long for the network, what
        is near the mask."""
        words = self.tokenizer
        first = words.cls_token_id if words.cls_token_id is not None else words.bos_token_id
        last = words.sep_token_id if words.sep_token_id is not None else words.eos_token_id
        opening, closing = ([] if end is None else [end] for end in (first, last))
        # RoBERTa's count of positions includes two that are never used; its tokenizer knows.
        positions = getattr(self._network.config, "max_position_embeddings", None) or 512
        room = min(positions, words.model_max_length, 512) - len(opening) - len(closing) - 1
        left = min(len(before), max(room // 2, room - len(after)))
        before, after = before[len(before) - left :], after[: room - left]
        return [*opening, *before, words.mask_token_id, *after, *closing], len(opening) + left

    @cached_property
    def _network(self) -> "PreTrainedModel":
        wanted = (
            "masked language model, or its tokenizer has no mask: it fills no blanks. Give a BERT "
            "or RoBERTa with its head, for example: perturber.model=FacebookAI/roberta-base"
        )
        network = self.load("MaskedLM", wanted, dtype="float32")
        if self.tokenizer.mask_token_id is None:
            raise ModelError(f"{self.model!r} is no {wanted}")
        return network

    @cached_property
    def _words(self) -> dict[int, str]:
        """The tokens of the vocabulary that are a whole word of letters, by id; ModelError where
        there is none."""
        tokenizer, rows = self.tokenizer, self._network.config.vocab_size
        tokens = {index: name for name, index in tokenizer.get_vocab().items() if index < rows}
        marked = any(name.startswith(_STARTS) and len(name) > 1 for name in tokens.values())
        words: dict[int, str] = {}
        for index, name in sorted(tokens.items()):
            begins = name.startswith(_STARTS) if marked else not name.startswith(_CONTINUES)
            if begins and index not in tokenizer.all_special_ids:
                # Byte-level vocabularies write letters beyond ASCII as bytes; only decoding tells.
                word = str(tokenizer.decode([index])).strip()
                words |= {index: word} if word.isalpha() else {}
        if not words:
            raise ModelError("the masked language model's vocabulary holds no whole words")
        return words


def draw_blanks(
    words: int, share: float, random: np.random.Generator, *, longest: int = 3
) -> list[int]:
    """Which of so many words are blanked out, in order: spans of 1 to `longest` words, `share` of
    all in sum."""
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
