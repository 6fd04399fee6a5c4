"""Changes of one response: their rewards are the model's own wherever they begin, and so is the gradient."""

import copy
import itertools
import math

import pytest
import torch
from torch import nn
from transformers import AutoModelForSequenceClassification
from transformers.models.bert import BertConfig
from transformers.models.gemma2 import Gemma2Config
from transformers.models.gpt2 import GPT2Config
from transformers.models.gpt_neox import GPTNeoXConfig
from transformers.models.llama import LlamaConfig
from transformers.models.mistral import MistralConfig
from transformers.models.mixtral import MixtralConfig
from transformers.models.qwen2 import Qwen2Config
from transformers.models.qwen3 import Qwen3Config

from pessimal.errors import ModelError
from pessimal.models.heads.gated import GatedHead
from pessimal.models.own_code import native_class
from pessimal.scoring import common_prefix
from pessimal.scoring.common_prefix import CommonPrefixScorer, first_changes
from pessimal.scoring.engine import (
    Decoder,
    FullForward,
    OwnForward,
    SharedPrefix,
    own_rewards,
    prefix_context,
)

VOCABULARY, PREFIX, LENGTH = 50, 7, 5
SMALL = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8,
}  # fmt: skip
ALIKE = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
WINDOWED = {"use_sliding_window": True, "max_window_layers": 1}  # the second layer only
NETWORKS = {
    "llama": (LlamaConfig, SMALL),
    "mistral, a window shorter than the response": (MistralConfig, {**SMALL, "sliding_window": 3}),
    "mistral, a window that cuts the prefix": (MistralConfig, {**SMALL, "sliding_window": 8}),
    "qwen2, a window in one layer": (Qwen2Config, {**SMALL, **WINDOWED, "sliding_window": 6}),
    "qwen3": (Qwen3Config, SMALL),
    "gemma2": (
        Gemma2Config,
        {**SMALL, "query_pre_attn_scalar": 8, "sliding_window": 6, "attn_logit_softcapping": 0.5},
    ),
    "gpt-neox": (GPTNeoXConfig, ALIKE),
    "gpt2": (GPT2Config, {"n_embd": 32, "n_layer": 2, "n_head": 4, "initializer_range": 0.4}),
    "mixtral": (
        MixtralConfig,
        {**SMALL, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": None},
    ),
    "gated": None,
}
GATE = {
    "regression_layer.weight": (5, 32), "reward_transform_matrix": (5, 5), "gating.logit_scale": (1,),
    "gating.layers.0.weight": (12, 32), "gating.layers.0.bias": (12,), "gating.layers.1.weight": (5, 12),
}  # fmt: skip


@torch.no_grad()
def network_of(name: str) -> nn.Module:
    """A random network whose biases and norms are not what they begin with."""
    torch.manual_seed(0)
    kind, sizes = NETWORKS[name] or (LlamaConfig, SMALL)
    config = kind(**{"initializer_range": 0.2, **sizes}, vocab_size=VOCABULARY, num_labels=1, pad_token_id=3)
    if name == "gated":
        opening = prompt()[-2:].tolist()
        made = native_class(config)(config, head=GatedHead, shapes=GATE, assistant_opening=opening)
    else:
        made = AutoModelForSequenceClassification.from_config(config)
    for weight in made.parameters():
        weight.add_(0.1 * torch.randn(weight.shape))
    made.reward_output = 0
    return made.eval().requires_grad_(False)


@pytest.fixture(scope="module", params=NETWORKS)
def network(request):
    return network_of(request.param)


@pytest.fixture(scope="module")
def llama():
    return network_of("llama")


@pytest.fixture(scope="module")
def encoder():
    torch.manual_seed(0)
    config = BertConfig(**ALIKE, initializer_range=0.4, vocab_size=VOCABULARY, num_labels=1, pad_token_id=3)
    made = AutoModelForSequenceClassification.from_config(config).eval().requires_grad_(False)
    made.reward_output = 0
    return made


def prompt() -> torch.Tensor:
    return torch.randint(VOCABULARY, (PREFIX,), generator=torch.Generator().manual_seed(1))


def suffix_of(closing: int) -> torch.Tensor:
    return torch.randint(VOCABULARY, (closing,), generator=torch.Generator().manual_seed(2))


def scorer_of(network: nn.Module, *, closing: int = 2, kind=SharedPrefix, **options) -> CommonPrefixScorer:
    if kind is OwnForward:
        engine = OwnForward(network, prompt(), typed=True)
    else:
        decoder = Decoder.of(network)
        keys_and_values, context = prefix_context(decoder, prompt())
        engine = kind(decoder, prompt() if kind is FullForward else keys_and_values, context)
    return CommonPrefixScorer(network, engine, prefix=prompt(), suffix=suffix_of(closing), **options)


def whole(response: torch.Tensor, closing: int) -> torch.Tensor:
    return torch.cat([prompt(), response, suffix_of(closing)])


@torch.no_grad()
def own(network: nn.Module, responses: torch.Tensor, *, closing: int) -> torch.Tensor:
    """Rewards (n,) of responses, each alone, by nothing but the network."""
    pad, network.config.pad_token_id = network.config.pad_token_id, None
    rewards = [network(input_ids=whole(row, closing)[None]).logits.reshape(()) for row in responses]
    network.config.pad_token_id = pad
    return torch.stack(rewards)


def typed(network: nn.Module, responses: torch.Tensor, *, closing: int) -> torch.Tensor:
    """The same of an encoder that distinguishes prompt and response."""
    wholes = torch.stack([whole(row, closing) for row in responses])
    types = (torch.arange(wholes.shape[1]) >= PREFIX).long()[None]
    return torch.cat([network(input_ids=row[None], token_type_ids=types).logits[0] for row in wholes])


def changes(anchor: torch.Tensor, *, seed: int = 0) -> torch.Tensor:
    """Every kind of change of one response (L,), out of order: one place, two, all, none, and some twice."""
    generator = torch.Generator().manual_seed(seed)
    length = len(anchor)
    places = [[p] for p in range(length)] * 9 + [*itertools.combinations(range(length), 2), range(length), []]
    rows = anchor.repeat(len(places), 1)
    for row, where in zip(rows, places, strict=True):
        for place in where:
            row[place] = (row[place] + torch.randint(1, VOCABULARY, (), generator=generator)) % VOCABULARY
    rows = torch.cat([rows, rows[::7], anchor[None]])
    return rows[torch.randperm(len(rows), generator=generator)]


def response(length: int = LENGTH, *, seed: int = 3) -> torch.Tensor:
    return torch.randint(VOCABULARY, (length,), generator=torch.Generator().manual_seed(seed))


def close(ours: torch.Tensor, theirs: torch.Tensor) -> bool:
    assert theirs.std() > 0.05, "rewards that do not vary would make this test empty"
    return bool((ours - theirs).abs().max() <= 1e-5 * theirs.std().clamp(min=1))


@pytest.mark.parametrize("closing", [0, 2])
def test_rewards_are_the_models_own_wherever_a_response_changes(network, closing):
    anchor = response()
    rows = changes(anchor)
    theirs = own(network, rows, closing=closing)
    by_prefix = scorer_of(network, closing=closing)
    assert close(by_prefix.rewards(rows, anchor=anchor), theirs)
    assert close(by_prefix.rewards(rows), theirs)


@pytest.mark.parametrize("closing", [0, 2])
def test_responses_of_one_token(network, closing):
    rows = torch.arange(VOCABULARY)[:, None]
    theirs = own(network, rows, closing=closing)
    by_prefix = scorer_of(network, closing=closing)
    assert close(by_prefix.rewards(rows, anchor=torch.tensor([7])), theirs)
    assert close(by_prefix.rewards(rows), theirs)


def test_an_anchor_that_has_nothing_in_common_with_the_responses_changes_nothing(llama):
    anchor = response()
    rows = (anchor + torch.randint(1, VOCABULARY, (70, LENGTH))) % VOCABULARY
    assert close(scorer_of(llama).rewards(rows, anchor=anchor), own(llama, rows, closing=2))


def test_reward_does_not_depend_on_what_else_is_asked(llama):
    anchor = response()
    rows, by_prefix = changes(anchor), scorer_of(llama)
    together = by_prefix.rewards(rows, anchor=anchor)
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(5))
    assert close(by_prefix.rewards(rows[order], anchor=anchor), together[order])
    alone = torch.cat([by_prefix.rewards(row[None], anchor=anchor) for row in rows])
    assert close(alone, together)
    assert len(by_prefix.rewards(rows[:0], anchor=anchor)) == len(by_prefix.rewards(rows[:0])) == 0


