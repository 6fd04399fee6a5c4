"""nanoGCG or TROPT on a reward that `others.py` has laid out; runs in the environment of either.

    PYTHON_OF_IT others_search.py nanogcg|tropt FOLDER SEEDS BUDGET …

Prints a line of JSON for each case in the folder, way and seed: the best ids within each budget.

Both minimise the cross-entropy of a target behind a text. Here the output layer has two rows, the
head's weight with the bias −c and zeros, so the loss of the first is softplus(c − r) for a reward r
(with the goal's sign) and a bound c on it: strictly decreasing in r and nowhere flat. Texts are
spelled a word a token ("t00042"), so every text has the ids it was made from, and no filter of
either drops any; tokens that are not allowed have a letter that is not ASCII, which both leave out
by default.

What counts as evaluations are the sequences that reach the network, 3 for one with a gradient,
whatever they say themselves. Both begin at random tokens, as pessimal does, and so do TROPT's
further starts: "! ! !" has no spelling here, nor have the random letters it draws. A recipe that
ends before the budget begins anew.
"""

import contextlib
import dataclasses
import gc
import json
import logging
import os
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("TQDM_DISABLE", "1")

import torch
import transformers
from safetensors.torch import load_file
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

AGREE = 1e-3


class SpentError(Exception):
    """The largest budget is used up."""


class Counted(LlamaForCausalLM):
    """The reward as a language model of two tokens. Counts the sequences that it is asked for, and
    keeps every improvement."""

    def __init__(self, case: dict[str, Any], weights: dict[str, Tensor]):
        super().__init__(LlamaConfig(**case["geometry"], tie_word_embeddings=False))
        body = {k.removeprefix("model."): v for k, v in weights.items() if k.startswith("model.")}
        self.model.load_state_dict(body)
        head = case["sign"] * weights["score.weight"]
        self.lm_head = torch.nn.Linear(head.shape[1], 2)
        self.lm_head.weight.data = torch.cat([head, torch.zeros_like(head)])
        self.lm_head.bias.data = torch.tensor([-case["bound"], 0.0])
        self.case = case
        self.eval().requires_grad_(False)
        self.begin(0)

    def begin(self, budget: int) -> None:
        """Count anew."""
        self.budget, self.used, self.last = budget, 0, torch.zeros(0)
        self.curve: list[tuple[int, float, list[int]]] = []
        """Evaluations, value and ids of each improvement; the value is the difference of logits."""

    def forward(self, input_ids=None, inputs_embeds=None, **others):
        if inputs_embeds is None:
            inputs_embeds = self.model.embed_tokens(input_ids)
        output = super().forward(inputs_embeds=inputs_embeds, **others)
        n, before, length = len(inputs_embeds), len(self.case["before"]), self.case["length"]
        read = before + length + len(self.case["after"]) - 1
        logits = output.logits[:, read].detach()
        self.last = logits[:, 0] - logits[:, 1]
        cost = self.case["gradient"] if inputs_embeds.requires_grad else 1
        best = self.curve[-1][1] if self.curve else -torch.inf
        for row, value in enumerate(self.last.tolist()):
            if value > best:
                best, at = value, self.used + cost * (row + 1)
                self.curve.append((at, value, self._ids(inputs_embeds[row, before:][:length])))
        self.used += cost * n
        if self.used >= self.budget:
            raise SpentError
        return output

    def _ids(self, embedded: Tensor) -> list[int]:
        """The tokens whose embeddings these are."""
        return torch.cdist(embedded.detach(), self.model.embed_tokens.weight).argmin(1).tolist()

    def within(self, budget: int) -> tuple[float, list[int]]:
        """Value and ids of the best that was known after so many evaluations."""
        return [point[1:] for point in self.curve if point[0] <= budget][-1]

    def agrees(self, losses: Tensor) -> None:
        """Their losses are those of the values that are kept here."""
        implied = -losses.double().expm1().log()
        assert len(losses) == len(self.last)
        assert float((implied - self.last.double()).abs().max()) < AGREE, "another loss is read"


def spelled(case: dict[str, Any]) -> PreTrainedTokenizerFast:
    """A tokenizer with a word for each token, and pessimal's conversation as its template."""
    words = words_of(case)
    made = Tokenizer(models.WordLevel({word: n for n, word in enumerate(words)}))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=made, pad_token=words[case["pad"]])
    before, after = (" ".join(words[i] for i in case[side]) for side in ("before", "after"))
    tokenizer.chat_template = before + " {{ messages[0]['content'] }} " + after
    return tokenizer


def words_of(case: dict[str, Any]) -> list[str]:
    """How tokens are spelled, all of one length so that none begins another."""
    allowed = set(case["allowed"])
    rows = range(case["geometry"]["vocab_size"])
    return [f"{'t' if row in allowed else 'þ'}{row:06}" for row in rows]


Run = Callable[[str], object]
"""One run from a text to begin at, until it ends or the network has had enough."""


