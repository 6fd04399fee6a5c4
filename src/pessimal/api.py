"""The verbs as Python functions on objects in memory; `import pessimal` offers them without
importing torch.

Nothing is written but where `save` and `train` say: no registry, no W&B, no configuration files of
one's own. Defaults are those of the command line.
"""

import math
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pessimal.catalogue import ANSWERS, answers, named_prompts
from pessimal.conversation import read_prefixes, with_prefixes
from pessimal.errors import ConfigError, InputError, did_you_mean, require
from pessimal.notebook import show_in_notebooks
from pessimal.tables import ScoreTable
from pessimal.tables.result import Result, Results

if TYPE_CHECKING:
    import torch

    from pessimal.conversation import Context
    from pessimal.explaining.comparison import Comparison
    from pessimal.rewards.base import Reward
    from pessimal.rewards.ceiling import Bounds
    from pessimal.scoring.candidates import Candidates
    from pessimal.searching.run import SearchResult


T = TypeVar("T", bound=Enum)
show_in_notebooks()


def load(
    path: str,
    *,
    kind: str | None = None,
    dtype: str | None = None,
    cache: str = "runs/cache",
    tasks: str | Path | None = None,
    **options,
) -> "Reward":
    """A reward by what one types for it: a local folder, the Hub's `org/name`, `FILE.py:FUNCTION`,
    `http://…`, or a name of conf/model: of the demo family (`plain-bpe-0`; trained on first use and
    kept in `cache`), or a real model that a package carries (`smollm2`).

    Args:
        kind: head, log_probability, implicit or judge; by default what conf/model says of a name,
            and head of any other model.
        dtype: by default float32, or what conf/model says.
        tasks: JSONL file of prompts with their columns, which functions are given.
        options: further options of a model (`pessimal.rewards.spec.ModelSpec`), such as
            revision="…", implicit={"reference": "org/name"}, judge={"template": "…", "positive":
            ["Yes"], "negative": ["No"]}, or of a function shape="trl".

    Raises:
        ConfigError, ModelError: there is none, or it is no scalar reward model.
    """
    from pessimal.rewards.named import spec_of
    from pessimal.rewards.spec import Dtype, Kind
    from pessimal.training.obtain import opened

    given = {"kind": _choice("kind", kind, Kind), "dtype": _choice("dtype", dtype, Dtype)}
    spec = spec_of(path, **{name: value for name, value in given.items() if value}, **options)
    if tasks is not None and spec.kind in (Kind.callable, Kind.sum):
        spec = replace(spec, tasks=str(tasks))
    return opened(spec, cache=cache)


def reward(
    network,
    tokenizer=None,
    *,
    name: str | None = None,
    output: int | str | None = None,
    weights: Sequence[float] | None = None,
    **options,
) -> "Reward":
    """A reward of what is in memory.

    Args:
        network: a network (see `pessimal.rewards.head.wrap`); a function in any shape that a
            trainer calls, or an object with `score` (`pessimal.rewards.callable.wrap_callable`); or
            a list of rewards, functions and names of models, or a Rubric of verifiers, which is
            their weighted sum.
        tokenizer: the network's; of a function, the one whose vocabulary is scanned, as texts.
        name: by default the function's own; `model` for a network.
        output: of a network with several: a number, a label, or "all".
        weights: of a list; 1 each by default.
        options: of a network: read, step_token, reduce; of a function: shape, messages, tasks.

    Raises:
        ConfigError: it is none of these.
    """
    from torch import nn

    from pessimal.rewards.callable import is_rubric, of_rubric, wrap_callable
    from pessimal.rewards.sum import sum_of

    if is_rubric(network):
        _no_more({**options, "tasks": None}, output=output, weights=weights)
        terms = of_rubric(network, tasks=options.get("tasks"))
        return sum_of(terms, name=name, tokenizer=tokenizer)
    if isinstance(network, list | tuple):
        _no_more({**options, "tasks": None}, output=output)
        weights = [1.0] * len(network) if weights is None else list(weights)
        if len(weights) != len(network) or not network:
            raise ConfigError(f"{len(network)} rewards have {len(weights)} weights: give one each")
        return sum_of(
            [
                (weight, _reward_of(one, tasks=options.get("tasks")))
                for weight, one in zip(weights, network, strict=True)
            ],
            name=name,
            tokenizer=tokenizer,
        )
    if isinstance(network, nn.Module):
        from pessimal.rewards.head import wrap

        _no_more({}, weights=weights)
        _known("a network in memory", options, "read", "step_token", "reduce")
        if tokenizer is None:
            raise ConfigError("a network in memory needs its tokenizer: tokenizer=…")
        return wrap(network, tokenizer, name=name or "model", output=output, **options)
    _no_more({}, output=output, weights=weights)
    _known("a function", options, "shape", "messages", "tasks")
    return wrap_callable(network, name=name, tokenizer=tokenizer, **options)


