"""Every published head: loaded as it came or put together natively, by every engine, the reward is
the published class's own."""

import numpy as np
import pytest
import torch
from published.checkpoints import Published, opened

from pessimal.rewards.heads import gated
from pessimal.rewards.reward_model import RewardModel
from pessimal.rewards.spec import Dtype, Mode
from pessimal.scoring.candidates import inputs, item_candidates, vocabulary
from pessimal.scoring.scorer import FrameScorer
from tolerance import close, varied

PROMPT = "What, in one word, is the greatest thing ever?"
CPU = torch.device("cpu")
pytestmark = pytest.mark.filterwarnings("ignore:In CPU autocast")  # QRM's code asks for float32
ALL = ("shared-prefix", "full-forward", "own-forward")
# Whether the folder's own code is run, and which engines there are, the fastest first.
ENGINES = {
    ("armorm", "native"): ALL,
    ("armorm", "own code"): ALL,
    ("qrm_llama", "native"): ALL,
    ("qrm_llama", "own code"): ALL,
    ("qrm_gemma", "native"): ALL,
    ("qrm_gemma", "own code"): ALL,
    ("grm", "native"): ALL,
    ("grm", "own code"): ALL,
    ("grm_linear", "native"): ALL,
    ("grm_linear", "own code"): ALL,
    ("urm", "native"): ALL,
    # Its attention cannot be exchanged; its value head is known.
    ("internlm2", "own code"): ("full-forward", "own-forward"),
    ("bert", "native"): ("own-forward",),
    ("deberta", "native"): ("own-forward",),
}
ONCE = [case for case in ENGINES if case[1] == "native" or case[0] == "internlm2"]
"""Each head put together one way."""
GATED = [case for case in ENGINES if case[0] in ("armorm", "qrm_llama", "qrm_gemma")]


def responses(model: RewardModel, length: int, n: int = 24) -> torch.Tensor:
    """Ids (n, length) at random among the tokens that are not special."""
    words = vocabulary(model.tokenizer, size=model.embedding_rows).rows
    plain = torch.from_numpy(
        words["candidate_id"][words["kind"] != "special"].to_numpy(dtype=np.int64)
    )
    return plain[
        torch.randint(len(plain), (n, length), generator=torch.Generator().manual_seed(length))
    ]


def with_suffix(ids: torch.Tensor, frame) -> torch.Tensor:
    return torch.cat(
        [ids, torch.tensor(frame.suffix, dtype=torch.long).expand(len(ids), -1)], dim=1
    )


def published_rewards(checkpoint: Published, frame, ids: torch.Tensor) -> torch.Tensor:
    """What the published class gives for responses `ids` (n, length), one after the other."""
    inputs = {}
    if (
        checkpoint.tokenizer.sep_token
        and "token_type_ids" in checkpoint.tokenizer.model_input_names
    ):
        after = ids.shape[1] + len(frame.suffix)
        inputs = {"token_type_ids": torch.tensor([[0] * len(frame.prefix) + [1] * after])}
    return torch.tensor([checkpoint.reward(frame.around(row), **inputs) for row in ids.tolist()])


@torch.no_grad()
@pytest.mark.parametrize(("kind", "way"), ENGINES)
def test_reward_is_the_published_classs_own_by_every_engine(published, kind, way, caplog):
    checkpoint = published(kind)
    model = opened(checkpoint, way)
    frame = model.frame(PROMPT)
    scorer = FrameScorer(model.network(), frame, device=CPU)
    assert tuple(engine.name for engine in scorer.engines) == ENGINES[kind, way]
    for length in (1, 3):
        ids = responses(model, length)
        theirs = published_rewards(checkpoint, frame, ids)
        for engine in scorer.engines:
            ours = engine.rewards(with_suffix(ids, frame), shared=len(frame.prefix))
            assert close(ours, varied(theirs)), engine.name
    candidates = vocabulary(model.tokenizer, size=model.embedding_rows)
    made = inputs(model.parts[0].conversations, frame, candidates, Mode.ids)
    scorer.establish_trust(made, dtype=Dtype.float32)
    assert scorer.trust.holds
    assert scorer.attention == ENGINES[kind, way][0]
    assert not [
        one for one in caplog.records if one.name.startswith("pessimal") and one.levelno > 20
    ]


@torch.no_grad()
@pytest.mark.parametrize("case", GATED, ids=str)
def test_gate_opens_differently_for_another_prompt(published, case):
    checkpoint = published(case[0])
    model = opened(checkpoint, case[1])
    network = model.network()
    ids = responses(model, 1)
    gates = []
    for prompt in (PROMPT, "Name one thing to hate"):
        frame = model.frame(prompt)
        scorer = FrameScorer(network, frame, device=CPU)
        assert close(
            scorer.rewards(with_suffix(ids, frame), shared=len(frame.prefix)),
            varied(published_rewards(checkpoint, frame, ids)),
        )
        gates.append(scorer.engines[0].context)
    assert (gates[0] - gates[1]).abs().max() > 1e-3


