"""Our requests, and how we read answers, beside the servers' own classes: vLLM's and SGLang's request and
response models, OpenRLHF's `serve_rm.py` behind FastAPI.

    pip download --no-deps -d DIR vllm==0.33.0 sglang==0.5.23 openrlhf==0.11.2
    unzip each of them into FOLDER (FOLDER/vllm/…, FOLDER/sglang/…, FOLDER/openrlhf-*.data/…)
    python experiments/served/wires.py FOLDER

The servers themselves do not run here (they need a GPU): what their classes import is replaced by stand-ins, the
classes are theirs. Each line is one wire: the class that takes our request, what it would pass over of it, and
whether our reading of an answer of theirs, whose entries come in another order, gives their numbers.
"""

import argparse
import ast
import dataclasses
import importlib.machinery
import importlib.util
import logging
import runpy
import sys
import types
import typing
import uuid
from pathlib import Path

import numpy as np
import torch
from fastapi.testclient import TestClient
from pydantic import BaseModel, TypeAdapter

from pessimal.rewards.endpoint import APIS, RECOGNISED, Wire
from pessimal.rewards.server import ServerOptions

REAL = {
    "vllm.entrypoints.serve.engine.protocol",
    "vllm.entrypoints.pooling.base.protocol",
    "vllm.entrypoints.pooling.classify.protocol",
    "vllm.entrypoints.pooling.pooling.protocol",
    "vllm.entrypoints.pooling.scoring.protocol",
    "vllm.entrypoints.pooling.scoring.typing",
    "vllm.entrypoints.openai.chat_completion.protocol",
    "sglang.srt.entrypoints.openai.protocol",
}
"""Modules that are loaded from the packages; all others of theirs are stand-ins."""


class Struct:
    """Takes whatever msgspec's does."""

    def __init_subclass__(cls, **options):
        pass


CALLED = {
    "Struct": Struct,
    "field": lambda *given, **options: None,
    "init_logger": logging.getLogger,
    "random_uuid": lambda: uuid.uuid4().hex,
    "validate_cache_salt": lambda given: None,
    "check_removed_pooling_task": lambda given: None,
}
IDS = [[5, 6, 7], [8, 9]]
TEXTS = ["one text", "another"]
PAIRS = [("a prompt", "a response"), ("a prompt", "another")]
MESSAGES = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
SCORES = [1.5, -2.25]


class Stand(types.ModuleType):
    """A module of which any name is there: a function of `CALLED`, or a type that takes everything."""

    __path__: typing.ClassVar[list[str]] = []

    def __getattr__(self, name: str):
        if name.startswith("__"):
            raise AttributeError(name)
        return CALLED.get(name, typing.Any)


class Finder(importlib.machinery.PathFinder):
    """Loads `REAL` modules from a folder, and makes the others."""

    def __init__(self, folder: Path, packages: set[str]):
        self.folder, self.packages = folder, packages

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] not in self.packages:
            return None
        if name in REAL:
            file = self.folder / (name.replace(".", "/") + ".py")
            return importlib.util.spec_from_file_location(name, file)
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        return Stand(spec.name)

    def exec_module(self, module):
        pass


def wire(api: str) -> Wire:
    return Wire(ServerOptions(url="http://localhost:1", api=api, served="model"))


def passed_over(taken: BaseModel, body: dict) -> list[str]:
    """What of a request its class has no field for."""
    return sorted(set(body) - set(type(taken).model_fields))


def read(api: str, inputs: list, answer) -> np.ndarray:
    asked = wire(api)
    asked.post = lambda body: answer
    return asked.rows(inputs)[:, 0]


def line(name: str, request: str, over: list[str], right: bool | str) -> None:
    print(f"{name:34} {request:34} {', '.join(over) or '-':28} {right}")


def vllm(folder: Path) -> None:
    sys.meta_path.insert(0, Finder(folder, {"vllm"}))
    classify, pooling, scoring = (
        importlib.import_module(f"vllm.entrypoints.pooling.{name}.protocol")
        for name in ("classify", "pooling", "scoring")
    )

    usage = {"prompt_tokens": 1, "total_tokens": 1, "completion_tokens": 0}
    common, text = {"model": "model", "usage": usage}, {"document": {"text": "a"}}
    entries = {
        "vllm-classify": lambda i, s: classify.ClassificationData(
            index=i, label=None, probs=[s], num_classes=1
        ),
        "vllm-pooling": lambda i, s: pooling.PoolingResponseData(index=i, data=[s]),
        "vllm-score": lambda i, s: scoring.ScoreResponseData(index=i, score=s),
        "rerank": lambda i, s: scoring.RerankResult(index=i, relevance_score=s, **text),
    }
    data = {api: [entry(i, SCORES[i]) for i in (1, 0)] for api, entry in entries.items()}
    answers = {
        "vllm-classify": classify.ClassificationResponse(data=data["vllm-classify"], **common),
        "vllm-pooling": pooling.PoolingResponse(data=data["vllm-pooling"], **common),
        "vllm-score": scoring.ScoreResponse(data=data["vllm-score"], **common),
        "rerank": scoring.RerankResponse(id="1", results=data["rerank"], **common),
    }
    requests = {
        "vllm-classify": classify.ClassificationRequest,
        "vllm-pooling": pooling.PoolingRequest,
        "vllm-score": scoring.ScoreRequest,
        "rerank": scoring.RerankRequest,
    }
    for api, given in requests.items():
        sent = [PAIRS] if APIS[api].forms == ("pairs",) else [IDS, TEXTS, [MESSAGES]]
        for inputs in sent:
            body = wire(api).body(inputs)
            taken = TypeAdapter(given).validate_python(body)
            assert taken.use_activation is False
            if inputs in (IDS, TEXTS):
                assert taken.input == inputs
                assert taken.add_special_tokens is False
            right: bool | str = ""
            if inputs == [MESSAGES]:
                assert [dict(turn) for turn in taken.messages] == MESSAGES
            else:
                rewards = read(api, inputs, answers[api].model_dump(mode="json"))
                right = rewards.tolist() == SCORES
            line(f"vllm {api}", type(taken).__name__, passed_over(taken, body), right)


