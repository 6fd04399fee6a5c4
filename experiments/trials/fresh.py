"""Checkpoints of architectures, heads and adapters that `heads.py` lacks, tried in the same way.

    python experiments/trials/fresh.py [NAME…]

Stock classifiers are written by transformers itself, and held against their own forward.
"""

import sys

import heads
from heads import Combination

MOE = {"num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2, "n_routed_experts": 4}
MOE |= {"moe_intermediate_size": 16, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1}
MLA = {"q_lora_rank": 16, "kv_lora_rank": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 4}
MLA |= {"v_head_dim": 8, "head_dim": 4, "num_key_value_heads": 4}
SLIDING, LOCAL = {"sliding_window": 9}, [[["global", "local"], 1]]
LINEAR = {"layer_types": ["linear_attention", "full_attention"], "linear_num_key_heads": 2}
LINEAR |= {"linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 8}
GPT = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 128}
FRESH: dict[str, dict] = {
    "olmo2": {},
    "olmo3": SLIDING,
    "olmoe": MOE,
    "cohere2": SLIDING | {"logit_scale": 0.5},
    "granitemoe": MOE | {"logits_scaling": 3.0, "embedding_multiplier": 2.0},
    "phi": {},
    "phimoe": MOE,
    "ministral": SLIDING,
    "ministral3": {},
    "exaone4": SLIDING | {"sliding_window_pattern": 2},
    "smollm3": {},
    "modernbert-decoder": {"local_attention": 9},
    "ernie4_5": {},
    "glm": {},
    "glm4": {},
    "glm4_moe": MOE,
    "qwen3_next": MOE | LINEAR | {"shared_expert_intermediate_size": 16},
    "deepseek_v2": MOE | MLA,
    "deepseek_v3": MOE | MLA,
    "gpt_oss": MOE | SLIDING,
    "gemma4_text": SLIDING,
    "gemma3n_text": SLIDING | {"vocab_size_per_layer_input": 340, "num_kv_shared_layers": 0},
    "nemotron": {},
    "persimmon": {},
    "helium": {},
    "apertus": {},
    "seed_oss": {},
    "hunyuan_v1_dense": {},
    "diffllama": {},
    "lfm2": {"layer_types": ["conv", "full_attention"]},
    "falcon_mamba": {},
    "mpt": {"d_model": 32, "n_layers": 2, "n_heads": 4, "max_seq_len": 128},
    "gpt_neo": {"num_layers": 2, "num_heads": 4, "window_size": 9, "attention_types": LOCAL},
    "gptj": GPT | {"rotary_dim": 4},
    "biogpt": {},
    "xglm": {"d_model": 32, "ffn_dim": 48, "num_layers": 2, "attention_heads": 4},
    "gpt_bigcode": GPT,
    "albert": {"embedding_size": 16},
    "mpnet": {},
    "xlnet": {"d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 48},
    "eurobert": {},
    "bart": {"d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4}
    | {"decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48},
    "t5": {"d_model": 32, "num_layers": 2, "num_heads": 4, "d_ff": 48, "d_kv": 8},
    "longformer": {"attention_window": 8},
    "big_bird": {"attention_type": "original_full"},
    "fnet": {},
    "convbert": {"embedding_size": 32},
    "roformer": {"embedding_size": 32},
    "nomic_bert": {},
    "gte": {},
    "xlm-roberta": {},
    "deberta": {"relative_attention": True, "pos_att_type": ["p2c", "c2p"]},
    "mobilebert": {"embedding_size": 32, "intra_bottleneck_size": 16, "true_hidden_size": 16},
    "openai-gpt": GPT,
    "qwen3_5_text": LINEAR,
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1, "num_experts": 2}
    | {"use_mamba_kernels": False, "mamba_d_state": 4, "mamba_dt_rank": 4},
}
"""Architectures, and what their configurations are besides small."""
NO_SMALL = ["mpt", "gpt_neo", "gptj", "gpt_bigcode", "xlnet", "xglm", "bart", "t5", "openai-gpt"]
ENCODERS = ["albert", "mpnet", "xlnet", "eurobert", "bart", "t5", "longformer", "big_bird", "fnet"]
ENCODERS += ["convbert", "roformer", "nomic_bert", "gte", "xlm-roberta", "deberta", "mobilebert"]

NO_STOCK = ["olmoe", "cohere2", "granitemoe", "ernie4_5", "glm4_moe", "gemma4_text", "gemma3n_text"]
NO_STOCK += ["apertus", "lfm2", "falcon_mamba", "xglm"]
"""Architectures that transformers has no sequence classifier for."""


def combinations() -> list[Combination]:
    made: list[Combination] = []
    add = lambda *args, **more: made.append(Combination(*args, **more))  # noqa: E731
    decoders = [name for name in FRESH if name not in ENCODERS]
    for number, name in enumerate(decoders):
        pad = ("own", "eos", "own", "none" if name != "modernbert-decoder" else "eos")[number % 4]
        stock = "score" if name in NO_STOCK else "stock/1"
        add(name, stock, pad=pad, padding=("", "left")[number % 2])
        add(name, ("v_head.summary", "token/1", "score.N")[number % 3], pad=pad)
    for name in ("olmo2", "cohere2", "glm4"):
        kind = "score/2" if name in NO_STOCK else "stock/2"
        add(name, kind, typed={"output": 1}, stored="bfloat16")
        add(name, kind, typed={"output": "all"})
    add("gemma2", "stock/1", typed={"dtype": "bfloat16"}, stored="bfloat16")
    add("gpt_oss", "stock/1", typed={"dtype": "bfloat16"}, stored="bfloat16")
    add("qwen3_moe", "stock/1", typed={"dtype": "bfloat16"}, stored="bfloat16")
    for layout in ("deepspeed", "backbone", "bare", "module"):
        add("olmo2", "score", layout=layout)
        add("gpt2", "score", layout=layout)
    add("gemma3_text", "token/1", layout="sharded", stored="bfloat16")
    add("smollm3", "score", layout="tied", pad="eos", template="eos", typed={"read": "own"})
    adapters = ("dora", "rslora", "all", "tokens", "replicated", "loha", "ia3", "oft", "vera")
    adapters += ("norms", "olora", "some layers", "saved norm", "two heads", "experts")
    for number, adapter in enumerate(adapters):
        name = ("olmo2", "qwen3", "smollm3", "gemma2")[number % 4]
        name = "qwen3_moe" if adapter == "experts" else name
        add(name, "score", adapter=adapter, legible=adapter != "replicated")
    for name in ("qwen2", "qwen3", "llama", "phi3"):
        add(name, "token/1", adapter="lora")
        add(name, "score", adapter="all")
    add("qwen2", "score", adapter="bias of lora")
    add("llama", "score", adapter="all+headless")
    for name in ("olmo2", "smollm3", "qwen3_moe"):
        add(name, "process", typed={"output": 1, "step_token": "<extra_0>"})
        add(name, "score+other", legible=False)
    for name in ENCODERS:  # the tokenizer of BART here ends in no EOS, and T5 has no start token
        add(name, "pooled/1", legible=name not in ("bart", "t5"))
    return made


if __name__ == "__main__":
    heads.ARCHITECTURES |= FRESH
    heads.NO_SMALL += NO_SMALL
    heads.ENCODERS += ENCODERS
    heads.main(sys.argv[1:], combinations())