@pytest.mark.parametrize(
    ("ids", "where"), [([7, 1, 2, 7, 1, 2, 3], 4), ([1, 2], 0), ([9, 1, 2, 8], 1)]
)
def test_prompt_ends_where_the_assistants_turn_opens_for_the_last_time(ids, where):
    assert gated.prompt_end(ids, [1, 2]) == where


@torch.no_grad()
@pytest.mark.parametrize(
    "case",
    [case for case in ONCE if "shared-prefix" in ENGINES[case] or case[0] == "internlm2"],
    ids=str,
)
def test_head_is_read_in_float32_after_a_low_precision_body(published, case):
    model = opened(published(case[0]), case[1], Dtype.bfloat16)
    network, frame = model.network(), model.frame(PROMPT)
    assert next(network.parameters()).dtype is torch.bfloat16
    scorer = FrameScorer(network, frame, device=CPU)
    ids = torch.arange(5, 205).unsqueeze(1)
    rewards = scorer.rewards(with_suffix(ids, frame), shared=len(frame.prefix))
    assert rewards.dtype is torch.float32
    on_the_coarse_grid = rewards == rewards.bfloat16().float()
    assert on_the_coarse_grid.float().mean() < 0.1, "where a bfloat16 head would leave all"
    exact = FrameScorer(model.network(Dtype.float32), frame, device=CPU)
    difference = rewards - exact.rewards(with_suffix(ids, frame), shared=len(frame.prefix))
    assert difference.abs().mean() < 0.2 * rewards.std()


@torch.no_grad()
def test_internlm_score_of_a_conversation_is_the_reward_of_its_ids_also_where_it_merges_with_the_template(
    published,
):
    checkpoint = published("internlm2")
    model = opened(checkpoint, "own code")
    network, frame = model.network(), model.frame(PROMPT)
    assert frame.suffix[-1] == checkpoint.network.reward_token_id
    candidates = item_candidates(
        ["love", "\nlove", "\n\nhate", " peace", "war\n", "good\n\n", "evil", "is"], name="texts"
    )
    made = inputs(model.parts[0].conversations, frame, candidates, Mode.text)
    assert len(set(made.shared)) > 1, "or nothing merges"
    ours = FrameScorer(network, frame, device=CPU).score_rows(
        made, np.arange(len(made)), batch_size=16
    )
    for scoring in (checkpoint.network, network):
        theirs = [
            scoring.get_score(
                model.tokenizer,
                [{"role": "user", "content": PROMPT}, {"role": "assistant", "content": text}],
            )
            for text in candidates.rows["text"]
        ]
        assert close(torch.from_numpy(ours).float(), varied(torch.tensor(theirs)))


@torch.no_grad()
def test_token_types_tell_an_encoder_where_the_response_begins(published):
    checkpoint = published("bert")
    frame = opened(checkpoint, "native").frame(PROMPT)
    both = checkpoint.tokenizer(PROMPT, "love", return_tensors="pt")
    scorer = FrameScorer(opened(checkpoint, "native").network(), frame, device=CPU)
    own = both["input_ids"][:, len(frame.prefix) :]
    reward = float(scorer.rewards(own, shared=len(frame.prefix))[0])
    typed, untyped = checkpoint.network(**both).logits, checkpoint.network(both["input_ids"]).logits
    assert close(reward, float(typed))
    assert abs(float(typed - untyped)) > 1e-2, "or the types say nothing"


@torch.no_grad()
@pytest.mark.parametrize("case", [case for case in ONCE if case[0] != "bert"], ids=str)
def test_pad_token_in_the_conversation_does_not_move_the_place_where_the_reward_is_read(
    published, case
):
    checkpoint = published(case[0])
    model = opened(checkpoint, case[1])
    network, frame = model.network(), model.frame(PROMPT)
    # A token of the frame itself: published pooling would stop before the first of them.
    network.config.pad_token_id = frame.prefix[-1]
    scorer = FrameScorer(network, frame, device=CPU)
    ids = responses(model, 2)
    for engine in scorer.engines:
        rewards = engine.rewards(with_suffix(ids, frame), shared=len(frame.prefix))
        assert close(rewards, varied(published_rewards(checkpoint, frame, ids))), engine.name
    assert network.config.pad_token_id == frame.prefix[-1], "the model is left as it was"
