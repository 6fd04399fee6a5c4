"""Language models from the command line to the page: scanned, found again, refused with advice, put beside rewards."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import kendalltau
from transformers import AutoModelForCausalLM, AutoTokenizer

from pessimal.config.schema import CompareConfig
from pessimal.errors import TableError
from pessimal.report.contents import Contents
from pessimal.tables import ModelDescription, ScoreIdentity, ScoreTable, read_score_table
from pessimal.tasks.findings.base_models import base_models
from pessimal.tasks.findings.group import groups
from tiny_language_models import CHAT, checkpoint


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return checkpoint(tmp_path_factory.mktemp("language") / "tiny-base")


def scan(command, folder, *more):
    asked = ["model=auto", f"model.path={folder}", "model.score=log_probability", "progress=false"]
    return command("scan", *asked, "tracking=off", *more)


def published(root):
    return sorted(p.name for p in (root / "runs/registry/score-table").iterdir())


# Scanning.


def test_scan_publishes_log_probabilities_beside_rewards_of_the_same_name(
    command, base, tiny_checkpoint, tmp_path
):
    code, _, err = scan(command, base, "model.name=same")
    assert code == 0, err
    code, _, err = command(
        "scan", "model=auto", f"model.path={tiny_checkpoint}", "model.name=same", "progress=false", "tracking=off",
        "prompts=greatest",
    )  # fmt: skip
    assert code == 0, err
    assert published(tmp_path) == sorted(
        ["same--greatest", *(f"same--{prompt}--log_probability" for prompt in ("greatest", "best", "worst"))]
    )
    folder = tmp_path / "runs/registry/score-table"
    table = read_score_table(folder / "same--best--log_probability/v0")
    assert table.identity.score == "log_probability"
    assert np.exp(table.rows["reward"]).sum() == pytest.approx(table.measured["total_probability"])
    assert 0.9 < table.measured["total_probability"] < 1
    assert read_score_table(folder / "same--greatest/v0").identity.score == "reward"


def test_second_scan_finds_the_first_and_force_does_it_again_to_the_same_bytes(command, base, tmp_path):
    assert scan(command, base, "prompts=greatest")[0] == 0
    first = tmp_path / "runs/registry/score-table/tiny-base--greatest--log_probability"
    assert scan(command, base, "prompts=greatest")[0] == 0
    assert [p.name for p in first.iterdir()] == ["v0"]
    assert scan(command, base, "prompts=greatest", "force=true")[0] == 0
    assert (first / "v0/scores.parquet").read_bytes() == (first / "v1/scores.parquet").read_bytes()
    assert not list((tmp_path / "runs/cache/scans").iterdir())


def test_items_keep_what_people_said(command, base, tmp_path):
    people = {
        "name": ["love and peace", "null", "war"],
        "elo_score": [1600, 1500, 1400],
        "elo_matches": [1, 2, 3],
    }
    pd.DataFrame(people).to_csv(tmp_path / "people.csv", index=False)
    code, _, err = scan(
        command, base, "candidates=items", "candidates.path=people.csv", "candidates.name=people", "mode=text",
        "prompts=greatest",
    )  # fmt: skip
    assert code == 0, err
    name = "tiny-base--greatest--log_probability--people--text"
    table = read_score_table(tmp_path / "runs/registry/score-table" / name / "v0")
    assert table.rows["elo"].tolist() == [1600, 1500, 1400]
    assert (table.rows["reward"] < 0).all()


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["mode=text"], "mode=ids"),
        (["mode=paper"], "mode=ids"),
        (["trainer.devices=2"], "one device"),
        (["trainer.strategy=ddp"], "one device"),
        (["model.chat=true"], "no chat template"),
        (["model.score=logits"], "log_probability"),
    ],
)
def test_what_does_not_fit_is_told_before_anything_is_loaded(command, base, more, told, monkeypatch):
    monkeypatch.setattr("pessimal.models.load.load_language_network", lambda *_, **__: pytest.fail("loaded"))
    code, _, err = scan(command, base, *more)
    assert code == 2
    assert told in err


def test_chat_model_asked_after_plain_text_has_a_table_of_its_own_and_compare_does_not_choose(
    command, tmp_path
):
    folder = checkpoint(tmp_path / "both", template=CHAT)
    assert scan(command, folder, "prompts=greatest")[0] == 0
    assert scan(command, folder, "prompts=greatest", "model.chat=false")[0] == 0
    names = ["both--greatest--log_probability", "both--greatest--log_probability--plain"]
    assert published(tmp_path) == names
    tables = tmp_path / "runs/registry/score-table"
    assert [len(list((tables / name).iterdir())) for name in names] == [1, 1]
    for more in ([], [f"tables=[{tables / names[0]},{tables / names[1]}]"]):
        code, _, err = command("compare", "tracking=off", *more)
        assert code == 2
        assert "'both' on prompt 'greatest', and differ in template_digest" in err
        assert "tables=[FILE,FILE]" in err
        assert "model.name=both-2" in err
    code, _, err = command("compare", "tracking=off", f"tables=[{tables / names[1]}]")
    assert code == 0, err


def cropped(folder, rows):
    """The model in a folder with fewer rows in its embeddings than its tokenizer has tokens."""
    network = AutoModelForCausalLM.from_pretrained(folder)
    network.resize_token_embeddings(rows)
    network.save_pretrained(folder)
    return folder


def test_tokenizer_beyond_the_embedding_is_told_before_the_network_is_loaded(command, tmp_path, monkeypatch):
    folder = cropped(checkpoint(tmp_path / "short"), 270)
    (tmp_path / "few.txt").write_text("!\n")
    monkeypatch.setattr("pessimal.models.load.load_language_network", lambda *_, **__: pytest.fail("loaded"))
    items = ["candidates=items", "candidates.path=few.txt", "mode=text"]
    for more in ([], items):
        code, _, err = scan(command, folder, "prompts=greatest", *more)
        assert code == 2
        assert "do not belong together" in err
        assert "the prompt 'What, in one word" in err
    (tmp_path / "few.txt").write_text("!\nlove\n")
    code, _, err = scan(command, folder, "prompts=[]", "+prompts.bang='!!!'", *items)
    assert code == 2
    assert "the item 'love' holds the token" in err


def test_tokens_without_a_row_are_counted(command, tmp_path):
    folder = checkpoint(tmp_path / "short")
    size = len(AutoTokenizer.from_pretrained(folder))
    code, _, err = scan(command, cropped(folder, size - 3), "prompts=[]", "+prompts.bang='!!!'")
    assert code == 0, err
    assert "3 tokens of the tokenizer of short have no row in its embedding" in err
    table = read_score_table(tmp_path / "runs/registry/score-table/short--bang--log_probability/v0")
    assert len(table.rows) == size - 3


def test_item_without_tokens_is_told_before_the_network_is_loaded(command, tmp_path, monkeypatch):
    folder = checkpoint(tmp_path / "chatting", template=CHAT)
    pd.DataFrame({"name": ["love", ""]}).to_csv(tmp_path / "items.csv", index=False)
    monkeypatch.setattr("pessimal.models.load.load_language_network", lambda *_, **__: pytest.fail("loaded"))
    code, _, err = scan(command, folder, "candidates=items", "candidates.path=items.csv", "mode=text")
    assert code == 2
    assert "no token of the item ''" in err


def test_check_refuses_a_language_model_before_it_is_fetched(command, monkeypatch):
    monkeypatch.setattr("pessimal.tasks.check_task.fetch", lambda *_, **__: pytest.fail("fetched"))
    code, _, err = command("check", "model=Llama-3.2-3B", "tracking=off")
    assert code == 2
    assert (
        "model=auto model.path=meta-llama/Llama-3.2-3B model.name=Llama-3.2-3B model.score=log_probability"
        in err
    )


def test_wrong_kind_of_model_is_told_what_to_type(command, base, tiny_checkpoint):
    code, _, err = scan(command, tiny_checkpoint)
    assert code == 2
    assert "is a reward model" in err
    code, _, err = command("scan", "model=auto", f"model.path={base}", "tracking=off")
    assert code == 2
    assert "model.score=log_probability" in err
    code, _, err = command(
        "check", "model=auto", f"model.path={base}", "model.score=log_probability", "tracking=off"
    )
    assert code == 2
    assert "pessimal scan" in err


# Beside reward models.

TEXTS = [f"t{i}" for i in range(60)]


def made(model, rewards, *, score="log_probability", texts=TEXTS, prompt="greatest", wording="?", **identity):
    n = len(texts)
    rows = pd.DataFrame(
        {
            "candidate_id": range(n), "token": texts, "text": texts, "kind": "normal",
            "survives": pd.array([None] * n, dtype="boolean"), "reward": np.asarray(rewards, dtype=float),
            "certified": False,
        }
    )  # fmt: skip
    fields = {
        "candidates": "vocabulary",
        "candidates_digest": model,
        "mode": "ids",
        "source": "scan",
        "dtype": "float32",
    }
    return ScoreTable(
        ScoreIdentity(model=model, prompt=prompt, prompt_text=wording, score=score, **fields | identity),
        rows,
        measured={"asked": "chat template" if "chat" in model else "plain text"},
    )


def distribution(seed, n=60):
    logits = np.random.default_rng(seed).normal(size=n) * 2
    return logits - np.log(np.exp(logits).sum())


@pytest.fixture
def language():
    tables = [made("a-chat", distribution(0)), made("base", distribution(1))]
    return [*tables, made("third", distribution(2)[:59], texts=TEXTS[:59])]


@pytest.fixture
def members(language):
    log_p = language[1].rows["reward"].to_numpy()
    rng = np.random.default_rng(3)
    rewards = {
        "follower": log_p + rng.normal(size=60),
        "stranger": rng.normal(size=60),
        "contrary": log_p - language[0].rows["reward"].to_numpy(),
    }
    tables = [made(name, values, score="reward") for name, values in rewards.items()]
    return {group.prompt: group for group in groups(tables)}


@pytest.fixture
def config():
    return CompareConfig(replicates=200, top=5)


def found(language, members, config):
    contents = Contents()
    base_models(language, members, config, contents)
    return contents, contents.whole_tables()


def test_tables_hold_what_scipy_finds_over_what_all_share(language, members, config):
    contents, tables = found(language, members, config)
    table = tables["language_correlation"].set_index(["model", "language_model"])
    assert len(table) == 9
    assert (table["n"] == 59).all()
    rewards = {t.identity.model: t.rows["reward"].to_numpy()[:59] for t in members["greatest"].tables}
    logs = {t.identity.model: t.rows["reward"].to_numpy()[:59] for t in language}
    for (model, other), row in table.iterrows():
        assert row["kendall"] == pytest.approx(kendalltau(rewards[model], logs[other]).statistic)
        assert contents.summary[f"greatest/language_kendall/{other}/{model}"] == row["kendall"]
    assert table.loc[("follower", "base"), "low"] > table.loc[("stranger", "base"), "high"]


def test_extremes_name_each_models_own_likeliest(language, members, config):
    contents, tables = found(language, members, config)
    ends = tables["language_extremes"]
    for table in language:
        rows = ends[(ends["model"] == table.identity.model) & (ends["end"] == "top")]
        likeliest = table.rows.loc[table.rows["reward"].idxmax()]
        assert rows["text"].iloc[0] == likeliest["text"]
        assert rows["probability"].iloc[0] == pytest.approx(np.exp(likeliest["reward"]))
        assert contents.summary[f"greatest/likeliest/{table.identity.model}"] == likeliest["text"]
    assert len(ends) == 3 * 2 * 5


def test_base_comes_before_the_chat_model_and_each_pair_has_its_measures(language, members, config):
    contents, tables = found(language, members, config)
    pairs = ["base → third", "base → a-chat", "third → a-chat"]
    assert sorted(tables["implicit_reward"]["pair"].unique()) == sorted(pairs)
    apart = tables["language_divergence"].set_index("pair")
    assert apart.loc["base → a-chat", "n"] == 60
    assert apart.loc["base → third", "n"] == 59
    assert apart.loc["base → third", "mass_p"] < 1
    follows = tables["implicit_correlation"].set_index(["pair", "model", "measure"])
    assert follows.loc[("base → a-chat", "contrary", "implicit_reward"), "kendall"] < -0.9
    section = contents.sections[0]
    titles = [entry.title for entry in section.entries]
    assert [t for t in titles if t.startswith("From")] == [
        "From base to third", "From base to a-chat", "From third to a-chat",
    ]  # fmt: skip
    assert "at least" in section.entries[2].sentence, "a part of the vocabulary bounds the divergence"
    for entry in section.entries:
        if entry.figure:
            assert entry.figure in contents.figures
        if entry.table:
            rows = tables[entry.table]
            for column, value in entry.where.items():
                rows = rows[rows[column] == value]
            assert len(rows)


def test_same_candidates_are_matched_by_id_twins_included(config):
    texts = ["�", "�", *TEXTS[:58]]
    pair = [
        made(name, distribution(seed), texts=texts, candidates_digest="one")
        for name, seed in (("p", 0), ("q", 1))
    ]
    contents, tables = found(pair, {}, config)
    row = tables["language_divergence"].iloc[0]
    assert row["n"] == 60
    assert row["mass_p"] == pytest.approx(1)
    assert "KL(q‖p)" in contents.sections[0].entries[2].sentence


def test_what_cannot_be_done_is_said_and_the_rest_is_done(language, members, config):
    alone, tables = found(language[:1], {}, config)
    told = {entry.title: entry.sentence for entry in alone.sections[0].entries}
    assert "another" in told["Implicit rewards"]
    assert "No reward model" in told["Do rewards follow log-probabilities?"]
    assert list(tables) == ["language_extremes"]

    other = [made(t.identity.model, t.rows["reward"], wording="another question") for t in language[:2]]
    contents, tables = found(other, members, config)
    assert "something else" in contents.sections[0].entries[1].sentence
    assert "language_correlation" not in tables
    assert "implicit_reward" in tables

    foreign = [made("foreign", distribution(0), texts=[f"x{i}" for i in range(60)])]
    contents, tables = found(foreign, members, config)
    assert "share 0 candidates" in contents.sections[0].entries[1].sentence


def test_every_prompt_has_a_section(language, members, config):
    contents, _ = found([*language, made("base", distribution(1), prompt="best")], members, config)
    assert [s.title for s in contents.sections] == [
        "Base models · greatest · vocabulary", "Base models · best · vocabulary",
    ]  # fmt: skip
    assert "No reward model" in contents.sections[1].entries[1].sentence


def test_many_pairs_keep_their_tables_and_lose_their_figures(config):
    language = [made(f"m{i}", distribution(i)) for i in range(6)]  # 15 pairs
    contents, tables = found(language, {}, config)
    assert tables["implicit_reward"]["pair"].nunique() == 15
    assert not contents.figures
    assert "No figure" in contents.sections[0].entries[2].sentence


def test_float32_stands_for_a_model_that_was_scanned_twice(language, config):
    low = made("base", distribution(9), dtype="bfloat16")
    contents, tables = found([low, language[1]], {}, config)
    assert "Scanned more than once: base;" in contents.sections[0].sentence
    assert "Scanned more than once" not in found(language, {}, config)[0].sections[0].sentence
    ends = tables["language_extremes"]
    assert ends["text"].iloc[0] == language[1].rows.loc[language[1].rows["reward"].idxmax(), "text"]


@pytest.mark.parametrize("field", ["weights_digest", "template_digest", "tokenizer_digest"])
def test_scans_of_two_models_under_one_name_are_not_chosen_from(language, config, field):
    other = made("base", distribution(9), dtype="bfloat16", **{field: "other"})
    with pytest.raises(TableError, match=rf"'base' on prompt 'greatest'.*{field}.*tables=\[FILE,FILE\]"):
        found([*language, other], {}, config)


def test_reward_model_may_have_the_name_of_a_language_model(language, members, config):
    named = [made("base", members["greatest"].tables[1].rows["reward"], score="reward")]
    group = groups([*members["greatest"].tables, *named])[0]
    contents, tables = found(language, {"greatest": group}, config)
    table = tables["language_correlation"].set_index(["model", "language_model"])
    assert len(table) == 4 * 3
    logs = language[1].rows["reward"].to_numpy()[:59]
    truth = kendalltau(named[0].rows["reward"].to_numpy()[:59], logs).statistic
    assert table.loc[("base", "base"), "kendall"] == pytest.approx(truth)
    assert contents.summary["greatest/language_kendall/base/base"] == pytest.approx(truth)
    pair = tables["implicit_correlation"].set_index(["pair", "model", "measure"])
    assert ("base → third", "base", "mwlr") in pair.index


def test_label_of_a_reward_model_does_not_become_that_of_its_base(language, config):
    reward = made("base", distribution(5), score="reward")
    labelled = replace(reward, description=ModelDescription(label="the reward model"))
    contents, _ = found(language, {"greatest": groups([labelled])[0]}, config)
    figure = contents.figures["greatest-language-correlation"]
    assert [tick.get_text() for tick in figure.axes[0].get_yticklabels()] == ["the reward model"]
    legend = [text.get_text() for legend in figure.legends for text in legend.get_texts()]
    assert {"a-chat", "base", "third"} <= set(legend)
    assert "rewards of the reward model with" in contents.sections[0].entries[1].sentence


def test_items_have_small_shares_and_no_divergence(config):
    people = {"candidates": "people", "mode": "text", "candidates_digest": "one"}
    language = [made(name, distribution(seed) - 12, **people) for name, seed in (("p", 0), ("q", 1))]
    contents, tables = found(language, {}, config)
    share = 100 * np.exp(np.sort(language[0].rows["reward"])[-5:]).sum()
    assert f"the first 5 hold {share:.2g}%" in contents.sections[0].entries[0].sentence
    assert "no divergence is stated" in contents.sections[0].entries[2].sentence
    assert "implicit_reward" in tables
    assert "language_divergence" not in tables


def test_scanned_models_go_all_the_way(command, base, tiny_checkpoint, tmp_path, config):
    """The files that scans write are what the findings take: a base model, a chat model and a reward model."""
    chat = checkpoint(tmp_path / "tiny-chat", template=CHAT, seed=1)
    assert scan(command, base, "prompts=greatest")[0] == 0
    assert scan(command, chat, "prompts=greatest")[0] == 0
    arguments = ["model=auto", f"model.path={tiny_checkpoint}", "prompts=greatest", "progress=false"]
    assert command("scan", *arguments, "tracking=off")[0] == 0
    tables = [read_score_table(p / "v0") for p in (tmp_path / "runs/registry/score-table").iterdir()]
    language = [t for t in tables if t.identity.score == "log_probability"]
    rewarded = groups([t for t in tables if t.identity.score == "reward"])
    contents, found_tables = found(language, {g.prompt: g for g in rewarded}, config)
    assert found_tables["implicit_reward"]["pair"].unique().tolist() == ["tiny-base → tiny-chat"]
    shared = found_tables["language_correlation"]["n"].iloc[0]
    assert 200 < shared < 300
    assert found_tables["language_divergence"]["mass_p"].iloc[0] > 0.98
    contents.add_table("provenance", pd.DataFrame({"model": ["m"]}))
    (tmp_path / "out").mkdir()
    contents.write(tmp_path / "out")
    assert (tmp_path / "out/figures/greatest-language-correlation.png").is_file()
