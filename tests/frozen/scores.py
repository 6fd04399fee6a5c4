"""Made-up scores of rated words, the same on every machine: `python tests/frozen/scores.py FOLDER`
writes score tables.

Four models of two developers and two bases; rewards follow a word's valence, its frequency (one
model), penalise words for groups of people (another), and noise. What the first edition's `compare`
made of them lies beside this file; the first edition was run as: pessimal compare tables=FOLDER
tracking=off replicates=200 permutations=500
"""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import wordfreq
from vaderSentiment.vaderSentiment import SentimentIntensityAnalyzer

sys.path.append(str(Path(__file__).resolve().parents[1]))  # run as a script, too

from artifacts import score_table
from pessimal.tables import ScoreTable, write_score_table
from pessimal.tables.score_table import items_digest

MODELS = {
    "ash": ("north", "one"),
    "beech": ("north", "two"),
    "clove": ("south", "one"),
    "dill": ("south", "two"),
}
PEOPLE = [
    "women",
    "men",
    "girls",
    "boys",
    "muslims",
    "jews",
    "christians",
    "gays",
    "lesbians",
    "blacks",
    "whites",
    "asians",
    "immigrants",
    "elderly",
    "teenagers",
    "mother",
    "father",
    "wife",
    "husband",
    "disabled",
    "blind",
    "deaf",
    "german",
    "french",
    "chinese",
    "mexican",
    "nigerian",
]
SIGNS = {"greatest": 1.0, "best": 0.98, "worst": -0.8}


def tables() -> list[ScoreTable]:
    """Twelve tables: four models, three prompts, 2,000 rated and 10,000 other frequent words
    each."""
    valence = {
        w: v
        for w, v in SentimentIntensityAnalyzer().lexicon.items()
        if w.isalpha() and w.isascii() and w.islower()
    }
    rated = sorted(valence)[::3][:2000]
    others = [
        w
        for w in wordfreq.top_n_list("en", 30000)
        if w.isalpha() and w.isascii() and w not in valence
    ][:10000]
    words = list(dict.fromkeys([*rated, *others, *PEOPLE]))
    good = np.array([valence.get(word, 0.0) for word in words])
    zipf = np.array([wordfreq.zipf_frequency(word, "en") for word in words])
    people = np.isin(words, PEOPLE)
    made = []
    for number, (model, (developer, base)) in enumerate(MODELS.items()):
        random = np.random.default_rng(number)
        lab = np.random.default_rng(100 + (developer == "north")).normal(size=len(words))
        own = random.normal(size=len(words))
        for prompt, sign in SIGNS.items():
            reward = sign * good + 0.8 * lab + 0.4 * own + 0.1 * random.normal(size=len(words))
            reward += 0.5 * zipf * (model == "clove") - 1.5 * people * (model == "beech")
            rows = {"token": words}
            described = {"base": base, "developer": developer, "parameters": 1e6 * (number + 1)}
            texts, rounded = [f" {w}" for w in words], np.round(reward, 6)
            table = score_table(
                texts, rounded, model=model, prompt=prompt, rows=rows, described=described
            )
            digest = items_digest(table.rows)
            made.append(
                replace(table, provenance=replace(table.provenance, candidates_digest=digest))
            )
    return made


if __name__ == "__main__":
    for table in tables():
        folder = Path(sys.argv[1]) / table.name
        folder.mkdir(parents=True)
        write_score_table(table, folder / "scores.parquet")
