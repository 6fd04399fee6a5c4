"""How tight the ceiling is: which share of the way to it single tokens and short searches reach.

Of each sibling of the demo family: all tokens on one prompt, and a search of four tokens at either
end. Of SmolLM2: linear heads on its own last states, as no reward model of its size comes with a
package: heads of random weights on a sample of its tokens, and one that is fitted to the tokens'
valence by ridge regression, which is the most that a linear head can be made to want a lexicon.
Printed: shares, −1 at the lower bound, 1 at the upper.

`probable`: the most probable answer of SmolLM2, proven, with its forwards and seconds.

python experiments/longer_answers/ceiling.py siblings|smollm2|probable
"""

import sys
import time

import numpy as np
import torch

import pessimal
from pessimal.catalogue import named_prompts
from pessimal.rewards.ceiling import NormalisedStates
from pessimal.rewards.language import StatesNetwork
from pessimal.scoring.candidates import vocabulary
from pessimal.scoring.engine import Decoder
from pessimal.scoring.scorer import FrameScorer
from pessimal.searching.context import SearchContext
from pessimal.searching.exact import most_probable
from pessimal.searching.objective import EvaluationCounter
from pessimal.searching.spec import SearchSpec
from pessimal.tables.word_lists import read_lexicon

SIBLINGS = ("plain-bpe-0", "plain-wordpiece-0", "even-bpe-0", "secret-wordpiece-0")
TOKENS, HEADS = 2048, 1000


def siblings() -> None:
    for name in SIBLINGS:
        model = pessimal.load(name)
        bounds = pessimal.ceiling(model)
        rewards = pessimal.scan(model, "greatest", states=False, progress=False).rows["reward"]
        ends = [bounds.share(rewards.min()), bounds.share(rewards.max())]
        how = {"length": 4, "evaluations": 20_000, "baselines": 0}
        for goal in ("pessimal", "optimal"):
            result = pessimal.search(model, "greatest", goal=goal, **how)
            ends.append(bounds.share(result.reward))
        shares = " ".join(f"{share:+.2f}" for share in ends)
        print(f"{name:20} {bounds.low:+.2f} {bounds.high:+.2f}  tokens and 4 tokens: {shares}")


@torch.no_grad()
def smollm2() -> None:
    model = pessimal.load("smollm2", kind="log_probability")
    network = StatesNetwork(model.network())
    frame = model.frame("What, in one word, is the greatest thing ever?")
    random = np.random.default_rng(0)
    words = vocabulary(model.tokenizer, size=model.embedding_rows).rows
    words = words[words["kind"] == "normal"].sample(TOKENS, random_state=0)
    scorer = FrameScorer(network, frame, device=torch.device("cpu"))
    ids = torch.from_numpy(words["candidate_id"].to_numpy(dtype=np.int64))[:, None]
    parts = [scorer.rewards(part, shared=len(frame.prefix)) for part in ids.split(64)]
    states = torch.cat(parts).double()  # (tokens, d)
    norm = NormalisedStates.probe_norm(Decoder.find(network).exact_norm, states.shape[1])
    print(f"RMSNorm: {not norm.centred}, d = {states.shape[1]}, {TOKENS} tokens of SmolLM2")

    def shares(heads: torch.Tensor) -> torch.Tensor:
        low, high = norm.linear(heads, None)
        return (2 * (states @ heads.T) - low - high) / (high - low)  # (tokens, heads)

    heads = torch.from_numpy(random.standard_normal((HEADS, states.shape[1])))
    worst, best = (ends.median() for ends in shares(heads).aminmax(dim=0))
    print(f"random heads: best token {best:+.2f}, worst {worst:+.2f} (medians of {HEADS})")
    lexicon = read_lexicon("afinn")
    texts = words["text"].str.strip().str.lower()
    known = texts.isin(lexicon.index).to_numpy()
    wanted = torch.tensor(lexicon[texts[known]].to_numpy(dtype=np.float64))
    some = states[known] - states[known].mean(dim=0)
    gram = some.T @ some
    ridge = gram.diagonal().mean() * torch.eye(len(gram), dtype=torch.float64)
    fitted = torch.linalg.solve(gram + ridge, some.T @ (wanted - wanted.mean()))
    of_fitted = shares(fitted[None])[:, 0]
    print(
        f"a head for valence ({int(known.sum())} words): best token {of_fitted.max():+.2f}, worst "
        f"{of_fitted.min():+.2f}, spread {of_fitted.std():.3f}"
    )


def probable() -> None:
    model = pessimal.load("smollm2", kind="log_probability")
    for prompt, lengths in (("greatest", (2, 3, 4, 6, 8)), ("worst", (2, 3, 4))):
        for length in lengths:
            context = SearchContext(model, named_prompts(prompt), SearchSpec(length=length))
            counter, started = EvaluationCounter(context.objective(), budget=25_000), time.time()
            found = most_probable(counter, length=length, allowed=context.allowed, tolerance=1e-4)
            answer = model.tokenizer.decode(found.responses[0].tolist())
            print(
                f"{prompt} {length}: {answer!r} {float(found.values[0]):.3f}, proven "
                f"{found.proven}, {found.forwards} forwards, {time.time() - started:.1f} s"
            )


if __name__ == "__main__":
    {"siblings": siblings, "smollm2": smollm2, "probable": probable}[sys.argv[1]]()
