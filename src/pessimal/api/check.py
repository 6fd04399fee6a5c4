"""`pessimal.check`: whether a model's score depends on how it is computed."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from pessimal.api.load import device_of, to_reward
from pessimal.api.store import Artifact, Store, publishing
from pessimal.catalogue import is_named, named_prompts
from pessimal.checking import CheckPlan, Conformance
from pessimal.checking import check as check_parts
from pessimal.checking.loop import LOOPS, LoopCheck, check_loop, loop_results
from pessimal.checking.served import Diagnosis, diagnose, served_result
from pessimal.checking.suite import conformance_results, counts_of
from pessimal.conversation import Prompt
from pessimal.errors import ConfigError, ModelError
from pessimal.progress import counted
from pessimal.rewards.base import NetworkReward, Reward, require_network
from pessimal.rewards.checkpoint_files import load_tokenizer
from pessimal.rewards.named import spec_of
from pessimal.rewards.obtain import fetch_files, local_folder
from pessimal.rewards.rendering import messages_of
from pessimal.rewards.server import ServerOptions
from pessimal.rewards.wires import Wire, forms_of, recognised
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
    asked = named_prompts(prompt)
    return check_model(network, asked, plan, device=device_of(network), progress=False)[1]


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
        what = {"model": model.name, "prompt": key, "weights_digest": model.weights_digest}
        summary = what | conformance.details | counts_of(conformance)
        results = conformance_results(conformance, model.name)
        return conformance, publish(Artifact("conformance", model.name, summary=summary), results)


def check_server(
    model: NetworkReward,
    endpoint: ServerOptions,
    prompts: Mapping[str, Prompt],
    *,
    store: Store,
    **options: Any,
) -> tuple[Diagnosis, Results]:
    """What a server does to the rewards of a model on the first of the prompts, published as a
    `conformance`. Arguments and errors as of `diagnose_server`."""
    key, prompt = next(iter(prompts.items()))
    progress = options.get("progress", True)
    with publishing(store, name=f"check {model.name} served", progress=progress) as publish:
        diagnosis = diagnose_server(model, endpoint, prompt, **options)
        result = served_result(diagnosis, model.name)
        what = {"model": model.name, "prompt": key, "weights_digest": model.weights_digest}
        summary = what | {"url": endpoint.url} | dict(result.summary)
        artifact = Artifact("conformance", f"{model.name}--served", summary=summary)
        return diagnosis, publish(artifact, [result])


def check_trainer(
    model: NetworkReward,
    loop: str,
    policy: str,
    prompts: Mapping[str, Prompt],
    *,
    store: Store,
    **options: Any,
) -> tuple[LoopCheck, Results]:
    """What a trainer's loop hands a reward model, published as a `conformance`. Arguments as of
    `compare_loop`."""
    progress = options.get("progress", True)
    with publishing(store, name=f"check {model.name} in {loop}", progress=progress) as publish:
        comparison = compare_loop(model, loop, policy, list(prompts.values()), **options)
        results = loop_results(comparison, loop=loop, model=model.name)
        what = {"model": model.name, "loop": loop, "policy": policy}
        summary = what | {"weights_digest": model.weights_digest} | dict(results[0].summary)
        artifact = Artifact("conformance", f"{model.name}--in-{loop}", summary=summary)
        return comparison, publish(artifact, results)


def diagnose_server(
    model: NetworkReward,
    endpoint: ServerOptions,
    prompt: Prompt,
    *,
    forms: Sequence[str] = (),
    raw: bool = False,
    requests: int = 200,
    seed: int = 0,
    device: torch.device,
    progress: bool = True,
) -> Diagnosis:
    """What a server does to the rewards of a model.

    Args:
        model: a reward model with a head.
        endpoint: the server's address and API; what is not given is asked of it.
        prompt: a user's turn.
        forms: what it is sent: ids, messages, text, pairs; by default all that its API takes, but
            text where it takes messages.
        raw: ask a vLLM server for logits and no added special tokens.
        requests: most inputs that are sent.
        seed: of the random inputs.
        device: where the model runs.
        progress: draw a bar where there is a terminal.

    Raises:
        ConfigError: its API gives no rewards of whole inputs, or the prompt is a conversation.
    """
    if not isinstance(prompt, str):
        raise ConfigError("a server is sent a user's turn, and the prompt is a conversation")
    endpoint = recognised(endpoint)
    takes = forms_of(endpoint.api)
    wire = Wire(endpoint, raw=raw)
    with counted(f"asking {endpoint.url}", unit="inputs", total=requests, bar=progress) as counter:

        def ask(inputs: Sequence[Any]) -> np.ndarray:
            counter.advance(len(inputs))
            if not isinstance(inputs[0], tuple):
                return wire.rows(inputs)
            if "pairs" in takes:
                return wire.rows([tuple(turn.content for turn in one) for one in inputs])
            return np.concatenate([wire.rows([messages_of(one)]) for one in inputs])

        return diagnose(
            ask,
            model,
            prompt=prompt,
            forms=list(forms) or [one for one in takes if one != "text" or "messages" not in takes],
            device=device,
            seed=seed,
            budget=requests,
        )


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


def compare_loop(
    model: NetworkReward,
    loop: str,
    policy: str,
    prompts: Sequence[Any],
    *,
    sample: int = 64,
    seed: int = 0,
    device: torch.device,
    cache: str = "runs/cache",
    progress: bool = True,
) -> LoopCheck:
    """What a trainer's loop hands a reward model, beside what the model's template writes.

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
        progress: draw a bar where there is a terminal.
    """
    tokenizer = policy_tokenizer(policy, cache=cache)
    network = model.network().to(device)
    with (
        counted("rewards", unit="inputs", total=2 * sample, bar=progress) as counter,
        torch.no_grad(),
    ):

        def reward(ids: list[int]) -> float:
            counter.advance(1)
            return own_rewards(network, torch.tensor([ids], device=device)).item()

        return check_loop(
            LOOPS[loop],
            tokenizer,
            model.parts[0].conversations,
            model.tokenizer,
            prompts=list(prompts),
            context=getattr(network.config.get_text_config(), "max_position_embeddings", None),
            reward=reward,
            sample=sample,
            seed=seed,
        )