def sglang(folder: Path) -> None:
    sys.meta_path.insert(0, Finder(folder, {"sglang", "msgspec"}))
    request = dataclass_of(folder / "sglang/srt/managers/io_struct.py", "EmbeddingReqInput")
    fields = {field.name for field in dataclasses.fields(request)}
    for name, inputs in (("input_ids", IDS), ("text", TEXTS)):
        body = wire("sglang-classify").body(inputs)
        taken = request(**{key: value for key, value in body.items() if key in fields})
        taken.normalize_batch_and_arguments()
        assert (getattr(taken, name), taken.batch_size, taken.is_single) == (inputs, 2, False)
        answer = [{"embedding": [s], "meta_info": {}} for s in SCORES]  # tokenizer_manager.py
        got = read("sglang-classify", inputs, answer)
        over = sorted(set(body) - fields)
        line("sglang sglang-classify", "EmbeddingReqInput", over, got.tolist() == SCORES)

    # Its /classify stands beside /generate, and beside /tokenize as vLLM's does.
    server = (folder / "sglang/srt/entrypoints/http_server.py").read_text()
    paths = {path for path in ("/classify", "/generate", "/tokenize") if f'"{path}"' in server}
    api = next(api for api, needs in RECOGNISED if needs <= paths)
    line("sglang's paths", ", ".join(sorted(paths)), [], f"recognised as {api}")


def dataclass_of(file: Path, name: str) -> type:
    """One class of a module that does not import here; the names that it needs stand for anything."""
    tree = ast.parse(file.read_text())
    [found] = [n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == name]
    found.bases, found.keywords = [], []
    space = {
        **vars(typing),
        "dataclass": dataclasses.dataclass,
        "field": dataclasses.field,
        "uuid": uuid,
        "has_valid_data": lambda given: given is not None and given != [],
    }
    late = ast.parse("from __future__ import annotations").body[0]
    tree = ast.fix_missing_locations(ast.Module([late, found], type_ignores=[]))
    code = compile(tree, str(file), "exec")
    module = types.ModuleType("one_class")
    sys.modules["one_class"] = module
    vars(module).update(space)
    exec(code, vars(module))
    made = vars(module)[name]
    return made if dataclasses.is_dataclass(made) else dataclasses.dataclass(made)


def openrlhf(file: Path) -> None:
    """`serve_rm.py` itself, run as a program; the network counts tokens."""

    class Tokens:
        def __call__(self, texts, **options):
            self.options = options
            ids = [[*map(len, text.split())] for text in texts]
            width = max(map(len, ids))
            row = {"input_ids": torch.tensor([[0] * (width - len(i)) + i for i in ids])}
            return row | {"attention_mask": (row["input_ids"] > 0).long()}

    class Network:
        device = torch.device("cpu")

        def eval(self):
            return self

        def __call__(self, ids, mask):
            return (ids * mask).sum(1).float()

    apps, tokens = [], Tokens()
    names = {
        "openrlhf.models": {"get_llm_for_sequence_regression": lambda *a, **k: Network()},
        "openrlhf.utils": {"get_tokenizer": lambda *a, **k: tokens},
        "openrlhf.utils.logging_utils": {"init_logger": logging.getLogger},
        "uvicorn": {"run": lambda app, **options: apps.append(app)},
    }
    config = file.parents[1] / "utils/config.py"
    loaded = importlib.util.spec_from_file_location("openrlhf.utils.config", config)
    before = {name: sys.modules.get(name) for name in (*names, "openrlhf")}
    for name, given in {"openrlhf": {}, **names}.items():
        module = types.ModuleType(name)
        vars(module).update(given)
        sys.modules[name] = module
    sys.modules["openrlhf.utils.config"] = importlib.util.module_from_spec(loaded)
    loaded.loader.exec_module(sys.modules["openrlhf.utils.config"])
    old, sys.argv = sys.argv, ["serve_rm.py"]
    try:
        runpy.run_path(str(file), run_name="__main__")
    finally:
        sys.argv = old
        for name, module in before.items():
            sys.modules.pop(name) if module is None else sys.modules.__setitem__(name, module)
    body = wire("openrlhf").body([("two words", "two"), ("three short words", "three")])
    answer = TestClient(apps[0]).post("/get_reward", json=body).json()
    got = read("openrlhf", TEXTS, answer)
    over = sorted(set(body) - {"query"})  # all that the handler looks at
    line("openrlhf openrlhf", "serve_rm.get_reward", over, got.tolist() == [8.0, 15.0])
    line("  its tokenizer", str(tokens.options), [], "")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    line("wire", "their class", ["passed over"], "answers read right")
    vllm(folder)
    sglang(folder)
    openrlhf(next(folder.rglob("openrlhf/cli/serve_rm.py")))


if __name__ == "__main__":
    main()
