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
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from pessimal.errors import ConfigError, FrameError, ModelError
from pessimal.rewards.rendering import rendered

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

T = TypeVar("T")
Function = Callable[..., Any]
AT_ONCE = 16
"""Most calls of an asynchronous function at a time."""
ABSENT: Any = type("Absent", (), {"__repr__": lambda self: "…"})()
"""What a trainer would give, and nobody has said here."""


class Shape(Enum):
    """How a function is called."""

    trl = "trl"
    """TRL: lists of prompts and completions, and the dataset's columns, by name."""
    verl = "verl"
    """verl: one solution, its ground truth and what else the dataset has, by name."""
    verl_batch = "verl_batch"
    """verl's batch manager: lists of these."""
    openrlhf = "openrlhf"
    """OpenRLHF: lists of one query, prompt and label."""
    verifiers = "verifiers"
    """verifiers 0.4: a trace; or a Task with its rewards."""
    verifiers_rubric = "verifiers_rubric"
    """A function of verifiers' older rubrics."""
    inspect = "inspect"
    """inspect_ai: a task's state and target."""
    plain = "plain"
    """One prompt and one response, or the response alone: a number."""
    plain_group = "plain_group"
    """One prompt and a list of responses: a number each."""
    plain_lists = "plain_lists"
    """Lists of prompts and of responses, or of the latter alone: a number each."""


HOW = {
    Shape.trl: "f(prompts=[…], completions=[…], completion_ids=[…], **columns, trainer_state=…)",
    Shape.verl: "f(data_source=…, solution_str=…, ground_truth=…, extra_info=…)",
    Shape.verl_batch: "f(data_sources=[…], solution_strs=[…], ground_truths=[…], extra_infos=[…])",
    Shape.openrlhf: "f([query], [prompt], [label])",
    Shape.verifiers: "f(task=…, trace=…)",
    Shape.verifiers_rubric: "f(prompt=…, completion=…, answer=…, state=…, info=…, task=…)",
    Shape.inspect: "f(state, target)",
    Shape.plain: "f(prompt, response), or f(completion) with columns",
    Shape.plain_group: "f(prompt, responses)",
    Shape.plain_lists: "f(prompts, responses)",
}
"""How a function of each shape is called."""


@dataclass(frozen=True)
class Asked:
    """Responses to one prompt."""

    turns: list[dict[str, str]]
    """The prompt as messages."""
    prompt: str
    """The prompt as a text."""
    responses: list[str]
    columns: Mapping[str, Any]
    """What the prompt's task says besides."""
    messages: bool | None = None
    """Whether the trainer has prompts and completions as lists of messages; None where nothing
    says."""
    tokenizer: "PreTrainedTokenizerBase | None" = None
    """Of the policy."""
    chat: bool | None = None
    """Whether the policy is asked in its chat template; None where it has one."""

    def in_messages(self, *, usually: bool | None) -> bool:
        """Whether lists of messages are passed; None where only on demand. FrameError for texts
        where there are several turns."""
        if usually is None:
            return bool(self.messages)
        several = [turn["role"] for turn in self.turns] != ["user"]
        if several and self.messages is False:
            raise FrameError(
                "model.messages=false passes prompts as texts, and a conversation has several turns"
            )
        return (usually or several) if self.messages is None else self.messages

    def shown(self, *, usually: bool | None) -> list[tuple[Any, Any]]:
        """Prompt and completion of each response, as texts or as lists of messages of its own."""
        if not self.in_messages(usually=usually):
            return [(self.prompt, response) for response in self.responses]
        return [
            (copy.deepcopy(self.turns), [{"role": "assistant", "content": response}])
            for response in self.responses
        ]


# What is recognised -----------------------------------------------------------


def shape_of(function: Function, *, name: str) -> Shape:
    """The one shape that the names of a function's parameters say.

    Raises:
        ConfigError: they say none, or more than one.
    """
    names = set(parameters_of(function))
    rubric = {"answer", "state", "info", "task", "parser"}
    fits = {
        Shape.trl: names & {"completions", "completion_ids"},
        Shape.verl: "solution_str" in names,
        Shape.verl_batch: "solution_strs" in names,
        Shape.openrlhf: "queries" in names,
        Shape.verifiers: "trace" in names,
        Shape.verifiers_rubric: "completion" in names and names & rubric,
        Shape.inspect: names >= {"state", "target"},
        Shape.plain: ("response" in names and "prompts" not in names)
        or ("completion" in names and not names & {"prompt", *rubric}),
        Shape.plain_group: names >= {"prompt", "responses"},
        Shape.plain_lists: "responses" in names and "prompt" not in names,
    }
    found = [shape for shape, fit in fits.items() if fit]
    if len(found) == 1:
        return found[0]
    said = f"the parameters ({', '.join(parameters_of(function)) or 'none that can be read'})"
    ways = "; ".join(f"{shape.value}: {HOW[shape]}" for shape in found or _PLAIN)
    others = "" if found else f"; or {', '.join(one.value for one in Shape if one not in _PLAIN)}"
    raise ConfigError(
        f"{name}: {said} are those of {'more than one' if found else 'no'} shape of function that "
        f"is known. Say how it is called, model.shape=SHAPE (shape= in Python). {ways}{others}"
    )


