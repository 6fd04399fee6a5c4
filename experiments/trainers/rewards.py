"""Reward functions in every shape, for `called.py`: each has two traits that a wrong call would
change, the prompt or the columns, and the response."""


def trl_texts(prompts, completions, ground_truth, **kwargs):
    return [
        len(prompt) + 2.0 * len(completion) + 100 * (truth in completion)
        for prompt, completion, truth in zip(prompts, completions, ground_truth, strict=True)
    ]


def trl_messages(prompts, completions, **kwargs):
    return [
        len(prompt[-1]["content"]) + 2.0 * len(completion[0]["content"])
        for prompt, completion in zip(prompts, completions, strict=True)
    ]


async def trl_async(completions, ground_truth, **kwargs):
    return [
        None if completion.startswith("I") else 1.0 * (truth in completion) + len(completion) / 100
        for completion, truth in zip(completions, ground_truth, strict=True)
    ]


def trl_logs(completions, trainer_state, log_extra, log_metric, **kwargs):
    log_extra("length", [len(completion) for completion in completions])
    log_metric("longest", max(map(len, completions)))
    return [float(len(completion)) + trainer_state.global_step for completion in completions]


def verl_dict(data_source, solution_str, ground_truth, extra_info=None):
    right = ground_truth in solution_str
    return {"score": right - len(solution_str) / 1000 + len(data_source), "acc": right}


async def verl_async(data_source, solution_str, ground_truth, extra_info):
    return float(extra_info["index"]) + len(solution_str) * (ground_truth in solution_str)


def verl_batch(data_sources, solution_strs, ground_truths, extra_infos):
    return [
        len(solution) + 10.0 * (truth in solution)
        for solution, truth in zip(solution_strs, ground_truths, strict=True)
    ]


def reward_func(queries, prompts, labels, **kwargs):
    import torch

    rewards = [
        float(len(query)) + 100 * (label in query[len(prompt) :])
        for query, prompt, label in zip(queries, prompts, labels, strict=True)
    ]
    return {"rewards": torch.tensor(rewards), "scores": torch.tensor(rewards), "extra_logs": {}}


async def verifiers_trace(task, trace):
    return len(trace.last_reply) + 100.0 * (task.answer in trace.last_reply)


def inspect_scorer():
    from inspect_ai.scorer import Score, mean, scorer

    @scorer(metrics=[mean()])
    def includes(bonus=0.0):
        async def score(state, target):
            right = target.text in state.output.completion
            return Score(value=float(right) + len(state.input_text) / 100 + bonus)

        return score

    return includes


def inspect_letters():
    from inspect_ai.scorer import Score, mean, scorer

    @scorer(metrics=[mean()])
    def letters():
        async def score(state, target):
            return Score(value="C" if target.text in state.output.completion else "I")

        return score

    return letters


def verifiers_task():
    import verifiers.v1 as vf

    class Data(vf.TaskData):
        answer: str

    class Sums(vf.Task[Data]):
        @vf.reward(weight=2.0)
        async def right(self, trace) -> float:
            return float(self.data.answer in trace.last_reply)

        @vf.reward(weight=0.5)
        async def brief(self, trace) -> float:
            return -len(trace.last_reply) / 100

    return Sums
