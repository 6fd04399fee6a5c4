"""The shapes in which trainers call a reward function: told by the names of its parameters, and
called as the trainer calls it.

Knows what TRL 1.16, verl 0.9, OpenRLHF 0.11, verifiers 0.4 and inspect_ai 0.3 pass and take back;
experiments/trainers holds each against the trainer's own code. Does not know what is computed.
"""

import asyncio
import copy
import functools
import importlib
import inspect
import math
import os
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from pessimal.errors import ConfigError, FrameError, ModelError
from pessimal.rewards.rendering import rendered

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

T = TypeVar("T")
Function = Callable[..., Any]
Call = tuple[tuple[Any, ...], dict[str, Any]]
AT_ONCE = 16
"""Most calls of an asynchronous function at a time."""
ABSENT: Any = type("Absent", (), {"__repr__": lambda self: "…"})()
"""A value that a trainer would give, and nobody has said here."""


class Shape(Enum):
    """The form of a function's calls; `STYLES` says more of each."""

    trl = "trl"
    verl = "verl"
    verl_batch = "verl_batch"
    openrlhf = "openrlhf"
    verifiers = "verifiers"
    verifiers_rubric = "verifiers_rubric"
    inspect = "inspect"
    plain = "plain"
    plain_group = "plain_group"
    plain_lists = "plain_lists"


@dataclass(frozen=True)
class Batch:
    """Responses to one prompt."""

    turns: list[dict[str, str]]
    prompt: str
    responses: list[str]
    columns: Mapping[str, Any]
    messages: bool | None = None
    """Whether the trainer has prompts and completions as lists of messages; None where nothing
    says."""
    tokenizer: "PreTrainedTokenizerBase | None" = None
    chat: bool | None = None
    """Whether the policy is asked in its chat template; None where it has one."""

    def takes_messages(self, *, usually: bool | None) -> bool:
        """Whether lists of messages are passed; None where only on demand. FrameError for texts
        where there are several turns."""
        if usually is None:
            return bool(self.messages)
        several = [turn["role"] for turn in self.turns] != ["user"]
        if several and self.messages is False:
            raise FrameError("model.messages=false passes texts, and a prompt has several turns")
        return (usually or several) if self.messages is None else self.messages

    def lists(self, *, usually: bool | None) -> tuple[list[Any], list[Any]]:
        """Prompts and completions, one for each response, as texts or as lists of messages."""
        if not self.takes_messages(usually=usually):
            return [self.prompt] * len(self.responses), list(self.responses)
        prompts = [copy.deepcopy(self.turns) for _ in self.responses]
        return prompts, [[{"role": "assistant", "content": text}] for text in self.responses]


# How each is called -----------------------------------------------------------


def _trl(batch: Batch) -> list[Call]:
    from transformers import TrainerState

    prompts, completions = batch.lists(usually=False)
    ids = ABSENT
    if (tokenizer := batch.tokenizer) is not None:
        encoded = tokenizer(batch.responses, add_special_tokens=False)["input_ids"]
        ids = [[*row, tokenizer.eos_token_id] for row in encoded]
    arguments: dict[str, Any] = {
        name: [copy.deepcopy(value) for _ in prompts]
        for name, value in batch.columns.items()
        if name != "completion"
    }
    arguments |= {"prompts": prompts, "completions": completions, "completion_ids": ids}
    arguments["trainer_state"] = TrainerState()
    logs = {"log_extra": lambda column, values: None, "log_metric": lambda name, value: None}
    return [((), arguments | logs)]


def _verl(batch: Batch) -> list[Call]:
    columns = batch.columns
    model = columns.get("reward_model")
    truths = model if isinstance(model, Mapping) else columns
    info = (columns.get("extra_info") or {}) | {"num_turns": None, "rollout_reward_scores": {}}
    row = {"data_source": columns.get("data_source", ABSENT)}
    row["ground_truth"] = truths.get("ground_truth", ABSENT)
    responses = [{"solution_str": r, "extra_info": copy.deepcopy(info)} for r in batch.responses]
    return [((), row | arguments) for arguments in responses]