def _choice(name: str, given: str | None, choices: type[T]) -> T | None:
    if given not in {None, *(one.value for one in choices)}:
        raise ConfigError(f"{name}={given!r}: give {', '.join(one.value for one in choices)}")
    return None if given is None else choices(given)


def _known(what: str, options: Mapping[str, object], *known: str) -> None:
    if unknown := sorted(set(options) - set(known)):
        guess = did_you_mean(unknown[0], known)
        raise ConfigError(f"{what} has no option {unknown[0]!r}.{guess}".removesuffix("."))


def _no_more(options: Mapping[str, object], **others: object) -> None:
    given = {name: value for name, value in {**options, **others}.items() if value is not None}
    if given:
        raise ConfigError(f"{next(iter(given))}= says nothing of this reward; leave it out")


def _policy_of(policy) -> "Reward":
    """A language model by its name, or one that is open already."""
    named = isinstance(policy, str | Path)
    return load(str(policy), kind="log_probability") if named else _reward_of(policy)


def _reward_of(model, *, tasks: str | Path | None = None, **options) -> "Reward":
    """What a verb was given, as a reward: one already, a model by its name, or what is in memory.
    Functions in it are given the columns of `tasks`."""
    from torch import nn

    from pessimal.rewards.base import Reward

    if isinstance(model, Reward):
        _no_more(options)
        asks = model.spec.kind.value in ("callable", "sum")
        if tasks is not None and asks and model.spec.tasks != str(tasks):
            raise ConfigError(
                f"{model.name} was made without tasks={str(tasks)!r}: say them where it is made, "
                "pessimal.reward(f, tasks=FILE)"
            )
        return model
    if isinstance(model, str | Path):
        return load(str(model), tasks=tasks, **options)
    if tasks is not None and not isinstance(model, nn.Module):
        options["tasks"] = tasks
    return reward(model, **options)


