"""The registered replication (PREREGISTRATION.md): scores the trained reward models and their
bases, and tests.

    python experiments/inherited_values/replication.py score OUT NOUNS LEMMAS NAME=FOLDER …
    python experiments/inherited_values/replication.py report OUT NOUNS LEMMAS
    python experiments/inherited_values/replication.py power

NAME is BASE-SEED for a reward model (SmolLM2-0 … Gemma-3) and BASE for the language model itself.
NOUNS is the authors' dict_big2_nouns.csv, LEMMAS a folder of MoralStrength's *.tsv. `score` goes on
where it was cut off. `power` needs no files: H1 from the eight numbers that came out, and which
differences its test could have seen.
"""

import sys
from functools import partial
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
from omegaconf import OmegaConf
from scipy import stats

PROMPTS = OmegaConf.to_container(OmegaConf.load("conf/prompts/factorial54.yaml"))
NEGATIVE = ("worst", "bad", "terrible")
RNG, DRAWS, ROWS = 0, 2000, 64
C = {"SmolLM2": (35.5, 29.3, 48.9, 36.9), "Gemma": (37.5, 31.1, 47.1, 35.6)}
"""What came out: median rank of Communion less that of Agency of the eight reward models, by
seed."""
PUBLISHED = 4.19 + 4.17
"""The published difference of this contrast between bases, Llama less Gemma, positive wordings."""


