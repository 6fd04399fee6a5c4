"""PairRM as a package of its own, which registers its kind of reward by an entry point."""

import tomllib
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from transformers import DebertaV2Config, DebertaV2Model

import pessimal
from pessimal.conversation import Turn
from pessimal.errors import ConfigError, ModelError
from pessimal.rewards.named import load_kinds
from tiny_reward_models import encoder_tokenizer

PLUGIN = Path(__file__).parents[2] / "experiments/pairrm"
PROMPT = "What, in one word, is the greatest thing ever?"
RESPONSES = ["love", "war and peace", "evil", " hate?"]
OPPONENT = "I do not know"
MARKERS = ("<|source|>", "<|candidate1|>", "<|candidate2|>")
HIDDEN = 16


@pytest.fixture(autouse=True)
def installed(tmp_path, monkeypatch):
    """The package as pip would install it: its modules, and the entry points that it declares."""
    project = tomllib.loads((PLUGIN / "pyproject.toml").read_text())["project"]
    metadata = (
        tmp_path / "site" / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    )
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Name: {project['name']}\nVersion: {project['version']}\n")
    lines = [
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in points.items())
        for group, points in project["entry-points"].items()
    ]
    (metadata / "entry_points.txt").write_text("".join(lines))
    monkeypatch.syspath_prepend(PLUGIN)
    monkeypatch.syspath_prepend(tmp_path / "site")
    load_kinds.cache_clear()
    yield
    load_kinds.cache_clear()


@pytest.fixture
def pairrm(tmp_path):
    """PairRM in miniature, and what its published class gives for two responses."""
    folder, tokenizer = tmp_path / "model", encoder_tokenizer()
    tokenizer.add_special_tokens({"additional_special_tokens": list(MARKERS)})
    source, first, second = tokenizer.convert_tokens_to_ids(list(MARKERS))
    config = DebertaV2Config(
        hidden_size=HIDDEN,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        type_vocab_size=0,
        relative_attention=True,
        pos_att_type=["p2c", "c2p"],
        position_biased_input=False,
        max_relative_positions=32,
        vocab_size=len(tokenizer),
        pad_token_id=tokenizer.pad_token_id,
        n_tasks=2,
        source_prefix_id=source,
        cand1_prefix_id=first,
        cand2_prefix_id=second,
    )
    torch.manual_seed(3)
    encoder = DebertaV2Model(config).eval()
    for weight in encoder.parameters():
        torch.nn.init.normal_(weight, mean=float(weight.ndim == 1))
    shapes = {"1.weight": (HIDDEN, 2 * HIDDEN), "1.bias": (HIDDEN,)}
    shapes |= {"4.weight": (2, HIDDEN), "4.bias": (2,)}
    head = {name: 3 * torch.randn(shape) for name, shape in shapes.items()}
    weights = {f"pretrained_model.{name}": value for name, value in encoder.state_dict().items()}
    weights |= {f"head_layer.{name}": value for name, value in head.items()}
    config.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    save_file(weights, folder / "model.safetensors")

    @torch.no_grad()
    def compare(response: str, other: str) -> float:
        ids = []
        for marker, text in zip(MARKERS, (PROMPT, response, other), strict=True):
            ids += tokenizer.encode(marker + text)
        states = encoder(torch.tensor([ids])).last_hidden_state[0]
        scores = []
        for marker in (first, second):
            pair = torch.cat([states[ids.index(source)], states[ids.index(marker)]])
            inner = torch.tanh(head["1.weight"] @ pair + head["1.bias"])
            scores.append(head["4.weight"] @ inner + head["4.bias"])
        return float((scores[0] - scores[1]).mean())

    return folder, compare


def test_its_reward_is_the_difference_to_the_opponent_in_both_orders(pairrm):
    folder, compare = pairrm
    reward = pessimal.load(folder, kind="pairrm", opponent=OPPONENT)
    scores = pessimal.scan(reward, PROMPT, candidates=RESPONSES, progress=False).rows
    rewards = dict(zip(scores["text"], scores["reward"], strict=True))
    expected = {r: (compare(r, OPPONENT) - compare(OPPONENT, r)) / 2 for r in RESPONSES}
    assert rewards == pytest.approx(expected, abs=1e-4)
    assert np.ptp(list(expected.values())) > 0.1
    for part in reward.parts:
        conversation = (Turn("user", PROMPT), Turn("assistant", "peace"))
        encoded = part.conversations.encode(conversation)
        assert list(encoded.ids) == part.conversations.ids(PROMPT, ["peace"])[0]
        assert part.conversations.frame(PROMPT).inside(encoded.ids) is not None


def test_it_needs_an_opponent_and_its_markers_and_is_no_head(pairrm):
    folder, _ = pairrm
    with pytest.raises(ConfigError, match=r"model\.opponent"):
        pessimal.load(folder, kind="pairrm")
    with pytest.raises(ModelError, match=r"random|does not read"):
        pessimal.load(folder).network()
    encoder_tokenizer().save_pretrained(folder)
    with pytest.raises(ModelError, match="source_prefix_id"):
        pessimal.load(folder, kind="pairrm", opponent=OPPONENT)