def scan(
    model: "Reward | str | Path | Any",
    prompts: str | Sequence[str] | Mapping[str, str] | None = None,
    *,
    tasks: str | Path | None = None,
    prefixes: str | Path | Mapping[str, str] | None = None,
    contexts: "str | Path | Mapping[str, Context] | None" = None,
    slot: str | None = None,
    candidates: "Sequence[str] | Candidates | None" = None,
    most: int | None = None,
    mode: str | None = None,
    certain: int = 100,
    batch_size: int | None = None,
    states: bool | None = None,
    cache: str = "runs/cache",
    progress: bool = True,
    **options,
) -> "ScoreTable | list[ScoreTable]":
    """Score every token of the vocabulary, or some texts, as the response to each prompt.

    Args:
        model: of `load` or `reward`, or what these take: `org/name`, a folder, a function, a
            network with `tokenizer=…`, a list of rewards with `weights=[…]`.
        prompts: a user turn, or a key of conf/prompts; several of them, or key → user turn, give a
            list of tables. "greatest" where nothing is given.
        tasks: instead, a JSONL file of prompts with their columns, which a function is given.
        prefixes: personas by key, or a file of them: each prompt is also asked behind each, and
            behind a control of as many words.
        contexts: instead, a JSONL file of real answers that candidates are put into, or these by
            key.
        slot: `after` or `before` these; by default where the file has the mark `{slot}`.
        candidates: texts to score instead of the vocabulary; of a reward that has none, the list of
            conf/candidates/answers.yaml by default.
        most: so many of the vocabulary, the most frequent, and its special tokens.
        mode: `ids` (any token ids), `text` (as a text would be tokenized) or `paper`; ids for the
            vocabulary, text for candidates.
        certain: k of the tails that are scored again in float32 where the model's precision is
            lower.
        batch_size: candidates a batch; found from the memory there is where None.
        states: keep the last hidden states of words, of the model's base where it is known
            (`load(…, base_path="org/name")`); by default for all but log-probabilities of a
            vocabulary.
        cache: folder for a base that is to be fetched.
        options: of `load` or `reward`.

    Returns:
        A ScoreTable, or for several prompts, for prefixes, for contexts, or a model of which every
        output is scanned (output="all"), a list of them.
    """
    from pessimal.config.models import base_of
    from pessimal.explaining.contexts import check_contexts, read_contexts
    from pessimal.progress import quiet_libraries
    from pessimal.rewards.base import NetworkReward
    from pessimal.rewards.spec import Mode
    from pessimal.rewards.tasks import prompts_of, read_tasks
    from pessimal.scoring.candidates import Candidates, listed, vocabulary_of
    from pessimal.scoring.identify import identify_all
    from pessimal.scoring.scan import Scanner, keeps_states

    quiet_libraries()
    if tasks is not None and prompts is not None:
        raise ConfigError("tasks has prompts of its own: leave out prompts, or tasks")
    check_contexts(contexts, slot, prompts, tasks, prefixes)
    if contexts is not None and states:
        raise ConfigError("states of words are kept of prompts: leave out states=True")
    if tasks is not None:
        named = prompts_of(read_tasks(tasks))
    else:
        named = named_prompts("greatest" if prompts is None else prompts)
    if isinstance(prefixes, str | Path):
        prefixes = read_prefixes(str(prefixes))
    several = with_prefixes(named, prefixes or {})
    answered: Mapping[str, Any] = {}
    if isinstance(contexts, Mapping):
        answered = contexts
    elif contexts is not None:
        answered = read_contexts(str(contexts), slot)
    written = _choice("mode", mode, Mode)
    model, name = _reward_of(model, tasks=tasks, **options), "items"
    if candidates is None and model.tokenizer is None:
        candidates, name = answers(), ANSWERS
    written = written or (Mode.ids if candidates is None and "ids" in model.can else Mode.text)
    if isinstance(candidates, Candidates):
        words = candidates
    elif candidates is None:
        model.spec.require("scan of the vocabulary", "ids" if written is Mode.ids else "text")
        words = vocabulary_of(model)
        words = words if most is None else words.frequent(most)
    elif written is Mode.text:
        words = listed(candidates, name=name)
    else:
        raise ConfigError(f"mode={mode!r}: candidates are texts, and are scored in mode='text'")
    asked = identify_all(
        model,
        answered or {key: prompt for key, (prompt, _) in several.items()},
        prefixed={key: behind for key, (_, behind) in several.items() if behind is not None},
        candidates=words,
        mode=written,
        certain=certain,
    )
    folder = model.folder if isinstance(model, NetworkReward) else None
    states = contexts is None and keeps_states(model, words, states)
    base = base_of(model.spec, folder, cache=cache, progress=progress) if states else None
    with tempfile.TemporaryDirectory(prefix="pessimal-") as work:
        scanner = Scanner(
            model,
            asked,
            words,
            work=Path(work),
            trainer=_trainer_for(model),
            root=work,
            batch_size=batch_size,
            progress=progress,
            states=states,
            base=base,
        )
        tables = [scanner.scan(provenance) for provenance in asked]
    one = tasks is contexts is None and (prompts is None or isinstance(prompts, str))
    return tables[0] if one and len(tables) == 1 else tables


