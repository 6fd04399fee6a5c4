"""Fresh checkpoints of many shapes, each scanned and held against a plain forward written out here.

    python experiments/trials/heads.py [NAME…]

Prints one row a combination: agree, refused, WRONG (a number that is another's) or TRACEBACK. The
networks are random and tiny; what is tried is which number is read, and what is refused.
"""

import json
import logging
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import peft
import torch
import transformers
from peft import PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from tokenizers.processors import TemplateProcessing
from transformers import AutoConfig, AutoModel, PreTrainedTokenizerFast

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

import pessimal
from pessimal.errors import UserError
from pessimal.rewards.spec import Mode
from pessimal.scoring.candidates import inputs, vocabulary_of
from pessimal.scoring.scorer import FrameScorer
from tiny_language_models import byte_level

PROMPT = "What in one word is the greatest thing ever?"
WORDS = (
    "love hate good evil peace war kind cruel wisdom truth What in one word is the greatest thing"
)
TURN = "<|start|>{{ m['role'] }}<|sep|>{{ m['content'] | trim }}"
TEMPLATES = {  # what a conversation ends in
    "eos": "{{ bos_token }}{% for m in messages %}" + TURN + "<|end|>{% endfor %}",
    "newline": "{{ bos_token }}{% for m in messages %}" + TURN + "<|end|>\n{% endfor %}",
    "nothing": "{% for m in messages %}" + TURN + "{% endfor %}",
}
SMALL = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "head_dim": 8}
SMALL |= {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128}
SMALL |= {"initializer_range": 0.3}
ARCHITECTURES: dict[str, dict] = {
    "llama": {},
    "mistral": {"sliding_window": 9},
    "qwen2": {},
    "qwen3": {},
    "gemma": {},
    "gemma2": {"sliding_window": 9, "attn_logit_softcapping": 2.0, "query_pre_attn_scalar": 8},
    "gemma3_text": {"sliding_window": 9, "query_pre_attn_scalar": 8},
    "phi3": {"original_max_position_embeddings": 128},
    "granite": {"embedding_multiplier": 2.0, "residual_multiplier": 0.5},
    "stablelm": {},
    "starcoder2": {},
    "mixtral": {"num_local_experts": 4},
    "qwen3_moe": {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16},
    "gpt2": {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 128, "n_inner": 48},
    "gpt_neox": {},
    "opt": {"ffn_dim": 48, "word_embed_proj_dim": 32},
    "bloom": {"n_layer": 2, "n_head": 4},
    "falcon": {"new_decoder_architecture": False, "multi_query": False, "bias": True},
    "bert": {},
    "roberta": {},
    "deberta-v2": {"relative_attention": True, "pos_att_type": ["p2c", "c2p"]},
    "electra": {"embedding_size": 32},
    "distilbert": {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48},
    "modernbert": {},
}
NO_SMALL = ["gpt2", "bloom", "distilbert"]
"""Architectures whose configurations have names of their own for what SMALL says."""
ENCODERS = ["bert", "roberta", "deberta-v2", "electra", "distilbert", "modernbert"]


@dataclass(frozen=True)
class Combination:
    """One checkpoint, and what is typed about it."""

    architecture: str
    head: str
    """How the head is laid out (see HEADS)."""
    typed: dict = field(default_factory=dict)
    """Options of `pessimal.load`."""
    template: str = "newline"
    pad: str = "own"
    """own (a pad token of its own), eos, or none."""
    stored: str = "float32"
    adapter: str = ""
    padding: str = ""
    """The tokenizer's padding side, where it says one."""
    layout: str = ""
    """How the weights are stored: with another prefix, without, sharded, tied, and so on."""
    legible: bool = True
    """Whether there is a right number; else it must be refused."""

    @property
    def name(self) -> str:
        typed = ",".join(f"{key}={value}" for key, value in self.typed.items())
        parts = (self.architecture, self.head, self.template, f"pad:{self.pad}")
        parts += (self.stored, self.adapter, self.padding, self.layout, typed)
        return " ".join(part for part in parts if part)


