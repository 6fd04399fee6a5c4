"""A Python function as a reward, in whichever shape its trainer calls it, and files of tasks:
prompts with the columns that a trainer's dataset has beside them.

Knows how a function is found and digested. `shapes` knows how it is called; neither knows what it
computes.
"""

import functools
import hashlib
import importlib.util
import inspect
import json
import logging
import pkgutil
import re
import sys
import sysconfig
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from modulefinder import ModuleFinder
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from pydantic.dataclasses import dataclass as options_dataclass

from pessimal.conversation import Conversation, Prompt, prompt_of, read_messages
from pessimal.errors import ConfigError, InputError
from pessimal.options import existing_file
from pessimal.rewards.base import Report, TextReward
from pessimal.rewards.rendering import messages_of, plain_prompt
from pessimal.rewards.shapes import (
    STYLES,
    Batch,
    Function,
    Shape,
    import_types,
    rewards_of,
    shape_of,
    signature_of,
)
from pessimal.rewards.spec import ModelSpec
from pessimal.rewards.weights import template_digest, tokenizer_digest

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


_KEY = re.compile(r"[\w.-]+")
TRUTHS = ("ground_truth", "answer", "target", "label", "solution", "reference")
CLASSES = 3
"""Most different labels that are classes of responses where each is that of several tasks."""


@dataclass(frozen=True)
class Task:
    """One line of a file of tasks."""

    key: str
    """Its column `id`, else `task-N`, counted from 1."""
    turns: Conversation
    columns: Mapping[str, Any]
    messages: bool
    """Whether the file has the prompt as a list of messages, and not as a text."""

    @property
    def digest(self) -> str:
        """sha256 over all of it but its key."""
        turns = [[turn.role, turn.content] for turn in self.turns]
        held = json.dumps([turns, self.messages, dict(self.columns)], sort_keys=True)
        return hashlib.sha256(held.encode()).hexdigest()


def read_tasks(path: str | Path) -> tuple[Task, ...]:
    """The tasks of a JSONL file: a line each, an object with `prompt` (a text, or a list of
    messages with role and content) and any further columns; `id` names it.

    Raises:
        InputError: there is no such file, a line is no task, or two have one name or one prompt.
    """
    file = existing_file("tasks", str(path))
    try:
        lines = file.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"tasks={str(path)!r} is no file of tasks: {error}") from error
    tasks: dict[str, Task] = {}
    prompts: dict[Conversation, str] = {}
    for number, line in enumerate(lines, 1):
        where = f"tasks={str(path)!r}, line {number}"
        if not line.strip():
            continue
        task = _task(line, len(tasks) + 1, where)
        if task.key in tasks:
            raise InputError(f"{where}: a second task has the id {task.key!r}; give each its own")
        if (other := prompts.get(task.turns)) is not None:
            raise InputError(f"{where}: its prompt is that of {other!r}: give each prompt once")
        tasks[task.key], prompts[task.turns] = task, task.key
    if not tasks:
        raise InputError(f"tasks={str(path)!r} holds no task; write one a line, as JSON")
    return tuple(tasks.values())


def prompts_of(tasks: Sequence[Task]) -> dict[str, Prompt]:
    """The prompts of tasks by key. ConfigError where a turn's role is unknown."""
    return {task.key: prompt_of(task.turns, name=f"task {task.key!r}") for task in tasks}


def truths_of(columns: Mapping[str, Any]) -> tuple[str, ...]:
    """The true answers of a task, of which each is right: of the columns `TRUTHS` and of
    `reward_model.ground_truth` the first that holds a text, a number, a list of these, or a
    dictionary of one of these; without `$`, and what stands behind `####` or in the last
    `\\boxed{}`. Empty where there is none."""
    model = columns.get("reward_model")
    held = [columns.get(name) for name in TRUTHS]
    held += [model.get("ground_truth")] if isinstance(model, Mapping) else []
    for value in held:
        inner = next(iter(value.values())) if isinstance(value, dict) and len(value) == 1 else value
        parts = inner if isinstance(inner, list) else [inner]
        if parts and all(isinstance(part, str | int | float) for part in parts):
            texts = [_answer(str(part)) for part in parts]
            if any(texts):
                return tuple(dict.fromkeys(filter(None, texts)))
    return ()