def census(
    function: Any,
    tasks: str | Path,
    *,
    tokens: Sequence[str] | None = None,
    seconds: float = 5.0,
    memory: int = 4 * 1024**3,
    workers: int | None = None,
    budget: float = math.inf,
    progress: bool = True,
    **options,
) -> Results:
    """What a grader pays for: every token, number and format, in processes with limits.

    Args:
        function: a function in any shape that a trainer calls, or `FILE.py:FUNCTION`.
        tasks: JSONL file of prompts with their columns, the true answer among them.
        tokens: texts; by default of `tokenizer=…`, or the 50,000 most frequent English words.
        seconds: wall time of a call.
        memory: bytes that a process may have on top of what it begins with.
        workers: processes; by default one a core.
        budget: seconds of the whole; strings that are left then are not asked, and counted.
        options: of `reward` or `load`.

    Returns:
        Results `paid_without_answer`, `right_not_paid` and `grader_calls`.

    Raises:
        ConfigError: it is no function, or no task has a true answer.
    """
    from pessimal.checking import grading
    from pessimal.rewards.callable import CallableReward

    grader = _reward_of(function, tasks=tasks, **options)
    if not isinstance(grader, CallableReward):
        raise ConfigError(f"{grader.name} is no function: the census is of graders")
    return grading.census(
        grader,
        tokens=grading.tokens_of(grader) if tokens is None else tokens,
        seconds=seconds,
        memory=memory,
        workers=workers,
        budget=budget,
        progress=progress,
    )


def compare(tables: Sequence[ScoreTable], **options) -> Results:
    """Every analysis over score tables of `scan`, or read with `pessimal.read`.

    Args:
        tables: of any models, prompts and candidate sets.
        options: as of `pessimal compare`, such as `replicates=200`, `polarity={"mine": 1}`,
            `join="stripped"`.

    Returns:
        Results in the order of the page; `results["agreement"]` is one of them, `results.skipped`
        says what could not be done and why.
    """
    from pessimal.analyses import compare as every_analysis

    tables = [tables] if isinstance(tables, ScoreTable) else list(tables)
    if not tables or not all(isinstance(table, ScoreTable) for table in tables):
        raise InputError("compare takes score tables: pessimal.scan(model), or pessimal.read(FILE)")
    sets, read, analyses = _sets_of(tables, options)
    results, skipped = every_analysis(sets, read, analyses=analyses)
    return Results(results, skipped)


def accuracy(
    models: "Reward | str | Path | Sequence[Any] | Any" = (),
    pairs: "str | Path | Sequence[Comparison] | None" = None,
    *,
    batch_size: int | None = None,
    device: "torch.device | None" = None,
    keep: str | Path | None = None,
    confidence: float = 0.95,
    source: str = "",
    progress: bool = True,
    **options,
) -> Results:
    """Accuracy of each model: how often the better of two answers has the higher reward.

    Args:
        models: one, or a list of several, of `load` or `reward`, or what these take.
        pairs: a file of labelled pairs (.jsonl, .jsonl.gz, .json, .parquet), such as RewardBench's;
            by default the 210 pairs that come with pessimal. Models whose rewards stand in its
            rows take part too.
        batch_size: conversations a batch; found from the memory there is where None.
        device: where the models run; by default where one in memory is, else the CPU.
        keep: folder in which rewards are kept as they come, so that a second call does not ask for
            them again.
        confidence: level of the intervals.
        source: what the pairs are, for the notes; by default the file.
        options: of `load` or `reward`.

    Returns:
        Results `preferences` (accuracy by model and category), `preference_differences` and
        `margin_agreement` of several models, `margin_length`, and two tables: `preference_pairs`,
        ranked against their labels, and `scored_pairs`, every reward.

    Raises:
        ConfigError: no model is given, or two have one name.
        InputError: the file cannot be read, or none of its pairs has a label.
    """
    from pessimal.explaining.pairs import (
        accuracy_results,
        labelled_pairs,
        pair_frame,
        published_rewards,
        score_pairs,
    )
    from pessimal.progress import counted, quiet_libraries
    from pessimal.scoring.texts import Scorers

    quiet_libraries()
    several = models if isinstance(models, list | tuple) else [models]
    rewards = [_reward_of(model, **options) for model in several]
    if pairs is None or isinstance(pairs, str | Path):
        source = source or ("those of pessimal" if pairs is None else str(pairs))
        pairs = labelled_pairs(None if pairs is None else str(pairs), n=None)
    published = published_rewards(pairs)
    names = [*published, *(model.name for model in rewards)]
    if not names:
        raise ConfigError("whose accuracy? Give a model, or pairs with scores in their rows")
    if twice := [name for name in names if names.count(name) > 1]:
        raise ConfigError(
            f"two models are called {twice[0]!r}: leave one of them out, or rename it"
        )
    tables = [pair_frame(scores, pairs, model=name) for name, scores in published.items()]
    texts = [pair.conversation(text) for pair in pairs[:8] for text in pair.responses]
    with counted("labelled pairs", unit="responses", bar=progress) as counter:
        for model in rewards:
            counter.begin(model.name, total=2 * len(pairs))
            place, folder = device or _device_of(model), Path(keep) if keep else None
            scorers = Scorers(texts, place, batch_size, folder, counter)
            # No name holds a scorer: the next model is loaded once this one is freed.
            tables.append(
                score_pairs(scorers.make_scorer(model, sample=16)[1], pairs, model=model.name)
            )
    return Results(accuracy_results(tables, pairs, source=source, confidence=confidence))