class Asked:
    """What the network was asked for: in every pass (rows, own tokens, shared tokens) of each group; every continuation."""

    def __init__(self, monkeypatch):
        self.passes: list[list[tuple[int, int, int]]] = []
        self.continued: list[list[int]] = []
        single, several, continued = (
            SharedPrefix.rewards,
            common_prefix.packed_rewards,
            SharedPrefix.continued,
        )

        def watched(engine, ids, *, shared):
            self.passes.append([(*ids.shape, shared)])
            return single(engine, ids, shared=shared)

        def watched_pack(engine, groups):
            self.passes.append([(*group.ids.shape, group.shared) for group in groups])
            return several(engine, groups)

        def watched_too(engine, ids):
            self.continued.append(ids.tolist())
            return continued(engine, ids)

        monkeypatch.setattr(SharedPrefix, "rewards", watched)
        monkeypatch.setattr(common_prefix, "packed_rewards", watched_pack)
        monkeypatch.setattr(SharedPrefix, "continued", watched_too)

    @property
    def rows(self) -> list[int]:
        """Responses of every pass."""
        return [sum(n for n, *_ in groups) for groups in self.passes]


def singles(anchor: torch.Tensor, each: int) -> torch.Tensor:
    """`each` changes (n, L) of every place of a response (L,)."""
    rows = anchor.repeat(each * len(anchor), 1)
    places = torch.arange(len(rows)) % len(anchor)
    rows[torch.arange(len(rows)), places] = (anchor[places] + 1 + torch.arange(len(rows)) % 40) % VOCABULARY
    return rows


