"""Engines: from token ids to rewards; the prefix shared, in full, or by the model's own forward,
the measure that everything else is held to.

The shared prefix is one joint softmax over the prefix's keys (held once, for the whole batch) and
each candidate's own few keys; grouped heads, soft-capping and sliding windows included. It is
registered through transformers' AttentionInterface; `make bench` measures it against a cache copied
per candidate; `experiments/LOG.md` has the figures. Knows networks and token ids. Does not know
tokenizers, tables or files.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, DynamicCache

from pessimal.errors import ModelError
from pessimal.rewards.heads import Head, float32_copy, head_for
from pessimal.rewards.network import RewardNetwork, backbone_in

if TYPE_CHECKING:
    from pessimal.rewards.language import SequenceHead

ATTENTION = "pessimal_shared_prefix"

# A network that has no window says None; one that says nothing has it in its mask alone.
_NO_WINDOW_GIVEN = -1
# What networks hand on to every attention, and what changes nothing here.
_HARMLESS = {
    "cache_position",
    "dropout",
    "is_causal",
    "output_attentions",
    "output_hidden_states",
    "position_embeddings",
    "position_ids",
    "return_dict",
    "use_cache",
}


class CannotShareError(Exception):
    """This network's attention is another than what is shared here."""


@dataclass(frozen=True)
class Prefix:
    """Keys and values of the prefix, per layer, each (key-value heads, P, head size)."""

    keys: list[Tensor]
    values: list[Tensor]

    @property
    def length(self) -> int:
        return self.keys[0].shape[1]

    def start(self, length: int) -> "Prefix":
        """Its first `length` positions: views, nothing is copied."""
        return Prefix([k[:, :length] for k in self.keys], [v[:, :length] for v in self.values])


@torch.no_grad()
def run_prefix(backbone: nn.Module, ids: Tensor) -> tuple[Prefix, Tensor]:
    """Run the prefix ids (P,) once; its keys and values, and its last hidden states (P, hidden)."""
    return continue_prefix(backbone, Prefix([], []), ids)


@torch.no_grad()
def continue_prefix(backbone: nn.Module, prefix: Prefix, ids: Tensor) -> tuple[Prefix, Tensor]:
    """The prefix with ids (T,) behind it, and their last hidden states (T, hidden): only these are
    run."""
    # Not made from the configuration: layers with a sliding window would drop what lies before
    # their window.
    cache = DynamicCache()
    for layer, (key, value) in enumerate(zip(prefix.keys, prefix.values, strict=True)):
        cache.update(key.unsqueeze(0), value.unsqueeze(0), layer)
    output = backbone(input_ids=ids.unsqueeze(0), past_key_values=cache, use_cache=True)
    layers: list[Any] = cache.layers
    keys = [layer.keys[0].contiguous() for layer in layers]
    values = [layer.values[0].contiguous() for layer in layers]
    return Prefix(keys, values), output.last_hidden_state[0]


