"""Records what TRL's, verl's and OpenRLHF's own code has a reward model read, for
tests/scoring/loops.json. In an environment with the trainer (its dependencies may be missing: what
cannot be imported is compiled from the installed file):

    PYTHONPATH=src:tests python experiments/trainers/record_loops.py trl|verl|openrlhf
"""

import ast
import asyncio
import inspect
import json
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import torch
import transformers

from loop_tokenizers import CONVERSATIONS, NAMES, made

GOLDEN = Path("tests/scoring/loops.json")


def trl(policy, reads, prompt, response):
    """GRPOTrainer's decoding, which is one call, and its `_calculate_rewards`."""
    from trl import GRPOTrainer

    [content] = policy.batch_decode([response], skip_special_tokens=True)
    sent = []

    class Network(torch.nn.Module):
        def forward(self, input_ids, **_):
            return SimpleNamespace(logits=torch.zeros(len(input_ids), 1))

    def tokenize(text, **options):
        assert options["add_special_tokens"] is False
        assert options["padding_side"] == "right"
        sent.extend(text)
        return reads(text, **options)

    class Reads:
        def __call__(self, **options):
            return tokenize(**options)

        def __getattr__(self, name):
            return getattr(reads, name)

    trainer = object.__new__(GRPOTrainer)
    vars(trainer).update(
        accelerator=MagicMock(device=torch.device("cpu")),
        reward_funcs=[Network()],
        reward_processing_classes=[Reads()],
        reward_func_names=["model"],
        chat_template_kwargs={},
        environments=None,
        state=SimpleNamespace(global_step=0),
        model=SimpleNamespace(training=True),
        args=SimpleNamespace(report_to=[], device=torch.device("cpu"), n_gpu=0),
    )
    transformers.Trainer._prepare_inputs = lambda self, inputs: inputs
    completion = [{"role": "assistant", "content": content}]
    calculate = inspect.unwrap(GRPOTrainer._calculate_rewards)
    calculate(trainer, [{"prompt": prompt}], [prompt], [completion], [response])
    return sent[0]


def verl(policy, reads, prompt, response):
    """RewardLoopWorker._preprocess_reward_inputs, compiled from the installed file."""
    path = Path(find_spec("verl").submodule_search_locations[0])
    path /= "experimental/reward_loop/reward_loop.py"
    name = "_preprocess_reward_inputs"
    [function] = [
        node
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.AsyncFunctionDef) and node.name == name
    ]
    function.args.args[1].annotation = None
    space = {}
    exec(compile(ast.Module([function], []), str(path), "exec"), space)
    responses = torch.tensor([response + [0] * 3])
    mask = torch.tensor([1] * (4 + len(response)) + [0] * 3)
    item = SimpleNamespace(
        non_tensor_batch={"raw_prompt": prompt},
        batch={"responses": responses[0], "attention_mask": mask},
    )
    worker = SimpleNamespace(input_tokenizer=policy, reward_model_tokenizer=reads)
    return asyncio.run(space[name](worker, [item]))


def openrlhf(policy, reads, prompt, response):
    """preprocess_data of its prompts, and SingleTurnAgentExecutor with a reward function."""
    from openrlhf.datasets.prompts_dataset import preprocess_data
    from openrlhf.utils.agent import SingleTurnAgentExecutor

    text, _ = preprocess_data({"input": prompt}, apply_chat_template=policy.apply_chat_template)
    sent = []

    def reward_func(queries, prompts, labels):
        sent.extend(queries)
        return {"rewards": torch.zeros(1), "scores": torch.zeros(1), "extra_logs": {}}

    class Engine:
        async def generate(self, ids, params, multi_modal_data=None):
            answer = SimpleNamespace(token_ids=response, finish_reason="stop", logprobs=None)
            return SimpleNamespace(outputs=[answer])

    executor = SingleTurnAgentExecutor()
    executor.reward_endpoints, executor.reward_func = ["own.py"], reward_func
    params = SimpleNamespace(max_tokens=64, logprobs=None)
    asyncio.run(executor.execute(text, "", params, 4096, policy, Engine()))
    return sent[0]


def main():
    trainer = sys.argv[1]
    record = {"trl": trl, "verl": verl, "openrlhf": openrlhf}[trainer]
    golden = json.loads(GOLDEN.read_text()) if GOLDEN.is_file() else {}
    golden[trainer] = []
    for policy_name, reads_name in NAMES:
        policy, reads = made(policy_name), made(reads_name)
        for prompt, answer in CONVERSATIONS:
            response = policy(answer, add_special_tokens=False)["input_ids"]
            response = [*response, policy.eos_token_id]
            golden[trainer].append(record(policy, reads, prompt, response))
    GOLDEN.write_text(json.dumps(golden, indent=1, ensure_ascii=False) + "\n")
    print(f"{trainer}: {len(golden[trainer])} strings; the first: {golden[trainer][0]!r}")


if __name__ == "__main__":
    main()
