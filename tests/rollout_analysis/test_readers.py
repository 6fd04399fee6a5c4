"""Rollouts are read as the trainers wrote them, without options. The layouts are those that TRL
1.16, verl 0.9.1, verifiers 0.1.14 and 0.4.0, inspect 0.3.285 and W&B wrote with their own code."""

import json
import sys

import pandas as pd
import pytest

from pessimal.errors import InputError
from pessimal.rollout_analysis.readers import read_rollouts, rollouts_of

PLAIN = {"prompt": ["p", "p"], "response": ["r", "s"], "reward": [1.0, 0.0]}


def trl_rows(step: int, *, chat: bool = False) -> list[dict]:
    """What GRPOTrainer logs of two prompts with two completions each and two reward functions, one
    of which returned None once."""
    rows = []
    for number, (length, correct) in enumerate([(1, 1), (2, 0), (3, None), (4, 1)]):
        prompt, completion = f"q{number // 2}", f"It is {number}."
        if chat:
            system = {"role": "system", "content": "Be kind."}
            prompt = [system, {"role": "user", "content": prompt}]
            completion = [{"role": "assistant", "content": completion}]
        row = {"step": step, "prompt": prompt, "completion": completion, "length": float(length)}
        rows.append(row | {"hits_e": correct, "advantage": 0.7 - number % 2 * 1.4})
    return rows


def write_lines(file, rows) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.mark.parametrize("ending", ["parquet", "jsonl", "json", "csv", "tsv"])
@pytest.mark.parametrize("chat", [False, True])
def test_completions_of_trl_are_read_alike_in_every_format(tmp_path, ending, chat):
    for step in (2, 10):
        table = pd.DataFrame(trl_rows(step, chat=chat))
        file = tmp_path / f"completions_{step:05d}.{ending}"
        match ending:
            case "parquet":
                table.to_parquet(file)
            case "jsonl" | "json":
                table.to_json(file, orient="records", lines=ending == "jsonl")
            case _:
                table.to_csv(file, index=False, sep="\t" if ending == "tsv" else ",")
    rollouts = read_rollouts(tmp_path)
    assert (rollouts.source, rollouts.pairs) == ("TRL", False)
    assert rollouts.rewards == ("length", "hits_e")
    frame = rollouts.frame
    assert frame["reward"].tolist() == [2.0, 2.0, 3.0, 5.0] * 2
    assert frame["hits_e"].isna().tolist() == [False, False, True, False] * 2
    assert frame["length"].tolist() == [1.0, 2.0, 3.0, 4.0] * 2
    assert frame["group"].tolist() == [0, 0, 1, 1] * 2
    assert frame["step"].tolist() == [2] * 4 + [10] * 4
    assert frame["advantage"].iloc[:2].tolist() == pytest.approx([0.7, -0.7])
    assert frame["response"].iloc[3] == "It is 3."
    assert frame["prompt"].iloc[3] == ("system: Be kind.\n\nuser: q1" if chat else "q1")
    assert "truth" not in frame
    assert any("length, hits_e" in note for note in rollouts.notes)


def test_one_reward_function_of_trl_is_the_reward():
    table = pd.DataFrame(trl_rows(1)).drop(columns="hits_e")
    rollouts = rollouts_of(table)
    assert rollouts.rewards == ("reward",)
    assert rollouts.frame["reward"].tolist() == [1.0, 2.0, 3.0, 4.0]
    assert "length" not in rollouts.frame


