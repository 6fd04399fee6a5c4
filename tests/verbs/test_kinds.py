"""Log-probabilities and implicit rewards through every verb of one model: each number again by
whole forwards in float64."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from pessimal.scoring.loop import Shards
from pessimal.tables import read_score_table
from tiny_language_models import CHAT, checkpoint
from tolerance import close, slack

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


@pytest.fixture(scope="module")
def kind(folders, log_probability):
    """What to type for an implicit reward, and its plain definition: the terms whose sum is the
    reward, of a prompt and a response."""
    typed = ["model=auto", f"model.path={folders['tiny']}", "model.kind=implicit"]
    typed += [f"model.implicit.reference={folders['begun']}", f"model.implicit.beta={BETA}"]

    def terms(prompt, response):
        return [
            weight * log_probability(name, prompt, response, closed=True)
            for name, weight in (("tiny", BETA), ("begun", -BETA))
        ]

    return typed, terms


def folder_of(answer: tuple[int, str, str]) -> Path:
    code, out, err = answer
    assert code == 0, err
    return Path(out.strip().splitlines()[-1])


def test_search_ends_where_no_single_change_is_better(command, kind):
    typed, terms = kind
    folder = folder_of(
        command(
            "search",
            *typed,
            *QUICK,
            "search.length=2",
            "search.evaluations=3000",
            "search.search_width=16",
            "search.top_k=8",
            "search.baselines=50",
        )
    )
    best = pd.read_parquet(folder / "tables/result.parquet").iloc[0]
    assert best["one_opt"]
    ids = json.loads(best["token_ids"])
    own = terms(GREATEST, ids)
    assert close(best["reward"], sum(own), size=max(map(abs, own)))
    changed = np.random.default_rng(0).integers(4, 360, size=30)
    most = sum(own) + slack(own)
    assert all(sum(terms(GREATEST, [token, ids[1]])) <= most for token in changed)
    assert all(sum(terms(GREATEST, [ids[0], token])) <= most for token in changed)


def test_check_holds_each_network_to_its_own_forward(command, kind):
    typed, _ = kind
    table = pd.read_parquet(
        folder_of(command("check", *typed, *QUICK, "sample=8", "batch_size=4", "dtypes=[]"))
        / "tables/conformance.parquet"
    )
    table = table.assign(part=table.get("part", 1))  # said where there are several
    asked = table[table["passed"].notna()]
    assert asked["passed"].all()
    for part in (1, 2):
        rows = asked[asked["part"] == part].set_index("check")
        for check in (
            "determinism_engine",
            "batch_engine",
            "shared_prefix",
            "full_forward",
            "frame",
        ):
            assert rows.loc[check, "measured"] < slack(100)  # log-probabilities of some tokens
            assert rows.loc[check, "n"] > 8
    assert set(table["part"]) == {1, 2}


def test_explanation_has_the_margins_of_whole_responses(command, kind):
    typed, terms = kind
    prompt, chosen, rejected = "What is good?", "I think love is good.", "War is evil!"
    folder = folder_of(
        command(
            "explain",
            *typed,
            *QUICK,
            f"prompt={prompt}",
            f"chosen={chosen}",
            f"rejected={rejected}",
            "replicates=100",
            "permutations=100",
            "placebos=2",
        )
    )
    rows = pd.read_parquet(folder / "tables/outcomes.parquet")
    made = rows[rows["edited"].notna()]
    assert len(made) > 10
    assert {"CF", "SF"} <= set(made["outcome"])
    own = [terms(prompt, text) for text in (chosen, rejected)]
    rewards = [sum(each) for each in own]
    preferred = int(np.argmax(rewards))
    for row in made.itertuples():
        changed = list(rewards)
        edited = terms(prompt, row.edited)
        changed[row.response] = sum(edited)
        size = np.abs([*own, edited]).max()
        assert close(row.new_reward, changed[row.response], size=size)
        assert close(row.margin, max(rewards) - min(rewards), size=size)
        assert close(row.new_margin, changed[preferred] - changed[1 - preferred], size=size)


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