def shared_prefix_attention(
    module: nn.Module,
    query: Tensor,  # (B, H, T, D)
    key: Tensor,  # (B, K, T, D), the candidates' own; K key-value heads
    value: Tensor,  # (B, K, T, D)
    attention_mask: Tensor | None,
    *,
    scaling: float,
    shared_prefix: Prefix,
    softcap: float | None = None,
    sliding_window: int | None = _NO_WINDOW_GIVEN,
    **arguments: object,
) -> tuple[Tensor, None]:
    """Attention output (B, T, H, D) of the candidates' T tokens over prefix and own tokens, causal.

    Grouped heads stay grouped: the G = H / K queries of a group are rows of one product with their
    shared key. Raises CannotShareError where the network asks for something else (attention sinks,
    position biases, a window that is only in its mask).
    """
    _refuse_what_is_not_shared(module, sliding_window, arguments)
    layer: Any = module.layer_idx
    prefix_key, prefix_value = shared_prefix.keys[layer], shared_prefix.values[layer]  # (K, P, D)
    batch, heads, length, size = query.shape
    groups, before, _size = prefix_key.shape
    per_group = heads // groups
    small = (groups * batch, length * per_group)  # one product for each candidate and group

    # All candidates' queries of a group meet the prefix in one product: (K, B·T·G, D) x (K, D, P).
    rows = query.transpose(1, 2).reshape(batch * length, groups, per_group * size)
    rows = rows.transpose(0, 1).reshape(groups, batch * length * per_group, size)
    own_key = key.transpose(0, 1).reshape(groups * batch, length, size)
    own_value = value.transpose(0, 1).reshape(groups * batch, length, size)
    on_prefix = _scaled_product(rows, prefix_key, scaling)
    on_own = _scaled_product(rows.reshape(*small, size), own_key, scaling)
    scores = torch.cat([on_prefix, on_own.view(groups, -1, length)], dim=-1)  # (K, B·T·G, P + T)
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    unseen = _unseen(before, length, per_group, sliding_window, query.device)
    if unseen is not None:
        scores.view(*small, -1).masked_fill_(unseen, float("-inf"))
    weights = torch.softmax(scores, dim=-1, dtype=torch.float32).to(query.dtype)

    from_prefix = torch.bmm(weights[..., :before], prefix_value).view(*small, size)
    output = torch.baddbmm(from_prefix, weights[..., before:].reshape(*small, length), own_value)
    output = output.view(groups, batch * length, per_group * size)
    return output.transpose(0, 1).reshape(batch, length, heads, size), None


def _refuse_what_is_not_shared(
    module: nn.Module, sliding_window: int | None, arguments: dict[str, object]
) -> None:
    options = {name for name, value in arguments.items() if value is not None}
    if unknown := sorted(options - _HARMLESS):
        raise CannotShareError(f"its attention takes {', '.join(unknown)}")
    config = getattr(module, "config", None)
    window = getattr(config, "sliding_window", None)
    windowed = window and getattr(config, "use_sliding_window", True)
    if sliding_window == _NO_WINDOW_GIVEN and windowed:
        raise CannotShareError("its attention is not given the sliding window")


def _scaled_product(rows: Tensor, keys: Tensor, scaling: float) -> Tensor:
    """rows (n, m, D) times keys (n, l, D) transposed, times `scaling`, in one step."""
    nothing = rows.new_zeros(1, 1, 1)
    return torch.baddbmm(nothing, rows, keys.transpose(1, 2), beta=0, alpha=scaling)


@functools.lru_cache(maxsize=64)
@torch.inference_mode(False)  # kept from scans, which have it, for gradients, which cannot
def _unseen(
    before: int, length: int, per_group: int, window: int | None, device: torch.device
) -> Tensor | None:
    """bool (T·G, P + T): keys that a query does not see, later ones and those outside its sliding
    window."""
    query = torch.arange(before, before + length, device=device).unsqueeze(1)
    key = torch.arange(before + length, device=device).unsqueeze(0)
    unseen = key > query
    if window is not None and window != _NO_WINDOW_GIVEN:
        unseen |= key <= query - window
    return unseen.repeat_interleave(per_group, dim=0) if unseen.any() else None


AttentionInterface.register(ATTENTION, shared_prefix_attention)


# What the parts of a decoder are called: Llama and its kin, GPT-NeoX, GPT-2.
_LAYERS = ("layers", "h")
_NORMS = ("norm", "final_layer_norm", "ln_f")
# Of the last layer only the last position is read. What these parts of it give is added to the
# residual stream, so they may run on that position alone: their output is then added to all
# positions alike, and is right for that one.
ONE_POSITION = ("mlp", "self_attn.o_proj", "attention.dense", "attn.c_proj")


class Engine(Protocol):
    """Scores inputs of one length that begin alike."""

    name: str

    def rewards(self, ids: Tensor, *, shared: int) -> Tensor:
        """Rewards (batch,) float32 of the first `shared` ids of the prefix followed by `ids`
        (batch, length)."""


