"""Responses in slots of answers, minimal edits, fluent ones and those for many contexts: each
objective's best against brute force by full forwards, and what is reported of it elsewhere."""

import itertools
import json

import numpy as np
import pytest
import torch

import pessimal
from pessimal.conversation import Context, Turn, filled
from pessimal.rewards.head import HeadSpec
from pessimal.rewards.log_probability import LogProbabilitySpec
from pessimal.rewards.obtain import open_model
from pessimal.scoring.engine import own_rewards
from pessimal.searching.context import SearchContext
from pessimal.searching.elsewhere import contexts_result
from pessimal.searching.objective import EditObjective, Edits
from pessimal.searching.run import identify, run, search
from pessimal.searching.spec import Goal, SearchSpec, Slot
from tiny_language_models import checkpoint, network
from tolerance import close

PROMPT, ANSWER = "What is war?", "love is good"
WORDS = ("love", "hate", "good", "evil", "peace", "war", "kind", "cruel")
LONE = {"greatest": PROMPT}


@pytest.fixture(scope="module")
def model(tiny_checkpoint):
    return open_model(HeadSpec(path=str(tiny_checkpoint)), tiny_checkpoint)


@pytest.fixture(scope="module")
def words(model, tmp_path_factory):
    """A file of words of which responses may be made, and their ids."""
    file = tmp_path_factory.mktemp("words") / "words.txt"
    file.write_text("\n".join(WORDS))
    context = SearchContext(model, LONE, SearchSpec(length=1, allowed_path=str(file)))
    return str(file), np.flatnonzero(context.mask).tolist()


@pytest.fixture(scope="module")
def full(model):
    """Rewards of whole inputs by the network's own forward of those of a length, without padding."""
    network = model.network()

    @torch.no_grad()
    def rewards(inputs):
        values, lengths = np.empty(len(inputs)), np.array([len(ids) for ids in inputs])
        for length in set(lengths):
            alike = np.flatnonzero(lengths == length)
            for rows in np.split(alike, range(256, len(alike), 256)):
                batch = torch.tensor([list(inputs[row]) for row in rows])
                values[rows] = own_rewards(network, batch).numpy()
        return values

    return rewards


def templated(model, asked, text=""):
    return list(model.parts[0].conversations.encode(filled(asked, text)).ids)


def context_of(answer=ANSWER, at=None):
    turns = (Turn("user", PROMPT), Turn("assistant", answer))
    return Context(turns, 1, len(answer) if at is None else at)


@pytest.mark.parametrize("goal", ["pessimal"])
@pytest.mark.parametrize("slot", ["after", "before"])
def test_the_best_in_a_slot_is_that_of_brute_force(model, words, full, slot, goal):
    file, ids = words
    options = {"goal": goal, "allowed_path": file, "evaluations": 3000, "baselines": 0}
    found = search(model, LONE, length=2, slot=slot, answer=ANSWER, **options)
    whole = templated(model, context_of())
    before = found.context.frames["greatest"][0].prefix
    assert tuple(whole[: len(before)]) == before, "a given answer keeps its ids"
    every = list(itertools.product(ids, repeat=2))
    rewards = full([[*before, *pair, *whole[len(before) :]] for pair in every])
    best = (found.sign * rewards).argmax()
    assert found.exact
    assert found.response == every[best]
    assert close(found.reward, rewards[best])