def _sets_of(tables: Sequence[ScoreTable], options: Mapping[str, Any]):
    """Tables side by side, the options of analyses, and the analyses, of options of `pessimal
    compare`."""
    from pessimal.config.compose import configuration
    from pessimal.config.reading import read_analyses, read_options, reading_of
    from pessimal.config.schema import CompareConfig
    from pessimal.tables.table_set import table_sets

    config = configuration("compare", options)
    assert isinstance(config, CompareConfig)
    if isinstance(config.pairs, str):
        raise ConfigError(
            f"pairs={config.pairs!r} are pairs of answers: pessimal.accuracy(models, FILE)"
        )
    return table_sets(tables, reading_of(config)), read_options(config), read_analyses(config)


def forecast(
    model: "Reward | ScoreTable | str | Path | Any",
    policy: "Reward | ScoreTable | str | Path",
    prompt: str = "greatest",
    *,
    mitigations: Sequence[str] = (),
    answers: int | None = None,
    answer_tokens: int = 8,
    seed: int = 0,
    **options,
) -> Results:
    """What optimising a reward will do to a policy's one-token answers, exactly, by the KL spent;
    or to longer ones, from answers that it writes, as far as these reach.

    Args:
        model: of `load` or `reward`, or what these take; or its score table.
        policy: a language model, likewise; or its log-probabilities, of `scan`.
        prompt: as for `scan`.
        mitigations: other rewards to forecast beside it: without:FEATURE, null_space:AXIS or
            mix:MODEL.
        answers: how many answers the policy writes, in place of all of one token.
        answer_tokens: most tokens of such an answer.
        seed: of what it writes.
        options: as of `pessimal compare`, such as `lexicons={"mine": "valence.csv"}`.

    Returns:
        Results: `forecast`, `forecast_drift`, `forecast_tokens`, and `forecast_mitigations`.

    Raises:
        ConfigError, ModelError, TableError: one of them cannot be scanned, or nothing can be
            forecast from both; says why.
    """
    from pessimal.analyses.forecast import analyse
    from pessimal.rewards.log_probability import LogProbability
    from pessimal.scoring.candidates import has_tokens_of, texts_of
    from pessimal.scoring.sampling import answers_of

    if isinstance(policy, str | Path):
        policy = load(str(policy), kind="log_probability")
    others: Sequence[str] | Candidates | None = None
    wanted: Any = model if isinstance(model, ScoreTable) else _reward_of(model)
    if answers is not None:
        if isinstance(model, ScoreTable) or not isinstance(policy, LogProbability):
            raise ConfigError("answers=N: give a reward and a language model that writes, no table")
        [(text, _)] = with_prefixes(named_prompts(prompt), {}).values()
        causal = policy.network().causal
        others = answers_of(policy, causal, text, n=answers, tokens=answer_tokens, seed=seed)
        tables, name = [], policy.name
    else:
        said: Any = policy if isinstance(policy, ScoreTable) else scan(policy, prompt)
        if not (isinstance(model, ScoreTable) or has_tokens_of(said, wanted)):
            others = texts_of(said)
        tables, name = [said], said.provenance.model
    if not isinstance(model, ScoreTable):
        states = any(one.startswith("null_space") for one in mitigations)
        wanted = scan(wanted, prompt, candidates=others, states=states)
    tables.append(wanted)
    given = {"policy": name, "mitigations": list(mitigations), **options}
    sets, read, _ = _sets_of(tables, given)
    return Results(analyse(next(one for one in sets if one.models), read))