def tokenizer_of(one: Combination) -> PreTrainedTokenizerFast:
    encoder = one.architecture in ENCODERS
    specials = ["<|bos|>", "<|start|>", "<|sep|>", "<|end|>", "<|pad|>", "<extra_0>"]
    backend = byte_level(specials, [WORDS, " " + WORDS] * 3, size=340)
    if encoder:
        backend.post_processor = TemplateProcessing(
            single="<|bos|> $A <|sep|>",
            pair="<|bos|> $A <|sep|> $B:1 <|sep|>:1",
            special_tokens=[("<|bos|>", 0), ("<|sep|>", 2)],
        )
    names = {"bos_token": "<|bos|>", "eos_token": "<|end|>"}
    names |= {"own": {"pad_token": "<|pad|>"}, "eos": {"pad_token": "<|end|>"}}.get(one.pad, {})
    names |= {"sep_token": "<|sep|>", "cls_token": "<|bos|>"} if encoder else {}
    names |= {"padding_side": one.padding} if one.padding else {}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        additional_special_tokens=["<|start|>", "<|sep|>", "<extra_0>"],
        model_input_names=["input_ids", "attention_mask"],
        **names,
    )
    if not encoder:
        tokenizer.chat_template = TEMPLATES[one.template]
    return tokenizer


def layers(one: Combination, width: int) -> dict[str, torch.Tensor]:
    """The head's weights by their names in the checkpoint."""

    def linear(name: str, outputs: int, inputs: int = width, *, bias: bool = False) -> dict:
        drawn = {f"{name}.weight": torch.randn(outputs, inputs) * 0.3}
        return drawn | ({f"{name}.bias": torch.randn(outputs)} if bias else {})

    def network(name: str, outputs: int) -> dict:
        first = linear(f"{name}.0", 24, bias=True)
        return first | linear(f"{name}.2", outputs, 24, bias=True)

    kind, _, count = one.head.partition("/")
    outputs = int(count or 1)
    return {
        "score": lambda: linear("score", outputs),
        "labels": lambda: linear("score", 3),
        "score+bias": lambda: linear("score", outputs, bias=True),
        "score.N": lambda: network("score", outputs),
        "process": lambda: network("score", 2),
        "token": lambda: linear("score", outputs, bias=True),
        "v_head": lambda: linear("v_head", outputs, bias=True),
        "v_head.N": lambda: network("v_head", outputs),
        "v_head.summary": lambda: linear("v_head.summary", outputs, bias=True),
        "v_head.summary.N": lambda: network("v_head.summary", outputs),
        "regression_head": lambda: linear("regression_head", outputs),
        "score_head": lambda: linear("score_head", outputs, bias=True),
        "out_proj": lambda: linear("out_proj", outputs, bias=True),
        "score+norm": lambda: linear("score", 1) | {"norm_head.weight": torch.rand(width)},
        "score.N+norm": lambda: network("score", 1) | {"score.1.weight": torch.rand(24)},
        "score+other": lambda: linear("score", 1) | linear("auxiliary_head", 1),
        "v_head+gate": lambda: linear("v_head.summary", 1) | linear("v_head.gate", 1),
        "reward_head": lambda: linear("reward_head", 1),
        "score+v_head": lambda: linear("score", 1) | linear("v_head.summary", 1),
        "classifier": lambda: linear("classifier", 1, bias=True),
        "none": dict,
    }[kind]()


def by_hand(weights: dict[str, torch.Tensor], states: torch.Tensor) -> torch.Tensor:
    """Outputs (T, outputs) of the head's layers, in the order of their names."""
    names = sorted(name.removesuffix(".weight") for name in weights if name.endswith(".weight"))
    for number, name in enumerate(names):
        states = states.relu() if number else states
        states = states @ weights[f"{name}.weight"].T + weights.get(f"{name}.bias", 0)
    return states


def config_of(one: Combination, tokenizer: PreTrainedTokenizerFast):
    own = ARCHITECTURES[one.architecture]
    ids = {f"{name}_token_id": getattr(tokenizer, f"{name}_token_id") for name in ("bos", "eos")}
    ids["pad_token_id"] = tokenizer.pad_token_id if one.pad != "none" else None
    small = dict(SMALL)
    if one.architecture in NO_SMALL:
        small = {"hidden_size": 32, "initializer_range": 0.3}
    if one.architecture == "distilbert":
        del small["hidden_size"]
    if one.architecture in ("opt", "gpt_neox", "falcon", *ENCODERS):
        small = {k: v for k, v in small.items() if k not in ("head_dim", "num_key_value_heads")}
    sizes = small | own | ids | {"vocab_size": len(tokenizer) + 3}
    return AutoConfig.for_model(one.architecture, **sizes)


