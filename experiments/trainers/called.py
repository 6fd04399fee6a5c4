"""Functions called by the installed trainer's own code, and by pessimal: the same numbers?

    python experiments/trainers/called.py trl|verl|openrlhf|verifiers|inspect

in an environment that has the trainer and pessimal (torch first; OpenRLHF without its dependencies). Prints a
line a function: the largest difference over the responses, and the shape that was recognised.
"""

import argparse
import asyncio
import json
import math
import tempfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np

import pessimal
import rewards as functions
from pessimal.conversation import Turn

TASKS = [
    {"prompt": "What is 2 + 2?", "ground_truth": "4", "answer": "4", "label": "4", "target": "4"},
    {"prompt": "Name a colour.", "ground_truth": "red", "answer": "red", "label": "red", "target": "red"},
]  # fmt: skip
RESPONSES = ["4", "It is 4.", "red", "I like red, and blue too.", "", "ünïcode 🙂", "I", "x" * 300]


def ours(function, *, tasks: list[dict], **options) -> tuple[np.ndarray, str]:
    """Rewards (tasks × responses) as pessimal has them, and the shape."""
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl", encoding="utf-8") as file:
        file.write("".join(json.dumps(task) + "\n" for task in tasks))
        file.flush()
        reward = pessimal.reward(function, tasks=file.name, **options)
    asked = [task.turns for task in reward.tasks.values()]
    return reward.rewards(
        [(*turns, Turn("assistant", response)) for turns in asked for response in RESPONSES]
    ), reward.shape.value


def compared(name: str, theirs, mine: tuple[np.ndarray, str]) -> None:
    values, shape = mine
    theirs = np.array([math.nan if one is None else one for one in theirs], dtype=float)
    same = np.array_equal(np.isnan(theirs), np.isnan(values))
    off = float(np.nanmax(np.abs(theirs - values)))
    print(f"{name:18} {shape:18} n={len(values)} missing={int(np.isnan(values).sum())} "
          f"missing alike={same} largest difference {off:.1e}", flush=True)  # fmt: skip


# TRL: GRPOTrainer._calculate_rewards on a tiny policy --------------------------


def trl() -> None:
    import torch
    from datasets import Dataset
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
    from trl import GRPOConfig, GRPOTrainer

    words = Tokenizer(models.BPE({chr(i): i for i in range(32, 127)} | {"<e>": 0}, []))
    words.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, eos_token="<e>", pad_token="<e>")
    tokenizer.chat_template = "{% for m in messages %}{{ m.content }}{% endfor %}"
    config = LlamaConfig(vocab_size=128, hidden_size=16, intermediate_size=16,
                         num_hidden_layers=1, num_attention_heads=2)  # fmt: skip
    for name in ("trl_texts", "trl_messages", "trl_async", "trl_logs"):
        function, chat = getattr(functions, name), name == "trl_messages"
        tasks = [
            task | {"prompt": [{"role": "user", "content": task["prompt"]}]} if chat else task
            for task in TASKS
        ]
        with tempfile.TemporaryDirectory() as folder:
            trainer = GRPOTrainer(
                model=LlamaForCausalLM(config),
                reward_funcs=[function],
                args=GRPOConfig(folder, report_to=[], use_cpu=True, bf16=False,
                                per_device_train_batch_size=8, num_generations=8),
                train_dataset=Dataset.from_list(tasks),
                processing_class=tokenizer,
            )  # fmt: skip
            theirs: list[float] = []
            for task in tasks:
                n = len(RESPONSES)
                completions = [
                    [{"role": "assistant", "content": one}] if chat else one for one in RESPONSES
                ]
                given = trainer._calculate_rewards(
                    [dict(task)] * n, [task["prompt"]] * n, completions, [[1]] * n
                )
                theirs += given[:, 0].to(torch.float64).tolist()
        compared(name, theirs, ours(function, tasks=tasks))


# verl: NaiveRewardManager.run_single, and the batch manager's verify ------------


def verl() -> None:
    import torch
    from tensordict import TensorDict
    from verl import DataProto
    from verl.experimental.reward_loop.reward_manager.naive import NaiveRewardManager
    from verl.workers.reward_manager.batch import BatchRewardManager

    table = SimpleNamespace(decode=lambda ids, skip_special_tokens: "".join(map(chr, ids.tolist())))
    tasks = [
        {
            "prompt": task["prompt"],
            "data_source": f"source{number}",
            "reward_model": {"style": "rule", "ground_truth": task["ground_truth"]},
            "extra_info": {"index": number},
        }
        for number, task in enumerate(TASKS)
    ]

    def data(task: dict, response: str) -> DataProto:
        ids = torch.tensor([[ord(one) for one in response] or [0]])
        mask = torch.ones_like(ids) if response else torch.zeros_like(ids)
        batch = TensorDict(
            {
                "prompts": torch.ones(1, 1, dtype=torch.long),
                "responses": ids,
                "attention_mask": torch.cat([torch.ones(1, 1, dtype=torch.long), mask], dim=1),
            },
            batch_size=1,
        )
        rest = ("data_source", "reward_model", "extra_info")
        held = {name: np.array([json.loads(json.dumps(task[name]))], dtype=object) for name in rest}
        return DataProto(batch=batch, non_tensor_batch=held)

    async def naive(function) -> list[float]:
        NaiveRewardManager.init_class(None, table)
        manager = NaiveRewardManager(None, table, function)
        manager.loop = asyncio.get_running_loop()
        return [
            (await manager.run_single(data(task, response)))["reward_score"]
            for task in tasks
            for response in RESPONSES
        ]

    for name in ("verl_dict", "verl_async"):
        function = getattr(functions, name)
        compared(name, asyncio.run(naive(function)), ours(function, tasks=tasks))
    manager = BatchRewardManager(table, 0, functions.verl_batch)
    theirs = [manager.verify(data(t, response))[0] for t in tasks for response in RESPONSES]
    compared("verl_batch", theirs, ours(functions.verl_batch, tasks=tasks))