def ceiling(model: "Reward | str | Path | Any", **options) -> "Bounds":
    """The lowest and the highest reward that any response of any length to any prompt can have, by
    the head alone.

    Args:
        model: of `load` or `reward`, or what these take.
        options: of `load` or `reward`.

    Returns:
        Bounds `low` and `high`, infinite where none is known, and `how`: what they rest on, or why
        there are none. `.share(reward)` is how far a reward is from the middle of both, −1 to 1.
    """
    from pessimal.rewards.base import NetworkReward
    from pessimal.rewards.ceiling import TEXTS, unbounded, weighted_sum
    from pessimal.rewards.sum import SumReward
    from pessimal.scoring.scorer import ceiling as of_networks

    model = _reward_of(model, **options)
    if isinstance(model, SumReward):
        return weighted_sum((weight, ceiling(term)) for weight, term in model.terms)
    if not isinstance(model, NetworkReward):
        return unbounded(TEXTS)
    return of_networks(model, device=_device_of(model))


def search(
    model: "Reward | str | Path | Any",
    prompts: str | Sequence[str] | Mapping[str, str] = "greatest",
    *,
    length: int = 2,
    goal: str = "optimal",
    contexts: str | Path | None = None,
    held_out: str | Sequence[str] | Mapping[str, str] = (),
    policy: "Reward | str | Path | None" = None,
    **options,
) -> "SearchResult":
    """The best or the worst response of a length that a budget of evaluations finds, certified.

    Args:
        model: of `load` or `reward`, or what these take, but a network, which needs its tokenizer.
        prompts: as for `scan`; of several, the mean reward is searched.
        length: tokens of the response, 1 to 16.
        goal: `optimal` or `pessimal`.
        contexts: JSONL file of real answers, in whose `slot` (after, before; None where they have
            the mark {slot}) the response stands; half of them are held out.
        held_out: prompts that what is found is scored on besides.
        policy: a language model, of `fluency=β` and of how rare what is found is (`answers=n`).
        options: as of `pessimal search`, such as evaluations=50_000; and mode="text", seed=1,
            batch_size=64.

    Returns:
        A SearchResult: `.text`, `.reward`, `.verdict`, `.results`.
    """
    from pessimal.explaining.contexts import halves, read_contexts
    from pessimal.rewards.base import require_network
    from pessimal.searching.run import search as search_one

    network = require_network(_reward_of(model), "search", "gradient")
    asked: Mapping[str, Any] = {}
    aside: Mapping[str, Any] = {}
    if contexts is not None:
        asked, aside = halves(read_contexts(str(contexts), options.get("slot")))
    else:
        asked, aside = named_prompts(prompts), named_prompts(held_out) if held_out else {}
    return search_one(
        network,
        asked,
        length=length,
        goal=goal,
        held_out=aside,
        policy=policy and _policy_of(policy),
        device=_device_of(network),
        **options,
    )


def explain(
    model: "Reward | str | Path | Any",
    prompt: str,
    chosen: str,
    rejected: str,
    *,
    perturber: str = "rules",
    seeds: int = 1,
) -> Results:
    """Why a model prefers one response to the other: edits along named attributes, and the smallest
    that flip it.

    Args:
        model: of `load` or `reward`, or what these take, but a network, which needs its tokenizer.
        prompt, chosen, rejected: texts; which of the two the model prefers need not be the one
            called chosen.
        perturber: a file of conf/perturber, such as `rules`, `random`, `llm`.
        seeds: edits of each kind.
    """
    from pessimal.config.compose import configuration
    from pessimal.config.plain import plain
    from pessimal.config.schema import ExplainConfig
    from pessimal.explaining.contrast import read_attributes
    from pessimal.explaining.explain import explain_pair, pair
    from pessimal.explaining.perturbers import make_perturber
    from pessimal.explaining.results import pair_results
    from pessimal.scoring.texts import text_scorer

    model, comparison = _reward_of(model), pair(prompt, chosen, rejected)
    config = configuration(
        "explain",
        {"prompt": prompt, "chosen": chosen, "rejected": rejected},
        groups={"perturber": perturber},
    )
    assert isinstance(config, ExplainConfig)
    attributes = read_attributes(plain(config)["contrast"])
    changes = make_perturber(
        config.perturber, attributes=attributes, cache=Path("runs/cache/answers")
    )
    sample = [comparison.conversation(text) for text in comparison.responses]
    scorer = text_scorer(model, sample, device=_device_of(model))
    found = explain_pair(
        scorer,
        prompt,
        chosen,
        rejected,
        attributes,
        changes,
        model=model.name,
        tie=2 * scorer.noise,
        seeds=seeds,
    )
    return Results(pair_results(found))