@dataclass(frozen=True)
class Decoder:
    """The parts of a decoder with a head that pessimal knows."""

    network: RewardNetwork
    backbone: nn.Module
    layers: nn.ModuleList
    norm: nn.Module
    """The network's own final norm, whose input is taken."""
    exact_norm: nn.Module
    """Its float32 copy, which gives the head's input."""
    head: "Head | SequenceHead"

    @classmethod
    def find(cls, network: RewardNetwork) -> "Decoder | None":
        """The parts of `network`, or None where it is laid out otherwise."""
        parts = getattr(network, "whole_parts", None)
        if parts is not None:  # it was sharded since: its weights are no more to be copied
            return parts
        if getattr(network, "own_position", False):
            return None
        backbone = backbone_in(network)
        norm, layers = _first(backbone, _NORMS), _first(backbone, _LAYERS)
        if norm is None or layers is None:
            return None
        weights = network.state_dict(keep_vars=True)
        if (make := getattr(network, "make_head", None)) is not None:
            head = make()
        elif kind := head_for({name: weight.shape for name, weight in weights.items()}):
            head = kind(network, output=network.reward_output)
        else:
            return None
        return cls(network, backbone, layers, norm, float32_copy(norm), head)

    def rewards(
        self,
        context: Tensor | None,
        *,
        read: Tensor | None = None,
        n_response: int | None = None,
        **inputs: Any,
    ) -> Tensor:
        """Run the backbone; the rewards (n,), final norm and head in float32, at the last position
        of each row, or of one row at the positions `read` (n,); of a process reward model at the
        steps among the last `n_response` ids, or among all."""
        assert isinstance(self.head, Head)
        if (steps := getattr(self.network, "steps", None)) is not None:
            positions = slice(None if n_response is None else -n_response, None)
            states = self.states(**inputs)[:, positions]
            values = self.head.values(states.flatten(0, 1), None).view(*states.shape[:2], -1)
            return steps.reduced(values, inputs["input_ids"][:, positions])
        final: list[Tensor] = []  # (n, hidden)

        def keep(_: nn.Module, arguments: tuple[Any, ...]) -> None:
            states = arguments[0]
            final.append((states[:, -1] if read is None else states[0, read]).float())

        with contextlib.ExitStack() as hooks:
            hooks.enter_context(hooked(self.norm, keep))
            for name, module in self.layers[-1].named_modules():
                if name in ONE_POSITION:
                    only = hooked(module, _last_position) if read is None else only_at(read, module)
                    hooks.enter_context(only)
            self.backbone(**inputs, use_cache=False)
        return self.head.read(self.exact_norm(final[0]), context)

    def states(self, **inputs: Any) -> Tensor:
        """Run the backbone; its final states (batch, T, hidden) float32 at all positions."""
        final: list[Tensor] = []
        with hooked(self.norm, lambda _, arguments: final.append(arguments[0].float())):
            self.backbone(**inputs, use_cache=False)
        return self.exact_norm(final[0])


class SharedPrefix:
    """The prefix runs once; candidates run their own tokens against its keys and values, which are
    never copied."""

    name = "shared-prefix"

    def __init__(self, decoder: Decoder, prefix: Prefix, context: Tensor | None = None):
        self.decoder, self.prefix, self.context = decoder, prefix, context
        self._start = functools.lru_cache(maxsize=64)(prefix.start)

    @staticmethod
    def suits(network: RewardNetwork) -> bool:
        """Whether its backbone's attention can be exchanged, and is what is shared here: causal,
        windowed or not."""
        backbone = backbone_in(network)
        kinds = set(getattr(backbone.config, "layer_types", None) or ())
        exchangeable = getattr(backbone, "_supports_attention_backend", False)
        return bool(exchangeable) and kinds <= {"full_attention", "sliding_attention"}

    def rewards(self, ids: Tensor, *, shared: int) -> Tensor:
        positions = torch.arange(shared, shared + ids.shape[1], device=ids.device).unsqueeze(0)
        with exchanged_attention(self.decoder.backbone, ATTENTION):
            return self.decoder.rewards(
                self.context,
                input_ids=ids,
                position_ids=positions,
                shared_prefix=self._start(shared),
            )

    def continued(self, ids: Tensor) -> "SharedPrefix":
        """The same with `ids` (T,) behind its prefix, which is not run again; what the head takes
        from the prompt stays."""
        prefix, _ = continue_prefix(self.decoder.backbone, self.prefix, ids)
        return SharedPrefix(self.decoder, prefix, self.context)


