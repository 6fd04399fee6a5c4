"""Faults planted in servers of tiny models, and what `pessimal check url=` calls them; then right servers.

    python experiments/served/plants.py [--only ARCHITECTURE …] [--clean N]

The servers run in this process, and answer by the published class's own forward, one row at a time: their arithmetic
shares nothing with `pessimal.checking`. A right server in a lower precision that moves a reward by .3 SD is to raise
an alarm, and is not counted. An answer counts as right if every name is among those that the plant allows,
as unknown if it has no name. "moved" are plants that move a reward that was asked for by .3 SD or more.
"""

import argparse
import copy
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import nn

TESTS = Path(__file__).resolve().parents[2] / "tests"
sys.path.insert(0, str(TESTS / "rewards"))

from published import checkpoints, vocabularies  # noqa: E402
from transformers import Qwen2Config, Qwen2ForSequenceClassification  # noqa: E402
from transformers.utils.logging import disable_progress_bar  # noqa: E402

from pessimal.checking.served import diagnose  # noqa: E402
from pessimal.rewards.formats import takes_pairs  # noqa: E402
from pessimal.rewards.rendering import messages_of  # noqa: E402

PROMPT = "What, in one word, is the greatest thing ever?"
NAMELESS = {"unknown"}
STRANGE = "{% for m in messages %}### {{ m.role }}: {{ m.content }}\n{% endfor %}"
CHATML = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"


def qwen2(folder: Path) -> checkpoints.Published:
    tokenizer = vocabularies.internlm()
    sizes = checkpoints.SIZES | {"num_labels": 1, "max_position_embeddings": 2300}
    config = Qwen2Config(**sizes, **checkpoints.vocabulary(tokenizer))
    network = checkpoints.written(folder, Qwen2ForSequenceClassification(config), tokenizer)
    return checkpoints.Published(folder, tokenizer, network, lambda output: output.logits)


ARCHITECTURES = {
    "qwen2": qwen2,
    "gemma2_gated": checkpoints.qrm_gemma,
    "llama_gated": checkpoints.armorm,
    "deberta": checkpoints.deberta,
    "bert": checkpoints.bert,
    "grm": checkpoints.grm,
}
DEFAULT = ("qwen2", "llama_gated", "deberta", "grm")


class Server:
    """Right as it is made."""

    def __init__(self, published, model, **options):
        self.published, self.model, self.tokenizer = published, model, published.tokenizer
        self.network, self.sent = published.network, 0
        self.read = self.after = self.together = self.pad = self.template = self.special = None
        self.noise, self.random, self.messages = 0.0, np.random.default_rng(0), {}
        self.whole, self.memory = None, {}
        vars(self).update(options)

    def ids(self, one) -> tuple[list[int], list[int] | None]:
        if isinstance(one, list):
            return one, None
        if takes_pairs(self.tokenizer):
            both = self.tokenizer(*(turn.content for turn in one), return_token_type_ids=True)
            typed = "token_type_ids" in self.tokenizer.model_input_names
            return both["input_ids"], both["token_type_ids"] if typed else None
        turns = self.messages.get("before", []) + messages_of(one)
        if change := self.messages.get("turns"):
            turns = change(turns)
        if self.messages.get("lower"):
            turns = [turn | {"content": turn["content"].swapcase()} for turn in turns]
        options = {"chat_template": self.template} if self.template else {}
        ids = self.tokenizer.apply_chat_template(turns, tokenize=True, return_dict=False, **options)
        ids = [*ids, *self.model.parts[0].conversations.closing]
        cut = self.messages.get("cut", 0)
        ids = ids[: len(ids) - cut]
        return [self.tokenizer.bos_token_id] * self.messages.get("bos", 0) + ids, None

    @torch.no_grad()
    def one(self, ids, types) -> float:
        row = torch.tensor([ids])
        more = {} if types is None else {"token_type_ids": torch.tensor([types])}
        if self.special is not None:
            return self.special(self.network, row)
        output = self.network(input_ids=row, attention_mask=torch.ones_like(row), **more)
        return float(self.published.reward_of(output).reshape(-1)[0])

    def __call__(self, inputs):
        rows = [self.ids(one) for one in inputs]
        self.sent += len(rows)
        if self.read is not None:
            rows = [(self.read(ids), types and types[: len(self.read(ids))]) for ids, types in rows]
        if self.pad is not None:
            side, token = self.pad
            width = max(len(ids) for ids, _ in rows)
            filled = [(ids, [token] * (width - len(ids))) for ids, _ in rows]
            rows = [(f + ids if side == "left" else ids + f, None) for ids, f in filled]
        scores = np.array([self.one(*row) for row in rows])
        for change in filter(None, (self.after, self.together)):
            scores = change(scores)
        if self.whole is not None:
            scores = self.whole(self.memory, [ids for ids, _ in rows], scores)
        if self.noise:
            scores = scores + self.noise * self.random.standard_normal(len(scores))
        return scores


