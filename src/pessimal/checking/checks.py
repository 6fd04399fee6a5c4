"""One check of the suite, and many as a table; the checks that need no network: of tokenizer and
template, and of precisions against one another, which is arithmetic over rewards."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from scipy.stats import spearmanr

from pessimal.rewards.formats import token_ids
from pessimal.rewards.frame import Format, Frame
from pessimal.rewards.spec import Dtype
from pessimal.scoring.candidates import Candidates
from pessimal.scoring.trust import allowed, largest_difference

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase
from pathlib import Path
from typing import Any

import yaml

NAMED: dict[str, Any] = yaml.safe_load(
    Path(__file__).with_name("faults.yaml").read_text(encoding="utf-8")
)
"""Faults of servers, of trainers' loops and of graders, and the formats of answers."""


AT_MOST = 4096
"""Tokens of the vocabulary that take the round trip; a random sample of a larger one."""
WHAT: dict[str, str] = NAMED["checks"]
"""The claim that each check tests, in one sentence."""


@dataclass(frozen=True)
class Check:
    """Result of one check, measured and allowed; by default of one that does not apply to this
    model, or to this machine."""

    check: str
    """Identifier, the same for every model: a key of WHAT."""
    what: str = field(init=False)
    """The claim that is tested, in one sentence."""
    passed: bool | None = None
    """None where the check does not apply, or only reports a number."""
    measured: float | None = None
    """The measured value; None where nothing could be measured."""
    allowed: float | None = None
    """Largest value that passes; None where there is nothing to pass."""
    unit: str = "reward"
    """Unit of `measured` and `allowed`: `reward` (units of the model's reward), `SD` (of the
    rewards), or what is counted."""
    n: int = 0
    """Responses, texts or tokens that it rests on."""
    note: str = ""
    """Meaning of a failure and what to type; why the check does not apply; otherwise a remark."""
    part: int = 1
    """Part of the reward, where it is an implicit one or a judge of two."""

    def __post_init__(self):
        object.__setattr__(self, "what", WHAT[self.check])

    @property
    def result(self) -> str:
        """`pass`, `FAIL`, `info` (a number without a limit) or `n/a` (does not apply)."""
        if self.passed is None:
            return "n/a" if self.measured is None else "info"
        return "pass" if self.passed else "FAIL"


def check_limit(
    check: str,
    measured: float,
    allowed: float,
    *,
    n: int,
    note: str,
    unit: str = "reward",
    otherwise: str = "",
) -> Check:
    """A check that passes up to `allowed`; `note` is for when it fails. What is not a number does
    not pass."""
    passed = bool(measured <= allowed)
    value = float(measured) if np.isfinite(measured) else None
    return Check(check, passed, value, float(allowed), unit, n, otherwise if passed else note)


def as_table(checks: Sequence[Check]) -> pd.DataFrame:
    """One row a check; `passed` is nullable. The column `part` is there where a reward has
    several."""
    table = pd.DataFrame([asdict(check) for check in checks])
    if (table["part"] == 1).all():
        table = table.drop(columns="part")
    return table.astype(
        {"passed": "boolean", "measured": "float64", "allowed": "float64", "n": "int64"}
    )


def check_beginning(
    tokenizer: "PreTrainedTokenizerBase", conversations: Format, frame: Frame
) -> Check:
    """BOS ids in a templated conversation, as scans have it."""
    bos, unit = tokenizer.bos_token_id, "BOS ids"
    if bos is None:
        return Check("bos", unit=unit, note="the tokenizer has no such token")
    # The same token may open or end turns (SmolLM2's does).
    ids = conversations.ids(frame.prompt, ["love"])[0]
    count = next((i for i, token in enumerate(ids) if token != bos), len(ids))
    right = 1 if count or token_ids(tokenizer, "love", special=True)[:1] == [bos] else 0
    note = (
        f"The chat template writes {count} of them, and the tokenizer begins texts with {right}. "
    )
    note += "If the model's card says nothing else, mend tokenizer.chat_template ({{ bos_token }} "
    note += "at its start), then tokenizer.save_pretrained(folder)"
    passed = count == right
    return Check("bos", passed, float(count), float(right), unit, 1, "" if passed else note)