def written(one: Combination, folder: Path) -> Callable[[list[int], int], float | list[float]]:
    """Write the checkpoint; what a plain forward gives for ids whose first n are the prompt's."""
    torch.manual_seed(len(one.name))
    tokenizer = tokenizer_of(one)
    config = config_of(one, tokenizer)
    tokenizer.save_pretrained(folder)
    kind, _, count = one.head.partition("/")
    if one.architecture in ENCODERS or kind == "stock":
        config.num_labels = int(count or 1)
        classes = {"token": transformers.AutoModelForTokenClassification}
        make = classes.get(kind, transformers.AutoModelForSequenceClassification)
        network = make.from_config(config).eval().to(getattr(torch, one.stored))
        network.save_pretrained(folder)
        dtype = getattr(torch, one.typed.get("dtype", "float32"))
        network = make.from_pretrained(folder, dtype=dtype).eval()
        output = one.typed.get("output") or 0

        @torch.no_grad()
        def pooled(ids: list[int], start: int) -> float | list[float]:
            logits = network(input_ids=torch.tensor([ids])).logits[0]
            return logits.tolist() if output == "all" else float(logits[output])

        return pooled
    backbone = AutoModel.from_config(config).eval()
    head = layers(one, config.hidden_size)
    if kind == "labels":
        config.id2label = {0: "helpful", 1: "safe", 2: "terse"}
    prefix = PREFIXES.get(one.architecture, "model.")
    weights = {prefix + name: value for name, value in backbone.state_dict().items()} | head
    if kind.startswith(("v_head", "score+v_head")) and one.layout != "tied":
        weights["lm_head.weight"] = torch.randn(config.vocab_size, config.hidden_size)
    dtype = getattr(torch, one.stored)
    weights = {name: value.to(dtype).contiguous() for name, value in weights.items()}
    store(one, folder, weights, prefix)
    names = {"token": "ForTokenClassification", "process": "ForProcessRewardModel"}
    suffix = names.get(kind, "ForSequenceClassification")
    base = type(backbone).__name__.removesuffix("Model")
    config.architectures = [base + suffix]
    config.tie_word_embeddings = one.layout == "tied"
    config.save_pretrained(folder)
    if one.layout == "silent":  # about its outputs: the library's default is two
        file = folder / "config.json"
        settings = json.loads(file.read_text()).items()
        file.write_text(json.dumps({key: value for key, value in settings if "label" not in key}))
    head = {name: value.to(dtype).float() for name, value in head.items()}
    body = {name: value for name, value in weights.items() if name.startswith(prefix)}
    backbone.load_state_dict({name.removeprefix(prefix): v.float() for name, v in body.items()})
    if one.adapter:
        backbone, head = adapted(one, folder, head)
    output, steps = one.typed.get("output"), one.typed.get("step_token")
    every = output == "all"
    output = {"helpful": 0, "safe": 1, "terse": 2}.get(output, 0 if every else output or 0)
    step = tokenizer.convert_tokens_to_ids("<extra_0>")
    pad = config.pad_token_id

    @torch.no_grad()
    def reward(ids: list[int], start: int) -> float | list[float]:
        states = backbone(input_ids=torch.tensor([ids])).last_hidden_state[0].float()
        values = by_hand(head, states)  # (T, outputs)
        if steps:
            ends = [place for place in range(start, len(ids)) if ids[place] == step]
            several = values.shape[1] > 1
            each = values[ends].softmax(-1)[:, output] if several else values[ends, 0].sigmoid()
            how = one.typed.get("reduce", "min")
            return float({"min": each.min(), "last": each[-1], "product": each.prod()}[how])
        place = len(ids) - 1
        if one.typed.get("read") == "own":
            place = max(i for i, token in enumerate(ids) if token != pad)
        return values[place].tolist() if every else float(values[place, output])

    return reward


