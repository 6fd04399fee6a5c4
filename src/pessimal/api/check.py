"""`pessimal.check`: whether a model's score depends on how it is computed, served or fed to it;
`pessimal.census`: what a grader pays for."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from pessimal.api.load import device_of, to_reward
from pessimal.api.store import Artifact, Store, publishing, reward_inputs, store_at
from pessimal.catalogue import is_named, named_prompts
from pessimal.checking import grading
from pessimal.checking.loop import LOOPS, LoopCheck, check_loop, loop_results
from pessimal.checking.served import Diagnosis, diagnose, served_result
from pessimal.checking.suite import CheckPlan, Conformance, conformance_results, counts_of
from pessimal.checking.suite import check as check_parts
from pessimal.conversation import Prompt
from pessimal.errors import ConfigError, ModelError
from pessimal.progress import counted
from pessimal.rewards.base import NetworkReward, Reward, require_network
from pessimal.rewards.callable import about_texts
from pessimal.rewards.checkpoint_files import load_tokenizer
from pessimal.rewards.endpoint import Wire, forms_of, recognised
from pessimal.rewards.named import spec_of
from pessimal.rewards.obtain import fetch_files, local_folder
from pessimal.rewards.rendering import messages_of
from pessimal.rewards.server import ServerOptions
from pessimal.scoring.engine import own_rewards
from pessimal.tables.result import Results

TOKENIZER = ("*.json", "*.txt", "*.model", "*.jinja")
"""Files of a repository that a tokenizer is made of."""


def check(
    model: Reward | str | Path | Any,
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
    network = require_network(to_reward(model), "check")
    plan = CheckPlan(sample, batch_size, [], seed)
    prompts = named_prompts(prompt)
    return check_model(network, prompts, plan, device=device_of(network), progress=False)[1]


def check_model(
    model: NetworkReward,
    prompts: Mapping[str, Prompt],
    plan: CheckPlan,
    *,
    device: torch.device,
    store: Store | None = None,
    progress: bool = True,
) -> tuple[Conformance, Results]:
    """The conformance suite of a model on the first of the prompts, as it was measured and as
    Results, which are published as a `conformance` where there is a store."""
    key, prompt = next(iter(prompts.items()))
    with publishing(store, name=f"check {model.name}", progress=progress) as publish:
        conformance = check_parts(model, prompt, plan, device=device, progress=progress)
        entries = {"model": model.name, "prompt": key, "weights_digest": model.weights_digest}
        summary = entries | conformance.details | counts_of(conformance)
        results = conformance_results(conformance, model.name)
        return conformance, publish(Artifact("conformance", model.name, summary=summary), results)


def check_server(
    model: NetworkReward,
    endpoint: ServerOptions,
    prompts: Mapping[str, Prompt],
    *,
    forms: Sequence[str] = (),
    raw: bool = False,
    requests: int = 200,
    seed: int = 0,
    device: torch.device,
    store: Store | None = None,
    progress: bool = True,
) -> tuple[Diagnosis, Results]:
    """The faults of a server that should give the rewards of a model, on the first of the prompts;
    published as a `conformance` where there is a store.

    Args:
        model: a reward model with a head.
        endpoint: the server's address and API; what is not given is asked of it.
        prompts: user's turns.
        forms: what it is sent: ids, messages, text, pairs; by default all that its API takes, but
            text where it takes messages.
        raw: ask a vLLM server for logits and no added special tokens.
        requests: most inputs that are sent.
        seed: of the random inputs.
        device: where the model runs.
        store: where the result is published.
        progress: draw a bar where there is a terminal.

    Raises:
        ConfigError: its API gives no rewards of whole inputs, or the prompt is a conversation.
    """
    key, prompt = next(iter(prompts.items()))
    if not isinstance(prompt, str):
        raise ConfigError("a server is sent a user's turn, and the prompt is a conversation")
    endpoint = recognised(endpoint)
    takes = forms_of(endpoint.api)
    wire = Wire(endpoint, raw=raw)
    usual = [form for form in takes if form != "text" or "messages" not in takes]
    with (
        publishing(store, name=f"check {model.name} served", progress=progress) as publish,
        counted(f"asking {endpoint.url}", unit="inputs", total=requests, bar=progress) as counter,
    ):

        def ask(inputs: Sequence[Any]) -> np.ndarray:
            counter.advance(len(inputs))
            if not isinstance(inputs[0], tuple):
                return wire.rows(inputs)
            if "pairs" in takes:
                return wire.rows([tuple(turn.content for turn in turns) for turns in inputs])
            return np.concatenate([wire.rows([messages_of(turns)]) for turns in inputs])

        options: dict[str, Any] = {"device": device, "seed": seed, "budget": requests}
        diagnosis = diagnose(ask, model, prompt=prompt, forms=list(forms) or usual, **options)
        result = served_result(diagnosis, model.name)
        about = {"model": model.name, "prompt": key, "weights_digest": model.weights_digest}
        summary = about | {"url": endpoint.url} | dict(result.summary)
        artifact = Artifact("conformance", f"{model.name}--served", summary=summary)
        return diagnosis, publish(artifact, [result])


def policy_tokenizer(policy: str, *, cache: str = "runs/cache") -> PreTrainedTokenizerBase:
    """The tokenizer of a name of conf/model, a Hub repository or a folder; no weights are
    fetched."""
    if is_named(policy):
        spec = spec_of(policy)
        return load_tokenizer(spec, fetch_files(spec, cache=cache))
    folder = local_folder(policy, files=TOKENIZER, local="policy=DIR")
    try:
        return AutoTokenizer.from_pretrained(folder)
    except Exception as error:
        raise ModelError(f"policy={policy} has no tokenizer that can be loaded: {error}") from error


def check_trainer(
    model: NetworkReward,
    loop: str,
    policy: str,
    prompts: Mapping[str, Any],
    *,
    sample: int = 64,
    seed: int = 0,
    device: torch.device,
    cache: str = "runs/cache",
    store: Store | None = None,
    progress: bool = True,
) -> tuple[LoopCheck, Results]:
    """The inputs that a trainer's loop hands a reward model, beside those of its own template;
    published as a `conformance` where there is a store.

    Args:
        model: a reward model with a head.
        loop: trl, verl or openrlhf.
        policy: whose tokenizer the loop has: a name of conf/model, a Hub repository or a folder; no
            weights are fetched.
        prompts: of the conversations.
        sample: conversations whose rewards are compared.
        seed: of the random responses.
        device: where the model runs.
        cache: folder for what is fetched.
        store: where the result is published.
        progress: draw a bar where there is a terminal.
    """
    tokenizer = policy_tokenizer(policy, cache=cache)
    network = model.network().to(device)
    with (
        publishing(store, name=f"check {model.name} in {loop}", progress=progress) as publish,
        counted("rewards", unit="inputs", total=2 * sample, bar=progress) as counter,
        torch.no_grad(),
    ):

        def reward(ids: list[int]) -> float:
            counter.advance(1)
            return own_rewards(network, torch.tensor([ids], device=device)).item()

        comparison = check_loop(
            *(LOOPS[loop], tokenizer, model.parts[0].conversations, model.tokenizer),
            prompts=list(prompts.values()),
            context=getattr(network.config.get_text_config(), "max_position_embeddings", None),
            reward=reward,
            sample=sample,
            seed=seed,
        )
        results = loop_results(comparison, loop=loop, model=model.name)
        about = {"model": model.name, "loop": loop, "policy": policy}
        summary = about | {"weights_digest": model.weights_digest} | dict(results[0].summary)
        artifact = Artifact("conformance", f"{model.name}--in-{loop}", summary=summary)
        return comparison, publish(artifact, results)


def census(
    function: Any,
    tasks: str | Path | None = None,
    *,
    tokens: Sequence[str] | None = None,
    token_limit: int | None = None,
    policy: str | None = None,
    seconds: float = 5.0,
    memory: int = 4 * 1024**3,
    workers: int | None = None,
    budget: float = math.inf,
    cache: str = "runs/cache",
    store: Store | str | Path | None = None,
    progress: bool = True,
    **options,
) -> Results:
    """The census of a grader's pay: every token, number and format, in processes with limits.

    Args:
        function: a function in any shape that a trainer calls, or `FILE.py:FUNCTION`.
        tasks: JSONL file of prompts with their columns, the true answer among them; of a grader
            that has them already None.
        tokens: texts; by default of `tokenizer=…`, or the 50,000 most frequent English words.
        token_limit: how many of these tokens are asked, the first; numbers are asked to as many,
            1,000 to 10,000.
        policy: a language model, as typed for a model, of which the tokenizer is taken where the
            function has none: its tokens, and whether its prompts end in `<think>`.
        seconds: wall time of a call.
        memory: bytes that a process may have on top of what it begins with.
        workers: processes; by default one a core.
        budget: seconds of the whole; strings that are left then are not asked, and counted.
        cache: folder for what is fetched.
        store: where a `census` is published.
        options: of `reward` or `load`.

    Returns:
        Results `paid_without_answer`, `right_not_paid` and `grader_calls`.

    Raises:
        ConfigError: it is no function, or no task has a true answer.
    """
    grader = to_reward(function, tasks=tasks, **options)
    if not grader.spec.grades_tasks:
        raise ConfigError(f"{grader.name} is no function: the census is of graders")
    [grader] = grader.functions
    if policy is not None and grader.tokenizer is None:
        tokenizer = policy_tokenizer(policy, cache=cache)
        grader = replace(grader, **about_texts(grader.spec, tokenizer))
    store = store_at(store)
    inputs, source = ([], {}) if store is None else reward_inputs(store.registry, grader)
    name = f"census {grader.name}"
    with publishing(store, name=name, inputs=inputs, progress=progress) as publish:
        results = grading.census(
            grader,
            tokens=(grading.tokens_of(grader) if tokens is None else tokens)[:token_limit],
            seconds=seconds,
            memory=memory,
            workers=workers,
            budget=budget,
            progress=progress,
        )
        summary = {"model": grader.name, "faults": grading.faults_of(results)} | source
        return publish(Artifact("census", grader.name, inputs=inputs, summary=summary), results)