def test_what_stands_before_a_change_is_not_run_again(llama, monkeypatch):
    by_prefix, anchor = scorer_of(llama), response()
    asked = Asked(monkeypatch)
    by_prefix.rewards(singles(anchor, 4), anchor=anchor)
    assert asked.passes == [[(4, LENGTH - p + 2, PREFIX + p) for p in range(LENGTH)]], "all in one pass"
    asked.passes.clear()
    by_prefix.shares_starts = False
    by_prefix.rewards(singles(anchor, 4), anchor=anchor)
    assert asked.passes == [[(4 * LENGTH, LENGTH + 2, PREFIX)]]


def test_anchor_is_not_run_for_what_shares_the_prompt_alone(llama, monkeypatch):
    by_prefix, anchor = scorer_of(llama), response()
    asked = Asked(monkeypatch)
    first = singles(anchor, 4)[::LENGTH]
    assert close(by_prefix.rewards(first, anchor=anchor), own(llama, first, closing=2))
    assert not asked.continued


def test_many_responses_take_several_passes(llama, monkeypatch):
    by_prefix, anchor = scorer_of(llama), response()
    asked = Asked(monkeypatch)
    rows = singles(anchor, 500)
    rewards = by_prefix.rewards(rows, anchor=anchor)
    assert 2 < len(asked.passes) < 2 * LENGTH
    assert sum(asked.rows) == 500 * LENGTH
    assert all(own == LENGTH + 2 - (shared - PREFIX) for groups in asked.passes for _, own, shared in groups)
    assert close(rewards, by_prefix.rewards(rows))