def true_answers(tasks: Sequence[Task]) -> list[tuple[str, ...]]:
    """The true answers of each task, as `truths_of`; none at all where they are classes: at most
    `CLASSES` different labels, each of several tasks, in a column `label` alone."""
    truths = [truths_of(task.columns) for task in tasks]
    counts = Counter(truths)
    few = () not in counts and len(counts) <= CLASSES and min(counts.values(), default=0) > 1
    if few and not any(truths_of({**task.columns, "label": None}) for task in tasks):
        return [()] * len(tasks)
    return truths


def _answer(text: str) -> str:
    text = text.rpartition("####")[2].strip()
    boxed = re.findall(r"\\boxed\{(.*)\}", text, flags=re.DOTALL)
    return (boxed[-1] if boxed else text).strip("$ \n")


def _task(line: str, number: int, where: str) -> Task:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where} is no JSON ({error}); give one object a line") from error
    if not isinstance(row, dict) or "prompt" not in row:
        raise InputError(f'{where}: a task is an object with "prompt", got {line:.80}')
    prompt = row.pop("prompt")
    listed = prompt if isinstance(prompt, list) else [{"role": "user", "content": prompt}]
    turns = read_messages(listed, where=where)
    if not all(turn.content.strip() for turn in turns):
        raise InputError(f"{where}: a prompt is a text that is not empty; got {prompt!r:.80}")
    if turns[-1].role == "assistant":
        raise InputError(f"{where}: a prompt ends with what is to be answered, a user's turn")
    key = str(row.get("id", f"task-{number}"))
    if not _KEY.fullmatch(key):
        raise InputError(f"{where}: id={key!r}; give letters, digits, _, . and - alone")
    return Task(key, turns, row, isinstance(prompt, list))


REACHING = re.compile(
    rb"\b(open|fdopen|exec|eval|compile|system|popen|getenv|environ|read_(text|bytes|csv|excel|json"
    rb"|parquet|pickle|table)|load|loadtxt|genfromtxt|fromfile|memmap|load_file|safe_open|urlopen"
    rb"|urlretrieve|__import__|import_module|run_path|run_module|from_pretrained|load_dataset"
    rb"|hf_hub_download|snapshot_download)\b"
)
"""Names by which code opens a file, a model, an address, or a module that a value names."""
DISTANT = re.compile(
    r"(aiohttp|anthropic|boto3|cohere|ctypes|datasets|docker|e2b|ftplib|google\.genai|grpc"
    r"|http\.client|httpx2?|huggingface_hub|importlib\.resources|litellm|modal"
    r"|multiprocessing\.connection|openai|paramiko|pkgutil|psycopg2?|pymongo|ray|redis|requests"
    r"|runpy|shelve|socket|sqlalchemy|sqlite3|subprocess|together|urllib\.request|urllib3"
    r"|websockets?|xmlrpc)(\.|$)"
)
"""Modules that are for files, programs or servers."""
HARMLESS = re.compile(rb"\bre\.compile\b")
FROM = re.compile(r"^\s*from\s+([\w.]+)\s+import\s+\(?([\w, ]+)", re.M)


class Sources(NamedTuple):
    """A digest of the code behind a function, and whether it says all."""

    digest: str
    is_pinned: bool


def sources_of(file: Path) -> Sources:
    """The code of a file and of every module of the user's that it imports, wherever in the code;
    of an installed distribution the name and version count.

    `is_pinned` is False where the code opens files, starts programs, asks servers, reads the
    environment or imports by a computed name: no digest covers these.
    """
    packages = {"site-packages", "dist-packages"}
    standard = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib")}
    folders = [Path(folder) for folder in [str(file.parent), *filter(None, sys.path)]]
    local = [folder for folder in folders if not packages & {*folder.parts}]
    roots = [str(f) for f in local if not any(f.is_relative_to(place) for place in standard)]
    finder = ModuleFinder(path=roots, excludes=["pessimal"])
    finder.run_script(str(file))
    imports = set(finder.badmodules) - set(finder.modules)
    digests, is_pinned = {}, True
    for name, module in sorted(finder.modules.items()):
        if (path := getattr(module, "__file__", None)) is not None:
            content = Path(path).read_bytes()
            digests[name] = hashlib.sha256(content).hexdigest()
            is_pinned &= path.endswith(".py") and not REACHING.search(HARMLESS.sub(b"", content))
            for package, names in FROM.findall(content.decode(errors="replace")):
                imports |= {f"{package}.{member.strip()}" for member in names.split(",")}
    is_pinned &= not any(DISTANT.match(name) for name in imports)
    external = {name.partition(".")[0] for name in imports} - sys.stdlib_module_names
    distributions = metadata.packages_distributions() if external else {}  # reads a file of each
    for name in {name for package in external for name in distributions.get(package, ())}:
        digests[f"{name}=="] = metadata.version(name)
    text = json.dumps(digests, sort_keys=True)
    return Sources(hashlib.sha256(text.encode()).hexdigest(), is_pinned)