def nanogcg_ways(network: Counted, case: dict[str, Any], folder: Path) -> dict[str, Run]:
    """nanoGCG's only way, with its defaults but for the start and the cache of the prompt, which
    changes the speed alone."""
    from nanogcg import GCGConfig
    from nanogcg.gcg import GCG

    class Checked(GCG):
        def _compute_candidates_loss_original(self, search_batch_size, input_embeds):
            losses = super()._compute_candidates_loss_original(search_batch_size, input_embeds)
            network.agrees(losses)
            return losses

    tokenizer, target = spelled(case), words_of(case)[0]
    messages = [{"role": "user", "content": "{optim_str}"}]
    logging.getLogger("nanogcg").setLevel(logging.ERROR)

    def gcg(start: str) -> None:
        config = GCGConfig(optim_str_init=start, use_prefix_cache=False, verbosity="ERROR")
        Checked(network, tokenizer, config).run(messages, target)

    return {"nanoGCG": gcg}


def tropt_ways(network: Counted, case: dict[str, Any], folder: Path) -> dict[str, Run]:
    """TROPT's recipes as its hub has them, but for where they begin, and for its cache."""
    with slices_as_defaults():
        from tropt import recipe_hub
    from tropt.model.huggingface import LMHFModel
    from tropt.optimizer import (
        gasliteplus_optimizer,
        gcgplus_optimizer,
        rasliteplus_optimizer,
        rs_optimizer,
    )

    class Checked(LMHFModel):
        def compute_loss_from_tokens(self, *arguments, **named):
            losses = super().compute_loss_from_tokens(*arguments, **named)
            network.agrees(losses.flatten())
            return losses

        def compute_loss_from_texts(self, *arguments, **named):
            losses = super().compute_loss_from_texts(*arguments, **named)
            network.agrees(losses.flatten())
            return losses

    def random_trigger(trigger_len: int, return_ids: bool = False, **others):
        ids = random.choices(case["allowed"], k=trigger_len)
        return torch.tensor(ids) if return_ids else " ".join(words[i] for i in ids)

    for module in (gasliteplus_optimizer, gcgplus_optimizer, rasliteplus_optimizer, rs_optimizer):
        module.get_printable_random_trigger = random_trigger
    words, place = words_of(case), str(folder / "tokenizer")
    spelled(case).save_pretrained(place)
    model = Checked(place, loaded_model=network, use_prefix_cache=False)
    text = "{{OPTIMIZED_TRIGGER}}"

    def from_start(recipe: Callable, optimizer: type, **options) -> Run:
        """A recipe, whose optimizer is told where to begin."""
        asked = optimizer.optimize_trigger

        def run(start: str) -> None:
            def begin(self, **named):
                return asked(self, **{**named, "initial_trigger": start})

            optimizer.optimize_trigger = begin
            try:
                recipe(model_obj=model, **options)
            finally:
                optimizer.optimize_trigger = asked

        return run

    behind = {"instruction": text, "target_response": words[0]}
    plain = {"instruction": "", "target_response": words[0], "target_token": words[0]}
    hub, plus = recipe_hub, gcgplus_optimizer.GCGPlusOptimizer
    gaslite = gasliteplus_optimizer.GASLITEPlusOptimizer
    raslite = rasliteplus_optimizer.RASLITEPlusOptimizer
    return {
        "GCG+": from_start(hub.gcgp_whitebox__hayase2024, plus, **behind),
        "MAC": from_start(hub.mac__wang2024, plus, **behind),
        "GASLITE+": from_start(hub.gasliteplus_llm, gaslite, **behind),
        "RASLITE+": from_start(hub.rasliteplus_llm, raslite, **behind),
        "PRS": from_start(
            hub.prs__andriushchenko2024,
            rs_optimizer.RandomSearchOptimizer,
            use_paper_prompt=False,
            **plain,
        ),
    }


@contextlib.contextmanager
def slices_as_defaults() -> Iterator[None]:
    """Python 3.11 takes no slice as the default of a dataclass's field, and TROPT 0.1.1 has one, in
    a loss that is not used here."""
    known = dataclasses.dataclass

    def dataclass(kind=None, /, **options):
        if kind is None:
            return lambda kind: dataclass(kind, **options)
        for name, value in list(vars(kind).items()):
            if isinstance(value, slice):
                setattr(kind, name, dataclasses.field(default_factory=lambda value=value: value))
        return known(kind, **options)

    dataclasses.dataclass = dataclass
    try:
        yield
    finally:
        dataclasses.dataclass = known


PACKAGES = {"nanogcg": nanogcg_ways, "tropt": tropt_ways}


def spend(run: Run, network: Counted, words: list[str], seed: int, budget: int) -> None:
    """Run, again and again, until the budget is used up."""
    torch.manual_seed(seed)
    random.seed(seed)
    network.begin(budget)
    while True:
        ids = random.choices(network.case["allowed"], k=network.case["length"])
        try:
            run(" ".join(words[i] for i in ids))
        except SpentError:
            return


def main() -> None:
    """Print the lines."""
    package, folder, seeds, *budgets = sys.argv[1], Path(sys.argv[2]), *map(int, sys.argv[3:])
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    for file in sorted(folder.glob("*/case.json")):
        case = json.loads(file.read_text())
        network = Counted(case, load_file(file.with_name("network.safetensors")))
        ways = PACKAGES[package](network, case, file.parent)
        gc.freeze()  # nanoGCG collects garbage with every batch
        for way, run in ways.items():
            for seed in range(seeds):
                spend(run, network, words_of(case), seed, max(budgets))
                for budget in budgets:
                    value, ids = network.within(budget)
                    line = {"case": case["name"], "way": way, "budget": budget, "ids": ids}
                    print(json.dumps({**line, "value": value + case["bound"]}), flush=True)


if __name__ == "__main__":
    main()