def store(one: Combination, folder: Path, weights: dict[str, torch.Tensor], prefix: str) -> None:
    """Write the weights as the combination's layout has them."""
    head = {name: value for name, value in weights.items() if not name.startswith(prefix)}
    body = {name: value for name, value in weights.items() if name.startswith(prefix)}
    match one.layout:
        case "deepspeed":
            body = {f"pretrained_model.{name}": value for name, value in body.items()}
        case "backbone":
            body = {name.replace(prefix, "backbone.", 1): value for name, value in body.items()}
        case "module":
            body = {f"module.{name}": value for name, value in body.items()}
            head = {f"module.{name}": value for name, value in head.items()}
        case "bare":
            body = {name.removeprefix(prefix): value for name, value in body.items()}
        case "head in float32":
            head = {name: value.float() for name, value in head.items()}
        case "deeper":
            added = {k.replace("layers.1.", "layers.2."): v.clone() for k, v in body.items()}
            body |= added
        case "shallower":
            body = {name: value for name, value in body.items() if "layers.1." not in name}
        case "value file":
            save_file(head, folder / "value_head.safetensors")
            head = {}
        case "inv_freq":
            body[f"{prefix}layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(4)
    shards = {"model.safetensors": body | head}
    if one.layout == "sharded":
        files = (f"model-0000{number}-of-00002.safetensors" for number in (1, 2))
        shards = dict(zip(files, (body, head), strict=True))
        names = {name: file for file, part in shards.items() for name in part}
        index = {"metadata": {}, "weight_map": names}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    for file, part in shards.items():
        save_file(part, folder / file, metadata={"format": "pt"})


PREFIXES = dict.fromkeys(("gpt2", "bloom", "falcon"), "transformer.") | {"gpt_neox": "gpt_neox."}
TARGETS = {"gpt2": ["c_attn", "c_proj"], "gpt_neox": ["query_key_value"], "phi3": ["qkv_proj"]}


def adapted(one: Combination, folder: Path, head: dict):
    """Train an adapter for show, beside the base; the backbone as PEFT itself runs it."""
    kind = one.adapter.split("+")
    alike = {"target_modules": "all-linear"}
    options = {
        "lora": {},
        "all": alike,
        "tokens": {"trainable_token_indices": [3, 300]},
        "replicated": {"layer_replication": [[0, 2], [1, 2]]},
        "loha": {},
        "ia3": {"feedforward_modules": []},
        "oft": {"oft_block_size": 8},
        "vera": {},
        "norms": {},
        "olora": {"init_lora_weights": "olora"},
        "some layers": {"layers_to_transform": [1]},
        "saved norm": {"modules_to_save": ["score", "norm"]},
        "two heads": {"modules_to_save": ["score"], "exclude_modules": ["v_proj"]},
        "experts": {"target_parameters": ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]},
        "dora": {"use_dora": True},
        "rslora": {"use_rslora": True},
        "lora_bias": {"lora_bias": True},
        "bias": {"bias": "all"},
        "bias of lora": {"bias": "lora_only"},
        "pissa": {"init_lora_weights": "pissa"},
        "patterns": {"rank_pattern": {"q_proj": 2}, "alpha_pattern": {"v_proj": 32}},
        "embedding": {"modules_to_save": ["score", "embed_tokens"]},
        "lost": {"task_type": None},
    }[kind[0]]
    make = transformers.AutoModelForSequenceClassification
    if "score.bias" in head:
        make = transformers.AutoModelForTokenClassification
    network = make.from_pretrained(folder, num_labels=1, dtype=torch.float32)
    default = {"target_modules": TARGETS.get(one.architecture, ["q_proj", "v_proj"])}
    settings = default | {"task_type": "SEQ_CLS"} | options
    methods = {"loha": peft.LoHaConfig, "ia3": peft.IA3Config, "oft": peft.OFTConfig}
    methods |= {"vera": peft.VeraConfig, "norms": peft.LNTuningConfig}
    make_config = methods.get(kind[0], peft.LoraConfig)
    if make_config is peft.LoraConfig:
        settings |= {"r": 4, "lora_alpha": 12}
    if kind[0] == "norms":
        settings["target_modules"] = ["norm", "input_layernorm", "post_attention_layernorm"]
    wrapped = get_peft_model(network, make_config(**settings))
    for weight in wrapped.parameters():
        if kind[0] not in ("pissa", "olora") and weight.requires_grad:
            torch.nn.init.normal_(weight, std=0.1)
    wrapped.save_pretrained(folder / "adapter")
    if kind[1:] == ["headless"]:  # the base is a language model
        file = folder / "model.safetensors"
        body = {k: v for k, v in load_file(file).items() if not k.startswith("score")}
        save_file(body, file, metadata={"format": "pt"})
    base = make.from_pretrained(folder, num_labels=1, dtype=torch.float32)
    again = PeftModel.from_pretrained(base, folder / "adapter").eval()
    merged = again.base_model.model
    score = merged.score
    if hasattr(score, "modules_to_save"):
        score = score.modules_to_save["default"]
    inner = getattr(merged, merged.base_model_prefix)
    return inner, {f"score.{name}": value.detach() for name, value in score.named_parameters()}