def parameters_of(function: Function) -> dict[str, inspect.Parameter]:
    """The parameters of a function by name; none where it is written in C and does not say."""
    return dict(_signature(function).parameters)


def _signature(function: Function) -> inspect.Signature:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return inspect.Signature()


# How each is called -----------------------------------------------------------

Call = tuple[tuple[Any, ...], dict[str, Any]]


def _trl(asked: Asked) -> list[Call]:
    from transformers import TrainerState

    shown, n = asked.shown(usually=False), len(asked.responses)
    ids = ABSENT
    if asked.tokenizer is not None:
        encoded = asked.tokenizer(asked.responses, add_special_tokens=False)["input_ids"]
        ids = [[*one, asked.tokenizer.eos_token_id] for one in encoded]
    columns = {
        name: [copy.deepcopy(value) for _ in range(n)]
        for name, value in asked.columns.items()
        if name not in ("completion", "completion_ids")
    }
    given = {
        "prompts": [prompt for prompt, _ in shown],
        "completions": [completion for _, completion in shown],
        "completion_ids": ids,
        **columns,
        "trainer_state": TrainerState(),
        "log_extra": lambda column, values: None,
        "log_metric": lambda name, value: None,
    }
    return [((), given)]


def _verl(asked: Asked) -> list[Call]:
    columns = asked.columns
    of_model = columns.get("reward_model")
    truths = of_model if isinstance(of_model, Mapping) else columns
    return [
        (
            (),
            {
                "data_source": columns.get("data_source", ABSENT),
                "solution_str": response,
                "ground_truth": truths.get("ground_truth", ABSENT),
                "extra_info": copy.deepcopy(columns.get("extra_info") or {})
                | {"num_turns": None, "rollout_reward_scores": {}},
            },
        )
        for response in asked.responses
    ]


def _verl_batch(asked: Asked) -> list[Call]:
    calls = [given for _, given in _verl(asked)]
    for given in calls:
        del given["extra_info"]["num_turns"]

    def column(name: str) -> Any:
        values = [given[name] for given in calls]
        return ABSENT if values[0] is ABSENT else values

    return [((), {f"{name}s": column(name) for name in calls[0]})]


def _openrlhf(asked: Asked) -> list[Call]:
    """A response a call, each in lists of one. The query is the policy's text with its special
    tokens; without a dataset there is no label, and OpenRLHF passes an empty one."""
    tokenizer, prompt, end = asked.tokenizer, asked.prompt, ""
    if tokenizer is not None:
        end = str(tokenizer.eos_token or "")
        if tokenizer.chat_template if asked.chat is None else asked.chat:
            options = {"tokenize": False, "add_generation_prompt": True}
            prompt = rendered(tokenizer, asked.turns, **options)
    label = asked.columns.get("label", ABSENT if asked.columns else "")
    return [(([prompt + one + end], [prompt], [label]), {}) for one in asked.responses]


def _rubric(asked: Asked) -> list[Call]:
    calls: list[Call] = []
    for prompt, completion in asked.shown(usually=True):
        about = {"prompt": prompt, "completion": completion, "answer": ABSENT, "info": {}}
        about |= {"task": "default"} | copy.deepcopy(dict(asked.columns))
        state = {name: value for name, value in about.items() if value is not ABSENT}
        calls.append(((), about | {"state": state}))
    return calls


def _verifiers(asked: Asked) -> list[Call]:
    """verifiers' own objects: the trace of a conversation that has ended."""
    return [((), {"task": trace.task.data, "trace": trace}) for trace in _traces(asked, None)]