log = logging.getLogger(__name__)

BATCH = 256
NOTHING = hashlib.sha256(b"null").hexdigest()
"""Digest of a tokenizer or template that there is not."""
_PLAIN = (str, int, float, bool, type(None), tuple, list, dict)


@options_dataclass
class CallableSpec(ModelSpec):
    """A Python function of a prompt and responses."""

    takes_tasks: ClassVar[bool] = True
    grades_tasks: ClassVar[bool] = True

    kind: str = "callable"
    callable: Any = None
    """The function: `_target_` (FILE.py:NAME, or module.name) and further arguments."""
    shape: Shape | None = None
    """The form of the function's calls: trl, verl, verl_batch, openrlhf, verifiers,
    verifiers_rubric, inspect, plain, plain_group or plain_lists; null goes by the names of its
    parameters."""
    messages: bool | None = None
    """true passes prompts and completions as lists of messages, false as texts; null as the prompt
    stands in `tasks`, and as the shape usually has them."""
    tasks: str | None = None
    """JSONL file of tasks, each a prompt with its columns, such as {"prompt": "2 + 2?",
    "ground_truth": "4"}."""
    chat: bool | None = None
    """For shape=openrlhf: true writes queries in the chat template of the policy, whose tokenizer
    is `tokenizer`, false as plain text; null takes the template where there is one."""

    def check(self) -> None:
        super().check()
        if not (isinstance(self.callable, Mapping) and "_target_" in self.callable):
            raise ConfigError("model.kind=callable needs a function: type model=FILE.py:FUNCTION")

    def derive_name(self) -> str:
        file, _, function = str(self.callable["_target_"]).rpartition(":")
        return f"{Path(file).stem}.{function}" if file else function.split(".")[-1]

    def open(self, folder: Path | None, *, cache: str) -> "CallableReward":
        """The function, and the tokenizer whose vocabulary is scanned."""
        return open_callable(self, read_tokenizer(self))


@dataclass(frozen=True)
class CallableReward(TextReward):
    """A function that a trainer calls, or one of a prompt and responses."""

    spec: CallableSpec
    function: Function
    shape: Shape
    tasks: Mapping[Conversation, Task]
    pinned: bool

    @property
    def functions(self) -> "tuple[CallableReward]":
        """The reward itself."""
        return (self,)

    @property
    def typed(self) -> str:
        """The function's file and name."""
        return str(self.spec.callable["_target_"]) if self.spec.callable else self.spec.name

    @property
    def origin(self) -> str:
        """`function:NAME@sha256:DIGEST` (of its source)."""
        return f"function:{self.name}@sha256:{self.weights_digest[:16]}"

    @property
    def is_pinned(self) -> bool:
        """Whether the digest covers all that decides a reward: only then may a result be shown
        again in place of another call. Never of a function that was given in memory."""
        return self.pinned

    @property
    def core_checks(self) -> tuple[str, ...]:
        """Checks without which an audit of it is incomplete; a grader has tasks."""
        graded = ("grader_calls", "grader_pays", "grader_misses")
        return graded if self.tasks else super().core_checks

    def rewards(
        self,
        conversations: Sequence[Conversation],
        *,
        report: Report | None = None,
        again: bool = False,
    ) -> np.ndarray:
        """Rewards float64 (n,), at most `BATCH` responses to one prompt at a time; NaN where the
        function says that it does not apply.

        Raises as `shapes.rewards_of`.
        """
        rewards = np.full(len(conversations), np.nan)
        groups: dict[Conversation, list[int]] = {}
        for index, conversation in enumerate(conversations):
            groups.setdefault(conversation[:-1], []).append(index)
        for turns, indices in groups.items():
            for start in range(0, len(indices), BATCH):
                batch = indices[start : start + BATCH]
                responses = self._batch(turns, [conversations[index] for index in batch])
                rewards[batch] = rewards_of(self.function, self.shape, responses, name=self.name)
                if report:
                    report({index: float(rewards[index]) for index in batch}, len(conversations))
        return rewards

    def import_types(self, conversation: Conversation) -> None:
        """Import what a call is made of, ahead of a fork."""
        import_types(self.shape, self._batch(conversation[:-1], [conversation]))

    def _batch(self, turns: Conversation, conversations: Sequence[Conversation]) -> Batch:
        task, spec = self.tasks.get(turns), self.spec
        return Batch(
            turns=messages_of(turns),
            prompt=plain_prompt(conversations[0]),
            responses=[messages_of(each)[-1]["content"] for each in conversations],
            columns={} if task is None else task.columns,
            messages=True if spec.messages is None and task and task.messages else spec.messages,
            tokenizer=self.tokenizer,
            chat=spec.chat,
        )