def last_state(network, row) -> torch.Tensor:
    """States (T, hidden) behind a plain head, after the final norm."""
    return network.model(input_ids=row).last_hidden_state[0]


def changed(network, how) -> nn.Module:
    network = copy.deepcopy(network)
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for name, weight in network.named_parameters():
            how(name, weight, generator)
    return network


def stale(amount):
    def how(name, weight, generator):
        draws = torch.randn(weight.shape, generator=generator)
        weight.add_(amount * weight.std(unbiased=False) * draws)

    return how


def fresh_head(name, weight, generator):
    if any(part in name for part in ("score", "classifier", "regression", "v_head", "summary")):
        weight.copy_(0.05 * torch.randn(weight.shape, generator=generator))


def int4(name, weight, generator):
    if weight.dim() == 2 and "embed" not in name:
        step = weight.abs().amax(1, keepdim=True) / 7
        weight.copy_((weight / step).round() * step)


class Droppy(nn.Module):
    """The network with dropout over its embeddings left on."""

    def __init__(self, network, share):
        super().__init__()
        self.network, self.share = network, share

    def forward(self, **inputs):
        layer = self.network.get_input_embeddings()
        drop = layer.register_forward_hook(lambda *a: nn.functional.dropout(a[-1], self.share))
        try:
            return self.network(**inputs)
        finally:
            drop.remove()


def softmax(x):
    return np.exp(x - x.max()) / np.exp(x - x.max()).sum()


