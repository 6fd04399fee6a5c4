"""Train SmolLM2 by REINFORCE with a KL penalty, and keep what it writes at the KLs that are
registered. PREREGISTRATION.md says what is held against what; agreement.py does it.

    python experiments/forecast/reinforce.py draw                 # before any training, once
    python experiments/forecast/reinforce.py planted              # or a reward model's folder
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from features import of_drawn, planted
from peft import LoraConfig, get_peft_model
from torch import Tensor

import pessimal
from pessimal.rewards.frame import Frame
from pessimal.rewards.spec import Mode
from pessimal.scoring.candidates import batches, inputs, item_candidates
from pessimal.scoring.scorer import FrameScorer

PROMPT = "What, in one word, is the greatest thing ever?"
TOKENS, BATCH, STEPS = 4, 64, 150
LEARNING_RATE, LAYERS = 2e-4, range(20, 30)
KLS, OPTIMUM = (0.25, 0.5, 1.0), 1.5
FORECAST, FRESH, LATER, MEASURED = 2560, 1024, 1024, 256
OUT = Path("runs/forecast")


class Writer:
    """A language model that writes answers of at most `TOKENS` tokens, and what it was before."""

    def __init__(self, seed: int):
        torch.manual_seed(seed)
        torch.set_num_threads(1)
        policy = pessimal.load("smollm2", kind="log_probability")
        self.tokenizer = policy.conversations.tokenizer
        self.prefix = torch.tensor([policy.conversations.context(PROMPT)])
        lora = LoraConfig(r=16, lora_alpha=32, layers_to_transform=list(LAYERS))
        lora.target_modules = {"q_proj", "k_proj", "v_proj", "o_proj", "up_proj", "down_proj"}
        self.model = get_peft_model(policy.network().causal, lora)
        self.ends = self.tokenizer.eos_token_id

    def _after_prefix(self, n: int):
        out = self.model(self.prefix, use_cache=True, logits_to_keep=1)
        out.past_key_values.batch_repeat_interleave(n)
        return out.past_key_values, out.logits[:, -1].float().log_softmax(-1).expand(n, -1)

    def write(self, n: int, *, beside: bool = True) -> tuple[list[str], Tensor, Tensor, Tensor]:
        """n answers: texts, log p (n,) with its gradient, log p before training (n,), and the KL of
        the next tokens' distributions from those before, summed over each answer (n,); these two
        are not a number unless `beside` what it was before."""
        cache, after = self._after_prefix(n)
        ids, alive, own, laws = [], [torch.ones(n, dtype=torch.bool)], [], []
        for place in range(TOKENS):
            ids.append(torch.multinomial(after.detach().exp(), 1))
            own.append(after.gather(1, ids[-1])[:, 0] * alive[-1])
            laws.append(after.detach())
            alive.append(alive[-1] & (ids[-1][:, 0] != self.ends))
            if place < TOKENS - 1:
                out = self.model(ids[-1], past_key_values=cache, use_cache=True)
                after = out.logits[:, -1].float().log_softmax(-1)
        texts = self.tokenizer.batch_decode(torch.cat(ids, 1), skip_special_tokens=True)
        if not beside:
            return texts, sum(own), *torch.full((2, n), torch.nan)
        with torch.no_grad(), self.model.disable_adapter():
            cache, first = self._after_prefix(n)
            out = self.model(torch.cat(ids[:-1], 1), past_key_values=cache)
            before = [first, *out.logits.float().log_softmax(-1).unbind(1)]
        places = zip(ids, laws, before, alive[:-1], strict=True)
        both = [
            torch.stack([was.gather(1, i)[:, 0], (law.exp() * (law - was)).sum(1)]) * going
            for i, law, was, going in places
        ]
        old, kl = torch.stack(both).sum(0)
        return texts, sum(own), old, kl

    @torch.no_grad()
    def write_many(self, n: int, *, measured: int = 0) -> tuple[list[str], float]:
        """n answers, and the mean KL of the first `measured` of them."""
        starts = range(0, n, BATCH)
        parts = [self.write(BATCH, beside=start < measured) for start in starts]
        kl = torch.cat([part[3] for part in parts]).nanmean()
        return [text for part in parts for text in part[0]], float(kl)


def reward_of(name: str) -> Callable[[list[str]], np.ndarray]:
    """The planted reward, or that of a reward model's folder; each text is scored once, and an
    empty one is not a number."""
    if name == "planted":
        return planted
    model = pessimal.load(name)
    conversations, known = model.parts[0].conversations, {"": np.nan}
    frame: Frame = conversations.frame(PROMPT)
    scorer = FrameScorer(model.network(), frame, device=torch.device("cpu"))

    def rewards(texts: list[str]) -> np.ndarray:
        if new := list(dict.fromkeys(text for text in texts if text not in known)):
            asked = inputs(conversations, frame, item_candidates(new, name="answers"), Mode.text)
            for rows in batches(asked, size=BATCH):
                some = scorer.score_rows(asked, rows, batch_size=BATCH)
                known.update(zip([new[row] for row in rows], some, strict=True))
        return np.array([known[text] for text in texts])

    return rewards


def train(name: str, label: str) -> None:
    drawn = json.loads((OUT / "drawn.json").read_text())["forecast"]
    rewards = reward_of(name)
    # 1. The forecast, from answers that the untrained policy wrote.
    scored = OUT / f"{label}-rewards.npy"
    if not scored.exists():
        np.save(scored, rewards(drawn))
    before, forecast = of_drawn(drawn, np.load(scored))
    forecast.to_csv(OUT / f"{label}-forecast.csv", index=False)
    strengths = {at.kl: at.strength for at in before.tilts}
    beta = 1 / strengths[min(OPTIMUM, max(strengths))]
    mean, deviation = float(before.p @ before.reward), before.deviation
    print(f"{label}: beta {beta:.3f} SD, forecast to {max(strengths)} nats", flush=True)
    # 2. The training, from where one that was cut off ended.
    writer, state = Writer(seed=1), OUT / f"{label}.pt"
    trained = [p for p in writer.model.parameters() if p.requires_grad]
    optimiser = torch.optim.Adam(trained, lr=LEARNING_RATE)
    history, kept = [], []
    if state.exists():
        weights, moments, random, history, kept = torch.load(state, weights_only=True)
        torch.nn.utils.vector_to_parameters(weights, trained)
        optimiser.load_state_dict(moments)
        torch.set_rng_state(random)
    for step in range(len(history), STEPS):
        if len(kept) == len(KLS):
            break
        began = time.process_time()
        texts, own, old, kl = writer.write(BATCH)
        scores = torch.tensor(np.nan_to_num((rewards(texts) - mean) / deviation)).float()
        with (OUT / f"{label}-rollouts.jsonl").open("a") as log:
            for text, score in zip(texts, scores.tolist(), strict=True):
                row = {"step": step, "prompt": PROMPT, "completion": text, "reward": score}
                log.write(json.dumps(row) + "\n")
        worth = scores - beta * (own.detach() - old)
        advantage = (worth - worth.mean()) * BATCH / (BATCH - 1)  # over the mean of the others
        optimiser.zero_grad()
        (-(advantage * own).mean()).backward()
        optimiser.step()
        point = {"step": step, "kl": float(kl.mean()), "reward": float(scores.mean())}
        history.append(point | {"seconds": time.process_time() - began})
        print(history[-1], texts[:4], flush=True)
        recent = np.mean([point["kl"] for point in history[-5:]])
        if reached := recent >= KLS[len(kept)] or step == STEPS - 1:
            later, exact = writer.write_many(LATER, measured=MEASURED)
            target = KLS[len(kept)] if recent >= KLS[len(kept)] else "end"
            kept.append({"target": target, "step": step, "kl": exact, "texts": later})
            whole = {"beta": beta, "history": history, "kept": kept}
            (OUT / f"{label}.json").write_text(json.dumps(whole))
            print(f"kept {LATER} answers at KL {exact:.3f}, step {step}", flush=True)
        if reached or step % 5 == 4:
            vector = torch.nn.utils.parameters_to_vector(trained).detach()
            torch.save(
                [vector, optimiser.state_dict(), torch.get_rng_state(), history, kept], state
            )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("reward")
    parser.add_argument("--label", default=None)
    given = parser.parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    if given.reward == "draw":
        texts, _ = Writer(seed=0).write_many(FORECAST + FRESH)
        halves = {"forecast": texts[:FORECAST], "fresh": texts[FORECAST:]}
        (OUT / "drawn.json").write_text(json.dumps(halves))
    else:
        train(given.reward, given.label or Path(given.reward).name)
