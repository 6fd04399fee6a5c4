"""One check of the suite, and many as a table; the checks that need no network: of tokenizer and template, and of precisions
against one another, which is arithmetic over rewards."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import pandas as pd
from scipy.stats import spearmanr

from pessimal.models.frame import Frame, takes_pairs, templated
from pessimal.models.spec import Dtype
from pessimal.scoring.candidates import Candidates
from pessimal.scoring.trust import allowed

AT_MOST = 4096
"""Tokens of the vocabulary that take the round trip; a random sample of a larger one."""

ONE_BOS = "A conversation has one BOS token, or none where the tokenizer adds none."
PAPER_BOS = "BOS tokens of a conversation in the published procedure (mode=paper)."
FRAME = "The ids before and after a response are the same for any text."
SURVIVES = "Share of tokens that decoding, template and tokenizer give back as themselves."
TOP = 10
"""Places that two precisions should agree on."""


@dataclass(frozen=True)
class Check:
    """What one check measured and what is allowed."""

    check: str
    """Identifier, the same for every model."""
    what: str
    """What is held to be true, in one sentence."""
    passed: bool | None
    """None where the check does not apply, or only reports a number."""
    measured: float | None
    """The measured value; None where nothing could be measured."""
    allowed: float | None
    """Largest value that passes; None where there is nothing to pass."""
    unit: str
    """Of `measured` and `allowed`: `reward` (units of the model's reward), `SD` (of the rewards), or what is counted."""
    n: int
    """Responses, texts or tokens that it rests on."""
    note: str = ""
    """Of a failed check: what it means and what to type. Otherwise a remark."""

    @property
    def result(self) -> str:
        """`pass`, `FAIL`, `info` (a number without a limit) or `n/a` (does not apply)."""
        if self.passed is None:
            return "n/a" if self.measured is None else "info"
        return "pass" if self.passed else "FAIL"


def at_most(
    check: str,
    what: str,
    measured: float,
    allowed: float,
    *,
    n: int,
    unit: str,
    note: str,
    otherwise: str = "",
) -> Check:
    """A check that passes up to `allowed`; `note` is for when it fails. What is not a number does not pass."""
    passed = bool(measured <= allowed)
    return Check(
        check=check,
        what=what,
        passed=passed,
        measured=float(measured) if np.isfinite(measured) else None,
        allowed=float(allowed),
        unit=unit,
        n=n,
        note=otherwise if passed else note,
    )


def does_not_apply(check: str, what: str, why: str, *, unit: str = "reward") -> Check:
    """A row for a check that this model, or this machine, gives no occasion for."""
    return Check(check=check, what=what, passed=None, measured=None, allowed=None, unit=unit, n=0, note=why)


def as_table(checks: Sequence[Check]) -> pd.DataFrame:
    """One row a check; `passed` is nullable."""
    table = pd.DataFrame([asdict(check) for check in checks])
    return table.astype({"passed": "boolean", "measured": "float64", "allowed": "float64", "n": "int64"})


def largest_difference(a: np.ndarray, b: np.ndarray) -> float:
    """Largest |a − b| of two sets of rewards (n,); not a number where one of them is none."""
    return float(np.abs(np.asarray(a, dtype=np.float64) - b).max())


def beginnings(tokenizer, frame: Frame, *, closing: Sequence[int]) -> list[Check]:
    """BOS ids in a templated conversation, as scans have it and as published."""
    bos = tokenizer.bos_token_id
    if bos is None:
        why = "the tokenizer has no such token"
        return [
            does_not_apply(name, what, why, unit="BOS ids")
            for name, what in (("bos", ONE_BOS), ("bos_paper", PAPER_BOS))
        ]
    adds = tokenizer("love")["input_ids"][:1] == [bos]
    count = _beginnings(tokenizer, templated(tokenizer, frame.prompt, ["love"], closing=closing)[0])
    if count > 1:
        note = (
            f"The chat template writes {count} of them; rewards rest on an input that the model was hardly trained on. "
            "Remove one from tokenizer.chat_template, then tokenizer.save_pretrained(folder)"
        )
    else:
        note = (
            "The tokenizer begins texts with one and the chat template does not. If the model's card says otherwise, "
            "write {{ bos_token }} at the start of tokenizer.chat_template, then tokenizer.save_pretrained(folder)"
        )
    right = 1 if count or adds else 0
    one = Check(
        check="bos",
        what=ONE_BOS,
        passed=count == right,
        measured=float(count),
        allowed=float(right),
        unit="BOS ids",
        n=1,
        note="" if count == right else note,
    )
    if takes_pairs(tokenizer):
        return [
            one,
            does_not_apply("bos_paper", PAPER_BOS, "a pair of texts is tokenised once", unit="BOS ids"),
        ]
    published = templated(tokenizer, frame.prompt, ["love"], double_bos=True, closing=closing)[0]
    again = _beginnings(tokenizer, published)
    note = (
        f"mode=paper puts {again} before the conversation, mode=ids and mode=text {count}."
        if again != count
        else "mode=paper begins a conversation as mode=text does."
    )
    return [one, Check("bos_paper", PAPER_BOS, None, float(again), None, "BOS ids", 1, note)]


def round_trip(
    tokenizer,
    frame: Frame,
    words: Candidates,
    *,
    responses: Sequence[Sequence[int]],
    closing: Sequence[int],
    seed: int,
) -> list[Check]:
    """Whether texts keep the frame as it is, and which share of the vocabulary makes the round trip."""
    texts = tokenizer.batch_decode(list(responses), clean_up_tokenization_spaces=False)
    conversations = templated(tokenizer, frame.prompt, texts, closing=closing)
    tied = [text for text, ids in zip(texts, conversations, strict=True) if frame.inside(ids) is None]
    kept = at_most(
        "frame",
        FRAME,
        len(tied),
        0,
        n=len(texts),
        unit="texts",
        note=f"The template or tokenizer ties {len(tied)} of {len(texts)} random texts to what stands around them, first "
        f"{tied[:1]!r}. mode=ids is not affected; mode=text scores such a text with the ids that the template gives, "
        "and slower",
    )
    some = words.rows.iloc[np.random.default_rng(seed).permutation(len(words.rows))[:AT_MOST]]
    conversations = templated(tokenizer, frame.prompt, some["text"].tolist(), closing=closing)
    survives = [frame.inside(ids) == [i] for i, ids in zip(some["candidate_id"], conversations, strict=True)]
    share = Check(
        "survives",
        SURVIVES,
        None,
        float(np.mean(survives)),
        None,
        "share",
        len(some),
        "Only mode=ids, the default, scores the others as what they are.",
    )
    return [kept, share]


def _beginnings(tokenizer, ids: Sequence[int]) -> int:
    """BOS ids in a conversation; only those it begins with where the same token also ends turns."""
    bos = tokenizer.bos_token_id
    if bos != tokenizer.eos_token_id:
        return list(ids).count(bos)
    return next((i for i, token in enumerate(ids) if token != bos), len(ids))


def precision_table(rewards: Mapping[tuple[Dtype, str], np.ndarray]) -> pd.DataFrame:
    """One row for each precision and path, against the float32 rewards of the model's own forward.

    `rewards` are float64 (n,) by precision and name of the path; ("float32", "own-forward") must be among them.
    Columns: `dtype`, `path`, `largest_difference` and `mean_difference` (absolute, in standard deviations of the
    float32 rewards), `spearman`, `top_10_overlap` (share; ties in the sample's order), `distinct` (different rewards),
    `n`.
    """
    exact = rewards[Dtype.float32, "own-forward"]
    spread = _spread(exact)
    return pd.DataFrame(
        [
            {
                "dtype": dtype.value,
                "path": path,
                "largest_difference": largest_difference(values, exact) / spread,
                "mean_difference": float(np.abs(values - exact).mean()) / spread,
                "spearman": _spearman(values, exact),
                "top_10_overlap": len(_top(values) & _top(exact)) / min(TOP, len(exact)),
                "distinct": len(np.unique(values)),
                "n": len(values),
            }
            for (dtype, path), values in rewards.items()
        ]
    )


def precision_check(
    dtype: Dtype, table: pd.DataFrame | None, exact: np.ndarray | None, problem: str | None
) -> Check:
    """The row of one low precision; `problem` is why it could not be measured."""
    name = f"dtype_{dtype.value}"
    what = f"In {dtype.value} the rewards of a scan are those in float32, up to rounding."
    if problem is not None:
        return does_not_apply(name, what, problem, unit="SD")
    row = table[table["dtype"] == dtype.value].iloc[-1]  # the fastest path comes last
    summary = (
        f"Rank correlation with float32 {row['spearman']:.4f}; {row['top_10_overlap'] * min(TOP, row['n']):.0f} of the "
        f"top {min(TOP, row['n'])} the same; {row['distinct']} distinct rewards of {row['n']}."
    )
    if not np.isfinite(row["largest_difference"]):
        summary = f"In {dtype.value} some rewards are not numbers: they overflow."
    return at_most(
        name,
        what,
        row["largest_difference"],
        allowed(exact, dtype=dtype) / _spread(exact),
        n=int(row["n"]),
        unit="SD",
        note=f"{summary} Scans score the best and worst again in float32 (certain=100); for the ranks between them type "
        f"model.dtype={'bfloat16' if dtype is Dtype.float16 else 'float16'} if that passes, or model.dtype=float32",
        otherwise=summary,
    )


def _spread(exact: np.ndarray) -> float:
    return float(exact.std()) or 1.0


def _spearman(a: np.ndarray, b: np.ndarray) -> float:
    if len(a) < 2 or a.std() == 0 or b.std() == 0 or not np.isfinite(a).all():
        return float("nan")
    return float(spearmanr(a, b).statistic)


def _top(rewards: np.ndarray) -> set[int]:
    return set(np.argsort(-rewards, kind="stable")[:TOP].tolist())