def test_minimal_edits_are_all_answers_with_a_token_replaced_or_put_in(model, words, full):
    file, ids = words
    options = {"slot": "edit", "answer": ANSWER, "allowed_path": file, "baselines": 0}
    found = search(model, LONE, length=1, evaluations=3000, **options)
    frame = found.context.frames["greatest"][0]
    given = tuple(frame.inside(templated(model, context_of())))
    answers = {(*given[:at], token, *given[at + 1 :]) for at in range(len(given)) for token in ids}
    answers |= {(*given[:at], token, *given[at:]) for at in range(len(given) + 1) for token in ids}
    answers = sorted(answers - {given})
    rewards = full([frame.around(one) for one in answers])
    assert found.exact
    assert close(found.reward, rewards.max())
    assert found.text == model.tokenizer.decode(answers[rewards.argmax()])
    # Two changes: no worse than any two that brute force knows, and better than one.
    two = search(model, LONE, length=2, evaluations=60_000, **options)
    both = {
        (*one[:at], token, *one[at + skipped :])
        for one in answers
        for skipped in (0, 1)
        for at in range(len(one) + 1 - skipped)
        for token in ids
    }
    sample = sorted(both)[:: max(1, len(both) // 4000)]
    assert two.exact
    assert two.reward >= full([frame.around(one) for one in sample]).max() - 1e-5
    assert json.loads(two.tables["result"]["tokens"][0])[0].count("'") >= 2


def test_changes_of_an_answer_their_slopes_and_what_leaves_it_alone():
    edits = Edits((4, 7), rows=10)
    changes = torch.tensor([[3, 12], [25, 21], [48, 48], [3, 5]])
    assert edits.apply(changes) == [(3, 2), (5, 1, 4, 7), (4, 7, 8, 8), (5, 7)]
    allowed = edits.allowed(torch.arange(10) < 8)
    assert int(allowed.sum()) == 5 * 8 - 2
    assert not allowed[4]
    assert not allowed[17]

    class Linear:
        """Σ weights of tokens, whatever their place."""

        def values(self, responses, *, anchor=None):
            return torch.arange(10.0).double()[responses].sum(dim=1)

        def gradient(self, response):
            return torch.arange(10.0).expand(len(response), -1)

    objective = EditObjective(Linear(), edits)
    assert objective.values(changes).tolist() == [5, 17, 27, 12]
    slope = objective.gradient(torch.tensor([3, 12]))
    assert slope.shape == (2, 50)
    assert slope[0, 9] == 9 - 3, "in place of what stands there now"


@pytest.fixture(scope="module")
def policy(model, tmp_path_factory):
    """A random language model with the reward model's tokens."""
    folder = tmp_path_factory.mktemp("policy") / "policy"
    network("llama", len(model.tokenizer)).save_pretrained(folder)
    model.tokenizer.save_pretrained(folder)
    return open_model(LogProbabilitySpec(path=str(folder), chat=False), folder)


def likelihood(policy, prompt, responses):
    network = policy.network()
    context = list(policy.conversations.context(prompt))
    rows = [torch.tensor([[*context, *ids]]) for ids in responses]
    with torch.no_grad():
        return np.array([float(network(row, n_response=2).logits) for row in rows])


@pytest.mark.parametrize("goal", ["pessimal"])
def test_fluent_is_the_reward_and_a_share_of_the_log_probability(model, policy, words, full, goal):
    file, ids = words
    options = {"goal": goal, "allowed_path": file, "evaluations": 3000, "baselines": 0}
    found = search(model, LONE, length=2, fluency=0.5, policy=policy, **options)
    every = list(itertools.product(ids, repeat=2))
    rewards = full([model.frame(PROMPT).around(list(pair)) for pair in every])
    likely = likelihood(policy, PROMPT, every)
    values = found.sign * rewards + 0.5 * likely
    assert found.response == every[values.argmax()]
    row = found.tables["result"].iloc[0]
    assert close(row["reward"], rewards[values.argmax()])
    assert close(row["log_probability"], likely[values.argmax()], size=100.0)


def test_a_policy_of_other_tokens_is_asked_the_text(model, words, full, tmp_path):
    file, ids = words
    folder = checkpoint(tmp_path / "other")
    other = open_model(LogProbabilitySpec(path=str(folder), chat=False), folder)
    assert other.tokenizer.get_vocab() != model.tokenizer.get_vocab()
    options = {"allowed_path": file, "evaluations": 3000, "baselines": 0}
    found = search(model, LONE, length=2, fluency=0.5, policy=other, **options)
    every = list(itertools.product(ids, repeat=2))
    texts = [found.context.round_trip.text_of(torch.tensor([pair]))[0] for pair in every]
    assert None not in texts
    once = list(dict.fromkeys(texts))
    [table] = pessimal.scan(other, LONE, candidates=once, mode="text", progress=False)
    likely = table.rows.set_index("text")["reward"].loc[texts].to_numpy()
    rewards = full([model.frame(PROMPT).around(list(pair)) for pair in every])
    best = (rewards + 0.5 * likely).argmax()
    row = found.tables["result"].iloc[0]
    assert found.response == every[best]
    assert close(row["reward"], rewards[best])
    assert close(row["log_probability"], likely[best], size=100.0)


ANSWERS = ("love is good", "hate", "It is evil.", "a truth", "the best thing", "war and peace")


def test_one_for_many_contexts_and_what_it_does_in_others(model, words, full):
    file, ids = words
    contexts = {f"c{i}": context_of(one) for i, one in enumerate(ANSWERS)}
    searched = dict(list(contexts.items())[:3])
    held_out = dict(list(contexts.items())[3:])
    options = {"allowed_path": file, "evaluations": 3000, "baselines": 0, "held_out": held_out}
    found = search(model, searched, length=1, **options)
    frames = found.context.frames
    rewards = np.mean(
        [full([frames[key][0].around([token]) for token in ids]) for key in searched], axis=0
    )
    assert found.response == (ids[rewards.argmax()],)
    assert close(found.reward, rewards.max())
    table = found.tables["contexts"].set_index("context")
    assert table["part"].tolist() == ["searched"] * 3 + ["held out"] * 3
    for key, asked in contexts.items():
        untouched, put = full([templated(model, asked), templated(model, asked, found.text)])
        assert close(table.loc[key, "untouched"], untouched)
        assert close(table.loc[key, "change"], put - untouched, size=10.0)
    result = contexts_result(found.tables["contexts"], sign=1, survives=True)
    held = table[table["part"] == "held out"]
    assert result.estimate.n == 3
    assert result.estimate.value == pytest.approx(held["change"].mean())
    assert result.summary["contexts_moved"] == int((held["change"] > 0).sum())


def test_slots_answers_policies_and_contexts_have_names_and_keys_of_their_own(model, policy):
    def named(prompts=LONE, held_out=None, asked=None, **options):
        spec, about = SearchSpec(length=2, **options), {"held_out": held_out}
        return identify(SearchContext(model, prompts, spec, policy=asked, **about))

    made = [
        named(),
        named(slot=Slot.after, answer=ANSWER),
        named(slot=Slot.before, answer=ANSWER),
        named(slot=Slot.after, answer="hate"),
        named(slot=Slot.edit, answer=ANSWER),
        named(answer="love is{slot} good"),
        named(fluency=0.5, asked=policy),
        named(fluency=0.25, asked=policy),
        named({"c0": context_of("hate")}),
    ]
    assert len({one.name for one in made}) == len({one.key() for one in made}) == len(made)
    held_out = [{"c0": context_of(answer)} for answer in ("hate", "love")]
    beside = [*(named(held_out=one) for one in held_out), named(asked=policy), named()]
    assert len({one.key() for one in beside}) == 4, "they report other things"
    assert {one.name for one in beside} == {made[0].name}
    seeded = identify(SearchContext(model, LONE, SearchSpec(length=2), seed=1))
    assert seeded.key() != made[0].key(), "another seed is another search"
    assert named(goal=Goal.pessimal).name != made[0].name


def test_single_tokens_are_taken_from_scans_only_where_every_prompt_was_scanned(model):
    context = SearchContext(model, {"a": "Why?", "b": "How?"}, SearchSpec(length=1))
    tables = {"a": (np.arange(context.mask.size, dtype=float), "table/a")}
    context.scanned = tables.get
    assert context.scanned_rewards() is None
    tables["b"] = (np.zeros(context.mask.size), "table/b")
    rewards, references = context.scanned_rewards()
    allowed = np.flatnonzero(context.mask)
    assert references == ["table/a", "table/b"]
    assert rewards[allowed].tolist() == (allowed / 2).tolist()
    assert np.isnan(np.delete(rewards, allowed)).all()


def test_a_killed_fluent_search_goes_on_and_has_the_same_candidates(model, policy, words, tmp_path):
    file, _ = words
    spec = SearchSpec(
        length=3, allowed_path=file, evaluations=300, baselines=0, fluency=0.5, from_registry=False
    )
    once, twice = (
        run(SearchContext(model, LONE, spec, policy=policy), folder=tmp_path) for _ in range(2)
    )
    assert once.tables["candidates"].equals(twice.tables["candidates"])
    assert once.response == twice.response


@pytest.mark.slow
def test_no_search_of_any_kind_breaks_the_ceiling(model, policy, words):
    """Random networks, lengths, goals, slots and fluency: what was evaluated stays inside."""
    file, _ = words
    random = np.random.default_rng(0)
    slots = ({}, {"slot": "after", "answer": ANSWER}, {"slot": "edit", "answer": ANSWER})
    for seed in range(40):
        if seed % 8 == 0:  # another network
            torch.manual_seed(seed)
            made = model.network()
            for weight in made.parameters():
                torch.nn.init.normal_(weight, std=float(random.uniform(0.02, 1.0)))
            reward = pessimal.reward(made, model.tokenizer, name=f"random-{seed}")
        fluent = {"fluency": float(random.uniform(0.1, 2)), "policy": policy}
        found = search(
            reward,
            LONE,
            length=int(random.integers(1, 5)),
            goal=("optimal", "pessimal")[random.integers(2)],
            seed=seed,
            evaluations=200,
            baselines=0,
            allowed_path=file,
            **slots[random.integers(3)],
            **(fluent if random.integers(2) else {}),
        )
        assert found.bounds.finite
        assert found.bounds.beyond(found.own_rewards) <= found.noise
        if found.context.fluent is None:
            values = [found.sign * point.value for point in found.stages.counter.curve]
            assert found.bounds.beyond(values) <= found.noise