def tried(one: Combination) -> tuple[str, str]:
    """The verdict, and a remark."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "model"
        folder.mkdir()
        try:
            reward = written(one, folder)
        except Exception as error:
            return "NOT MADE", f"{type(error).__name__}: {error}"
        options = one.typed | ({"adapter": str(folder / "adapter")} if one.adapter else {})
        try:
            model = pessimal.load(str(folder), **options)
            words, found, attention = scanned(model)
        except UserError as error:
            return "refused", str(error).replace(str(folder), "FOLDER")
        except Exception:
            return "TRACEBACK", traceback.format_exc().strip().splitlines()[-1]
        if not one.legible:
            return "WRONG", "a number where there is none to read"
        start = len(model.frame(PROMPT).prefix)
        wanted = np.array([reward(whole(model, one, int(i)), start) for i in words])
        apart = float((np.abs(found - wanted).max(axis=0) / wanted.std(axis=0).clip(1e-6)).max())
        limit = 0.3 if options.get("dtype") == "bfloat16" else 2e-3
        return ("agree" if apart < limit else "WRONG"), f"{apart:.2g} SD, {attention}"


def scanned(model) -> tuple[np.ndarray, np.ndarray, str]:
    """Some tokens, special ones among them, what a scan's engine gives them (n,) or (n, outputs),
    and the engine's name, which is checked as before a scan."""
    frame, candidates = model.frame(PROMPT), vocabulary_of(model)
    made = inputs(model.parts[0].conversations, frame, candidates, Mode.ids)
    scorer = FrameScorer(model.network(), frame, device=torch.device("cpu"))
    scorer.establish_trust(made, dtype=model.spec.dtype)
    rows = np.linspace(0, len(made) - 1, 24).astype(int)
    rewards = scorer.score_rows(made, rows, batch_size=8)
    return candidates.rows["candidate_id"].to_numpy()[rows], rewards, scorer.attention


def whole(model, one: Combination, token: int) -> list[int]:
    """A conversation with this token as the response, by the template itself."""
    tokenizer = model.tokenizer
    if one.architecture in ENCODERS:
        return model.frame(PROMPT).around([token])
    turns = [{"role": "user", "content": PROMPT}, {"role": "assistant", "content": "zqx"}]
    rendered = tokenizer.apply_chat_template(turns, tokenize=False)
    before, after = rendered.split("zqx")
    ids = [tokenizer(part, add_special_tokens=False)["input_ids"] for part in (before, after)]
    if one.typed.get("step_token"):
        return [*ids[0], token, tokenizer.convert_tokens_to_ids("<extra_0>")]
    return [*ids[0], token, *ids[1]]


