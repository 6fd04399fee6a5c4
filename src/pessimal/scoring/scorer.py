"""One network, one frame: chooses the engine, checks it, and scores batches with it.

Knows engines and the trust check. Does not know tables, files or Lightning.
"""

import logging
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pessimal.models.frame import Frame
from pessimal.models.spec import Dtype
from pessimal.scoring.candidates import Inputs, batches
from pessimal.scoring.engine import Decoder, FullForward, SharedPrefix
from pessimal.scoring.trust import SAMPLE, Trust, check_trust, numerical_noise

log = logging.getLogger(__name__)


@dataclass
class FrameScorer:
    """Scores responses of one network inside one frame."""

    network: torch.nn.Module
    frame: Frame
    device: torch.device
    trust: Trust | None = None
    """What `establish_trust` found."""

    def __post_init__(self):
        prefix = torch.tensor(self.frame.prefix, dtype=torch.long, device=self.device)
        suffix = torch.tensor(self.frame.suffix, dtype=torch.long, device=self.device)
        self._full = FullForward(self.network, prefix=prefix, suffix=suffix)
        self._whole = FullForward(self.network, prefix=prefix[:0], suffix=suffix[:0])
        self._engine = self._full
        if SharedPrefix.suits(self.network) and len(prefix):
            self._engine = SharedPrefix(Decoder.of(self.network), prefix=prefix, suffix=suffix)

    @property
    def attention(self) -> str:
        """Name of the path in use."""
        return self._engine.name

    @torch.inference_mode()
    def rewards(self, ids: Tensor, *, framed: bool = True) -> Tensor:
        """Rewards (batch,) float32 of response ids (batch, length), or of whole conversations where not `framed`."""
        if not framed:
            return self._whole.rewards(ids)
        if ids.shape[1] + len(self.frame.suffix) == 0:
            # An empty response: the reward stands at the prefix's own last token.
            return self._full.rewards(ids)
        return self._engine.rewards(ids)

    @torch.inference_mode()
    def establish_trust(self, inputs: Inputs, *, dtype: Dtype) -> None:
        """Compare with the model's own forward on a random sample; fall back to full forwards where it differs."""
        fitting = [i for i, (r, f) in enumerate(zip(inputs.responses, inputs.framed, strict=True)) if f and r]
        sample = np.random.default_rng(0).permutation(fitting)[:SAMPLE]
        if not len(sample):
            return
        responses = [torch.tensor(inputs.responses[i], device=self.device) for i in sample]
        wholes = [torch.tensor(self.frame.around(inputs.responses[i]), device=self.device) for i in sample]
        self.trust = check_trust(self.network, self._engine, self._full, wholes, responses, dtype=dtype)
        if not self.trust.holds and self._engine is not self._full:
            log.warning(
                "The shared-prefix engine differs from the model's own forward by %.3g (allowed: %.3g) on %d random "
                "candidates. Falling back to full forwards: slower, but the model's own arithmetic.",
                self.trust.largest_difference,
                self.trust.tolerance,
                self.trust.n,
            )
            self._engine = self._full
            self.trust = check_trust(self.network, self._engine, self._full, wholes, responses, dtype=dtype)
        if not self.trust.holds:
            log.warning(
                "Full forwards differ from the model's own forward at batch 1 by %.3g (allowed: %.3g); the table "
                "records it.",
                self.trust.largest_difference,
                self.trust.tolerance,
            )

    @torch.inference_mode()
    def noise_of(self, inputs: Inputs, rows: np.ndarray, rewards: np.ndarray) -> float:
        """Numerical error of a float32 pass that gave `rewards` (n,) to some `rows` (n,): see `numerical_noise`."""
        wholes = [
            self.frame.around(inputs.responses[i]) if inputs.framed[i] else inputs.responses[i] for i in rows
        ]
        return numerical_noise(self.network, rewards, [torch.tensor(w, device=self.device) for w in wholes])

    def score_rows(self, inputs: Inputs, rows: np.ndarray, *, batch_size: int) -> np.ndarray:
        """Rewards float64 (n,) of some rows of `inputs`, outside any loop: for re-scoring."""
        subset = Inputs([inputs.responses[i] for i in rows], inputs.framed[rows], None)
        rewards = np.empty(len(rows))
        for framed, chosen in batches(subset, size=batch_size):
            ids = torch.tensor([subset.responses[i] for i in chosen], device=self.device)
            rewards[chosen] = self.rewards(ids, framed=framed).double().cpu().numpy()
        return rewards