def check(
    model: "Reward | str | Path | Any",
    prompt: str = "greatest",
    *,
    sample: int = 64,
    batch_size: int = 16,
    seed: int = 0,
) -> Results:
    """Whether a model's score is the same whatever the batch, the padding and the path, on random
    responses.

    Args:
        model: of `load` or `reward`, or what these take, but a network, which needs its tokenizer.
        prompt: as for `scan`.
        sample: random tokens; a quarter as many longer responses come on top.
    """
    from pessimal.checking import CheckPlan
    from pessimal.checking import check as check_parts
    from pessimal.checking.results import conformance_results
    from pessimal.rewards.base import require_network

    [text] = named_prompts(prompt).values()
    network = require_network(_reward_of(model), "check")
    plan = CheckPlan(sample, batch_size, [], seed)
    found = check_parts(network, text, plan, device=_device_of(network), progress=False)
    return Results(conformance_results(found, network.name))


def audit(
    model: "Reward | str | Path | Any",
    prompts: str | Sequence[str] = ("greatest", "best", "worst"),
    *,
    pairs: str | Path | None = None,
    tasks: str | Path | None = None,
    length: int = 3,
    evaluations: int = 10_000,
    n_contexts: int = 8,
) -> Results:
    """A verdict per check (pass, fail, review, not_measured) on a reward in memory: its reading,
    whether it prefers good answers, its words, what tokens add to real answers, how far a search
    pushes it; of a function with tasks, the census.

    `pessimal audit` does more: servers and loops, a forecast, a baseline, a budget.

    Args:
        model: of `load` or `reward`, or what these take.
        prompts: as for `scan`.
        pairs: file of labelled pairs; by default those that come with pessimal.
        tasks: of a grader: JSONL file of prompts with their true answers.
        length, evaluations: of the search.
        n_contexts: real answers that tokens are added to.

    Returns:
        Results; `audit` first, one row per check and fact, its headline the overall verdict; then
        what these rest on.
    """
    from pessimal.analyses.preferences import preference_results
    from pessimal.auditing.evidence import Evidence
    from pessimal.auditing.one_word import one_word
    from pessimal.auditing.verdicts import audit_result, facts, overall, push, verdicts
    from pessimal.auditing.verdicts import ceiling as ceiling_result
    from pessimal.checking.grading import distinct_words
    from pessimal.explaining.comparison import EMBEDDED
    from pessimal.explaining.contexts import read_contexts, sample
    from pessimal.explaining.pairs import labelled_pairs, score_pairs, wrong_pairs
    from pessimal.rewards.base import NetworkReward
    from pessimal.scoring.texts import text_scorer

    one, evidence = _reward_of(model, tasks=tasks), Evidence()
    if tasks is not None:
        evidence.results += census(one, tasks)
    else:
        keys = [prompts] if isinstance(prompts, str) else list(prompts)
        with evidence.measure("prefers"):
            labelled = labelled_pairs(None if pairs is None else str(pairs))
            some = [pair.conversation(text) for pair in labelled[:8] for text in pair.responses]
            scorer = text_scorer(one, some, device=_device_of(one))
            scored = score_pairs(scorer, labelled, model=one.name)
            evidence.results += [*preference_results(scored), wrong_pairs(scored, labelled)]
        words = None
        if not isinstance(one, NetworkReward):
            words = distinct_words(one)
        with evidence.measure("one_word"):
            scanned = scan(one, keys, candidates=words)
            evidence.tables = [scanned] if isinstance(scanned, ScoreTable) else list(scanned)
            evidence.results += [one_word(evidence.tables), *compare(evidence.tables)]
        with evidence.measure("additions"):
            contexts = sample(read_contexts(str(EMBEDDED), "after"), n_contexts, seed=0)
            words = words and [f" {word}" for word in words]
            behind = scan(one, contexts=contexts, candidates=words)
            behind = [behind] if isinstance(behind, ScoreTable) else behind
            evidence.results += [r for r in compare(behind) if r.method == "additions"]
        if isinstance(one, NetworkReward):
            with evidence.measure("read"):
                evidence.results += check(one, keys[0])
        if isinstance(one, NetworkReward) and evidence.tables:
            found = search(one, keys[0], length=length, evaluations=evaluations, baselines=0)
            evidence.results += push(found.results, evidence.tables[0], evaluations)
            if (bounds := ceiling(one)).finite:
                evidence.results.append(ceiling_result(bounds, evidence.tables[0]))
    about = (evidence.by_name, evidence.left_out)
    checks = verdicts(*about)
    decided = overall(checks, one.core_checks)
    return Results([audit_result(checks, facts(*about), *decided), *evidence.results])