def combinations() -> list[Combination]:
    made: list[Combination] = []
    add = lambda *args, **more: made.append(Combination(*args, **more))  # noqa: E731
    decoders_ = [name for name in ARCHITECTURES if name not in ENCODERS]
    # Every decoder: the stock head, a token classifier's bias, and two outputs.
    for number, name in enumerate(decoders_):
        add(name, "score", template=("newline", "eos", "nothing")[number % 3])
        add(name, "token/1", pad=("own", "eos", "none")[number % 3])
        kind, stored = (("v_head.summary", "float32"), ("score.N", "bfloat16"))[number % 2]
        add(name, kind, stored=stored)
    some = ["llama", "qwen2", "gemma2", "mistral", "gpt2", "qwen3"]
    several = ("score/2", "token/2", "process", "regression_head/2", "v_head/2", "v_head.N/2")
    several += ("v_head.summary/2", "v_head.summary.N/3", "score_head/2", "out_proj/3", "score.N/2")
    for number, kind in enumerate(several):
        name = some[number % len(some)]
        add(name, kind, legible=False)  # several, and none is named
        if kind != "process":
            add(name, kind, typed={"output": 1})
    legible = ("regression_head", "v_head", "v_head.N", "v_head.summary.N", "score_head")
    for kind in (*legible, "out_proj", "score+bias"):
        add("qwen2", kind)
    illegible = ("score+norm", "score.N+norm", "score+other", "v_head+gate", "reward_head")
    for kind in (*illegible, "score+v_head", "none"):
        add("llama", kind, legible=False)
    add("gpt2", "classifier", legible=False)
    for typed in ({"output": "safe"}, {"output": 2}, {"output": "all"}):
        add("qwen2", "labels", typed=typed)
    add("llama", "labels", legible=False)
    add("gemma2", "token/3", typed={"output": "all"})
    add("qwen2", "labels", typed={"output": "all", "dtype": "bfloat16"})
    for reduce in ("min", "last", "product"):
        add("qwen2", "process", typed={"output": 1, "step_token": "<extra_0>", "reduce": reduce})
    add("llama", "token/2", typed={"output": 1, "step_token": "<extra_0>"})
    add("gemma2", "score/2", typed={"output": 0, "step_token": "<extra_0>"}, template="eos")
    add("mistral", "v_head.summary", typed={"step_token": "<extra_0>"})
    add("gpt2", "token/2", typed={"output": 1, "step_token": "<extra_0>"})
    add("llama", "token/2", typed={"step_token": "<extra_0>"}, legible=False)
    for name in ("llama", "qwen3", "gpt2", "opt"):
        add(name, "score", pad="eos", template="eos")
        add(name, "score", pad="eos", template="eos", typed={"read": "own"})
        add(name, "score", pad="eos", template="newline", typed={"read": "own"})
    add("llama", "score", typed={"dtype": "bfloat16"})
    add("qwen2", "token/1", typed={"dtype": "bfloat16"}, stored="bfloat16")
    for kind in ("lora", "dora", "rslora", "bias", "pissa", "patterns", "embedding"):
        add("qwen2" if kind == "bias" else "llama", "score", adapter=kind)
    add("gpt2", "score", adapter="lora")
    add("llama", "score", adapter="lora+headless")
    add("llama", "score", adapter="lost")
    for kind in ("lora_bias", "lost+headless"):
        add("llama", "score", adapter=kind, legible=False)
    add("qwen2", "score", adapter="lora_bias", legible=False)
    for layout in ("sharded", "tied", "silent", "inv_freq"):
        add("qwen2", "score", layout=layout)
        add("llama", "v_head.summary", layout=layout)
    for layout in ("deepspeed", "backbone", "bare"):
        add("llama", "v_head.summary", layout=layout)
        add("mistral", "token/1", layout=layout)
        add("qwen2", "score", layout=layout)
    add("llama", "v_head.summary", layout="value file")
    add("qwen2", "token/1", layout="head in float32", stored="bfloat16")
    for layout in ("deeper", "shallower"):
        add("llama", "score", layout=layout, legible=False)
        add("llama", "v_head.summary", layout=layout, legible=False)
    for name in ENCODERS:
        add(name, "pooled/1")
        add(name, "pooled/2", legible=False)
        add(name, "pooled/2", typed={"output": 1})
    add("bert", "token/1", legible=False)
    add("modernbert", "token/1", legible=False)
    return made


def main(names: Sequence[str], every: Sequence[Combination]) -> None:
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    logging.disable(logging.WARNING)
    counts: Counter = Counter()
    chosen = [one for one in every if not names or any(name in one.name for name in names)]
    for number, one in enumerate(chosen, start=1):
        verdict, remark = tried(one)
        counts[verdict] += 1
        odd = " (could be read)" if verdict == "refused" and one.legible else ""
        print(f"{number:3} {verdict + odd:10} {one.name:64} {remark[:150]!r}", flush=True)
    print(json.dumps(counts))


if __name__ == "__main__":
    main(sys.argv[1:], combinations())