def open_callable(
    spec: CallableSpec, tokenizer: "PreTrainedTokenizerBase | None" = None
) -> CallableReward:
    """The function that `spec.callable` names: `_target_`, and arguments that it is given besides
    what its shape has.

    A class is made with the arguments, and its instance called. ConfigError for what cannot be
    imported, made or called, or whose shape nothing says.
    """
    arguments = {str(name): value for name, value in spec.callable.items()}
    path = str(arguments.pop("_target_"))
    file, _, name = path.rpartition(":")
    try:
        module = _module(Path(file).expanduser().resolve(strict=True)) if file else None
        target = attrgetter(name)(module) if module else pkgutil.resolve_name(path)
        function = target
        if inspect.isclass(target) and not hasattr(target, "data_type"):  # a Task of verifiers
            function = target(**arguments)
        elif arguments:
            function = partial(target, **arguments)
    except (Exception, SystemExit) as error:
        reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
        advice = "Give FILE.py:FUNCTION or an installed module.function"
        raise ConfigError(f"model.callable._target_={path!r}: {reason}. {advice}") from error
    module = sys.modules.get(getattr(target, "__module__", None) or "")
    script = Path(file or getattr(module, "__file__", None) or "").expanduser()
    sources = sources_of(script.resolve()) if script.suffix == ".py" else None
    return _reward(spec, function, target, arguments, tokenizer, sources)


def wrap_callable(
    function: Any,
    *,
    name: str | None = None,
    tokenizer: "PreTrainedTokenizerBase | str | Path | None" = None,
    shape: str | Shape | None = None,
    messages: bool | None = None,
    tasks: str | Path | None = None,
) -> CallableReward:
    """A function, an object that can be called, or one that has a method `score`, as a reward.

    Args:
        name: by default the function's own.
        tokenizer: whose vocabulary is scanned, or its folder or repository.
        shape: how it is called (`Shape`); by default as the names of its parameters say.
        messages: pass prompts and completions as lists of messages, or (False) as texts.
        tasks: JSONL file of prompts with their columns.

    Raises:
        ConfigError: it cannot be called, or nothing says how.
        InputError: the file of tasks cannot be read.

    The digest is over the function's source with the plain values (numbers, texts, lists) that it
    closes over or its object holds: give another name where something else changes what it
    computes.
    """
    inner: Any = function
    arguments: dict[str, Any] = {}
    while isinstance(inner, partial):
        arguments |= {str(i): value for i, value in enumerate(inner.args)} | inner.keywords
        inner = inner.func
    inside = getattr(inner, "__qualname__", type(inner).__name__)
    folder = str(tokenizer) if isinstance(tokenizer, str | Path) else None
    shapes = {each.value: each for each in Shape}
    value = shape.value if isinstance(shape, Shape) else shape
    if value not in (None, *shapes):
        raise ConfigError(f"shape={shape!r}: give one of {', '.join(shapes)}")
    spec = CallableSpec(
        name=name or inside.rpartition(".")[2].strip("<>"),
        callable={"_target_": f"{getattr(inner, '__module__', '')}.{inside}"},
        shape=shapes.get(value or ""),
        messages=messages,
        tasks=None if tasks is None else str(tasks),
        tokenizer=folder,
    )
    words: Any = tokenizer if folder is None else read_tokenizer(spec)
    return _reward(spec, function, inner, arguments, words)


def is_rubric(rubric: Any) -> bool:
    """Whether it is a Rubric of verifiers: functions with weights, and objects that these take."""
    return hasattr(rubric, "funcs") and hasattr(rubric, "class_objects")


def rubric_terms(
    rubric: Any, *, tasks: str | Path | None = None
) -> list[tuple[float, CallableReward]]:
    """Weight and reward of each function of a Rubric of verifiers, given the objects that it names,
    such as the judge. ConfigError where one ranks several rollouts."""
    terms = []
    for weight, function in zip(rubric.weights, rubric.funcs, strict=True):
        names = rubric.class_objects.keys() & signature_of(function).parameters
        function = partial(function, **{name: rubric.class_objects[name] for name in names})
        reward = wrap_callable(function, shape=Shape.verifiers_rubric, tasks=tasks)
        terms.append((float(weight), reward))
    return terms


