"""What lies in checkpoint folders: adapters, value heads, shards, named outputs, GGUF; opened,
loaded and scored."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from test_quantised import write_gguf
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer

from pessimal.errors import ModelError
from pessimal.rewards.head import HeadSpec
from pessimal.rewards.log_probability import ReferenceOptions
from pessimal.rewards.named import kind_class
from pessimal.rewards.obtain import files_of, open_model
from pessimal.rewards.spec import Dtype, Mode
from pessimal.scoring.candidates import inputs, vocabulary
from pessimal.scoring.scorer import FrameScorer
from tiny_language_models import CHAT, checkpoint
from tolerance import close

PROMPT = "What, in one word, is the greatest thing ever?"
IDS = torch.tensor([[5, 6, 7, 8], [9, 3, 4, 2]])
CPU = torch.device("cpu")


def opened(**fields):
    spec = kind_class(fields.pop("kind", "head"))(**fields)
    return open_model(spec, files_of(spec))


def logits(network) -> torch.Tensor:
    with torch.inference_mode():
        return network(input_ids=IDS).logits


def scored(model, *, dtype: Dtype = Dtype.float32) -> tuple[np.ndarray, list[list[int]]]:
    """Rewards of some tokens of the vocabulary by the engine that a scan would take, and their
    whole inputs."""
    frame = model.parts[0].conversations.frame(PROMPT)
    candidates = vocabulary(model.tokenizer, size=model.embedding_rows)
    made = inputs(model.parts[0].conversations, frame, candidates, Mode.ids)
    scorer = FrameScorer(model.network(), frame, device=CPU)
    scorer.establish_trust(made, dtype=dtype)
    assert scorer.trust.holds
    rows = np.arange(0, len(candidates.rows), 40)
    whole = [frame.around([int(i)]) for i in candidates.rows["candidate_id"].iloc[rows]]
    return scorer.score_rows(made, rows, batch_size=8), whole


def read_at_the_last(network, whole: list[list[int]], *, output: int = 0) -> list[float]:
    """A linear head on the body's last hidden state at the last token, input by input."""
    with torch.inference_mode():
        last = [
            network.model(input_ids=torch.tensor([ids])).last_hidden_state[0, -1] for ids in whole
        ]
        return [float(state @ network.score.weight[output]) for state in last]


@pytest.fixture(scope="module")
def base(tiny_checkpoint, tmp_path_factory) -> Path:
    """The tiny reward model's body and tokenizer, as a language model."""
    folder = tmp_path_factory.mktemp("base") / "language-model"
    shutil.copytree(tiny_checkpoint, folder)
    network = AutoModelForCausalLM.from_pretrained(tiny_checkpoint)
    torch.manual_seed(3)
    torch.nn.init.normal_(network.lm_head.weight, std=0.1)
    network.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def adapters(base, tmp_path_factory) -> dict[str, Path]:
    """A reward model's adapter and a policy's; their merged networks beside them, in `merged`."""
    made = {}
    for name, kind, task in (
        ("reward", AutoModelForSequenceClassification, "SEQ_CLS"),
        ("policy", AutoModelForCausalLM, "CAUSAL_LM"),
    ):
        labels = {"num_labels": 1, "pad_token_id": 3} if name == "reward" else {}
        network = kind.from_pretrained(base, **labels)
        network = get_peft_model(
            network, LoraConfig(r=4, task_type=task, target_modules=["q_proj", "up_proj"])
        )
        torch.manual_seed(5)
        for weight in (
            w for n, w in network.named_parameters() if "lora_" in n or "modules_to_save" in n
        ):
            torch.nn.init.normal_(weight, std=0.1)
        made[name] = tmp_path_factory.mktemp("adapters") / name
        network.save_pretrained(made[name])
        network.merge_and_unload().save_pretrained(made[name] / "merged")
        AutoTokenizer.from_pretrained(base).save_pretrained(made[name] / "merged")
    return made


def test_an_implicit_reward_is_its_adapter_on_less_off(base, adapters):
    from peft import PeftModel

    model = opened(
        adapter=str(adapters["policy"]),
        kind="implicit",
        chat=False,
        implicit=ReferenceOptions(beta=0.1, closing=False),
    )
    peft = PeftModel.from_pretrained(
        AutoModelForCausalLM.from_pretrained(base), adapters["policy"]
    ).eval()

    def chosen() -> torch.Tensor:
        return (
            torch.log_softmax(logits(peft)[:, :-1], dim=-1)
            .gather(-1, IDS[:, 1:, None])[:, 1:, 0]
            .sum(dim=1)
        )

    on = chosen()
    with peft.disable_adapter():
        off = chosen()
    with torch.inference_mode():
        terms = [
            part.weight * model.network(which=part.network)(input_ids=IDS, n_response=2).logits
            for part in model.parts
        ]
    size = 0.1 * float(on.abs().max())
    assert close(sum(terms).float().flatten(), 0.1 * (on - off), size=size)
    assert (on - off).abs().max() > 0.01