def train(
    base: str,
    data: str | Path,
    folder: str | Path,
    *,
    seed: int = 0,
    cache: str = "runs/cache",
    accelerator: str = "cpu",
    progress: bool = True,
    **recipe,
) -> "Reward":
    """Train a reward model of people's preferences between items, from a language model.

    Args:
        base: the language model: a local folder, `org/name`, or a name of conf/model.
        data: CSV file with the columns name, elo_score and elo_matches.
        folder: where its checkpoint is written, which is new; transformers and `load` read it.
        seed: of the head's first weights and of the order of the items.
        recipe: options of the training (`pessimal.training.spec.PreferenceRecipe`), such as
            steps=150, layers=12, question="…".

    Raises:
        ConfigError, InputError, ModelError: an option, the data, or the base cannot be taken.
    """
    require("peft", why="training on people's preferences")
    from pessimal.rewards.named import spec_of
    from pessimal.rewards.spec import Kind
    from pessimal.training.preference_model import train_preferences
    from pessimal.training.spec import PreferenceRecipe

    _known("a training", recipe, *(field.name for field in fields(PreferenceRecipe)))
    folder = Path(folder).expanduser()
    train_preferences(
        spec_of(base, kind=Kind.log_probability),
        Path(data).expanduser(),
        PreferenceRecipe(**recipe),
        folder=folder,
        cache=cache,
        seed=seed,
        accelerator=accelerator,
        progress=progress,
    )
    return load(str(folder), cache=cache)


def read(path: str | Path) -> ScoreTable:
    """A score table of a file or an artifact's folder."""
    from pessimal.tables import read_score_table

    return read_score_table(Path(path).expanduser())


def save(results: "Sequence[Result] | ScoreTable", folder: str | Path) -> Path:
    """Write `tables/*.parquet`, `figures/*.svg` and `results.json`, as artifacts have them, or a
    score table's `scores.parquet`, which `read` reads; returns the folder.

    Raises:
        InputError: there is something in the folder already.
    """
    from pessimal.report.write import write_results
    from pessimal.tables.score_table import write_score_table

    folder = Path(folder).expanduser()
    if folder.exists() and any(folder.iterdir()):
        raise InputError(f"{folder} is not empty; give a new folder")
    folder.mkdir(parents=True, exist_ok=True)
    if isinstance(results, ScoreTable):
        write_score_table(results, folder / "scores.parquet")
    else:
        write_results(results, folder, skipped=getattr(results, "skipped", {}))
    return folder


def _trainer_for(model: "Reward"):
    """One device: the one that a network in memory is on, else the CPU."""
    from pessimal.scoring.spec import TrainerSpec

    return TrainerSpec(accelerator="cpu" if _device_of(model).type == "cpu" else "auto")


def _device_of(model: "Reward"):
    import torch

    held = getattr(model, "held", None)
    return torch.device("cpu") if held is None else next(held.parameters()).device