class FullForward:
    """Every candidate's whole input through the backbone, equal lengths, no padding; the head as in
    `Decoder`."""

    name = "full-forward"

    def __init__(self, decoder: Decoder, prefix: Tensor, context: Tensor | None = None):
        self.decoder, self.prefix, self.context = decoder, prefix, context

    def rewards(self, ids: Tensor, *, shared: int) -> Tensor:
        return self.whole_rewards(whole_inputs(self.prefix, ids, shared), n_response=ids.shape[1])

    def whole_rewards(self, ids: Tensor, *, n_response: int) -> Tensor:
        """Rewards (batch,) float32 of whole inputs (batch, length), whose last `n_response` ids are
        the response's."""
        return self.decoder.rewards(self.context, n_response=n_response, input_ids=ids)


class OwnForward:
    """Every candidate's whole input through the network's own forward, equal lengths, no padding:
    encoders, remote code, layouts and heads that pessimal does not know."""

    name = "own-forward"

    def __init__(
        self, network: RewardNetwork, prefix: Tensor, *, typed: bool = False, answer: int = 0
    ):
        """`answer` says how many of the prefix's last ids are the response's."""
        self.network, self.prefix, self.typed = network, prefix, typed
        self.begins = len(prefix) - answer

    def rewards(self, ids: Tensor, *, shared: int) -> Tensor:
        inputs, types = whole_inputs(self.prefix, ids, shared), None
        if self.typed:  # 0 for the prompt, 1 from where the response begins
            types = (torch.arange(inputs.shape[1], device=ids.device) >= self.begins).long()
            types = types.expand_as(inputs)
        return own_rewards(self.network, inputs, types, n_response=ids.shape[1])


def own_rewards(
    network: RewardNetwork,
    ids: Tensor,
    types: Tensor | None = None,
    *,
    n_response: int | None = None,
    own_position: bool = False,
) -> Tensor:
    """Rewards (batch,) float32 of whole inputs `ids` (batch, length) of one length, by the
    network's own forward.

    `types` (batch, length) are token types, for encoders that mark prompt and response by them;
    `n_response` says how many of the last ids are the response's, for networks that sum over these.
    Hub classifiers read the reward at the last token that is not the pad token; inputs here have no
    padding, and a template may well end in the pad token (pad = eos), so a token that is not in the
    batch stands in for it meanwhile: the last position is read; with `own_position` the one that
    the network's class takes.
    """
    config = network.config.get_text_config()
    pad = config.pad_token_id
    if not (own_position or getattr(network, "own_position", False)):
        config.pad_token_id = _absent(ids, config.vocab_size)
    inputs: dict[str, Any] = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    if types is not None:
        inputs["token_type_ids"] = types
    if getattr(network, "sequence", False):
        inputs["n_response"] = n_response
    try:
        output = network(**inputs)
    except torch.OutOfMemoryError:
        raise
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise ModelError(
            f"the own forward of {type(network).__name__} fails on ids that its tokenizer gives: "
            f"{type(error).__name__}: {error}. Mend its config.json or its tokenizer"
        ) from error
    except RuntimeError as error:
        if network.dtype is torch.float32:
            raise
        # QRM's code asks for float32 from autocast, which a CPU does not give.
        raise ModelError(
            f"the own forward of {type(network).__name__} fails in {network.dtype} on "
            f"{ids.device.type}: {error}. Type model.dtype=float32; or, for a head that pessimal "
            "knows, leave out model.trust_remote_code"
        ) from error
    finally:
        config.pad_token_id = pad
    rewards, column = rewards_in(output), network.reward_output
    if (steps := getattr(network, "steps", None)) is not None:
        if rewards.dim() != 3:
            raise ModelError(
                f"step_token reads a number at every step, and {type(network).__name__} gives a "
                f"tensor of shape {tuple(rewards.shape)}: give a token classifier, or the folder"
            )
        positions = slice(-(n_response or ids.shape[1]), None)
        return steps.reduced(rewards[:, positions].float(), ids[:, positions])
    outputs = rewards.numel() // len(ids)
    lacking = outputs < 2 if isinstance(column, slice) else column >= outputs
    if rewards.dim() > 2 or len(rewards) != len(ids) or lacking:
        raise ModelError(
            f"{type(network).__name__} gives a tensor of shape {tuple(rewards.shape)} for "
            f"{len(ids)} inputs; a reward model gives one number an input, or several of which "
            "model.output=NUMBER is the reward. Where a head is known to pessimal, leave out "
            "model.trust_remote_code: it reads all of its outputs"
        )
    return rewards.float().view(len(ids), -1)[:, column]