@pytest.mark.parametrize("size", [1, 5, 7, 64])
def test_batches_are_no_larger_than_asked_for(llama, monkeypatch, size):
    by_prefix, anchor = scorer_of(llama, batch_size=size), response()
    asked = Asked(monkeypatch)
    rows = singles(anchor, 20)
    rewards = by_prefix.rewards(rows, anchor=anchor)
    assert asked.rows == [size] * (len(rows) // size) + [len(rows) % size] * (len(rows) % size > 0)
    assert close(rewards, own(llama, rows, closing=2))


def test_out_of_memory_halves_a_pass_until_it_fits(llama, monkeypatch, caplog):
    by_prefix, anchor = scorer_of(llama), response()
    rows = singles(anchor, 8)
    whole, several, sizes = by_prefix.rewards(rows, anchor=anchor), common_prefix.packed_rewards, []

    def small_card(engine, groups):
        sizes.append(sum(len(group.ids) for group in groups))
        if sizes[-1] > 5:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return several(engine, groups)

    monkeypatch.setattr(common_prefix, "packed_rewards", small_card)
    assert close(by_prefix.rewards(rows, anchor=anchor), whole)
    assert sizes == [40, 16, 8, 4, 4, 8, 4, 4, 24, 8, 4, 4, 16, 8, 4, 4, 8, 4, 4]
    assert "out of memory with 40 candidates" in caplog.text


def test_one_response_that_does_not_fit_is_an_error(llama, monkeypatch):
    def no_card(engine, groups):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(common_prefix, "packed_rewards", no_card)
    with pytest.raises(torch.OutOfMemoryError):
        common_prefix.packed_in_memory(
            scorer_of(llama).engine, [common_prefix.Group(response()[None], PREFIX)]
        )


def test_one_anchor_is_run_once(llama, monkeypatch):
    by_prefix, anchor = scorer_of(llama), response()
    asked = Asked(monkeypatch)
    rows = singles(anchor, 4)
    first = by_prefix.rewards(rows, anchor=anchor)
    again = by_prefix.rewards(rows, anchor=anchor.clone())
    assert torch.equal(first, again)
    assert asked.continued == [anchor[:-1].tolist()], "all but its last token, which none shares"
    other = anchor.clone()
    other[1] = (other[1] + 1) % VOCABULARY
    rows = singles(other, 4)
    assert close(by_prefix.rewards(rows, anchor=other), own(llama, rows, closing=2))
    assert len(asked.continued) == 2
    other[2] = (other[2] + 1) % VOCABULARY  # the caller's own tensor, changed where it lies
    rows = singles(other, 4)
    assert close(by_prefix.rewards(rows, anchor=other), own(llama, rows, closing=2))


def test_engines_that_share_nothing_need_no_anchor(llama, encoder):
    anchor = response()
    rows = changes(anchor)
    theirs = own(llama, rows, closing=2)
    assert close(scorer_of(llama, kind=FullForward).rewards(rows, anchor=anchor), theirs)
    by_types = typed(encoder, rows, closing=2)
    assert close(scorer_of(encoder, kind=OwnForward).rewards(rows, anchor=anchor), by_types)
    assert not close(own(encoder, rows, closing=2), by_types), "or types were not given"


@torch.no_grad()
def test_low_precision_rewards_are_near_the_models_own(llama):
    low, anchor = copy.deepcopy(llama).bfloat16(), response()
    rows = changes(anchor)
    rewards = scorer_of(low).rewards(rows, anchor=anchor)
    assert rewards.dtype is torch.float32
    theirs = torch.cat([own_rewards(low, whole(row, 2)[None]) for row in rows])
    assert 0 < (rewards - theirs).abs().max() < 0.1 * theirs.std()


def by_one_hot(network: nn.Module, at: torch.Tensor, *, closing: int, **inputs) -> torch.Tensor:
    """d reward / d one-hot (L, V) by the network's own forward on a mixture of embeddings."""
    embedding = network.get_input_embeddings()
    ids = whole(at, closing)
    mixture = nn.functional.one_hot(ids, VOCABULARY).to(embedding.weight.dtype).requires_grad_()
    scale = math.sqrt(embedding.weight.shape[1]) if "gemma" in network.config.model_type else 1.0
    handle = embedding.register_forward_hook(lambda *_: (mixture @ embedding.weight)[None] * scale)
    pad, network.config.pad_token_id = network.config.pad_token_id, None
    try:
        network(input_ids=ids[None], **inputs).logits.sum().backward()
    finally:
        handle.remove()
        network.config.pad_token_id = pad
    return mixture.grad[PREFIX : PREFIX + len(at)]


def same(ours: torch.Tensor, theirs: torch.Tensor) -> bool:
    return bool((ours - theirs).abs().max() <= 1e-4 * theirs.abs().max())


@pytest.mark.parametrize(("length", "closing"), [(1, 0), (1, 2), (LENGTH, 0), (LENGTH, 2)])
def test_gradient_is_that_of_a_one_hot_input(network, length, closing):
    at = response(length)
    theirs = by_one_hot(network, at, closing=closing)
    ours = scorer_of(network, closing=closing).gradient(at)
    assert ours.shape == (length, VOCABULARY)
    assert same(ours, theirs)
    assert same(scorer_of(network, closing=closing, kind=FullForward).gradient(at), theirs)


def test_gradient_of_an_encoder_by_its_own_forward(encoder):
    at = response()
    types = (torch.arange(PREFIX + LENGTH + 2) >= PREFIX).long()[None]
    theirs = by_one_hot(encoder, at, closing=2, token_type_ids=types)
    assert same(scorer_of(encoder, kind=OwnForward).gradient(at), theirs)
    assert not same(by_one_hot(encoder, at, closing=2), theirs), "or types were not given"


def test_gradient_in_low_precision_is_near_that_in_float32(llama):
    exact = scorer_of(llama).gradient(response())
    low = scorer_of(copy.deepcopy(llama).bfloat16()).gradient(response())
    assert low.dtype is torch.float32
    assert torch.cosine_similarity(low.flatten(), exact.flatten(), dim=0) > 0.99
    assert not torch.equal(low, exact)


def test_gradient_after_a_scan_in_inference_mode(llama):
    by_prefix, at = scorer_of(llama), response(4)
    with torch.inference_mode():  # as Lightning's prediction loop does
        scorer_of(llama).rewards(at[None])
    assert same(by_prefix.gradient(at), by_one_hot(llama, at, closing=2))


def test_embeddings_of_zeros_do_not_spoil_the_gradient(llama):
    bare = copy.deepcopy(llama)
    at = response()
    bare.get_input_embeddings().weight[whole(at, 2)[PREFIX:]] = 0
    theirs = by_one_hot(bare, at, closing=2)
    assert theirs.abs().max() > 1e-3
    assert same(scorer_of(bare).gradient(at), theirs)


def test_network_that_looks_tokens_up_twice_is_refused(llama):
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.config = copy.deepcopy(llama), llama.config
            self.reward_output, self.dtype = 0, llama.dtype

        def get_input_embeddings(self):
            return self.inner.get_input_embeddings()

        def forward(self, input_ids, attention_mask):
            self.get_input_embeddings()(input_ids)
            return self.inner(input_ids=input_ids, attention_mask=attention_mask)

    engine = OwnForward(Twice(), prompt())
    with pytest.raises(ModelError, match="looks tokens up 2 times"):
        CommonPrefixScorer(engine.network, engine, prefix=prompt(), suffix=suffix_of(2)).gradient(response())


def hooks(network: nn.Module) -> int:
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in network.modules())