def _verl_batch(batch: Batch) -> list[Call]:
    calls = [arguments for _, arguments in _verl(batch)]
    for arguments in calls:
        del arguments["extra_info"]["num_turns"]
    columns = {f"{name}s": [arguments[name] for arguments in calls] for name in calls[0]}
    return [((), {k: ABSENT if v[0] is ABSENT else v for k, v in columns.items()})]


def _openrlhf(batch: Batch) -> list[Call]:
    """A response a call, each in lists of one. The query is the policy's text with its special
    tokens; without a dataset there is no label, and OpenRLHF passes an empty one."""
    tokenizer, prompt, end = batch.tokenizer, batch.prompt, ""
    if tokenizer is not None:
        end = str(tokenizer.eos_token or "")
        if tokenizer.chat_template if batch.chat is None else batch.chat:
            options = {"tokenize": False, "add_generation_prompt": True}
            prompt = rendered(tokenizer, batch.turns, **options)
    label = batch.columns.get("label", ABSENT if batch.columns else "")
    return [(([prompt + text + end], [prompt], [label]), {}) for text in batch.responses]


def _rubric(batch: Batch) -> list[Call]:
    calls: list[Call] = []
    for prompt, completion in zip(*batch.lists(usually=True), strict=True):
        row = {"prompt": prompt, "completion": completion, "answer": ABSENT, "info": {}}
        row |= {"task": "default"} | copy.deepcopy(dict(batch.columns))
        state = {name: value for name, value in row.items() if value is not ABSENT}
        calls.append(((), row | {"state": state}))
    return calls


def _verifiers(batch: Batch) -> list[Call]:
    """verifiers' own objects: the trace of a conversation that has ended."""
    return [((), {"task": trace.task.data, "trace": trace}) for trace in _traces(batch, None)]


def _traces(batch: Batch, task: Any) -> list[Any]:
    package, trace, types, graph, tasks = (
        _import_package(f"verifiers.v1{name}")
        for name in ("", ".trace", ".types", ".graph", ".task")
    )
    data_type = task.data_type() if task else tasks.WireTaskData
    turns = _make_turns(batch, types, "{}Message")
    prompt, traces = turns if batch.takes_messages(usually=False) else batch.prompt, []
    for response in batch.responses:
        data = data_type(**copy.deepcopy(dict(batch.columns)) | {"prompt": prompt})
        nodes = [
            graph.MessageNode(parent=i - 1 if i else None, message=turn, sampled=i == len(turns))
            for i, turn in enumerate([*turns, types.AssistantMessage(content=response)])
        ]
        state = {"nodes": nodes, "is_completed": True, "ok": True}
        state["task"] = trace.TraceTask(type=(task or data_type).__name__, data=data)
        agent = trace.AgentInfo(config=package.AgentConfig())
        traces.append(trace.Trace(agent=agent, **state))
    return traces


def _inspect(batch: Batch) -> list[Call]:
    """inspect_ai's own objects: the state of a sample that a model has answered."""
    model, solver = _import_package("inspect_ai.model"), _import_package("inspect_ai.solver")
    target = batch.columns.get("target", ABSENT if batch.columns else "")
    if target is not ABSENT:
        target = _import_package("inspect_ai.scorer").Target(target)
    calls: list[Call] = []
    for response in batch.responses:
        turns = _make_turns(batch, model, "ChatMessage{}")
        output = model.ModelOutput.from_content("none/none", response)
        state = solver.TaskState(
            model=model.ModelName("none/none"),
            sample_id=batch.columns.get("id", 1),
            epoch=1,
            input=list(turns) if batch.takes_messages(usually=False) else batch.prompt,
            messages=[*turns, output.message],
            output=output,
            completed=True,
            metadata=copy.deepcopy(batch.columns.get("metadata") or {}),
            **({} if target is ABSENT else {"target": target}),
        )
        calls.append(((state, target), {}))
    return calls


def _make_turns(batch: Batch, module: Any, name: str) -> list[Any]:
    """The prompt's turns as objects of a module's classes, of a `name` with the role in it."""
    classes = [getattr(module, name.format(turn["role"].title())) for turn in batch.turns]
    return [kind(content=turn["content"]) for kind, turn in zip(classes, batch.turns, strict=True)]