def plants(published, model, sd, mean) -> dict[str, tuple[dict, set[str]]]:
    """Options of a server, and the names that are right."""
    network, tokenizer = published.network, published.tokenizer
    pairs, plain = takes_pairs(tokenizer), type(network).__name__.startswith("Qwen2")
    eos = tokenizer.eos_token_id if tokenizer.eos_token_id is not None else tokenizer.sep_token_id
    bos = tokenizer.bos_token_id if tokenizer.bos_token_id is not None else tokenizer.cls_token_id
    pad, order = tokenizer.pad_token_id, np.random.default_rng(1)
    sigmoid = lambda x: 1 / (1 + np.exp(-x))  # noqa: E731
    z = lambda x: (x - mean) / sd  # noqa: E731
    reverse, doubled = lambda x: x[::-1], lambda ids: [bos, *ids]
    whiten = lambda x: (x - x.mean()) / (x.std() + 1e-8)  # noqa: E731
    half = copy.deepcopy(network).to(torch.bfloat16)
    after: dict[str, dict[str, Callable]] = {
        "activation": {
            "softmax over one logit": np.ones_like,
            "sigmoid": sigmoid,
            "sigmoid of half": lambda x: sigmoid(x / 2),
            "sigmoid of the standardised": lambda x: sigmoid(z(x)),
        },
        "monotone": {
            "log-sigmoid": lambda x: np.log(sigmoid(x)),
            "tanh of the standardised": lambda x: np.tanh(z(x)),
            "exp of the standardised": lambda x: np.exp(z(x)),
            "clipped at 1 SD": lambda x: np.clip(x, mean - sd, mean + sd),
            "clipped above": lambda x: np.minimum(x, mean + 0.5 * sd),
            "softplus": lambda x: np.log1p(np.exp(z(x))),
            "signed square root": lambda x: np.sign(z(x)) * np.sqrt(np.abs(z(x))),
            "rounded to 1 SD": lambda x: np.round(z(x)) * sd + mean,
        },
        "scale": {
            "twice and 1": lambda x: 2 * x + 1,
            "shifted by .02 SD": lambda x: x + 0.02 * sd,
            "shifted by .5 SD": lambda x: x + 0.5 * sd,
            "scaled by 1.05": lambda x: 1.05 * x,
            "negated": lambda x: -x,
        },
    }
    together = {
        "batch reversed": reverse,
        "batch shuffled": lambda x: order.permutation(x),
        "batch sorted": np.sort,
        "whitened": whiten,
        "centred": lambda x: x - x.mean(),
        "softmax over the batch": softmax,
        "first answer for all": lambda x: np.full_like(x, x[0]),
    }
    padded = {
        "left padding, no mask": ("left", pad),
        "left padding, another token": ("left", 5),
        "right padding, no mask": ("right", pad),
    }
    weights = {
        "weights 30 % off": stale(0.3),
        "other weights": stale(3.0),
        "random head": fresh_head,
    }
    faults = {
        name: ({"after": f}, {fault}) for fault, fs in after.items() for name, f in fs.items()
    }
    faults |= {name: ({"together": change}, {"batch"}) for name, change in together.items()}
    faults |= {name: ({"pad": side}, {"batch"}) for name, side in padded.items()}
    faults |= {name: ({"network": changed(network, how)}, set()) for name, how in weights.items()}
    faults |= {
        "noise of .3 SD": ({"noise": 0.3 * sd}, {"unrepeatable"}),
        "dropout": ({"network": Droppy(network, 0.1)}, {"unrepeatable"}),
        "weights 5 % off": ({"network": changed(network, stale(0.05))}, {"rounding"}),
        "weights in 4 bits": ({"network": changed(network, int4)}, {"rounding"}),
        "last token not read": ({"read": lambda ids: ids[:-1]}, set()),
        "two BOS": ({"read": doubled}, {"other_tokens"}),
        "EOS added": ({"read": lambda ids: [*ids, eos]}, {"other_tokens"}),
        "first token not read": ({"read": lambda ids: ids[1:]}, {"other_tokens"}),
        "cut to 512": ({"read": lambda ids: ids[:512]}, {"truncation"}),
        "cut to the last 512": ({"read": lambda ids: ids[-512:]}, {"truncation"}),
        "cut to 1024, EOS kept": (
            {"read": lambda ids: ids if len(ids) <= 1024 else [*ids[:1023], ids[-1]]},
            {"truncation"},
        ),
        "cut to 40": ({"read": lambda ids: ids[:40]}, {"truncation"}),
        "sigmoid, reversed": ({"after": sigmoid, "together": reverse}, {"activation", "batch"}),
        "scaled, whitened": (
            {"after": lambda x: 3 * x, "together": whiten},
            {"scale", "batch"},
        ),
        "sigmoid, two BOS": ({"after": sigmoid, "read": doubled}, {"activation", "other_tokens"}),
        "bfloat16, scaled by 1.3": (
            {"network": half, "after": lambda x: 1.3 * x},
            {"scale", "rounding"},
        ),
    }
    if not pairs:
        system = {"role": "system", "content": "You are a helpful assistant."}
        messages: dict[str, dict] = {
            "messages: two BOS": {"messages": {"bos": 1}},
            "messages: end missing": {"messages": {"cut": 1}},
            "messages: ChatML": {"template": CHATML},
            "messages: a strange template": {"template": STRANGE},
            "messages: case swapped": {"messages": {"lower": True}},
            "messages: a system turn": {"messages": {"before": [system]}},
        }
        faults |= {name: (options, {"other_tokens"}) for name, options in messages.items()}
    more = fresh(network, sd, mean, sigmoid)
    faults |= {name: one for name, one in more.items() if not (pairs and "messages" in name)}
    if not (plain or pairs):
        del faults["mean with another model"]  # whose output has another shape
    if plain:
        head = network.score
        unit = lambda s: nn.functional.normalize(s[-1], dim=0)  # noqa: E731
        reads = {
            "normalised state": (lambda s: head(unit(s)), "scale"),
            "last element": (lambda s: s[-1, -1], ""),
            "first token": (lambda s: head(s[0]), ""),
            "mean of the tokens": (lambda s: head(s.mean(0)), ""),
            "another's embedding": (lambda s: unit(s)[3], ""),
        }
        faults |= {
            name: ({"special": lambda net, row, f=f: float(f(last_state(net, row)))}, {fault})
            for name, (f, fault) in reads.items()
        }
    return faults