def test_network_is_left_as_it_was(network, monkeypatch):
    anchor, before = response(), network.config._attn_implementation
    rows = changes(anchor)
    reward = own(network, rows[:1], closing=2)
    by_prefix = scorer_of(network)
    by_prefix.rewards(rows, anchor=anchor)
    by_prefix.gradient(anchor)
    monkeypatch.setattr(by_prefix.engine.decoder.head, "read", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        by_prefix.gradient(anchor)
    assert hooks(network) == 0
    assert network.config._attn_implementation == before
    assert all(weight.grad is None and not weight.requires_grad for weight in network.parameters())
    assert torch.equal(own(network, rows[:1], closing=2), reward)


def test_rewards_carry_no_gradient(llama):
    anchor, trainable = response(), copy.deepcopy(llama).requires_grad_()
    assert not scorer_of(trainable).rewards(changes(anchor), anchor=anchor).requires_grad


def test_module_that_gives_more_than_its_output_runs_at_the_places_that_are_read():
    class Experts(nn.Module):
        def forward(self, states):
            return 2 * states, states.shape[1]

    states, module = torch.arange(1.0, 13).view(1, 6, 2), Experts()
    with common_prefix._only_at(torch.tensor([1, 5]), module):
        output, seen = module(states)
    assert seen == 2
    assert output[0].tolist() == [[0, 0], [6, 8], [0, 0], [0, 0], [0, 0], [22, 24]]
    assert hooks(module) == 0


def test_first_change():
    anchor = torch.tensor([1, 2, 3])
    rows = torch.tensor([[1, 2, 3], [1, 2, 9], [1, 9, 3], [9, 2, 9], [1, 9, 9]])
    assert first_changes(rows, anchor).tolist() == [2, 2, 1, 0, 1]
    assert first_changes(rows[:, :1], anchor[:1]).tolist() == [0, 0, 0, 0, 0]