def verl_rows(step: int) -> list[dict]:
    return [
        {
            "input": f"user\nq{number // 2}\nassistant\n",
            "output": f"<think>\nhm {number}\n</think>\n\nIt is {number}.",
            "gts": str(number // 2),
            "score": number % 2 - 0.5,
            "step": step,
            "acc": bool(number % 2),
            "pred": str(number),
            "overlong_reward": -0.5,
            "request_id": f"r{number}",
        }
        for number in range(4)
    ]


def test_dumps_of_verl_are_read_in_the_order_of_their_steps(tmp_path):
    for step in (1, 2, 10):
        write_lines(tmp_path / f"{step}.jsonl", verl_rows(step))
    rollouts = read_rollouts(tmp_path)
    assert rollouts.source == "verl"
    assert rollouts.rewards == ("acc", "overlong_reward")
    frame = rollouts.frame
    assert frame["step"].tolist() == [1] * 4 + [2] * 4 + [10] * 4
    assert frame["reward"].iloc[:4].tolist() == [-0.5, 0.5, -0.5, 0.5]
    assert frame["acc"].iloc[:4].tolist() == [0.0, 1.0, 0.0, 1.0]
    assert frame["answer"].iloc[:4].tolist() == ["0", "0", "1", "1"]
    assert frame["response"].iloc[1] == "It is 1."


def test_the_step_is_the_number_of_a_file_without_one(tmp_path):
    for step in (9, 10):
        rows = [{key: row[key] for key in row if key != "step"} for row in verl_rows(step)]
        write_lines(tmp_path / "run-3" / f"step_{step}" / "rank_0.jsonl", rows)
    frame = read_rollouts(tmp_path / "run-3").frame
    assert frame["step"].tolist() == [9] * 4 + [10] * 4
    assert "step" not in read_rollouts(tmp_path / "run-3" / "step_9" / "rank_0.jsonl").frame


def test_results_of_verifiers_are_read_beside_their_metadata(tmp_path):
    rows = [
        {
            "example_id": number // 2,
            "prompt": [{"role": "user", "content": f"q{number // 2}"}],
            "completion": [
                {"role": "assistant", "content": "Let me look."},
                {"role": "tool", "content": "found"},
                {"role": "assistant", "content": f"It is {number}.", "reasoning_content": "hm"},
            ],
            "answer": str(number // 2),
            "reward": 0.2 + number % 2,
            "task": "toy",
            "metrics": {"exact": number % 2, "short": 1.0},
            "exact": number % 2,
            "short": 1.0,
            "generation_ms": 12.0,
        }
        for number in range(4)
    ]
    write_lines(tmp_path / "results.jsonl", rows)
    (tmp_path / "metadata.json").write_text('{"env": "toy", "avg_reward": 0.7}')
    rollouts = read_rollouts(tmp_path)
    assert rollouts.source == "verifiers"
    assert rollouts.rewards == ("exact", "short")
    frame = rollouts.frame
    assert frame["reward"].tolist() == [0.2, 1.2, 0.2, 1.2]
    assert frame["group"].tolist() == [0, 0, 1, 1]
    assert frame["response"].iloc[2] == "It is 2."
    assert frame["prompt"].iloc[2].startswith("user: q1")
    assert "found" in frame["prompt"].iloc[2]
    assert read_rollouts(tmp_path, where="thought").frame["response"].iloc[2] == "hm"


def test_traces_of_verifiers_are_read_along_their_last_branch(tmp_path):
    def episode(question: int, number: int) -> dict:
        roles = (
            ("user", f"q{question}"),
            ("assistant", "a dead end"),
            ("assistant", f"It is {number}."),
        )
        nodes = [{"message": {"role": role, "content": text}} for role, text in roles]
        nodes[1]["parent"] = nodes[2]["parent"] = 0
        rewards = {
            "exact": {"score": float(number), "weight": 1.0},
            "answer": {"score": 1.0, "weight": 0.2},
        }
        data = {"answer": str(question), "seed": number}  # two rows of one task
        task = {"type": "Toy", "data": data, "key": f"k{question}", "hash": f"h{question}-{number}"}
        trace = {"task": task, "nodes": nodes, "rewards": rewards}
        return {"task": task, "traces": [trace], "run": {"type": "train", "work": {"step": 5}}}

    write_lines(tmp_path / "traces.jsonl", [episode(q, k) for q in (0, 1) for k in (0, 1)])
    rollouts = read_rollouts(tmp_path)
    assert (rollouts.source, rollouts.rewards) == ("verifiers", ("exact", "score/answer"))
    frame = rollouts.frame
    assert frame["reward"].tolist() == [0.2, 1.2, 0.2, 1.2]
    assert frame["group"].tolist() == [0, 0, 1, 1]
    assert frame["prompt"].tolist() == ["q0", "q0", "q1", "q1"]
    assert frame["response"].iloc[1] == "It is 1."
    assert frame["answer"].tolist() == ["0", "0", "1", "1"]
    assert frame["step"].tolist() == [5] * 4


def inspect_log() -> dict:
    parts = [{"type": "reasoning", "reasoning": "hm"}, {"type": "text", "text": "It is 1."}]
    outputs = [[{"message": {"role": "assistant", "content": parts}}]] * 3 + [[]]
    samples = [
        {
            "id": number // 2,
            "epoch": number % 2 + 1,
            "input": f"q{number // 2}",
            "target": ["1", "one"],
            "output": {"choices": choices, "completion": "It is 1."},
            "scores": {
                "answer": {"value": "CPIN"[number]},
                "two": {"value": {"len": 3, "ok": True}},
            },
        }
        for number, choices in enumerate(outputs)
    ]
    return {"version": 2, "eval": {}, "samples": samples}


def test_logs_of_inspect_are_read_with_their_epochs_as_rollouts(tmp_path):
    file = tmp_path / "log.json"
    file.write_text(json.dumps(inspect_log()))
    rollouts = read_rollouts(file)
    assert rollouts.source == "inspect"
    assert rollouts.rewards == ("score/answer", "two/len", "two/ok")
    frame = rollouts.frame
    assert frame["score/answer"].tolist() == [1.0, 0.5, 0.0]
    assert frame["reward"].tolist() == [5.0, 4.5, 4.0]
    assert frame["group"].tolist() == [0, 0, 1]
    assert frame["response"].tolist() == ["It is 1."] * 3
    assert frame["answer"].tolist() == ["1"] * 3
    assert any("1 with an empty answer" in note for note in rollouts.notes)


def test_an_eval_log_without_inspect_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "inspect_ai.log", None)
    monkeypatch.setitem(sys.modules, "inspect_ai", None)
    file = tmp_path / "log.eval"
    file.write_bytes(b"PK")
    with pytest.raises(InputError, match="pip install inspect-ai"):
        read_rollouts(file)


def test_tables_of_wandb_are_read_also_where_a_row_is_a_step(tmp_path):
    rows = trl_rows(1)
    long, wide = tmp_path / "completions_1_ab.table.json", tmp_path / "generations_2_cd.table.json"
    long.write_text(json.dumps({"columns": [*rows[0]], "data": [[*row.values()] for row in rows]}))
    columns = ["step", "input_1", "output_1", "score_1", "input_2", "output_2", "score_2"]
    data = [[1, "q", "a", 1.0, "q", "b", 0.0], [2, "q", "c", 0.0, "q", "d", 1.0]]
    wide.write_text(json.dumps({"columns": columns, "data": data}))
    assert read_rollouts(long).source == "W&B table"
    assert read_rollouts(long).frame["reward"].tolist() == [2.0, 2.0, 3.0, 5.0]
    frame = read_rollouts(wide).frame.sort_values(["step", "response"])
    assert frame["response"].tolist() == ["a", "b", "c", "d"]
    assert frame["reward"].tolist() == [1.0, 0.0, 0.0, 1.0]
    assert frame["step"].tolist() == [1, 1, 2, 2]


@pytest.mark.parametrize(
    ("text", "answer", "thought"),
    [
        ("<think>\nHm, No!\n</think>\n\n It is 1.\n", " It is 1.\n", "Hm, No!"),
        ("Hm, No!\n</think>\n\n It is 1.\n", " It is 1.\n", "Hm, No!"),
        ("First. <think>Hm</think>Then", "First. Then", "Hm"),
        ("Before<think>cut off", "Before", "cut off"),
    ],
)
def test_thoughts_are_read_apart_from_answers(text, answer, thought):
    table = pd.DataFrame({"prompt": ["p"], "response": [text], "reward": [1]})
    assert rollouts_of(table).frame["response"].item() == answer
    assert rollouts_of(table, where="thought").frame["response"].item() == thought
    assert rollouts_of(table, where="all").frame["response"].item() == text


def test_a_thought_that_the_prompt_opens_and_nothing_closes_is_no_answer():
    table = pd.DataFrame(
        {"prompt": ["p<think>\n", "p"], "response": ["Hm", "Hm"], "reward": [1, 0]}
    )
    rollouts = rollouts_of(table)
    assert rollouts.frame["prompt"].tolist() == ["p"]
    assert rollouts_of(table, where="thought").frame["prompt"].tolist() == ["p<think>\n"]


@pytest.mark.parametrize("write", [list, json.dumps, str], ids=["list", "JSON", "Python"])
def test_of_a_conversation_the_last_answer_is_the_response(write):
    turns = [("user", "One?"), ("assistant", "1"), ("user", "Two?"), ("assistant", "2")]
    messages = [{"role": role, "content": text} for role, text in turns]
    table = pd.DataFrame({"messages": [write(messages)] * 2, "score": [1, 0]})
    frame = rollouts_of(table).frame
    assert frame["response"].tolist() == ["2", "2"]
    assert frame["prompt"].iloc[0] == "user: One?\n\nassistant: 1\n\nuser: Two?"
    assert frame["group"].tolist() == [0, 0]


def test_images_are_left_out_and_hold_prompts_apart():
    def prompt(name: str) -> list[dict]:
        picture = {"type": "image_url", "image_url": {"url": name}}
        return [{"role": "user", "content": [picture, {"type": "text", "text": "What is this?"}]}]

    table = pd.DataFrame({"prompt": [prompt("a"), prompt("b")], "completion": "It.", "reward": 1})
    rollouts = rollouts_of(table)
    assert rollouts.frame["prompt"].tolist() == ["What is this?"] * 2
    assert rollouts.frame["group"].tolist() == [0, 1]
    assert any("images of 2 conversations" in note for note in rollouts.notes)


PAIR = {"prompt": ["p", "q", "r"], "response_a": ["a"] * 3, "response_b": ["b"] * 3}


@pytest.mark.parametrize(
    ("column", "cells", "second"),
    [
        ("label", ["A>B", "B>A", "A=B"], [0.0, 1.0, 0.5]),
        ("label", ["b", "a", "tie"], [1.0, 0.0, 0.5]),
        ("winner", ["model_a", "model_b", "tie"], [0.0, 1.0, 0.5]),
        ("preference", [1.0, 1.75, 2.0], [0.0, 0.75, 1.0]),
        ("preference", [0.0, 0.75, 1.0], [0.0, 0.75, 1.0]),
        ("overall_preference", [-3, 0, 3], [0.0, 0.5, 1.0]),
        ("preferred", [0, 1, 1], [0.0, 1.0, 1.0]),
    ],
)
def test_a_preference_is_shared_out_to_the_two_rows_of_a_pair(column, cells, second):
    rollouts = rollouts_of(pd.DataFrame(PAIR | {column: cells}))
    assert (rollouts.source, rollouts.pairs, rollouts.rewards) == ("pairs", True, ("reward",))
    frame = rollouts.frame
    assert frame["group"].tolist() == [0, 0, 1, 1, 2, 2]
    assert frame["response"].tolist() == ["a", "b"] * 3
    assert frame["prompt"].tolist() == [*"ppqqrr"]
    assert frame["reward"].iloc[1::2].tolist() == second
    assert (frame["reward"].iloc[::2] + frame["reward"].iloc[1::2].to_numpy() == 1).all()


@pytest.mark.parametrize(
    "names", [("score_a", "score_b"), ("rm:a", "rm:b"), ("reward_1", "reward_2")]
)
def test_two_scores_are_the_rewards_of_a_pair_and_its_label_the_truth(names):
    scores = dict(zip(names, ([0.1, 0.2, 0.3], [1.0, 2.0, 3.0]), strict=True))
    frame = rollouts_of(pd.DataFrame(PAIR | scores | {"label": ["a", "b", "tie"]})).frame
    assert frame["reward"].tolist() == [0.1, 1.0, 0.2, 2.0, 0.3, 3.0]
    assert frame["truth"].tolist() == [1.0, 0.0, 0.0, 1.0, 0.5, 0.5]


def test_chosen_and_rejected_are_a_pair_also_as_conversations():
    def talk(text: str) -> list[dict]:
        return [{"role": "user", "content": "q"}, {"role": "assistant", "content": text}]

    table = pd.DataFrame({"chosen": [talk("good"), talk("fine")], "rejected": [talk("bad"), None]})
    rollouts = rollouts_of(table)
    assert rollouts.frame["response"].tolist() == ["good", "bad"]
    assert rollouts.frame["reward"].tolist() == [1.0, 0.0]
    assert rollouts.frame["prompt"].tolist() == ["q", "q"]
    assert any("1 are left out" in note for note in rollouts.notes)


def test_a_pair_without_one_reward_is_left_out_whole():
    table = pd.DataFrame(PAIR | {"score_a": [1.0, None, 2.0], "score_b": [0.0, 1.0, 1.0]})
    frame = rollouts_of(table).frame
    assert frame["prompt"].tolist() == [*"pprr"]
    assert frame["group"].tolist() == [0, 0, 1, 1]


def test_columns_are_named_as_the_person_says():
    table = pd.DataFrame(
        {"q": ["p", "p"], "a": ["r", "s"], "pay": ["1", "0"], "reward": [5, 6], "ok": [True, False]}
    )
    named = {"prompt": "q", "response": "a", "reward": "pay", "truth": "ok"}
    rollouts = rollouts_of(table, named)
    assert rollouts.frame["reward"].tolist() == [1.0, 0.0]
    assert rollouts.frame["truth"].tolist() == [1.0, 0.0]
    assert rollouts.rewards == ("reward",)
    assert any("column reward is left out" in note for note in rollouts.notes)


def test_rows_without_a_reward_or_a_response_are_left_out_and_counted():
    table = pd.DataFrame(
        {
            "prompt": [*"aabbcc"],
            "response": ["r", "s", None, " ", "t", "u"],
            "reward": [1, None, 1, 1, float("inf"), 0],
        }
    )
    rollouts = rollouts_of(table)
    assert rollouts.frame["response"].tolist() == ["r", "u"]
    assert rollouts.frame["group"].tolist() == [0, 1]
    assert rollouts.frame.index.tolist() == [0, 1]
    text = " ".join(rollouts.notes)
    assert "2 with no finite reward" in text
    assert "2 with an empty answer" in text


def test_missing_cells_of_pandas_are_missing():
    table = pd.DataFrame(
        {"prompt": [*"aab"], "response": pd.array(["r", pd.NA, "s"], dtype="string")}
    )
    rollouts = rollouts_of(
        table.assign(reward=pd.array([1, 2, pd.NA], dtype="Int64")), {"truth": None}
    )
    assert rollouts.frame["response"].tolist() == ["r"]
    assert len(rollouts.notes) == 2


def test_a_table_with_truth_alone_waits_for_a_grader():
    rollouts = rollouts_of(
        pd.DataFrame({"question": ["p"], "solution": ["r"], "is_correct": [True]})
    )
    assert rollouts.rewards == ()
    assert rollouts.frame["reward"].isna().all()
    assert rollouts.frame["truth"].tolist() == [1.0]
    assert any("columns.reward=NAME" in note for note in rollouts.notes)


@pytest.mark.parametrize(
    ("table", "columns", "message"),
    [
        (PLAIN | {"reward": [1, "high"]}, {}, r"row 2: reward is 'high'; expected a number"),
        (
            PLAIN,
            {"reward": "rewrad"},
            r"columns.reward='rewrad' is no column.*'reward'.*prompt, response, reward",
        ),
        (PLAIN, {"rewards": "reward"}, r"columns\.rewards"),
        (PLAIN, {"reward": "reward", "truth": "reward"}, "given twice"),
        (PLAIN | {"x": ["r", 1]}, {"truth": "x"}, "row 1: x is 'r'"),
        ({"prompt": ["p"], "reward": [1]}, {}, r"columns\.response=NAME.*prompt, reward"),
        ({"response": ["r"], "reward": [1]}, {}, r"columns\.prompt=NAME"),
        ({"prompt": ["p"], "response": ["r"], "paid": [1]}, {}, r"columns\.reward=NAME.*paid"),
        (PLAIN | {"reward": [None, None]}, {}, "no rollout is left.*2 with no finite reward"),
        ({"prompt": [], "response": [], "reward": []}, {}, "no rows"),
        (PAIR, {}, r"columns\.label=NAME"),
        (PAIR | {"label": ["x", "a", "b"]}, {}, "row 1: label is 'x'"),
        (PAIR | {"preference": [1, 1, 1]}, {}, "from 1 to 1"),
        (
            PAIR | {"x:a": [1] * 3, "x:b": [1] * 3, "y:a": [1] * 3, "y:b": [1] * 3},
            {},
            "one of x, y",
        ),
        (PLAIN, {"response_a": "response"}, "response_b"),
    ],
)
def test_a_table_that_cannot_be_read_says_what_to_type(table, columns, message):
    with pytest.raises(InputError, match=message):
        rollouts_of(pd.DataFrame(table), columns)


def test_a_pair_of_which_one_response_is_empty_is_left_out_whole():
    read = rollouts_of(pd.DataFrame(PAIR | {"response_b": ["b", "", "b"], "label": ["A>B"] * 3}))
    assert read.frame["prompt"].tolist() == ["p", "p", "r", "r"]
    assert "1 with an empty answer" in " ".join(read.notes)


def test_two_columns_of_one_name_and_an_unknown_part_are_refused():
    table = pd.DataFrame([["p", "r", 1, 2]], columns=["prompt", "response", "reward", "reward"])
    with pytest.raises(InputError, match="two columns are called reward"):
        rollouts_of(table)
    with pytest.raises(InputError, match="answer, thought, all"):
        rollouts_of(pd.DataFrame(PLAIN), where="thoughts")
    with pytest.raises(InputError, match="2 with an empty thought"):
        rollouts_of(pd.DataFrame(PLAIN), where="thought")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("1.jsonl", '{"prompt": "p", "response": "r", "reward": 1}\n{oh\n', r"1\.jsonl, line 2"),
        ("1.jsonl", '["p", "r"]\n', r"1\.jsonl, line 1 holds .* expected an object"),
        ("1.jsonl", "", "no rows"),
        ("1.csv", "", r"1\.csv"),
        ("1.csv", "prompt,response,reward\n", "no rows"),
        ("1.csv", "prompt,response,reward\np,r,1,5\n", "more cells"),
        ("1.csv", "prompt,response,reward,reward\np,r,1,5\n", "two columns are called reward"),
        ("1.json", '{"samples": [{"id": 1}]}', r"1\.json is not laid out as a file of inspect"),
        (
            "1.jsonl",
            '{"traces": [{"nodes": []}]}',
            r"1\.jsonl is not laid out as a file of verifiers",
        ),
        ("1.json", "{", r"1\.json is not JSON"),
        (
            "1.table.json",
            '{"columns": ["a"], "data": [[1, 2]]}',
            r"1\.table\.json is not laid out as a file of W&B",
        ),
        ("1.parquet", "PAR", r"1\.parquet"),
        ("1.txt", "p r 1", r"\.parquet, \.jsonl"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path, name, content, message):
    file = tmp_path / name
    file.write_text(content)
    with pytest.raises(InputError, match=message):
        read_rollouts(file)


def test_half_a_character_becomes_its_escape(tmp_path):
    write_lines(tmp_path / "1.jsonl", [{"prompt": "p\ud83d", "response": "r\ud83d", "reward": 1}])
    frame = read_rollouts(tmp_path / "1.jsonl").frame
    assert frame["prompt"].item() == "p\\ud83d"
    assert frame["response"].item() == "r\\ud83d"


def test_a_path_is_looked_for_before_it_is_read(tmp_path):
    for path in (tmp_path / "absent.jsonl", "~nobody-of-this-name/1.jsonl"):
        with pytest.raises(InputError, match="there is no such file"):
            read_rollouts(path)
    with pytest.raises(InputError, match=r"columns\.rewards"):
        read_rollouts(tmp_path / "absent.jsonl", {"rewards": "reward"})


def test_a_folder_holds_files_of_one_kind(tmp_path):
    with pytest.raises(InputError, match="give a file or a folder"):
        read_rollouts(tmp_path)
    write_lines(tmp_path / "1.jsonl", verl_rows(1))
    write_lines(tmp_path / "2.jsonl", trl_rows(2))
    with pytest.raises(InputError, match=r"2\.jsonl is of another kind .* than 1\.jsonl"):
        read_rollouts(tmp_path)
    (tmp_path / "2.jsonl").unlink()
    pd.DataFrame(verl_rows(2)).to_csv(tmp_path / "2.csv", index=False)
    with pytest.raises(InputError, match=r"2\.csv is of another kind"):
        read_rollouts(tmp_path)


def test_rollouts_of_olmo_have_the_advantages_of_their_groups(shared_data):
    rollouts = read_rollouts(shared_data / "rollouts" / "olmo3_7b_chain_sum.parquet")
    frame = rollouts.frame
    assert rollouts.rewards == ("reward",)
    assert len(frame) == 10_239
    assert frame["group"].nunique() == 640
    assert frame["step"].unique().tolist() == list(range(1, 11))
    assert frame.loc[frame["step"] < 10, "truth"].notna().all()
    whole = frame[frame.groupby("group")["reward"].transform("size") == 16]
    groups = whole.groupby("group")["reward"]
    advantage = (whole["reward"] - groups.transform("mean")) / (groups.transform("std") + 1e-4)
    assert (advantage - whole["advantage"]).abs().max() < 1e-3


def test_labelled_solutions_pairs_and_preferences_are_read(shared_data):
    folder = shared_data / "scored_answers"
    solutions = read_rollouts(folder / "gsm_example_solutions.parquet").frame
    assert len(solutions) == 5_276
    assert solutions["group"].nunique() == 1_319
    assert (solutions["truth"] == 0).sum() == 3_275
    assert solutions["answer"].str.contains("####|A:").all()
    file = folder / "judgebench_350_pairs_5_reward_models.parquet"
    models = {
        "Ray2333_GRM-Gemma-2B-rewardmodel-ft": 0.594,
        "Skywork_Skywork-Reward-Gemma-2-27B": 0.643,
        "Skywork_Skywork-Reward-Llama-3.1-8B": 0.623,
        "internlm_internlm2-20b-reward": 0.634,
        "internlm_internlm2-7b-reward": 0.594,
    }
    for model, accuracy in models.items():
        pairs = read_rollouts(file, {"reward": model})
        margins = pairs.frame["reward"].to_numpy().reshape(-1, 2) @ [1, -1]
        truths = pairs.frame["truth"].to_numpy().reshape(-1, 2) @ [1, -1]
        assert ((margins * truths) > 0).mean() == pytest.approx(accuracy, abs=5e-4)
    judged = read_rollouts(folder / "alpaca_eval_gpt4_judge_16_generators.parquet").frame
    assert judged["group"].nunique() == 805
    assert judged["reward"].between(1, 2).all()


def test_advantages_that_do_not_follow_from_the_sum_are_noted():
    table = pd.DataFrame(
        {
            "step": 1,
            "prompt": [*"aaab"],
            "completion": [*"rstu"],
            "f": [1.0, 2.0, 4.0, 1.0],
            "g": [0.0, 5.0, 0.0, 1.0],
        }
    )
    weighted = table["f"] + 0.1 * table["g"] - [2.5, 2.5, 2.5, 1.1]
    notes = rollouts_of(table.assign(advantage=weighted)).notes
    assert any("In 1 of 1 groups the trainer's advantages" in note for note in notes)
    plain = table["f"] + table["g"] - [4.0, 4.0, 4.0, 2.0]
    assert not any(
        "advantages" in note for note in rollouts_of(table.assign(advantage=plain / 3)).notes
    )


def test_a_reward_in_csv_files_by_step_is_recognised(tmp_path):
    for step in (1, 2):
        pd.DataFrame({"prompt": ["p"], "response": ["r"], "my_reward": [step]}).to_csv(
            tmp_path / f"{step}.csv", index=False
        )
    frame = read_rollouts(tmp_path).frame
    assert frame["reward"].tolist() == frame["step"].tolist() == [1, 2]


def test_a_row_without_any_of_several_rewards_is_left_out():
    table = pd.DataFrame(trl_rows(1))
    table.loc[1, ["length", "hits_e"]] = None
    rollouts = rollouts_of(table)
    assert rollouts.frame["response"].tolist() == ["It is 0.", "It is 2.", "It is 3."]
    assert rollouts.frame["step"].dtype == int


def test_a_named_response_is_read_where_there_are_pairs_too():
    rollouts = rollouts_of(
        pd.DataFrame(PAIR | {"mine": [*"xyz"], "reward": 1}), {"response": "mine"}
    )
    assert not rollouts.pairs
    assert rollouts.frame["response"].tolist() == ["x", "y", "z"]


def test_of_columns_that_differ_in_capitals_the_first_counts():
    table = pd.DataFrame({"Prompt": ["p"], "prompt": ["q"], "Response": ["r"], "REWARD": [1]})
    frame = rollouts_of(table).frame
    assert frame[["prompt", "response", "reward"]].to_numpy().tolist() == [["p", "r", 1.0]]


def test_a_prompt_that_the_conversation_repeats_is_read_once():
    talk = [{"role": "user", "content": "p"}, {"role": "assistant", "content": "r"}]
    frame = rollouts_of(pd.DataFrame({"prompt": ["p"], "messages": [talk], "reward": [1]})).frame
    assert frame["prompt"].tolist() == ["p"]


def test_a_copy_of_the_reward_is_no_further_reward():
    rows = [
        {key: row[key] for key in ("input", "output", "gts", "score", "step")}
        for row in verl_rows(1)
    ]
    rollouts = rollouts_of(pd.DataFrame([row | {"reward": row["score"]} for row in rows]))
    assert rollouts.rewards == ("reward",)
    assert "score" not in rollouts.frame


def test_responses_and_scores_in_capitals_are_a_pair():
    table = {
        "question": ["p"],
        "response_A": ["a"],
        "response_B": ["b"],
        "score_A": [2.0],
        "score_B": [1.0],
    }
    frame = rollouts_of(pd.DataFrame(table)).frame
    assert frame["response"].tolist() == ["a", "b"]
    assert frame["reward"].tolist() == [2.0, 1.0]


def test_one_score_of_a_pair_is_no_reward_unless_it_is_named():
    table = pd.DataFrame(PAIR | {"label": ["a", "b", "b"], "score": [0.9, 0.8, 0.2]})
    assert rollouts_of(table).frame["reward"].tolist() == [1.0, 0.0, 0.0, 1.0, 0.0, 1.0]
    named = rollouts_of(table, {"reward": "score"}).frame
    assert named["reward"].tolist() == pytest.approx([0.1, 0.9, 0.2, 0.8, 0.8, 0.2])


def test_advantages_are_compared_within_the_groups_of_the_source():
    rewards, advantages = [1.0, 0.0, 2.0, 0.0], [0.5, -0.5, 0.1, -0.1]
    table = pd.DataFrame(
        {"prompt": "p", "response": [*"rstu"], "reward": rewards, "advantage": advantages}
    )
    assert any("In 1 of 1 groups" in note for note in rollouts_of(table).notes)
    assert rollouts_of(table.assign(group=[*"xxyy"])).notes == ()
