"""PessimalCallback and RewardPanel in TRL's own trainers, as docs/trajectories.md has them, on tiny
networks. In an environment with TRL (`pip install trl==1.16.0`):

    PYTHONPATH=src:tests python experiments/trainers/watch.py FOLDER reward grpo long
"""

import sys
import time
from pathlib import Path

import torch
from datasets import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, LlamaForSequenceClassification
from trl import GRPOConfig, GRPOTrainer, RewardConfig, RewardTrainer

import pessimal
from tiny_language_models import CHAT, WORDS, tokenizer

PARAMETERS = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}
QUESTIONS = ["What is the greatest thing ever?", "What is good?", "What is the worst?"]
SMALL = {
    "per_device_train_batch_size": 8,
    "report_to": "none",
    "save_strategy": "no",
    "disable_tqdm": True,
    "use_cpu": True,
    "bf16": False,
}


def saved(kind, folder, **options):
    words = tokenizer(template=CHAT)
    torch.manual_seed(0)
    config = LlamaConfig(vocab_size=len(words), pad_token_id=3, eos_token_id=3, **PARAMETERS)
    for name, value in options.items():
        setattr(config, name, value)
    kind(config).save_pretrained(folder)
    words.save_pretrained(folder)
    return str(folder)


def pairs(n=400):
    words = WORDS.split()
    rows = []
    for i in range(n):
        question = [{"role": "user", "content": QUESTIONS[i % 3]}]
        chosen, rejected = f"{words[i % 5]} love", f"{words[i % 7]} hate"
        rows.append(
            {
                "chosen": [*question, {"role": "assistant", "content": chosen}],
                "rejected": [*question, {"role": "assistant", "content": rejected}],
            }
        )
    return Dataset.from_list(rows)


def reward_trainer(folder, steps, **options):
    began = time.perf_counter()
    path = saved(LlamaForSequenceClassification, folder / f"rm-{steps}", num_labels=1)
    watch = pessimal.PessimalCallback(["greatest", "worst"], **options)
    trainer = RewardTrainer(
        model=path,
        args=RewardConfig(output_dir=str(folder / "reward"), max_steps=steps, **SMALL),
        train_dataset=pairs(),
        callbacks=[watch],
    )
    trainer.train()
    looks = watching_summary(watch, trainer)
    print(f"RewardTrainer {steps} {options}: {looks}; {time.perf_counter() - began:.0f} s in all")


def watching_summary(watch, trainer):
    history = watch.history
    logged = [one["step"] for one in trainer.state.log_history if "pessimal/greatest/mean" in one]
    share = getattr(watch, "share_taken", 0)
    return (
        f"rows {len(history)}, steps {history['step'].unique().tolist()}, logged {logged}, "
        f"size {watch.size}, share {share:.3f}, spent {watch.spent:.2f} s"
    )


def length_reward(completions, **kwargs):
    return [float(len(one[-1]["content"])) for one in completions]


async def love_reward(completions, **kwargs):
    return [
        None if not one[-1]["content"] else float("love" in one[-1]["content"])
        for one in completions
    ]


def raising_reward(completions, trainer_state, **kwargs):
    if trainer_state.global_step >= 3:
        raise torch.OutOfMemoryError("planted")
    return [0.0] * len(completions)


def grpo(folder, steps, first, *others, **options):
    torch.manual_seed(0)
    panel = pessimal.RewardPanel(first, *others, **options) if others else first
    trainer = GRPOTrainer(
        model=saved(LlamaForCausalLM, folder / f"policy-{steps}"),
        reward_funcs=panel,
        args=GRPOConfig(
            output_dir=str(folder / "grpo"),
            max_steps=steps,
            num_generations=4,
            max_completion_length=4 if steps > 24 else 8,
            logging_steps=max(steps // 4, 1),
            **SMALL,
        ),
        train_dataset=Dataset.from_list(
            [{"prompt": [{"role": "user", "content": q}]} for q in QUESTIONS * 40]
        ),
        # What a person might add who has read of the callback only: it says that it cannot.
        callbacks=[pessimal.PessimalCallback()] if steps < 10 else [],
    )
    trainer.train()
    weights = torch.cat([weight.flatten() for weight in trainer.model.parameters()])
    if others:
        logged = [one for one in trainer.state.log_history if "reward" in one]
        keys = sorted(key for key in logged[-1] if key.startswith(("pessimal", "rewards")))
        looks = panel.history["step"].unique()
        print(
            f"GRPOTrainer {steps}: {len(panel.history)} rows, {len(looks)} looks, steps {looks[:3]} "
            f"to {looks[-1]}, share {panel.share_taken:.3f}; logged {keys}"
        )
        print(panel.history.tail(3).to_string())
    return weights


def main():
    folder, which = Path(sys.argv[1]), sys.argv[2:]
    if "reward" in which:
        for steps in (24, 500):
            reward_trainer(folder, steps)
        reward_trainer(folder, 24, every=5)
        reward_trainer(folder, 24, every=5, report=lambda figures: 1 / 0)
    model = pessimal.load(saved(LlamaForSequenceClassification, folder / "judge", num_labels=1))
    if "grpo" in which:
        for steps in (6, 24):
            watched = grpo(folder, steps, length_reward, love_reward, model, raising_reward)
            plain = grpo(folder, steps, length_reward)
            print(f"weights as without a panel: {torch.equal(watched, plain)}")
        grpo(folder, 6, model, length_reward)
        grpo(folder, 6, love_reward, length_reward)
    if "long" in which:
        grpo(folder, 500, length_reward, love_reward, model, raising_reward)


if __name__ == "__main__":
    main()
