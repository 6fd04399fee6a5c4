"""Score tables from which `compare` makes every table that it can: what the columns of tables are
checked on, and the examples of `docs/tables.md`. All of it is made up
(`tests/frozen/scores.py`)."""

import sys
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd

sys.path[:0] = [
    str(Path(__file__).resolve().parent),
    str(Path(__file__).resolve().parent / "frozen"),
]

from scores import tables  # noqa: E402

from artifacts import score_table  # noqa: E402
from pessimal.tables import ScoreTable  # noqa: E402

WORDINGS = [
    "_".join(levels)
    for levels in product(("best", "good", "worst", "bad"), ("ever", "time"), ("one", "single"))
]
KINDS = {"warm": 12, "keen": 12, "plain": 12}
"""Categories of a made-up dictionary, and how many words each has."""


def dictionary() -> pd.DataFrame:
    """Category and word."""
    return pd.DataFrame(
        [(kind, f"{kind}{chr(97 + i)}") for kind, n in KINDS.items() for i in range(n)],
        columns=["category", "word"],
    )


def vocabulary() -> list[ScoreTable]:
    """Four models on three prompts; one in a second mode and scanned again, one without some of the
    words."""
    made = tables()
    made = [t for t in made if t.provenance.model != "dill"] + [
        replace(
            t,
            rows=t.rows.iloc[50:].reset_index(drop=True),
            provenance=replace(t.provenance, candidates_digest="fewer"),
        )
        for t in made
        if t.provenance.model == "dill"
    ]
    first, rng = made[0], np.random.default_rng(0)
    noisy = first.rows.assign(reward=first.rows["reward"] + rng.normal(0, 0.2, len(first.rows)))
    for changed in (
        {"mode": "text"},
        {"dtype": "bfloat16"},
        {"model": f"{first.provenance.model}-nf4"},
    ):
        made.append(replace(first, provenance=replace(first.provenance, **changed), rows=noisy))
    return made


def items() -> list[ScoreTable]:
    """Four models of two bases on 16 wordings of one question, asked about the words of the
    dictionary."""
    words, made = dictionary()["word"].tolist(), []
    for number, prompt in product(range(4), WORDINGS):
        rng = np.random.default_rng([number, WORDINGS.index(prompt)])
        sign = -1 if prompt.startswith(("worst", "bad")) else 1
        rewards = sign * np.linspace(-1, 1, len(words)) + rng.normal(0, 0.4, len(words))
        described = {"base": "oak" if number % 2 else "elm", "developer": "north"}
        given = {
            "candidates": "words",
            "mode": "text",
            "rows": {"kind": "item"},
            "described": described,
        }
        made.append(score_table(words, rewards, model=f"m{number}", prompt=prompt, **given))
    return made


def rated() -> list[ScoreTable]:
    """Four models on items that people rated."""
    names, rng = [f"thing {i}" for i in range(60)], np.random.default_rng(1)
    elo = np.linspace(1900, 1100, 60)
    merit = np.r_[elo[:58], 1900, 1900] / 100  # of two things models think otherwise
    rows = {"kind": "item", "elo": elo, "elo_matches": np.full(60, 40)}
    return [
        score_table(
            names,
            merit + rng.normal(0, 1, 60),
            model=f"m{i}",
            candidates="things",
            mode="text",
            rows=rows,
        )
        for i in range(4)
    ]


def spoken() -> list[ScoreTable]:
    """Four language models on three prompts, over the words of the dictionary and others; and two
    reward models."""
    texts, made = [*(f" {word}" for word in dictionary()["word"]), " love", "love", " war"], []
    for model, prompt in product(
        ("elm-base", "elm-chat", "oak-base", "oak-chat"), ("greatest", "best", "worst")
    ):
        logits = np.random.default_rng([*map(ord, model), len(prompt)]).normal(size=len(texts))
        log_p = logits - np.log(np.exp(logits).sum())
        given = {
            "score": "log_probability",
            "candidates_digest": "spoken",
            "described": {"base": model[:3]},
        }
        made.append(score_table(texts, log_p, model=model, prompt=prompt, **given))
    rewards = np.random.default_rng(3).normal(size=(2, len(texts)))
    return [
        *made,
        score_table(texts, rewards[0], model="m", candidates_digest="spoken"),
        score_table(texts, rewards[1], model="gold", candidates_digest="spoken"),
    ]


