"""What the result of a search depends on."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from pessimal.conversation import Asked
from pessimal.rewards.checkpoint_files import of_model
from pessimal.searching.allowed import digest
from pessimal.searching.context import SearchContext
from pessimal.searching.spec import Filter
from pessimal.tables.score_table import ModelProvenance

USUAL = ("ids", "float32", "all")
"""Mode, precision and method that a name leaves out."""


@dataclass(frozen=True, kw_only=True)
class SearchProvenance(ModelProvenance):
    """Two results with one key are the same search, but for the last bits that another device or
    batch size may change, and for what the registry held when it began."""

    prompts: dict[str, Asked]  # what is answered, or has the slot, by key; the mean is searched
    goal: str
    length: int
    mode: str
    allowed: int
    """How many tokens a response may be made of; `allowed_digest` says which."""
    allowed_digest: str
    tokens: str = ""
    """Which tokens these are, for the name, where they are not the usual ones."""
    options: dict = field(default_factory=dict)  # the other options of the search
    seed: int = 0
    named: str = ""
    """What the prompts are called together."""
    objective: str = ""
    """What is searched besides a whole answer's reward: the slot with its answer, the policy with
    its share; part of the name."""
    beside: dict = field(default_factory=dict)
    """What the result is reported on: what is held out, the policy and how many answers it
    writes."""

    def fields(self) -> dict[str, Any]:
        """Every field that the key covers, by name."""
        fields = super().fields()
        del fields["tokens"]  # the digest says it
        return fields

    @property
    def name(self) -> str:
        """Name of the artifact: what distinguishes results in a list; the key covers everything."""
        parts = [self.model, self.named, f"{self.goal}-{self.length}", self.objective]
        method = self.options.get("method", "")
        more = (str(part) for part in (self.mode, self.dtype, self.tokens, method))
        parts = [part for part in parts if part]
        return "--".join([*parts, *(part for part in more if part and part not in USUAL)])


def identify(context: SearchContext) -> SearchProvenance:
    """What the result of a search will depend on, known before the network is loaded."""
    spec = context.spec
    tokens = "+".join(one.value for one in spec.allowed) or "every-token"
    if spec.allowed_path is not None:
        tokens += f"+{Path(spec.allowed_path).stem}-{digest(context.mask)[:6]}"
    named = ("length", "goal", "allowed", "allowed_path")
    return SearchProvenance(
        model=context.model.name,
        prompts=context.prompts,
        goal=spec.goal.value,
        length=spec.length,
        mode=context.mode.value,
        allowed=int(context.mask.sum()),
        allowed_digest=digest(context.mask),
        tokens="" if tokens == Filter.no_special.value else tokens,
        options={
            name: value.value if isinstance(value, Enum) else value
            for name, value in vars(spec).items()
            if name not in named
        },
        seed=context.seed,
        named=context.named,
        objective="--".join(_objective(context)),
        beside={
            "held_out": repr(context.held_out),
            "policy": context.policy and context.policy.digests,
            "answers": context.answers,
        },
        **of_model(context.model),
    )


def _objective(context: SearchContext) -> Iterator[str]:
    """Parts of a name: the slot, the given answer, the share and the name of a policy."""
    spec = context.spec
    if context.named_slot:
        asked = "" if context.edits is None else spec.answer
        what = repr((asked, list(context.prompts.values())))
        yield f"{context.named_slot}-{hashlib.sha256(what.encode()).hexdigest()[:6]}"
    if spec.fluency and context.policy is not None:
        yield f"fluent{spec.fluency:g}-{context.policy.name}"