def remembered(key):
    """Answers that were given before to rows of the same key."""

    def whole(memory, rows, scores):
        pairs = zip(rows, scores, strict=True)
        return np.array([memory.setdefault(key(ids), score) for ids, score in pairs])

    return whole


def previous(memory, rows, scores):
    before = memory.get("scores", scores)
    memory["scores"] = scores
    return np.resize(before, len(scores))


def cold(memory, rows, scores):
    memory["requests"] = memory.get("requests", 0) + 1
    return np.zeros_like(scores) if memory["requests"] == 1 else scores


def running(memory, rows, scores):
    seen = memory.setdefault("seen", [])
    seen += scores.tolist()
    return scores - np.mean(seen)


def two_replicas(memory, rows, scores):
    memory["requests"] = memory.get("requests", 0) + 1
    return scores if memory["requests"] % 2 else 1.5 * scores + 0.3


def last_of_batch_missing(memory, rows, scores):
    return np.concatenate([scores[:-1], [0.0]]) if len(scores) > 1 else scores


def slow(memory, rows, scores):
    time.sleep(0.02)
    return scores


def fresh(network, sd, mean, sigmoid) -> dict[str, tuple[dict, set[str]]]:
    """Faults that were thought of after the check was written."""

    def turned(change):
        return {"messages": {"turns": change}}, {"other_tokens"}

    def edited(edit):
        return turned(lambda turns: [t | {"content": edit(t["content"])} for t in turns])

    def whole(change):
        return {"whole": lambda memory, rows, scores: change(rows, scores)}, set()

    clip = lambda x: np.clip(x, mean - sd, mean + sd)  # noqa: E731
    half = copy.deepcopy(network).to(torch.bfloat16)
    other = changed(network, stale(1.0))
    return {
        "answers kept by length": ({"whole": remembered(len)}, set()),
        "answers kept by the beginning": ({"whole": remembered(lambda ids: (*ids[:8],))}, set()),
        "answers kept by the end": ({"whole": remembered(lambda ids: (*ids[-3:],))}, set()),
        "the previous request's answers": ({"whole": previous}, {"unrepeatable"}),
        "zero for the first request": ({"whole": cold}, set()),
        "minus a running mean": ({"whole": running}, {"unrepeatable"}),
        "one of two replicas scales": ({"whole": two_replicas}, {"unrepeatable"}),
        "zero for a batch's last": ({"whole": last_of_batch_missing}, {"batch"}),
        "slow": ({"whole": slow}, set()),
        "strings for numbers": whole(lambda rows, s: s.astype(str).astype(object)),
        "rounded to two decimals": ({"after": lambda x: np.round(x, 2)}, {"rounding", "monotone"}),
        "rounded to .1 SD": (
            {"after": lambda x: np.round(10 * x / sd) * sd / 10},
            {"rounding", "monotone"},
        ),
        "clipped where nothing is": ({"after": lambda x: np.clip(x, -1e3, 1e3)}, set()),
        "relu": ({"after": lambda x: np.maximum(x - mean, 0)}, {"monotone", "scale"}),
        "absolute value": ({"after": lambda x: np.abs(x - mean)}, set()),
        "five times tanh of a fifth": (
            {"after": lambda x: 5 * np.tanh(x / 5)},
            {"monotone", "rounding", "scale"},
        ),
        "a penalty of length": whole(
            lambda rows, s: s - 0.02 * sd * np.array([len(ids) for ids in rows])
        ),
        "mean with another model": whole(lambda rows, s: mixed(other, rows, s)),
        "NaN for long ones": whole(
            lambda rows, s: np.where([len(ids) > 300 for ids in rows], np.nan, s)
        ),
        "cut to the last 40": ({"read": lambda ids: ids[-40:]}, {"truncation"}),
        "cut to the last 512, negated": (
            {"read": lambda ids: ids[-512:], "after": lambda x: -x},
            {"truncation", "scale"},
        ),
        "cut to 512, sigmoid, reversed": (
            {"read": lambda ids: ids[:512], "after": sigmoid, "together": lambda x: x[::-1]},
            {"truncation", "activation", "batch"},
        ),
        "bfloat16, sigmoid": ({"network": half, "after": sigmoid}, {"activation", "rounding"}),
        "bfloat16, clipped": ({"network": half, "after": clip}, {"monotone", "rounding"}),
        "messages: system turns dropped": turned(
            lambda turns: [turn for turn in turns if turn["role"] != "system"]
        ),
        "messages: earlier turns dropped": turned(lambda turns: turns[-2:]),
        "messages: a space behind each": edited(lambda text: text + " "),
        "messages: lower case": edited(str.lower),
    }


