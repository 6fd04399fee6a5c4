"""Responses of several tokens in one frame: the engine chosen and checked as the scan's is, then common-prefix scoring.

Knows the scorer and its trust check. Does not know what is searched for.
"""

import logging

import numpy as np
import torch
from torch import Tensor

from pessimal.models.frame import Frame
from pessimal.models.spec import Dtype
from pessimal.scoring.candidates import Inputs
from pessimal.scoring.common_prefix import CommonPrefixScorer
from pessimal.scoring.scorer import FrameScorer
from pessimal.scoring.trust import SAMPLE, Trust

log = logging.getLogger(__name__)


class ResponseScorer:
    """Rewards and gradients of responses of up to `length` tokens to one prompt, by the fastest engine that gives the
    model's own rewards.

    Checked when it is made, on random responses of `allowed` ids: the engine as before a scan, then changes of one
    random response that share its beginning. Where these differ from the model's own forward, a slower way is taken,
    and said.
    """

    def __init__(
        self,
        network: torch.nn.Module,
        frame: Frame,
        *,
        dtype: Dtype,
        device: torch.device,
        length: int,
        allowed: np.ndarray,
        batch_size: int | None = None,
    ):
        self.frame, self.device = frame, device
        self.scorer = FrameScorer(network, frame, device=device)
        random = np.random.default_rng(0)
        lengths = [length] * SAMPLE + list(range(1, length))
        samples = [random.choice(allowed, size=n) for n in lengths]
        self.scorer.establish_trust(self._inputs(samples), dtype=dtype)
        self.trust: Trust | None = self.scorer.trust
        """Result of the check; None where no reward of the sample was a number."""
        prefix = torch.tensor(frame.prefix, dtype=torch.long, device=device)
        suffix = torch.tensor(frame.suffix, dtype=torch.long, device=device)
        self.common_prefix = CommonPrefixScorer(
            network, self.scorer.engines[0], prefix=prefix, suffix=suffix, batch_size=batch_size
        )
        self.common_prefix_difference = self._check_common_prefix(samples[0], allowed, random)
        """Largest |changes of one response − own forward|, in units of reward."""

    @property
    def path(self) -> str:
        """Name of the way that scores."""
        return self.scorer.attention + (", common prefix" if self.common_prefix.shares_starts else "")

    def rewards(self, responses: Tensor, *, anchor: Tensor | None = None) -> Tensor:
        """Rewards (n,) float32 of `responses` (n, L); see `CommonPrefixScorer`."""
        return self.common_prefix.rewards(responses, anchor=anchor)

    def gradient(self, response: Tensor) -> Tensor:
        """d reward / d one-hot (L, V) float32 at one response (L,)."""
        return self.common_prefix.gradient(response)

    def own_rewards(self, responses: Tensor) -> np.ndarray:
        """Rewards float64 (n,) of `responses` (n, L): the model's own forward, one by one, no cache."""
        inputs = self._inputs([row.numpy() for row in responses.cpu()])
        return self.scorer.own_rewards(inputs, np.arange(len(inputs)))

    def _check_common_prefix(
        self, anchor: np.ndarray, allowed: np.ndarray, random: np.random.Generator
    ) -> float:
        if not self.common_prefix.shares_starts or self.trust is None:
            return 0.0
        length = len(anchor)
        changed = np.tile(anchor, (2 * length, 1))
        changed[np.arange(2 * length), np.arange(2 * length) % length] = random.choice(
            allowed, size=2 * length
        )
        responses = torch.from_numpy(changed).long()
        own = self.own_rewards(responses)
        rewards = (
            self.common_prefix.rewards(responses, anchor=torch.from_numpy(anchor).long())
            .double()
            .cpu()
            .numpy()
        )
        finite = np.isfinite(own)
        difference = float(np.abs(rewards - own)[finite].max(initial=0.0))
        if not difference <= self.trust.tolerance:
            log.warning(
                "Sharing the beginnings of responses differs from the model's own forward by %.3g (allowed: %.3g) on %d "
                "changes of one response. Every response is run by itself: slower, but right.",
                difference,
                self.trust.tolerance,
                len(changed),
            )
            self.common_prefix.shares_starts = False
        return difference

    def _inputs(self, responses: list[np.ndarray]) -> Inputs:
        whole = [np.concatenate([ids, self.frame.suffix]).astype(np.int32) for ids in responses]
        return Inputs(
            prefix=self.frame.prefix,
            shared=np.full(len(whole), len(self.frame.prefix), dtype=np.int32),
            rest=np.concatenate(whole),
            ends=np.cumsum([len(ids) for ids in whole]),
            survives=None,
        )