def checkpoints() -> list[ScoreTable]:
    """One run after three numbers of steps."""
    texts, rng = [*dictionary()["word"], "love", "war"], np.random.default_rng(2)
    start, made = rng.normal(size=len(texts)), []
    for step in (1000, 2000, 3000):
        rewards = start + rng.normal(0, 0.5, len(texts))
        made.append(score_table(texts, rewards, model=f"run@step-{step}", step=step))
    return made


def answer_pairs() -> dict[tuple[str, str], pd.DataFrame]:
    """Tables of two models' rewards for pairs of answers, by type of artifact and name."""
    from pessimal.conversation import Turn
    from pessimal.explaining.pairs import accuracy_results, pair_frame
    from pessimal.tables.comparisons import Comparison

    rng, turn = np.random.default_rng(5), Turn("user", "Why?")
    kinds = [("true", "polite")[i % 2] for i in range(40)]
    pairs = [
        Comparison(f"k{i}", (turn,), (f"good {i}", f"a bad answer {i}" * (1 + i % 3)), 0, kind)
        for i, kind in enumerate(kinds)
    ]
    rewards = rng.normal([0.5, 0], size=(2, 40, 2))
    tables = [pair_frame(rewards[i], pairs, model=f"m{i}") for i in range(2)]
    return {
        ("comparison of pairs", result.name): result.table
        for result in accuracy_results(tables, pairs)
    }


def personas() -> list[ScoreTable]:
    """One prompt alone, behind a persona, and behind its control."""
    rng, texts = np.random.default_rng(4), [f"word{i}" for i in range(60)]
    made = [score_table(texts, rng.normal(size=60), prompt="best")]
    for control in (False, True):
        key = "best_as_doctor" + "_control" * control
        prefixed = {"prompt": "best", "prefix": "doctor", "control": control}
        made.append(score_table(texts, rng.normal(size=60), prompt=key, prefixed=prefixed))
    return made


SMALL = ((items, rated), (spoken,), (checkpoints,), (personas,))
"""Score tables that are compared together; quick."""


def results(groups=((vocabulary,), *SMALL), **options) -> dict[str, pd.DataFrame]:
    """Every table of `compare` over these, by name; `options` are its own."""
    import pessimal

    options = {"replicates": 100, "permutations": 100, "words": ["love"], **options}
    found = {}
    forecast = {"policy": "elm-base", "mitigations": ["without:characters"]}
    for group in groups:
        more = forecast if spoken in group else {}
        made = [table for make in group for table in make()]
        for result in pessimal.compare(made, **options, **more):
            if len(result.table):
                found.setdefault(result.name, result.table)
    return found


def graded(folder: Path) -> dict[tuple[str, str], pd.DataFrame]:
    """The tables of a grader that looks for the answer anywhere, and fails without one."""
    import pessimal

    def grader(response, ground_truth):
        return float(ground_truth in response) if response.strip() else int(response)

    tasks = folder / "tasks.jsonl"
    tasks.write_text('{"prompt": "What is 6 times 7?", "ground_truth": "42"}', encoding="utf-8")
    results = pessimal.census(grader, tasks, tokens=["the"], progress=False)
    return {("census", result.name): result.table for result in results}


def asked_of_a_model() -> dict[tuple[str, str], pd.DataFrame]:
    """The tables of `search`, `explain` one pair, and `check` of a tiny random model, by type of
    artifact and name."""
    import torch
    from transformers import LlamaConfig, LlamaForSequenceClassification

    import pessimal
    from tiny_language_models import CHAT, tokenizer

    own = tokenizer(template=CHAT)
    ids = {f"{name}_token_id": getattr(own, f"{name}_token_id") for name in ("pad", "bos", "eos")}
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(own),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_labels=1,
        initializer_range=0.3,
        **ids,
    )
    model = pessimal.reward(LlamaForSequenceClassification(config), own, name="tiny")
    good, bad = "A good and kind word of wisdom.", "A very bad word of hate."
    found = {
        "search-result": pessimal.search(
            model, "greatest", length=2, evaluations=2000, baselines=1
        ).results,
        "explanation": pessimal.explain(model, "What is the best word?", good, bad),
        "conformance": pessimal.check(model, sample=4),
    }
    return {
        (part, result.name): result.table for part, results in found.items() for result in results
    }