def read_tokenizer(spec: ModelSpec) -> "PreTrainedTokenizerBase | None":
    """The tokenizer that an option names; None where none does. ModelError where it cannot be
    loaded."""
    from pessimal.rewards.checkpoint_files import load_tokenizer  # torch

    return None if spec.tokenizer is None else load_tokenizer(spec)


def about_texts(spec: ModelSpec, tokenizer: "PreTrainedTokenizerBase | None") -> dict[str, Any]:
    """Tokenizer, its digests and the description, as fields of a `TextReward`."""
    return {
        "tokenizer": tokenizer,
        "tokenizer_digest": tokenizer_digest(tokenizer) if tokenizer else NOTHING,
        "template_digest": template_digest(tokenizer) if tokenizer else NOTHING,
        "description": spec.describe(),
    }


def _reward(
    spec: CallableSpec,
    function: Any,
    target: Any,
    arguments: Mapping[str, Any],
    tokenizer: "PreTrainedTokenizerBase | None",
    sources: Sources | None = None,
) -> CallableReward:
    if not callable(function) and callable(getattr(function, "score", None)):
        function = function.score
    if is_rubric(function):
        raise ConfigError(f"{spec.name} is a Rubric, a sum of functions: pessimal.reward(rubric)")
    if not callable(function):
        raise ConfigError(f"{spec.name}: {function!r:.60} is no function, and has no method score")
    if hasattr(target, "__registry_info__") and "state" not in signature_of(target).parameters:
        function = function()  # a scorer of inspect_ai is made before it is called
    is_task = inspect.isclass(function)
    shape = spec.shape or (Shape.verifiers if is_task else shape_of(function, name=spec.name))
    log.info("%s is called as model.shape=%s: %s", spec.name, shape.value, STYLES[shape].how)
    tasks = () if spec.tasks is None else read_tasks(spec.tasks)
    tools = [task.key for task in tasks if any(turn.role == "tool" for turn in task.turns)]
    if tools and shape in (Shape.verifiers, Shape.inspect):
        reason = f"model.shape={shape.value} takes no turn of the role tool"
        raise ConfigError(f"task {tools[0]!r}: {reason}. Leave the task out")
    digests = [task.digest for task in tasks]
    settings = _text_of([arguments, shape.value, spec.messages, spec.chat, digests])
    source = f"{_source(target)}\n{settings}\n{sources and sources.digest}".encode()
    return CallableReward(
        spec=spec,
        weights_digest=hashlib.sha256(source).hexdigest(),
        config_digest=hashlib.sha256(settings.encode()).hexdigest(),
        **about_texts(spec, tokenizer),
        function=function,
        shape=shape,
        tasks={task.turns: task for task in tasks},
        pinned=sources is not None and sources.is_pinned,
    )


@functools.cache
def _module(file: Path) -> ModuleType:
    """A file, whose path is absolute, as a module; what lies beside it can be imported there, as
    where Python runs it."""
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None  # of a name that ends in .py
    module = importlib.util.module_from_spec(spec)
    # inspect.getsource and pickles of asynchronous clients look there.
    sys.modules.setdefault(file.stem, module)
    if str(file.parent) not in sys.path:
        sys.path.insert(0, str(file.parent))
    spec.loader.exec_module(module)
    return module


def _source(target: Any) -> str:
    """The source of a function or class (its name where there is none), with the plain values that
    a function closes over, or an instance holds."""
    is_code = inspect.isroutine(target) or inspect.isclass(target)
    written = target if is_code else type(target)
    try:
        source = inspect.getsource(written)
    except (OSError, TypeError):  # built in, or typed at a prompt
        source = f"{written.__module__}.{written.__qualname__}"
    values = {} if is_code else getattr(target, "__dict__", {})
    values = inspect.getclosurevars(target).nonlocals if inspect.isfunction(target) else values
    plain = {name: value for name, value in values.items() if isinstance(value, _PLAIN)}
    return f"{source}\n{_text_of(plain)}"


def _text_of(value: Any) -> str:
    """A value as text: the same for equal plain values, and without the addresses in memory of
    others, which differ from run to run."""
    if isinstance(value, dict):
        pairs = sorted(f"{_text_of(key)}: {_text_of(item)}" for key, item in value.items())
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_text_of, value))}]"
    if isinstance(value, _PLAIN):
        return repr(value)
    return f"{type(value).__module__}.{type(value).__qualname__}"
