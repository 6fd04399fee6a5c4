"""The verbs as Python functions on objects in memory; `import pessimal` offers them without importing torch.

Nothing is written but where `save` says: no registry, no W&B, no configuration files of one's own. Defaults are those of
the command line.
"""

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pessimal.errors import ConfigError, InputError
from pessimal.tables import ScoreTable
from pessimal.tables.result import Result, Results

if TYPE_CHECKING:
    from pessimal.rewards.load import RewardModel
    from pessimal.search.run import Found

PROMPTS = ("greatest", "best", "worst")
"""The three prompts of Christian et al. (2025), which may be named by their keys."""


def load(
    path: str,
    *,
    name: str | None = None,
    revision: str | None = None,
    dtype: str = "float32",
    output: int | None = None,
    trust_remote_code: bool = False,
    cache: str = "runs/cache",
) -> "RewardModel":
    """A reward model of a local folder, of the Hub (`org/name`), or of the demo family (`plain-bpe-0`; trained on first
    use and kept in `cache`).

    Raises:
        ConfigError, ModelError: there is none, or it is no scalar reward model.
    """
    from pessimal.rewards.load import open_model
    from pessimal.rewards.spec import Dtype, ModelSpec
    from pessimal.verbs.common import fetch

    if dtype not in {one.value for one in Dtype}:
        raise ConfigError(f"dtype={dtype!r}: give {', '.join(one.value for one in Dtype)}")
    if "/" not in path and not Path(path).expanduser().is_dir():
        spec = _demo(path)
    else:
        spec = ModelSpec(
            name=name,
            path=path,
            revision=revision,
            dtype=Dtype(dtype),
            output=output,
            trust_remote_code=trust_remote_code,
        )
    return open_model(spec, fetch(spec, cache=cache, progress=True))


def reward(network, tokenizer, *, name: str = "model", output: int | None = None) -> "RewardModel":
    """A reward model of a network and a tokenizer in memory (see `pessimal.rewards.load.wrap`)."""
    from pessimal.rewards.load import wrap

    return wrap(network, tokenizer, name=name, output=output)


def scan(
    model: "RewardModel",
    prompts: str | Sequence[str] | Mapping[str, str] = "greatest",
    *,
    candidates: Sequence[str] | None = None,
    mode: str | None = None,
    certain: int = 100,
    batch_size: int | None = None,
    progress: bool = True,
) -> "ScoreTable | list[ScoreTable]":
    """Score every token of the vocabulary, or some texts, as the response to each prompt.

    Args:
        model: of `load` or `reward`.
        prompts: a user turn, or a key of `PROMPTS`; several of them, or key → user turn, give a list of tables.
        candidates: texts to score instead of the vocabulary.
        mode: `ids` (any token ids), `text` (as a text would be tokenized) or `paper`; ids for the vocabulary, text for
            candidates.
        certain: k of the tails that are scored again in float32 where the model's precision is lower.
        batch_size: candidates a batch; found from the memory there is where None.

    Returns:
        A ScoreTable, or for several prompts a list of them.
    """
    import functools

    from pessimal.rewards.spec import Mode
    from pessimal.scoring.candidates import listed, vocabulary
    from pessimal.scoring.loop import Loop
    from pessimal.scoring.scan import identify
    from pessimal.scoring.scan import scan as scan_one
    from pessimal.verbs.common import quiet_libraries
    from pessimal.verbs.trainer import make_trainer

    quiet_libraries()
    mode = Mode(mode or ("ids" if candidates is None else "text"))
    if candidates is None:
        words = vocabulary(model.tokenizer, size=model.embedding_rows)
    elif mode is Mode.text:
        words = listed(candidates, name="items")
    else:
        raise ConfigError(f"mode={mode.value!r}: candidates are texts, and are scored in mode='text'")
    asked = named_prompts(prompts)
    frames = {key: model.frame(text, double_bos=mode is Mode.paper) for key, text in asked.items()}
    networks = functools.cache(model.network)
    tables: list[ScoreTable] = []
    with tempfile.TemporaryDirectory(prefix="pessimal-") as work:
        loop = Loop(make_trainer(_trainer_for(model), root=work), batch_size, progress, find_threads=True)
        for key, text in asked.items():
            provenance = identify(
                model, prompt=key, prompt_text=text, candidates=words, mode=mode, certain=certain
            )
            tables.append(
                scan_one(model, networks, provenance, words, frames[key], work=Path(work), loop=loop)
            )
    return tables[0] if isinstance(prompts, str) else tables


def compare(tables: Sequence[ScoreTable], **options) -> Results:
    """Every analysis over score tables of `scan`, or read with `pessimal.read`.

    Args:
        tables: of any models, prompts and candidate sets.
        options: as of `pessimal compare`, such as `replicates=200`, `polarity={"mine": 1}`, `join="stripped"`.

    Returns:
        Results in the order of the page; `results["agreement"]` is one of them, `results.skipped` says what could not be
        done and why.
    """
    from pessimal.cli.compose import configuration
    from pessimal.compare import compare as every_analysis
    from pessimal.tables.table_set import table_sets
    from pessimal.verbs.compare import read_options, reading_of

    tables = [tables] if isinstance(tables, ScoreTable) else list(tables)
    if not tables or not all(isinstance(table, ScoreTable) for table in tables):
        raise InputError("compare takes score tables: pessimal.scan(model), or pessimal.read(FILE)")
    config = configuration("compare", options)
    results, skipped = every_analysis(table_sets(tables, reading_of(config)), read_options(config))
    return Results(results, skipped)


