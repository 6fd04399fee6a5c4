"""From the configuration of an explanation to its tools: comparisons, attributes, who changes responses, who judges.

Knows the configuration. All of it can be made, and its mistakes reported, before a reward model is loaded.
"""

import logging
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from pessimal.config.schema import AttributeSpec, ExplainConfig, JudgeKind, PerturberKind
from pessimal.errors import InputError
from pessimal.explain import sources
from pessimal.explain.attribute import Attribute, Edit
from pessimal.explain.comparison import Comparison
from pessimal.explain.perturbation import Perturber

log = logging.getLogger(__name__)


def read_comparisons(config: ExplainConfig) -> tuple[list[Comparison], dict[str, int]]:
    """The comparisons asked for, and how many were left out, by why. InputError where none is left."""
    spec = config.comparisons
    found = sources.load(
        spec.source,
        path=Path(spec.path).expanduser() if spec.path else None,
        revision=spec.revision,
        split=spec.split,
        subset=spec.subset,
    )
    left_out = {
        "with an empty text": found.empty,
        "of two equal responses": found.identical,
        "given twice": found.duplicates,
        "that are no comparison": found.misfits,
    }
    left_out = {what: n for what, n in left_out.items() if n}
    if left_out:
        log.warning("left out: %s", ", ".join(f"{n} {what}" for what, n in left_out.items()))
    kept = found.comparisons
    if spec.single_turn:
        kept = tuple(c for c in kept if [turn.role for turn in c.turns] == ["user"])
        log.info("%d of %d comparisons have one turn", len(kept), len(found.comparisons))
    if not kept:
        raise InputError(f"comparisons={spec.name}: none is left to explain")
    n = min(spec.n, len(kept)) if spec.n else None
    if spec.n and n < spec.n:
        log.warning("comparisons.n=%d, but there are %d: all are taken", spec.n, len(kept))
    return sources.choose(kept, n=n, seed=config.seed), left_out


def attributes_of(config: ExplainConfig) -> dict[str, Attribute]:
    """The attributes by name."""
    return {name: _attribute(name, spec) for name, spec in config.contrast.items()}


def _attribute(name: str, spec: AttributeSpec) -> Attribute:
    more, less = (tuple(Edit(**asdict(edit)) for edit in edits) for edits in (spec.more, spec.less))
    return Attribute(name, spec.description, spec.polarity, more=more, less=less, detect=spec.detect)


def make_perturber(config: ExplainConfig, attributes: Mapping[str, Attribute]) -> Perturber:
    """Who changes the responses. Raises ConfigError or ModelError for what is missing or does not fit."""
    spec = config.perturber
    cache = Path(config.paths.cache) / "answers"
    match spec.kind:
        case PerturberKind.rules:
            from pessimal.explain.perturbers.rules import Rules, check

            check(list(attributes.values()))
            return Rules()
        case PerturberKind.random:
            from pessimal.explain.perturbers.random_edits import RandomEdits

            return RandomEdits(share=spec.share)
        case PerturberKind.placebo:
            return make_placebo()
        case PerturberKind.blank_filling:
            from pessimal.explain.perturbers.blank_filling import BlankFilling

            return BlankFilling(
                spec.model, revision=spec.revision, share=spec.share, temperature=spec.temperature
            )
        case PerturberKind.local:
            from pessimal.explain.chat.on_machine import OnMachineSpec
            from pessimal.explain.perturbers.local import Local

            own = OnMachineSpec(
                model=spec.model,
                revision=spec.revision,
                temperature=spec.temperature,
                max_tokens=spec.max_tokens,
            )
            return Local(
                own,
                attributes=list(attributes.values()),
                cache=cache,
                attempts=spec.attempts,
                min_locality=spec.min_locality,
            )
        case PerturberKind.llm:
            from pessimal.explain.perturbers.llm import Llm

            return Llm(
                _endpoint(config, spec.model, temperature=spec.temperature),
                attributes=list(attributes.values()),
                min_locality=spec.min_locality,
            )


def make_placebo() -> Perturber:
    """Who makes the edits that keep the meaning."""
    from pessimal.explain.perturbers.placebo import Placebo

    return Placebo()


def make_judge(config: ExplainConfig):
    """Who says whether an edit did what was asked."""
    if config.judge is JudgeKind.llm:
        from pessimal.explain.chat.judge import LlmJudge

        return LlmJudge(_endpoint(config, config.judge_model, temperature=0.0))
    from pessimal.explain.judge import RuleJudge

    return RuleJudge()


def _endpoint(config: ExplainConfig, model: str | None, *, temperature: float):
    from pessimal.explain.chat.connect import endpoint_client
    from pessimal.explain.chat.endpoint_spec import EndpointSpec

    spec = config.perturber
    endpoint = EndpointSpec(
        model=model,
        api_key_variable=spec.api_key_variable,
        temperature=temperature,
        max_tokens=spec.max_tokens,
        requests_per_minute=spec.requests_per_minute,
        concurrency=spec.concurrency,
        retries=spec.retries,
        timeout=spec.timeout,
        stop_after=spec.stop_after,
        **({"base_url": spec.base_url} if spec.base_url else {}),
    )
    return endpoint_client(
        endpoint, environment=os.environ, cache=Path(config.paths.cache) / "answers", attempts=spec.attempts
    )