def dictionaries(nouns: Path, lemmas: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Big Two nouns (category, word), and MoralStrength's lemmas (foundation, word, virtue)."""
    big = pd.read_csv(nouns, keep_default_na=False).set_axis(["category", "word"], axis=1)
    big["word"] = big["word"].str.strip().str.lower()
    moral = []
    for file in sorted(lemmas.glob("*.tsv")):
        table = pd.read_csv(file, sep="\t", keep_default_na=False)
        table = table.set_axis(["word", "rating"], axis=1).assign(category=file.stem)
        moral.append(table.assign(virtue=table["rating"].astype(float) > 5))
    moral = pd.concat(moral)
    return big.drop_duplicates("word"), moral.assign(word=moral["word"].str.strip().str.lower())


def score(out: Path, big: pd.DataFrame, moral: pd.DataFrame, models: dict[str, Path]) -> None:
    """Words × prompts of each model, as OUT/NAME.parquet; the nouns also on the negative
    wordings."""
    import torch
    from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer

    from pessimal.training.preferences import Answers, score_answers

    for name, folder in models.items():
        if (out / f"{name}.parquet").is_file():
            continue
        kind = AutoModelForSequenceClassification if "-" in name else AutoModelForCausalLM
        network = kind.from_pretrained(folder).eval()
        tokenizer = AutoTokenizer.from_pretrained(folder)
        found = {}
        for key, question in PROMPTS.items():
            vocabularies = (
                [big["word"]] if key.startswith(NEGATIVE) else [big["word"], moral["word"]]
            )
            words = sorted(set(pd.concat(vocabularies)))
            answers = Answers.from_names(tokenizer, question, words)
            with torch.inference_mode():
                if "-" in name:
                    values = score_answers(network, answers.prefix, answers.own, rows=ROWS).numpy()
                else:  # up to the token that closes the turn
                    open_turns = [ids[:-1] for ids in answers.own]
                    values = log_probabilities(network, answers.prefix, open_turns)
            found[key] = pd.Series(values, index=words)
        found["tokens"] = pd.Series([len(ids) for ids in answers.own], index=words)
        table = pd.DataFrame(found).rename_axis("word")
        table.to_parquet(out / f"{name}.parquet")
        print(name, table.shape, flush=True)


def log_probabilities(network, prefix, own) -> np.ndarray:
    """log p of each answer's ids behind the prefix, which is run once."""
    import torch
    from torch.nn.utils.rnn import pad_sequence
    from transformers import DynamicCache

    ahead = DynamicCache()
    first = network(input_ids=torch.tensor([list(prefix)]), past_key_values=ahead).logits[:, -1:]
    order, found = np.argsort([len(ids) for ids in own], kind="stable"), np.empty(len(own))
    for start in range(0, len(order), ROWS):
        rows = order[start : start + ROWS]
        answers = [torch.tensor(own[row]) for row in rows]
        ids = pad_sequence(answers, batch_first=True)
        real = pad_sequence([torch.ones(len(answer)) for answer in answers], batch_first=True)
        cache = DynamicCache()
        for number, layer in enumerate(ahead.layers):
            shape = (len(rows), -1, -1, -1)
            cache.update(layer.keys.expand(shape), layer.values.expand(shape), number)
        later = network(input_ids=ids[:, :-1], past_key_values=cache).logits
        logits = torch.cat([first.expand(len(rows), -1, -1), later], dim=1).float()
        chosen = logits.log_softmax(-1).gather(-1, ids.unsqueeze(-1))[..., 0]
        found[rows] = (chosen * real).sum(1).numpy()
    return found


def ranks(table: pd.DataFrame, words: list[str], *, negative: bool = False) -> pd.DataFrame:
    """Rank of each word on each positive (or negative) wording, 1 = highest."""
    keys = [key for key in PROMPTS if key.startswith(NEGATIVE) == negative]
    return table.loc[words, keys].rank(ascending=False)


def contrast(one: np.ndarray, other: np.ndarray) -> dict:
    """Difference of means of two groups of models: pooled t interval, p over all relabellings."""
    values, n = np.concatenate([one, other]), len(one)
    ways = [list(w) for w in combinations(range(len(values)), n)]
    split = np.array([values[w].mean() - np.delete(values, w).mean() for w in ways])
    seen = one.mean() - other.mean()
    ci = stats.ttest_ind(one, other).confidence_interval()
    p = float(np.mean(np.abs(split) >= abs(seen) - 1e-12))
    return {"difference": seen, "low": ci.low, "high": ci.high, "p": p, "n": len(values)}


def power() -> None:
    """H1 from `C`, and how often its test would have found differences of the bases, if seeds
    spread as they did: the registered test, and one that pairs by seed."""
    a, b = (np.array(values) for values in C.values())
    print(f"H1: {show(contrast(a, b))}")
    spread = np.sqrt((a.var(ddof=1) + b.var(ddof=1)) / 2)
    by_seed = (a - b).std(ddof=1)
    ways = np.array([np.isin(range(8), way) for way in combinations(range(8), 4)])  # (70, 8)
    signs = ways / 4 - ~ways / 4
    rng = np.random.default_rng(RNG)
    print(f"standard deviation of seeds {spread:.2f}, of differences by seed {by_seed:.2f}")
    for gap in (PUBLISHED, 13.0, 18.0, 23.0, 31.0):
        values = rng.normal(0, spread, (DRAWS, 8))
        values[:, :4] += gap
        split = np.abs(values @ signs.T)  # (draws, 70), the first way is the true one
        paired = rng.normal(gap, by_seed, (DRAWS, 4))
        p = {
            "over all relabellings": (split >= split[:, :1] - 1e-12).mean(axis=1),
            "by t": stats.ttest_ind(values[:, :4], values[:, 4:], axis=1).pvalue,
            "paired by seed": stats.ttest_1samp(paired, 0, axis=1).pvalue,
        }
        powers = ", ".join(f"{test} {np.mean(values <= 0.05):.2f}" for test, values in p.items())
        print(f"difference {gap:5.2f}: power {powers} (n = {DRAWS} simulations, ± .02)")


def placebos(values: dict[str, np.ndarray]) -> list[np.ndarray]:
    """Of each base the three ways to split its four seeds two against two: differences of means."""
    found = []
    for own in values.values():
        for pair in ((0, 1), (0, 2), (0, 3)):
            rest = [i for i in range(4) if i not in pair]
            found.append(own[list(pair)].mean(axis=0) - own[rest].mean(axis=0))
    return found


def report(out: Path, big: pd.DataFrame, moral: pd.DataFrame) -> None:
    tables = {file.stem: pd.read_parquet(file) for file in sorted(out.glob("*.parquet"))}
    a, b = sorted({name.split("-")[0] for name in tables}, reverse=True)  # SmolLM2, Gemma
    seeds = {base: [f"{base}-{seed}" for seed in range(4)] for base in (a, b)}
    nouns, lemmas = sorted(set(big["word"])), sorted(set(moral["word"]))
    side = {name: rows["word"].tolist() for name, rows in big.groupby("category")}

    def balance(name: str, negative: bool = False) -> float:
        own = ranks(tables[name], nouns, negative=negative)
        communion, agency = (own.loc[side[kind]].median() for kind in ("Communion", "Agency"))
        return float((communion - agency).mean())

    def seed_values(number) -> dict[str, np.ndarray]:
        return {base: np.array([number(name) for name in names]) for base, names in seeds.items()}

    for negative in (False, True):
        c = seed_values(partial(balance, negative=negative))
        title = f"H1{' (secondary: negative wordings)' * negative}"
        print(f"{title}: C, rank of Communion less rank of Agency")
        for base in (a, b):
            language = balance(base, negative)
            print(
                f"  {base}: seeds {np.round(c[base], 1)}, mean {c[base].mean():.2f}; its language model {language:.2f}"
            )
        print(f"  {a} less {b}: {show(contrast(c[a], c[b]))}; placebos {np.round(placebos(c), 2)}")
    pairs = np.array([balance(f"{a}-{seed}") - balance(f"{b}-{seed}") for seed in range(4)])
    interval = np.round(stats.ttest_1samp(pairs, 0).confidence_interval(), 2)
    print(
        f"not registered: C by seed, which also sets the order of the data, {a} less {b}: "
        f"{np.round(pairs, 1)}, mean {pairs.mean():.2f}, paired t interval {interval}"
    )
    base_gap = balance(a) - balance(b)
    print(f"H2a: the bases' own contrast {base_gap:.2f}")

    from category_model import category_model  # beside this script

    medians = [
        (name, key, category, rank)
        for names in seeds.values()
        for name in names
        for negative in (False, True)
        for category, words in side.items()
        for key, rank in ranks(tables[name], nouns, negative=negative).loc[words].median().items()
    ]
    terms = category_model(
        pd.DataFrame(medians, columns=["model", "prompt", "category", "median_rank"]),
        polarity={key: -1 if key.startswith(NEGATIVE) else 1 for key in PROMPTS},
        bases={name: base for base, names in seeds.items() for name in names},
    )
    print(
        "Secondary: the published mixed model, its errors per model and prompt, beside models as units"
    )
    print(terms[terms["term"].str.contains("base")].round(3).to_string(index=False))

    mean_rank = {name: ranks(tables[name], nouns).mean(axis=1).to_numpy() for name in tables}
    by_seed = seed_values(mean_rank.get)
    gap = by_seed[a].mean(axis=0) - by_seed[b].mean(axis=0)
    own = mean_rank[a] - mean_rank[b]
    draws = np.random.default_rng(RNG).integers(0, len(gap), (DRAWS, len(gap)))
    low, high = np.quantile([spearman(gap[w], own[w]) for w in draws], [0.025, 0.975])
    null = np.round([spearman(one, own) for one in placebos(by_seed)], 3)
    interval = f"{spearman(gap, own):.3f} ({low:.3f} to {high:.3f})"
    print(f"H2b: rho {interval}, n = {len(gap)} nouns; placebos {null}")
    tokens = (tables[a]["tokens"] - tables[b]["tokens"])[nouns].to_numpy(dtype=float)
    ranked = [stats.rankdata(values) for values in (gap, own)]
    rest = [v - np.polyval(np.polyfit(tokens, v, 1), tokens) for v in ranked]
    print(f"  numbers of tokens partialled out: {stats.pearsonr(*rest).statistic:.3f}")
    each = [(name, base) for base, names in seeds.items() for name in names]
    within = [spearman(mean_rank[name], mean_rank[base]) for name, base in each]
    print(f"  each reward with its own base: {np.round(within, 3)}")

    rows, lemma_ranks = [], {name: ranks(table, lemmas) for name, table in tables.items()}
    for foundation, virtues in moral[moral["virtue"]].groupby("category"):
        words = sorted(set(virtues["word"]))
        medians = {name: rank.loc[words].median().mean() for name, rank in lemma_ranks.items()}
        values = seed_values(medians.get)
        row = {"foundation": foundation, "words": len(words), **contrast(values[a], values[b])}
        largest = max(map(abs, placebos(values)))
        rows.append(row | {"bases": medians[a] - medians[b], "largest placebo": largest})
    table = pd.DataFrame(rows)
    from pessimal.statistics import holm

    print(f"H3: rank of a foundation's virtues among {len(lemmas)} lemmas, {a} less {b}")
    print(table.assign(p_holm=holm(table["p"])).round(3).to_string(index=False))


def spearman(x: np.ndarray, y: np.ndarray) -> float:
    return float(stats.spearmanr(x, y).statistic)


def show(found: dict) -> str:
    return f"{found['difference']:.2f} ({found['low']:.2f} to {found['high']:.2f}), p {found['p']:.3f}, n = {found['n']} models"


if __name__ == "__main__":
    if sys.argv[1:] == ["power"]:
        sys.exit(power())
    verb, out, nouns, lemmas, *models = sys.argv[1:]
    Path(out).mkdir(parents=True, exist_ok=True)
    words = dictionaries(Path(nouns), Path(lemmas))
    if verb == "score":
        folders = (model.split("=") for model in models)
        score(Path(out), *words, {name: Path(folder) for name, folder in folders})
    else:
        report(Path(out), *words)