def rewards_in(output: Any) -> Tensor:
    """GRM gives nothing else, ArmoRM and QRM call it `score`, most `logits`, the others give it
    first."""
    if isinstance(output, Tensor):
        return output
    outputs = (getattr(output, name, None) for name in ("score", "logits"))
    return next((rewards for rewards in outputs if rewards is not None), output[0])


def _absent(ids: Tensor, vocabulary: int) -> int:
    """An id that is not among `ids`."""
    present = set(ids.unique().tolist())
    return next(i for i in range(vocabulary + 1) if i not in present)


def prefix_context(decoder: Decoder, prefix: Tensor) -> tuple[Prefix, Tensor | None]:
    """The prefix's keys and values, and what the head takes from the prompt."""
    keys_and_values, states = run_prefix(decoder.backbone, prefix)
    if not (isinstance(decoder.head, Head) and decoder.head.gated):
        return keys_and_values, None
    return keys_and_values, decoder.head.context(states.float(), prefix.tolist())


def whole_inputs(prefix: Tensor, ids: Tensor, shared: int) -> Tensor:
    """The first `shared` ids of the prefix followed by each row of `ids` (batch, length)."""
    return torch.cat([prefix[:shared].expand(len(ids), -1), ids], dim=1)


def _last_position(_: nn.Module, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    # Contiguous: on a CPU, bfloat16 products of a slice run at a tenth of the speed.
    return (arguments[0][:, -1:].contiguous(), *arguments[1:])


@contextlib.contextmanager
def hooked(module: nn.Module, hook: Callable[[nn.Module, tuple[Any, ...]], Any]) -> Iterator[None]:
    """While this lasts, `hook` sees the module's arguments before it runs."""
    handle = module.register_forward_pre_hook(hook)
    try:
        yield
    finally:
        handle.remove()


@contextlib.contextmanager
def only_at(positions: Tensor, module: nn.Module) -> Iterator[None]:
    """While this lasts, the module runs at some positions (n,) of its input (1, N, hidden) alone;
    elsewhere its output is zero, which nobody reads."""
    width = 0

    def take(_: nn.Module, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        nonlocal width
        width = arguments[0].shape[1]
        return (arguments[0][:, positions], *arguments[1:])

    def put_back(_module: nn.Module, _arguments: tuple[Any, ...], output: Any) -> Any:
        # A mixture of experts gives more than its output.
        computed, *rest = (output,) if isinstance(output, Tensor) else output
        everywhere = computed.new_zeros(1, width, computed.shape[-1])
        everywhere[0, positions] = computed.view(len(positions), -1)
        return (everywhere, *rest) if rest else everywhere

    handle = module.register_forward_hook(put_back)
    try:
        with hooked(module, take):
            yield
    finally:
        handle.remove()


@contextlib.contextmanager
def exchanged_attention(backbone: nn.Module, implementation: str) -> Iterator[None]:
    """While this lasts, the backbone's attention is the one that is registered under this name."""
    config: Any = backbone.config
    before = config._attn_implementation
    config._attn_implementation = implementation
    try:
        yield
    finally:
        config._attn_implementation = before


def _first(module: nn.Module, names: tuple[str, ...]) -> Any:
    return next((getattr(module, name) for name in names if hasattr(module, name)), None)