def round_trip(
    tokenizer: "PreTrainedTokenizerBase",
    written: Format,
    frame: Frame,
    words: Candidates,
    *,
    responses: Sequence[Sequence[int]],
    seed: int,
) -> list[Check]:
    """Whether texts keep the frame as it is, and which share of the vocabulary makes the round
    trip."""
    texts = tokenizer.batch_decode(list(map(list, responses)), clean_up_tokenization_spaces=False)
    pairs = zip(texts, written.ids(frame.prompt, texts), strict=True)
    tied = [text for text, ids in pairs if frame.inside(ids) is None]
    note = f"{len(tied)} of {len(texts)} random texts are tied to what stands around them, first "
    note += f"{tied[:1]!r}. mode=ids is not affected; mode=text takes the ids of the template"
    some = words.rows.iloc[np.random.default_rng(seed).permutation(len(words.rows))[:AT_MOST]]
    inputs = written.ids(frame.prompt, some["text"].tolist())
    pairs = zip(some["candidate_id"], inputs, strict=True)
    share = float(np.mean([frame.inside(ids) == [i] for i, ids in pairs]))
    only = "Only mode=ids, the default, scores the others as what they are."
    return [
        check_limit("frame", len(tied), 0, n=len(texts), unit="texts", note=note),
        Check("survives", measured=share, unit="share", n=len(some), note=only),
    ]


def precision_table(rewards: Mapping[tuple[Dtype, str], np.ndarray]) -> pd.DataFrame:
    """One row for each precision and path, against the float32 rewards of the model's own forward.

    `rewards` are float64 (n,) by precision and name of the path; ("float32", "own-forward") must be
    among them. Columns: `dtype`, `path`, `largest_difference` (absolute, in standard deviations of
    the float32 rewards), `spearman`, `distinct` (different rewards), `n`.
    """
    exact = rewards[Dtype.float32, "own-forward"]
    spread = _spread(exact)
    rows = []
    for (dtype, path), values in rewards.items():
        apart, distinct = largest_difference(values, exact) / spread, len(np.unique(values))
        rows.append((dtype.value, path, apart, _spearman(values, exact), distinct, len(values)))
    names = ["dtype", "path", "largest_difference", "spearman", "distinct", "n"]
    return pd.DataFrame(rows, columns=names)


def precision_check(
    dtype: Dtype, table: pd.DataFrame | None, exact: np.ndarray | None, problem: str | None
) -> Check:
    """The row of one low precision; `problem` is why it could not be measured."""
    name = f"dtype_{dtype.value}"
    if problem is not None or table is None or exact is None:
        return Check(name, unit="SD", note=problem or "")
    row = table[table["dtype"] == dtype.value].iloc[-1]  # the fastest path comes last
    n = int(row["n"])
    summary = f"Rank correlation with float32 {row['spearman']:.4f}; {row['distinct']} distinct "
    summary += f"rewards of {n}."
    if not np.isfinite(row["largest_difference"]):
        summary = f"In {dtype.value} some rewards are not numbers: they overflow."
    other = "bfloat16" if dtype is Dtype.float16 else "float16"
    note = f"{summary} Type model.dtype={other} if that passes, or model.dtype=float32"
    limit = allowed(exact, dtype=dtype) / _spread(exact)
    return check_limit(
        name, row["largest_difference"], limit, n=n, unit="SD", note=note, otherwise=summary
    )


def _spread(exact: np.ndarray) -> float:
    return float(exact.std()) or 1.0


def _spearman(a: np.ndarray, b: np.ndarray) -> float:
    if len(a) < 2 or a.std() == 0 or b.std() == 0 or not np.isfinite(a).all():
        return float("nan")
    return float(spearmanr(a, b).statistic)