def _traces(asked: Asked, task: type | None) -> list[Any]:
    package = _package("verifiers.v1")
    trace, types = _package("verifiers.v1.trace"), _package("verifiers.v1.types")
    graph = _package("verifiers.v1.graph")
    data_type = task.data_type() if task else _package("verifiers.v1.task").WireTaskData  # type: ignore[attr-defined]
    made = {"user": types.UserMessage, "system": types.SystemMessage}
    made["assistant"] = types.AssistantMessage
    turns = [made[turn["role"]](content=turn["content"]) for turn in asked.turns]
    prompt = turns if asked.in_messages(usually=False) else asked.prompt
    traces = []
    for response in asked.responses:
        data = data_type(**copy.deepcopy(dict(asked.columns)) | {"prompt": prompt})
        messages = [*turns, types.AssistantMessage(content=response)]
        nodes = [
            graph.MessageNode(parent=i - 1 if i else None, message=one, sampled=i == len(turns))
            for i, one in enumerate(messages)
        ]
        of_task = trace.TraceTask(type=(task or data_type).__name__, data=data)
        agent = trace.AgentInfo(config=package.AgentConfig())
        traces.append(
            trace.Trace(task=of_task, agent=agent, nodes=nodes, is_completed=True, ok=True)
        )
    return traces


def _inspect(asked: Asked) -> list[Call]:
    """inspect_ai's own objects: the state of a sample that a model has answered."""
    model, solver = _package("inspect_ai.model"), _package("inspect_ai.solver")
    target = asked.columns.get("target", ABSENT if asked.columns else "")
    if target is not ABSENT:
        target = _package("inspect_ai.scorer").Target(target)
    made = {"user": model.ChatMessageUser, "system": model.ChatMessageSystem}
    made["assistant"] = model.ChatMessageAssistant
    calls: list[Call] = []
    for response in asked.responses:
        turns = [made[turn["role"]](content=turn["content"]) for turn in asked.turns]
        output = model.ModelOutput.from_content("none/none", response)
        state = solver.TaskState(
            model=model.ModelName("none/none"),
            sample_id=asked.columns.get("id", 1),
            epoch=1,
            input=list(turns) if asked.in_messages(usually=False) else asked.prompt,
            messages=[*turns, output.message],
            output=output,
            completed=True,
            metadata=copy.deepcopy(asked.columns.get("metadata") or {}),
            **({} if target is ABSENT else {"target": target}),
        )
        calls.append(((state, target), {}))
    return calls


