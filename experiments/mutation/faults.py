"""Forty plausible mistakes, ten each in scoring, analyses, searching and tracking: each would
give a wrong number or lose a result.

`old` stands exactly once in its file, below src/pessimal.
"""

from typing import NamedTuple


class Fault(NamedTuple):
    """One mistake: `new` written for `old` in `file`."""

    file: str
    old: str
    new: str
    effect: str
    """What a user would get."""


FAULTS = [
    Fault(
        "scoring/candidates.py",
        "for start in range(0, len(group), size)",
        "for start in range(0, len(group) - 1, size)",
        "the last candidate of a group that leaves a batch of one is never scored",
    ),
    Fault(
        "scoring/candidates.py",
        "(np.diff(kinds[order], axis=0) != 0).any(axis=1)",
        "(np.diff(kinds[order, 1:], axis=0) != 0).any(axis=1)",
        "conversations that share less of the prompt are scored as if they shared all of it",
    ),
    Fault(
        "scoring/engine.py",
        "unseen |= key <= query - window",
        "unseen |= key < query - window",
        "models with a sliding window see one token too many",
    ),
    Fault(
        "scoring/common_prefix.py",
        "slope = slope[0, begin : begin + length]",
        "slope = slope[0, begin - 1 : begin - 1 + length]",
        "a search follows each position's neighbour's gradient",
    ),
    Fault(
        "scoring/trust.py",
        "current[wanted] = rescore(wanted)",
        "current[wanted] = first[wanted]",
        "bfloat16 tails are called certified without a float32 pass",
    ),
    Fault(
        "scoring/trust.py",
        "np.minimum(below, above) > 2 * noise",
        "np.minimum(below, above) > noise",
        "ranks are called certain that numerical noise can turn round",
    ),
    Fault(
        "scoring/identify.py",
        '"certain": None if model.is_exact else certain,',
        '"certain": None,',
        "the cache key leaves out how many ranks were certified: an uncertified table is taken for "
        "a certified one",
    ),
    Fault(
        "scoring/loop.py",
        'return rewards.view("<f4").reshape(n, *width) if np.array_equal(stored, rows) else None',
        'return rewards.view("<f4").reshape(n, *width)',
        "a resumed scan gives candidates the rewards of others",
    ),
    Fault(
        "scoring/sequence.py",
        "return self.head.log_probabilities(states, ids[:, -n_response:]).sum(dim=1)",
        "return self.head.log_probabilities(states, ids[:, -n_response - 1 : -1]).sum(dim=1)",
        "a language model's responses of several tokens get each token's probability one place too "
        "late",
    ),
    Fault(
        "scoring/texts.py",
        "[[turn.role, turn.content] for turn in conversation]",
        "[turn.content for turn in conversation]",
        "conversations that differ in their roles alone share one kept reward",
    ),
    Fault(
        "analyses/agreement.py",
        "weights = (1 - persistence) * persistence ** np.arange(len(agreement))",
        "weights = (1 - persistence) * persistence ** np.arange(1, len(agreement) + 1)",
        "every rank-biased overlap is a tenth too small",
    ),
    Fault(
        "analyses/ranks.py",
        "scale = np.sqrt(untied_a.mean() * untied_b.mean())\n    tau",
        "scale = 1.0\n    tau",
        "tau-a is reported as tau-b: ties make models disagree",
    ),
    Fault(
        "analyses/nulls.py",
        "moved = np.linalg.solve(left, inside[..., None])[..., 0]",
        "moved = inside",
        "standard errors of slopes are CR0: too small with few stems",
    ),
    Fault(
        "analyses/nulls.py",
        "return float((as_extreme + 1) / (len(permuted) + 1))",
        "return float(as_extreme / len(permuted))",
        "permutation p values of 0",
    ),
    Fault(
        "analyses/framing.py",
        '{"difference": x - y, "sum": x + y}',
        '{"difference": x + y, "sum": x - y}',
        "words liked whatever is asked are listed as those that the question moves",
    ),
    Fault(
        "analyses/extremes.py",
        "variance = values.var(axis=0)",
        "variance = values.var(axis=0, ddof=1)",
        "variances with another divisor than documented, and skewness with them",
    ),
    Fault(
        "analyses/people.py",
        "differences.std(axis=1, ddof=1) / rewards.shape[1] ** 0.5",
        "differences.std(axis=1, ddof=1)",
        "the test of an item takes the models' spread for the error of their mean",
    ),
    Fault(
        "analyses/identity_terms.py",
        'two[["effect", "p_below", "random_head"]].max(',
        'two[["effect", "p_below", "random_head"]].min(',
        "the intersection-union test rejects where one prompt alone does",
    ),
    Fault(
        "analyses/sentiment.py",
        '"gkm,kq->gqm", deviations, COMBINATIONS)',
        '"gkm,kq->gqm", deviations, np.abs(COMBINATIONS))',
        "stems with words on both sides enter the error of the difference with the wrong sign",
    ),
    Fault(
        "analyses/scans.py",
        'table["moved"] = table["rank_a"] - table["rank_b"]',
        'table["moved"] = table["rank_b"] - table["rank_a"]',
        "a token that rises from one scan to the next is said to fall",
    ),
    Fault(
        "searching/objective.py",
        "each = [prompt.gradient(response) for prompt in self.prompts]\n        return self.sign * ",
        "each = [prompt.gradient(response) for prompt in self.prompts]\n        return ",
        "the pessimal search follows the gradient of the optimal one",
    ),
    Fault(
        "searching/objective.py",
        "self.count(GRADIENT_COST)",
        "self.count(1)",
        "gradients count a third of what they cost: the search outspends its baselines",
    ),
    Fault(
        "searching/climb.py",
        "while unchanged < length:",
        "while unchanged < length - 1:",
        "a certificate's passes end with one position untried",
    ),
    Fault(
        "searching/exact.py",
        "if self.smallest_margin > 2 * self.noise:",
        "if self.smallest_margin > self.noise:",
        "1-opt is certified where the noise of two values can turn the margin round",
    ),
    Fault(
        "searching/results.py",
        "margin > 2 * drift",
        "margin > drift",
        "a reward scored again holds where the drift of two can turn the margin round",
    ),
    Fault(
        "searching/results.py",
        "value >= best - 2 * noise",
        "value >= best",
        "climbs that end at the best response within the noise are said to fall short",
    ),
    Fault(
        "searching/procedure.py",
        "    finals += _best_ever(stages, finals)\n",
        "",
        "the best response that was evaluated is not the one that is published",
    ),
    Fault(
        "searching/procedure.py",
        "limit = stages.total - division.certificate\n\n    def begin",
        "limit = stages.total\n\n    def begin",
        "the climb spends what is kept for the certificate",
    ),
    Fault(
        "searching/procedure.py",
        "if values[top] > best:",
        "if values[top] < best:",
        "the random baseline walks downhill and flatters the search",
    ),
    Fault(
        "searching/allowed.py",
        "for conversations, frame in self.frames:",
        "for conversations, frame in self.frames[:1]:",
        "responses count that no text gives under the second prompt",
    ),
    Fault(
        "tracking/registry.py",
        "version = 1 + max(\n"
        '                    (int(p.name[1:]) for p in home.glob("v*") if p.name[1:].isdigit()), '
        "default=-1\n"
        "                )",
        'version = len(list(home.glob("v*")))',
        "after v0 was removed, the next version takes a name that is taken",
    ),
    Fault(
        "tracking/registry.py",
        "                (staging / MANIFEST).write_text(manifest.text())\n"
        "                staging.chmod(0o755)\n"
        '                folder = home / f"v{version}"\n'
        '                Path(f"{staging}{_LOCK}").unlink()  # a kill after the rename leaves nothing\n'
        "                os.rename(staging, folder)\n",
        "                staging.chmod(0o755)\n"
        '                folder = home / f"v{version}"\n'
        "                os.rename(staging, folder)\n"
        "                (folder / MANIFEST).write_text(manifest.text())\n",
        "a kill leaves files under a version's name without their manifest",
    ),
    Fault(
        "tracking/registry.py",
        'with contextlib.suppress(Timeout), FileLock(f"{name}{_LOCK}", blocking=False):',
        "with contextlib.suppress(Timeout):",
        "one process removes what another is just filling",
    ),
    Fault(
        "tracking/registry.py",
        "            with self._lock():\n                version",
        "            with contextlib.nullcontext():\n                version",
        "two processes take one version",
    ),
    Fault(
        "tracking/registry.py",
        'return None if sha256_of(file) == digest else "differs from what was published"',
        "return None",
        "a table that was edited is read as what was published",
    ),
    Fault(
        "tracking/registry.py",
        "return matches[-1] if matches else None",
        "return matches[0] if matches else None",
        "after force=true the old result is still the one that is taken",
    ),
    Fault(
        "verbs/runs.py",
        'drop_duplicates(["type", "name"], keep="last")',
        'drop_duplicates(["type", "name"], keep="first")',
        "the oldest version of each artifact is listed in place of the newest",
    ),
    Fault(
        "verbs/runs.py",
        'gaps = sides["b"].astype(float) - sides["a"].astype(float)',
        'gaps = sides["a"].astype(float) - sides["b"].astype(float)',
        "a difference of two artifacts has the wrong sign",
    ),
    Fault(
        "verbs/push.py",
        "wrong = sorted({file for file, _ in local ^ server})",
        "wrong = []",
        "an artifact with other files at the server passes for the one that was pushed",
    ),
    Fault(
        "tracking/mirror.py",
        "            artifact.wait(timeout=max(int(deadline - time.monotonic()), 1))\n",
        "            pass\n",
        "an artifact that did not arrive passes for one that did",
    ),
]