def test_a_folder_with_an_adapter_and_a_model_is_refused(base, adapters, tmp_path):
    """transformers would add the adapter to the weights, or take its base for it, without a
    word."""
    both = shutil.copytree(adapters["reward"] / "merged", tmp_path / "both")
    for file in ("adapter_config.json", "adapter_model.safetensors"):
        shutil.copy(adapters["reward"] / file, both / file)
    with pytest.raises(ModelError, match=r"model\.adapter="):
        files_of(HeadSpec(path=str(both)))


def with_value_head(
    base: Path, folder: Path, *, prefix: str = "", apart: bool = False
) -> torch.nn.Linear:
    """A checkpoint as TRL's AutoModelForCausalLMWithValueHead saves it: the language model's
    weights and `v_head.summary`; under DeepSpeed ZeRO-3 with a `prefix`; by LLaMA-Factory with the
    head `apart`."""
    shutil.copytree(base, folder)
    torch.manual_seed(7)
    head = torch.nn.Linear(32, 1)
    own = {
        f"v_head.summary.{name}": weight.detach().clone()
        for name, weight in head.named_parameters()
    }
    weights = {
        f"{prefix}{name}": weight
        for name, weight in load_file(folder / "model.safetensors").items()
    }
    save_file(
        weights | ({} if apart else own), folder / "model.safetensors", metadata={"format": "pt"}
    )
    if apart:
        save_file(own, folder / "value_head.safetensors", metadata={"format": "pt"})
    return head


def values(body: Path, head: torch.nn.Linear) -> torch.Tensor:
    """TRL's own arithmetic: the head on the language model's last hidden state, at the last
    token."""
    with torch.inference_mode():
        network = AutoModelForCausalLM.from_pretrained(body)
        return head(network(input_ids=IDS, output_hidden_states=True).hidden_states[-1][:, -1])


@pytest.mark.parametrize(
    "saved",
    [{"prefix": "pretrained_model."}, {"apart": True}],
    ids=["ZeRO-3", "LLaMA-Factory"],
)
def test_a_value_head_of_trl_is_read_at_the_last_token(base, tmp_path, saved):
    head = with_value_head(base, tmp_path / "rm", **saved)
    model = opened(path=str(tmp_path / "rm"))
    found = logits(model.network()).reshape(-1, 1)
    assert close(found, values(base, head))


def test_a_value_head_beside_an_adapter(base, adapters, tmp_path):
    shutil.copytree(adapters["policy"], tmp_path / "rm", ignore=shutil.ignore_patterns("merged"))
    torch.manual_seed(7)
    head = torch.nn.Linear(32, 1)
    own = {
        f"v_head.summary.{name}": weight.detach().clone()
        for name, weight in head.named_parameters()
    }
    save_file(own, tmp_path / "rm" / "value_head.safetensors")
    model = opened(adapter=str(tmp_path / "rm"))
    expected = values(adapters["policy"] / "merged", head)
    assert close(logits(model.network()).reshape(-1, 1), expected)


LABELS = {0: "helpfulness", 1: "correctness", 2: "verbosity"}


def test_an_output_goes_by_its_label(tiny_checkpoint, tmp_path):
    folder = shutil.copytree(tiny_checkpoint, tmp_path / "several")
    network = AutoModelForSequenceClassification.from_pretrained(
        tiny_checkpoint, num_labels=3, ignore_mismatched_sizes=True
    )
    network.config.id2label, network.config.label2id = (
        LABELS,
        {label: i for i, label in LABELS.items()},
    )
    network.save_pretrained(folder)
    model = opened(path=str(folder), output="correctness")
    assert model.spec.output == 1
    found, whole = scored(model)
    assert close(found, read_at_the_last(network.eval(), whole, output=1))
    with pytest.raises(
        ModelError, match=r"helpfulness, correctness, verbosity.*Did you mean 'helpfulness'"
    ):
        opened(path=str(folder), output="helpfulnes")
    with pytest.raises(ModelError, match=r"3 outputs.*helpfulness, correctness, verbosity"):
        opened(path=str(folder))


def test_no_pad_token_is_needed(tiny_checkpoint, tmp_path):
    folder = shutil.copytree(tiny_checkpoint, tmp_path / "unpadded")
    tokenizer = AutoTokenizer.from_pretrained(tiny_checkpoint)
    tokenizer.pad_token = None
    tokenizer.save_pretrained(folder)
    network = AutoModelForSequenceClassification.from_pretrained(tiny_checkpoint)
    network.config.pad_token_id = None
    network.save_pretrained(folder)
    model = opened(path=str(folder))
    assert model.tokenizer.pad_token is None
    assert model.network().config.pad_token_id is None
    assert close(scored(model)[0], scored(opened(path=str(tiny_checkpoint)))[0])


def test_a_gguf_file_gives_log_probabilities(tmp_path):
    folder = checkpoint(tmp_path / "llama", template=CHAT)
    (tmp_path / "gguf").mkdir()
    write_gguf(folder, tmp_path / "gguf" / "tiny.gguf")
    model = opened(path=str(tmp_path / "gguf"), file="tiny.gguf", kind="log_probability")
    plain = opened(path=str(folder), kind="log_probability")
    found, _ = scored(model)
    assert close(found, scored(plain)[0])
    assert model.description.parameters == plain.description.parameters
    assert model.weights_digest != plain.weights_digest