def _import_package(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        advice = f"pip install {package.replace('_', '-')}"
        raise ConfigError(f"the function takes objects of {name}: {error}. {advice}") from error


def _plain(batch: Batch) -> list[Call]:
    rows = zip(*batch.lists(usually=None), strict=True)
    return [((p, r), {"prompt": p, "response": r, "completion": r}) for p, r in rows]


def _group(batch: Batch) -> list[Call]:
    prompts, responses = batch.lists(usually=None)
    return [((prompts[0], responses), {"prompt": prompts[0], "responses": responses})]


def _lists(batch: Batch) -> list[Call]:
    prompts, responses = batch.lists(usually=None)
    return [((prompts, responses), {"prompts": prompts, "responses": responses})]


class Style(NamedTuple):
    """The calling style of functions of one shape."""

    how: str
    calls: Callable[[Batch], list[Call]]
    column: str = ""
    """The name of a task's column, whatever the function calls it."""


STYLES = {
    Shape.trl: Style("f(prompts=[…], completions=[…], completion_ids=[…], **columns)", _trl),
    Shape.verl: Style("f(data_source=…, solution_str=…, ground_truth=…, extra_info=…)", _verl),
    Shape.verl_batch: Style(
        "f(data_sources=[…], solution_strs=[…], ground_truths=[…], extra_infos=[…])", _verl_batch
    ),
    Shape.openrlhf: Style("f([query], [prompt], [label])", _openrlhf, "label"),
    Shape.verifiers: Style("f(task=…, trace=…), or a Task", _verifiers),
    Shape.verifiers_rubric: Style("f(prompt=…, completion=…, answer=…, state=…, info=…)", _rubric),
    Shape.inspect: Style("f(state, target)", _inspect, "target"),
    Shape.plain: Style("f(prompt, response), or f(completion) with columns", _plain),
    Shape.plain_group: Style("f(prompt, responses)", _group),
    Shape.plain_lists: Style("f(prompts, responses)", _lists),
}
_PLAIN = (Shape.plain, Shape.plain_group, Shape.plain_lists)
_AS_NAMED = (*_PLAIN, Shape.verifiers, Shape.verifiers_rubric)
"""Shapes whose functions are passed what they name, and nothing else."""
_ALL_AT_ONCE = (Shape.trl, Shape.verl_batch, Shape.plain_group, Shape.plain_lists)
"""Shapes of which one call answers for all responses."""
LOOP_IN_THREAD = (Shape.trl, Shape.verl, Shape.verl_batch)
"""Shapes whose trainers await in a thread: TRL starts one, and verl's workers have Ray's."""
CALLED_SO = {
    "thread": (Shape.verl, Shape.verl_batch),
    "event_loop": (Shape.verifiers, Shape.verifiers_rubric),
}
"""Shapes whose trainers call plain functions in a thread, and where an event loop runs."""
_OF_A_RUN = {
    "environments": "TRL makes for each rollout of a training",
    "judge": "a JudgeRubric of verifiers brings: give that, pessimal.reward(rubric)",
    "parser": "a Rubric of verifiers brings: give that, pessimal.reward(rubric)",
}
"""Parameters that nobody can give a function alone, and where they come from."""


def shape_of(function: Function, *, name: str) -> Shape:
    """The one shape that the names of a function's parameters say. ConfigError where they say none,
    or more than one."""
    names = signature_of(function).parameters.keys()
    rubric = names & {"answer", "state", "info", "task", "parser"}
    fits = {
        Shape.trl: names & {"completions", "completion_ids"},
        Shape.verl: "solution_str" in names,
        Shape.verl_batch: "solution_strs" in names,
        Shape.openrlhf: "queries" in names,
        Shape.verifiers: "trace" in names,
        Shape.verifiers_rubric: "completion" in names and rubric,
        Shape.inspect: names >= {"state", "target"},
        Shape.plain: ("response" in names and "prompts" not in names)
        or ("completion" in names and "prompt" not in names and not rubric),
        Shape.plain_group: names >= {"prompt", "responses"},
        Shape.plain_lists: "responses" in names and "prompt" not in names,
    }
    shapes = [shape for shape, fit in fits.items() if fit]
    if len(shapes) == 1:
        return shapes[0]
    ways = "; ".join(f"{shape.value}: {STYLES[shape].how}" for shape in shapes or Shape)
    fault = f"the parameters ({', '.join(names)}) are of {len(shapes) or 'no'} shapes of function"
    raise ConfigError(f"{name}: {fault}. Give model.shape=SHAPE (shape= in Python). {ways}")


def signature_of(function: Function) -> inspect.Signature:
    """The signature of a function; empty where it is written in C and does not say."""
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return inspect.Signature()


def _fit_call(
    signature: inspect.Signature, shape: Shape, call: Call, batch: Batch, name: str
) -> Call:
    """The call as a function of this signature takes it. ConfigError where it takes something that
    nobody has said, or not what the trainer passes."""
    (args, passed), parameters = call, signature.parameters
    if not parameters and shape in _AS_NAMED:
        return args, {}
    if shape in _PLAIN:
        if set(passed) & set(parameters):  # by name, in whichever order they stand
            if "completion" not in parameters:
                passed.pop("completion", None)
            args, passed = (), dict(batch.columns) | passed
        else:
            kinds = [each.kind.name for each in parameters.values() if each.default is each.empty]
            args, passed = args[len([k for k in kinds if "VAR" not in k]) == 1 :], {}
    takes_all = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
    if shape in _AS_NAMED and not takes_all:
        passed = {key: value for key, value in passed.items() if key in parameters}
    for key in parameters.keys() & _OF_A_RUN.keys() - passed.keys():
        if parameters[key].default is inspect.Parameter.empty:
            raise ConfigError(f"{name} takes {key!r}, which {_OF_A_RUN[key]}")
    try:
        bound = signature.bind(*args, **passed)
    except TypeError as error:
        missing = ", ".join(f"{key}=None" for key in passed if key not in parameters)
        advice = f"tasks=FILE.jsonl gives a dataset's columns, here {', '.join(batch.columns)}"
        if missing:
            missing = "**kwargs" if shape is Shape.trl else missing
            advice = f"The trainer would fail as well: add {missing} to the parameters"
        way = f"{STYLES[shape].how} (model.shape={shape.value})"
        raise ConfigError(f"{name} cannot be called as {way}: {error}. {advice}") from error
    for key, value in bound.arguments.items():
        needed = args or parameters[key].default is inspect.Parameter.empty
        if (value is ABSENT and needed) or value == [ABSENT]:
            column = STYLES[shape].column or key.removesuffix("s" * (shape in _ALL_AT_ONCE))
            source = f"tasks=FILE.jsonl with the column {column!r}"
            source = "model.tokenizer=DIR_OR_ID" if key == "completion_ids" else source
            raise ConfigError(f"{name} takes {key!r}, which the trainer passes: give {source}")
    return args, {key: value for key, value in passed.items() if value is not ABSENT}


# What it answers --------------------------------------------------------------


def import_types(shape: Shape, batch: Batch) -> None:
    """Import what a call of this shape is made of, ahead of a fork."""
    STYLES[shape].calls(batch)


def rewards_of(function: Function, shape: Shape, batch: Batch, *, name: str) -> np.ndarray:
    """Rewards float64 (n,) of the responses; NaN where the function says None, does not apply.

    Raises:
        ConfigError: it cannot be called so.
        ModelError: it raises, or gives something else than a number or None for each response.
    """
    asks, responses = function, batch.responses
    if inspect.isclass(function) and hasattr(function, "data_type"):  # a Task of verifiers
        asks = functools.partial(_score_task, function)
        calls: list[Call] = [((trace,), {}) for trace in _traces(batch, function)]
    else:
        signature, calls = signature_of(function), STYLES[shape].calls(batch)
        calls = [_fit_call(signature, shape, call, batch, name) for call in calls]
    try:
        answers = _answers(asks, calls, shape)
    except Exception as error:
        hint = ". model.messages=true passes lists of messages, false texts" * (shape is Shape.trl)
        call = f"{STYLES[shape].how} with the prompt {batch.prompt[:60]!r} and {len(responses)} "
        call += f"responses, the first {responses[0][:60]!r}{hint}"
        reason = f"{type(error).__name__}: {error}. It was called as {call}"
        raise ModelError(f"the function of {name!r} raised {reason}") from error
    values = _listed(answers[0]) if shape in _ALL_AT_ONCE else answers
    if values is None or len(values) != len(responses):
        wanted = f"a list of {len(responses)} numbers, one for each response"
        raise ModelError(f"the function of {name!r} must give {wanted}; got {answers[0]!r:.120}")
    rewards = np.full(len(values), math.nan)
    for row, (response, value) in enumerate(zip(responses, values, strict=True)):
        number = _number(value, shape)
        if isinstance(number, str):
            answer = f"{value!r:.120} for the response {response[:60]!r}: {number}"
            raise ModelError(f"the function of {name!r} gave {answer}")
        rewards[row] = number
    return rewards


def _listed(answer: Any) -> list[Any] | None:
    """One value a response of a list, array or tensor; None for what is none."""
    if hasattr(answer, "detach"):
        answer = answer.detach().cpu().double().numpy()
    if isinstance(answer, np.ndarray) and answer.ndim != 1:
        return None
    no_list = isinstance(answer, str | Mapping) or not hasattr(answer, "__iter__")
    return None if no_list else list(answer)


def _number(value: Any, shape: Shape) -> float | str:
    """The number that an answer is, NaN where it does not apply, or what is wrong with it."""
    if shape is Shape.openrlhf:
        if not isinstance(value, Mapping) or "rewards" not in value:
            return 'OpenRLHF takes a dictionary with "rewards"'
        value = value["rewards"]
        value = value[0] if isinstance(value, Sequence) and len(value) == 1 else value
    elif isinstance(value, Mapping) and shape in (Shape.verl, Shape.verl_batch):
        if "score" not in value:
            return 'verl takes a number, or a dictionary with "score"'
        value = value["score"]
    elif isinstance(value, Mapping) and shape is Shape.verifiers:  # named scores, which it adds up
        value = sum(value.values())
    elif shape is Shape.inspect:
        value = getattr(value, "value", value)
        if isinstance(value, str):
            value = _import_package("inspect_ai.scorer").value_to_float()(value)
        if isinstance(value, float) and math.isnan(value):  # its sign for "not scored"
            return math.nan
    if value is None:
        return math.nan
    if hasattr(value, "item") and math.prod(getattr(value, "shape", ())) == 1:
        value = value.item()
    if isinstance(value, int | float) and math.isfinite(value):
        return float(value)
    return "give every response a finite number, or None where it does not apply"


# Running it -------------------------------------------------------------------


def _answers(function: Function, calls: Sequence[Call], shape: Shape) -> list[Any]:
    """The results of calls, awaited as the trainer does where they are to be waited for."""
    try:
        answers = [function(*args, **arguments) for args, arguments in calls]
    except SystemExit as error:
        raise RuntimeError(f"sys.exit({error.code})") from error
    if not any(inspect.isawaitable(answer) for answer in answers):
        return answers

    async def gather() -> list[Any]:
        slots = asyncio.Semaphore(AT_ONCE)

        async def finish(answer: Any) -> Any:
            async with slots:
                return await answer if inspect.isawaitable(answer) else answer

        return await asyncio.gather(*map(finish, answers))

    return awaited(gather(), in_thread=shape in LOOP_IN_THREAD)


def awaited(answer: Awaitable[T], *, in_thread: bool = True) -> T:
    """The result, awaited in a thread, or in this one where that is the main thread and no loop
    runs in it, as notebooks have one."""

    async def finish() -> T:
        return await answer

    is_main = threading.current_thread() is threading.main_thread()
    if not in_thread and is_main and asyncio._get_running_loop() is None:
        return _loop(threaded=False).run_until_complete(finish())
    return asyncio.run_coroutine_threadsafe(finish(), _loop(threaded=True)).result()


@functools.cache
def _loop(*, threaded: bool) -> asyncio.AbstractEventLoop:
    """One loop for all, as in the trainers: clients that a function keeps open belong to it."""
    loop = asyncio.new_event_loop()
    if threaded:
        threading.Thread(target=loop.run_forever, daemon=True).start()
    return loop


os.register_at_fork(after_in_child=_loop.cache_clear)  # whose thread a child does not have


async def _score_task(task: Any, trace: Any) -> float | None:
    await task(trace.task.data).score(trace)
    is_scored = any(value is not None for value in trace.rewards.values())
    return trace.reward if is_scored else None