def _package(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        raise ConfigError(
            f"this function takes objects of {package}, which cannot be imported here: {error}. "
            f"Type: pip install {package.replace('_', '-')}"
        ) from error


def _plain(asked: Asked) -> list[Call]:
    return [
        ((p, r), {"prompt": p, "response": r, "completion": r})
        for p, r in asked.shown(usually=None)
    ]


def _group(asked: Asked) -> list[Call]:
    shown = asked.shown(usually=None)
    prompt, responses = shown[0][0], [response for _, response in shown]
    return [((prompt, responses), {"prompt": prompt, "responses": responses})]


def _lists(asked: Asked) -> list[Call]:
    prompts, responses = (list(column) for column in zip(*asked.shown(usually=None), strict=True))
    return [((prompts, responses), {"prompts": prompts, "responses": responses})]


_CALLS: dict[Shape, Callable[[Asked], list[Call]]] = {
    Shape.trl: _trl,
    Shape.verl: _verl,
    Shape.verl_batch: _verl_batch,
    Shape.openrlhf: _openrlhf,
    Shape.verifiers: _verifiers,
    Shape.verifiers_rubric: _rubric,
    Shape.inspect: _inspect,
    Shape.plain: _plain,
    Shape.plain_group: _group,
    Shape.plain_lists: _lists,
}
_PLAIN = (Shape.plain, Shape.plain_group, Shape.plain_lists)
_AS_NAMED = (*_PLAIN, Shape.verifiers, Shape.verifiers_rubric)
"""Shapes whose functions are passed what they name, and nothing else."""
_ALL_AT_ONCE = (Shape.trl, Shape.verl_batch, Shape.plain_group, Shape.plain_lists)
"""Shapes of which one call answers for all responses."""
_OF_A_RUN = {
    "environments": "TRL makes for each rollout of a training",
    "judge": "a JudgeRubric of verifiers brings: give that, pessimal.reward(rubric)",
    "parser": "a Rubric of verifiers brings: give that, pessimal.reward(rubric)",
}
"""Parameters that nobody can give a function alone, and where they come from."""
_COLUMN = {Shape.openrlhf: "label", Shape.inspect: "target"}
"""What the column of a task is called, whatever the function calls it."""


def _fitted(
    signature: inspect.Signature, shape: Shape, call: Call, asked: Asked, name: str
) -> Call:
    """The call as a function of this signature takes it.

    Raises:
        ConfigError: it takes something that nobody has said, or not what the trainer passes.
    """
    (args, given), parameters = call, signature.parameters
    anything = any(one.kind is one.VAR_KEYWORD for one in parameters.values())
    if shape in _PLAIN:
        if set(given) & set(parameters):  # by name, in whichever order they stand
            if "completion" not in parameters:
                given.pop("completion", None)
            args, given = (), dict(asked.columns) | given
        else:
            kinds = [one.kind for one in parameters.values() if one.default is one.empty]
            single = len([1 for kind in kinds if "VAR" not in kind.name]) == 1
            args, given = (args[1:] if single else args), {}
    if shape in _AS_NAMED and not anything:
        given = {one: value for one, value in given.items() if one in parameters}
    for one in parameters.keys() & _OF_A_RUN.keys() - given.keys():
        if parameters[one].default is inspect.Parameter.empty:
            raise ConfigError(f"{name} takes {one!r}, which {_OF_A_RUN[one]}")
    if parameters:
        try:
            bound = signature.bind(*args, **given)
        except TypeError as error:
            raise ConfigError(
                f"{name} cannot be called as model.shape={shape.value} calls it, {HOW[shape]}: "
                f"{error}. {_remedy(shape, given, parameters, list(asked.columns))}"
            ) from error
        for one, value in bound.arguments.items():
            needed = args or parameters[one].default is inspect.Parameter.empty
            if (value is ABSENT and needed) or value == [ABSENT]:
                column = _COLUMN.get(shape, one.removesuffix("s" if shape in _ALL_AT_ONCE else ""))
                how = f"tasks=FILE.jsonl whose tasks have the column {column!r}"
                how = "model.tokenizer=DIR_OR_ID" if one == "completion_ids" else how
                raise ConfigError(
                    f"{name} takes {one!r}, which the trainer passes and nobody has said here: "
                    f"give {how}"
                )
    return args, {one: value for one, value in given.items() if value is not ABSENT}


def _remedy(
    shape: Shape,
    arguments: Mapping[str, Any],
    parameters: Mapping[str, Any],
    columns: Sequence[str],
) -> str:
    """The remedy for a function that does not take what its trainer passes."""
    if missing := [name for name in arguments if name not in parameters]:
        more = "**kwargs" if shape is Shape.trl else ", ".join(f"{name}=None" for name in missing)
        return (
            f"The trainer passes {', '.join(missing)} too, and would fail as well: add {more} to "
            "the function's parameters"
        )
    place = f"tasks=, here {', '.join(columns)}" if columns else "tasks=FILE.jsonl"
    return f"What stands in a dataset's columns is given by {place}"


# What it answers --------------------------------------------------------------


def import_types(shape: Shape, asked: Asked) -> None:
    """Import what a call of this shape is made of, ahead of a fork."""
    _CALLS[shape](asked)


def rewards_of(function: Function, shape: Shape, asked: Asked, *, name: str) -> np.ndarray:
    """Rewards float64 (n,) of the responses; NaN where the function says None, does not apply.

    Raises:
        ConfigError: it cannot be called so.
        ModelError: it raises, or gives something else than a number or None for each response.
    """
    scored = functools.partial(_of_task, function) if _is_task(function) else None
    if scored is not None:
        calls: list[Call] = [((trace,), {}) for trace in _traces(asked, function)]  # type: ignore[arg-type]
    else:
        made, signature = _CALLS[shape](asked), _signature(function)
        calls = [_fitted(signature, shape, call, asked, name) for call in made]
    n = len(asked.responses)
    try:
        answers = _answers(scored or function, calls, shape)
    except Exception as error:
        raise ModelError(
            f"the function of {name!r} raised {type(error).__name__}: {error}. It was called as "
            f"{HOW[shape]} with the prompt {asked.prompt[:60]!r} and {n} "
            f"responses, the first {asked.responses[0][:60]!r}{_hint(shape, asked, error)}"
        ) from error
    if shape in _ALL_AT_ONCE:
        [answer] = answers
        values = _listed(answer)
        if values is None or len(values) != n:
            raise ModelError(
                f"the function of {name!r} must give one number a response, a list or array of "
                f"{n}; it gave {answer!r:.120}"
            )
    else:
        values = answers
    read = [_number(value, shape) for value in values]
    for response, value, number in zip(asked.responses, values, read, strict=True):
        if isinstance(number, str):
            raise ModelError(
                f"the function of {name!r} gave {value!r:.120} for the response "
                f"{response[:60]!r}: {number}"
            )
    return np.array([math.nan if one is None else one for one in read], dtype=np.float64)


def _hint(shape: Shape, asked: Asked, error: Exception) -> str:
    texts = isinstance(error, TypeError | AttributeError | KeyError | IndexError)
    if shape is not Shape.trl or not texts:
        return ""
    kind = "lists of messages" if asked.in_messages(usually=False) else "texts"
    return (
        f". Prompts and completions were {kind}, as the prompt stands in tasks: "
        "model.messages=true passes lists of messages, false texts"
    )


def _listed(answer: Any) -> list[Any] | None:
    """One value a response of a list, array or tensor; None for what is none."""
    if hasattr(answer, "detach"):
        answer = answer.detach().cpu().double().numpy()
    if isinstance(answer, np.ndarray):
        return list(answer) if answer.ndim == 1 else None
    no_list = isinstance(answer, str | Mapping) or not hasattr(answer, "__iter__")
    return None if no_list else list(answer)


def _number(value: Any, shape: Shape) -> float | str | None:
    """The number that an answer is, None where it does not apply, or what is wrong with it."""
    if shape in (Shape.verl, Shape.verl_batch) and isinstance(value, Mapping):
        if "score" not in value:
            return 'verl takes a number, or a dictionary with "score"'
        value = value["score"]
    if shape is Shape.openrlhf:
        if not isinstance(value, Mapping) or "rewards" not in value:
            return 'OpenRLHF takes a dictionary with "rewards"'
        value = value["rewards"]
        value = value[0] if isinstance(value, Sequence) and len(value) == 1 else value
    if shape is Shape.verifiers and isinstance(value, Mapping):  # named scores, which it adds up
        value = sum(value.values())
    if shape is Shape.inspect and value is not None:
        value = getattr(value, "value", value)
        if isinstance(value, str):
            value = _package("inspect_ai.scorer").value_to_float()(value)
        if isinstance(value, float) and math.isnan(value):  # its sign for "not scored"
            return None
    if value is None:
        return None
    if hasattr(value, "item") and math.prod(getattr(value, "shape", ())) == 1:
        value = value.item()
    if not isinstance(value, int | float):
        return "give a number, or None where it does not apply"
    return float(value) if math.isfinite(value) else "give every response a finite number"


# Running it -------------------------------------------------------------------

LOOP_IN_THREAD = (Shape.trl, Shape.verl, Shape.verl_batch)
"""Shapes whose trainers await in a thread: TRL starts one, and verl's workers have Ray's."""
CALLED_SO = {
    "thread": (Shape.verl, Shape.verl_batch),
    "event_loop": (Shape.verifiers, Shape.verifiers_rubric),
}
"""Shapes whose trainers call plain functions in a thread, and where an event loop runs."""


def _answers(function: Function, calls: Sequence[Call], shape: Shape) -> list[Any]:
    """The results of calls, awaited as the trainer does where they are to be waited for."""
    try:
        answers = [function(*args, **given) for args, given in calls]
    except SystemExit as error:
        raise RuntimeError(f"sys.exit({error.code})") from error
    if not any(inspect.isawaitable(answer) for answer in answers):
        return answers

    async def all_of_them() -> list[Any]:
        some = asyncio.Semaphore(AT_ONCE)

        async def one(answer: Any) -> Any:
            async with some:
                return await answer if inspect.isawaitable(answer) else answer

        return await asyncio.gather(*map(one, answers))

    return awaited(all_of_them(), in_thread=shape in LOOP_IN_THREAD)


def awaited(answer: Awaitable[T], *, in_thread: bool = True) -> T:
    """The result, awaited in a thread, or in this one where that is the main thread and no loop
    runs in it, as notebooks have one."""

    async def one() -> T:
        return await answer

    is_main = threading.current_thread() is threading.main_thread()
    if not in_thread and is_main and asyncio._get_running_loop() is None:
        return _loop(threaded=False).run_until_complete(one())
    return asyncio.run_coroutine_threadsafe(one(), _loop(threaded=True)).result()


@functools.cache
def _loop(*, threaded: bool) -> asyncio.AbstractEventLoop:
    """One loop for all, as in the trainers: clients that a function keeps open belong to it."""
    loop = asyncio.new_event_loop()
    if threaded:
        threading.Thread(target=loop.run_forever, daemon=True).start()
    return loop


os.register_at_fork(after_in_child=_loop.cache_clear)  # whose thread a child does not have


def _is_task(function: Any) -> bool:
    """Whether it is a Task of verifiers, whose rewards are methods."""
    return inspect.isclass(function) and hasattr(function, "data_type")


def _of_task(task: Any, trace: Any) -> Awaitable[float | None]:
    async def score() -> float | None:
        await task(trace.task.data).score(trace)
        return trace.reward if any(one is not None for one in trace.rewards.values()) else None

    return score()