def search(
    model: "RewardModel",
    prompts: str | Sequence[str] | Mapping[str, str] = "greatest",
    *,
    length: int = 2,
    goal: str = "optimal",
    **options,
) -> "Found":
    """The best or the worst response of a length that a budget of evaluations finds, certified.

    Args:
        model: of `load` or `reward`.
        prompts: as for `scan`; of several, the mean reward is searched.
        length: tokens of the response, 1 to 16.
        goal: `optimal` or `pessimal`.
        options: as of `pessimal search`, such as evaluations=50_000; and mode="text", seed=1, batch_size=64.

    Returns:
        A Found: `.text`, `.reward`, `.verdict`, `.results`.
    """
    from pessimal.search.run import search as search_one

    return search_one(
        model, named_prompts(prompts), length=length, goal=goal, device=_device_of(model), **options
    )


def explain(
    model: "RewardModel", prompt: str, chosen: str, rejected: str, *, perturber: str = "rules", seeds: int = 1
) -> Results:
    """Why a model prefers one response to the other: edits along named attributes, and the smallest that flip it.

    Args:
        model: of `load` or `reward`.
        prompt, chosen, rejected: texts; which of the two the model prefers need not be the one called chosen.
        perturber: a file of conf/perturber, such as `rules`, `random`, `llm`.
        seeds: edits of each kind.
    """
    from pessimal.cli.compose import configuration
    from pessimal.explain.explain import explain_pair, pair
    from pessimal.explain.perturbers import make_perturber
    from pessimal.explain.results import pair_results
    from pessimal.scoring.texts import TextScorer
    from pessimal.verbs.explain import attributes_of

    comparison = pair(prompt, chosen, rejected)
    config = configuration(
        "explain",
        {"prompt": prompt, "chosen": chosen, "rejected": rejected},
        groups={"perturber": perturber},
    )
    attributes = attributes_of(config)
    changes = make_perturber(config.perturber, attributes=attributes, cache=Path("runs/cache/answers"))
    sample = [comparison.conversation(text) for text in comparison.responses]
    scorer = TextScorer(model, model.network(), sample, device=_device_of(model))
    found = explain_pair(
        scorer,
        prompt,
        chosen,
        rejected,
        attributes,
        changes,
        model=model.name,
        tie=2 * scorer.noise,
        seeds=seeds,
    )
    return Results(pair_results(found))


def check(
    model: "RewardModel", prompt: str = "greatest", *, sample: int = 64, batch_size: int = 16, seed: int = 0
) -> Results:
    """Whether a model's score is the same whatever the batch, the padding and the path, on random responses.

    Args:
        model: of `load` or `reward`.
        prompt: as for `scan`.
        sample: random tokens; a quarter as many longer responses come on top.
    """
    from pessimal.scoring.conformance import Plan, conformance
    from pessimal.verbs.check import conformance_results

    [text] = named_prompts(prompt).values()
    found = conformance(
        model, model.frame(text), Plan(sample, batch_size, [], seed), device=_device_of(model)
    )
    return Results(conformance_results(found, model.name))


def read(path: str | Path) -> ScoreTable:
    """A score table of a file or an artifact's folder."""
    from pessimal.tables import read_score_table

    return read_score_table(Path(path).expanduser())


def save(results: Sequence[Result], folder: str | Path) -> Path:
    """Write `tables/*.parquet`, `figures/*.svg` and `results.json`, as artifacts have them; returns the folder.

    Raises:
        InputError: there is something in the folder already.
    """
    from pessimal.verbs.publish import write_results

    folder = Path(folder).expanduser()
    if folder.exists() and any(folder.iterdir()):
        raise InputError(f"{folder} is not empty; give a new folder")
    folder.mkdir(parents=True, exist_ok=True)
    write_results(results, folder, skipped=getattr(results, "skipped", {}))
    return folder


def named_prompts(prompts: str | Sequence[str] | Mapping[str, str]) -> dict[str, str]:
    """User turns by key: a key of `PROMPTS` stands for its wording, another text for itself."""
    if isinstance(prompts, Mapping):
        asked = dict(prompts)
    else:
        texts = [prompts] if isinstance(prompts, str) else list(prompts)
        asked = {text: _wording(text) if text in PROMPTS else text for text in texts}
    if not asked or not all(isinstance(text, str) and text.strip() for text in asked.values()):
        raise InputError(f"prompts={prompts!r}: give a user turn, several, or a mapping of key to user turn")
    return asked


def _wording(key: str) -> str:
    """The user turn of conf/prompts."""
    from omegaconf import OmegaConf

    from pessimal.cli.arguments import CONF

    return OmegaConf.load(CONF / "prompts" / f"{key}.yaml")[key]


def _demo(name: str):
    from pessimal.cli.compose import configuration

    return configuration("scan", groups={"model": name}).model


def _trainer_for(model: "RewardModel"):
    """One device: the one that a network in memory is on, else the CPU."""
    from pessimal.config.schema import TrainerSpec

    return TrainerSpec(accelerator="cpu" if _device_of(model).type == "cpu" else "auto")


def _device_of(model: "RewardModel"):
    import torch

    held = getattr(model, "held", None)
    return torch.device("cpu") if held is None else next(held.parameters()).device