# OpenRLHF: SingleTurnAgentExecutor.execute ------------------------------------


def openrlhf() -> None:
    from openrlhf.utils.agent import SingleTurnAgentExecutor

    file = str(Path(functions.__file__).resolve())
    executor = SingleTurnAgentExecutor(file)
    end = "\0"

    class Tokenizer:
        eos_token, chat_template = end, None

        def __call__(self, text, **options):
            import torch

            return {"input_ids": torch.tensor([[ord(one) for one in text]])}

        def decode(self, ids, skip_special_tokens):
            return "".join(map(chr, ids))

    class Engine:
        response = ""

        async def generate(self, ids, parameters, multi_modal_data=None):
            tokens = [ord(one) for one in self.response + end]
            one = SimpleNamespace(token_ids=tokens, finish_reason="stop", logprobs=None)
            return SimpleNamespace(outputs=[one])

    async def executed() -> list[float]:
        engine, rewards = Engine(), []
        for task in TASKS:
            for engine.response in RESPONSES:
                asked = SimpleNamespace(max_tokens=1000, logprobs=None)
                done = await executor.execute(
                    task["prompt"], task["label"], asked, 4000, Tokenizer(), engine
                )
                rewards.append(float(done["reward"][0]))
        return rewards

    mine = ours(functions.reward_func, tasks=TASKS)
    # Without a policy's tokenizer nobody says which token ends a response: one character less.
    compared("reward_func", np.array(asyncio.run(executed())) - len(end), mine)


# verifiers: Task.score --------------------------------------------------------


def verifiers() -> None:
    import verifiers.v1 as vf
    from verifiers.v1.graph import MessageNode
    from verifiers.v1.trace import AgentInfo, Trace, TraceTask
    from verifiers.v1.types import AssistantMessage, UserMessage
    from verifiers.v1.utils.decorators import invoke

    kind = functions.verifiers_task()

    def trace(task, response: str) -> Trace:
        asked = MessageNode(message=UserMessage(content=task.data.prompt))
        said = MessageNode(parent=0, message=AssistantMessage(content=response), sampled=True)
        return Trace(
            task=TraceTask(type="Sums", data=task.data),
            agent=AgentInfo(config=vf.AgentConfig()),
            nodes=[asked, said],
        )

    async def scored() -> tuple[list[float], list[float]]:
        of_task, of_function = [], []
        for row in TASKS:
            task = kind(kind.data_type()(prompt=row["prompt"], answer=row["answer"]))
            for response in RESPONSES:
                one = trace(task, response)
                await task.score(one)
                of_task.append(one.reward)
                given = {"task": task.data, "trace": one}
                of_function.append(await invoke(functions.verifiers_trace, given))
        return of_task, of_function

    tasks = [{name: row[name] for name in ("prompt", "answer")} for row in TASKS]
    of_task, of_function = asyncio.run(scored())
    compared("verifiers_task", of_task, ours(kind, tasks=tasks))
    compared("verifiers_trace", of_function, ours(functions.verifiers_trace, tasks=tasks))


# inspect_ai: eval() with answers that are given -------------------------------


def inspect() -> None:
    from inspect_ai import Task, eval
    from inspect_ai.dataset import MemoryDataset, Sample
    from inspect_ai.model import ModelOutput, ModelUsage, get_model
    from inspect_ai.scorer import value_to_float

    for name in ("inspect_scorer", "inspect_letters"):
        made = getattr(functions, name)()
        theirs = []
        for row in TASKS:
            outputs = [ModelOutput.from_content("mockllm/model", one) for one in RESPONSES]
            for one in outputs:  # which it would count with a vocabulary from the network
                one.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)
            samples = [Sample(input=row["prompt"], target=row["target"]) for _ in RESPONSES]
            with tempfile.TemporaryDirectory() as folder:
                [log] = eval(
                    Task(dataset=MemoryDataset(samples), scorer=made()),
                    model=get_model("mockllm/model", custom_outputs=outputs),
                    max_samples=1,
                    log_dir=folder,
                    display="none",
                )
                values = [next(iter(one.scores.values())).value for one in log.samples]
            theirs += [value_to_float()(value) for value in values]
        compared(name, theirs, ours(made, tasks=TASKS))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    which = {one.__name__: one for one in (trl, verl, openrlhf, verifiers, inspect)}
    parser.add_argument("trainer", choices=which)
    which[parser.parse_args().trainer]()