@torch.no_grad()
def mixed(other, rows, scores):
    theirs = [float(other(input_ids=torch.tensor([ids])).logits.reshape(-1)[0]) for ids in rows]
    return (scores + np.array(theirs)) / 2


def judged(found, allowed: set[str]) -> str:
    names = {part.fault for part in found.faults} - NAMELESS
    if found.right:
        return "no alarm"
    if not names:
        return "unknown"
    return "right" if names <= allowed else "WRONG"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", nargs="*", default=DEFAULT, choices=list(ARCHITECTURES))
    parser.add_argument("--clean", type=int, default=50, help="right servers an architecture")
    parser.add_argument("--plants", nargs="*", help="of these names alone")
    options = parser.parse_args()
    disable_progress_bar()
    total: Counter = Counter()
    for name in options.only:
        started = time.time()
        published = ARCHITECTURES[name](Path(tempfile.mkdtemp()) / name)
        model = checkpoints.opened(published, "native")
        right = Server(published, model)
        forms = ("ids", "pairs") if takes_pairs(published.tokenizer) else ("ids", "messages")
        clean = diagnose(right, model, prompt=PROMPT, forms=forms)
        print(f"\n{name}: {[*clean.faults]} right, {right.sent} inputs, SD {clean.spread:.3g}")
        sd, mean = clean.spread, float(clean.own.mean())
        counts: Counter = Counter()
        for plant, (made, allowed) in plants(published, model, sd, mean).items():
            if options.plants and plant not in options.plants:
                continue
            torch.manual_seed(0)
            server = Server(published, model, **made)
            try:
                found = diagnose(server, model, prompt=PROMPT, forms=forms)
            except ValueError as error:  # of the published class, which reads the prompt's end
                print(f"  n/a       {plant:32} {error}")
                continue
            verdict = judged(found, allowed)
            off = np.abs(found.served - found.own)
            moved = not np.isfinite(off).all() or off.max() >= 0.3 * sd
            silent = moved and found.harmless
            counts[verdict] += 1
            counts["moved and silent"] += silent
            counts["plants"] += 1
            parts = [f"{p.fault} ({p.detail})" if p.detail else p.fault for p in found.faults]
            text = (
                f"  {verdict:9}{' SILENT' if silent else ''} {plant:32} {off.max() / sd:7.2g} SD  "
            )
            print(text + ", ".join(parts), flush=True)
        alarms = 0
        for seed in range(options.clean):
            noise, random = (0.0, 1e-6, 1e-4)[seed % 3] * sd, np.random.default_rng(seed)
            extra: dict = {"noise": noise, "random": random}
            if dtype := {3: torch.bfloat16, 4: torch.float16}.get(seed % 5):
                extra["network"] = copy.deepcopy(published.network).to(dtype)
            if seed % 7 == 0:
                extra["after"] = lambda x: np.round(x, 6)
            how = {"seed": seed, "forms": forms, "budget": (60, 120)[seed % 2]}
            found = diagnose(Server(published, model, **extra), model, prompt=PROMPT, **how)
            apart = found.own_difference / sd
            if not found.harmless and apart < 0.3:
                alarms += 1
                print(f"  ALARM at a right server, seed {seed}: {found.faults} {apart:.2g} SD")
        counts["clean"], counts["false alarms"] = options.clean, alarms
        total += counts
        print(f"{name}: {dict(counts)} in {time.time() - started:.0f} s", flush=True)
    print(f"\nall: {dict(total)}")


if __name__ == "__main__":
    main()
