"""Log-probabilities and implicit rewards through every verb of one model: each number again by
whole forwards in float64."""

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from pessimal.scoring.loop import Shards
from pessimal.tables import read_score_table
from tiny_language_models import CHAT, checkpoint
from tolerance import close

pytestmark = pytest.mark.usefixtures("undrawn")

GREATEST = "What, in one word, is the greatest thing ever?"
QUICK = ("tracking=off", "trainer.threads=1", "progress=false")
BETA = 0.1


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A policy and its reference."""
    root = tmp_path_factory.mktemp("kinds")
    return {
        name: checkpoint(root / name, template=CHAT, seed=i)
        for i, name in enumerate(("tiny", "begun"))
    }


@pytest.fixture(scope="module")
def log_probability(folders):
    """log p(response ids | opened chat) of one of the two, in float64; with the closing token where
    asked."""
    networks = {
        name: AutoModelForCausalLM.from_pretrained(folder).double()
        for name, folder in folders.items()
    }
    words = AutoTokenizer.from_pretrained(folders["tiny"])

    @torch.no_grad()
    def of(name, prompt, response, *, closed):
        opened = f"<|bos|><|start|>user<|sep|>{prompt}<|end|><|start|>assistant<|sep|>"
        before = words(opened, add_special_tokens=False)["input_ids"]
        if isinstance(response, str):
            response = words(response, add_special_tokens=False)["input_ids"]
        own = [*response, *([words.convert_tokens_to_ids("<|end|>")] if closed else [])]
        logits = networks[name](input_ids=torch.tensor([[*before, *own]])).logits[
            0, len(before) - 1 : -1
        ]
        return float(logits.log_softmax(dim=-1).gather(-1, torch.tensor(own)[:, None]).sum())

    return of


def folder_of(answer: tuple[int, str, str]) -> Path:
    code, out, err = answer
    assert code == 0, err
    return Path(out.strip().splitlines()[-1])


def test_killed_scan_of_an_implicit_reward_goes_on_to_the_same_bytes(
    command, folders, log_probability, tmp_path, monkeypatch
):
    line = [
        "scan",
        "model=auto",
        f"model.path={folders['tiny']}",
        "model.kind=implicit",
        f"model.implicit.beta={BETA}",
        f"model.implicit.reference={folders['begun']}",
        "prompts=greatest",
        "batch_size=128",
        *QUICK,
    ]
    whole = folder_of(command(*line, "paths.root=whole"))
    write, seen = Shards.write, []

    def dying(self, batch, rows, rewards):
        if len(seen) == 4 and not dying.done:
            dying.done = True
            raise KeyboardInterrupt
        write(self, batch, rows, rewards)
        seen.append((self.folder, batch))

    dying.done = False
    monkeypatch.setattr(Shards, "write", dying)
    assert command(*line)[0] != 0
    assert len(seen) == 4
    assert {folder.parts[-2] for folder, _ in seen} == {"part-0", "part-1"}, (
        "it must be killed beyond the first"
    )
    resumed = folder_of(command(*line))
    assert len(seen) > 4
    assert len(set(seen)) == len(seen), "nothing is stored twice"
    assert resumed.read_bytes() == whole.read_bytes()
    assert list((tmp_path / "runs/cache/scans").iterdir()) == []
    rows = read_score_table(resumed).rows
    for row in rows[rows["certified"]].iloc[:: len(rows) // 20].itertuples():
        policy, reference = (
            log_probability(name, GREATEST, [row.candidate_id], closed=True)
            for name in ("tiny", "begun")
        )
        assert close(row.reward, BETA * (policy - reference), size=-BETA * min(policy, reference))
