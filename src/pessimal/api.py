"""The verbs as Python functions on objects in memory; `import pessimal` offers them without
importing torch.

Nothing is written but where `save` and `train` say: no registry, no W&B, no configuration files of
one's own. Defaults are those of the command line.
"""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from pessimal.catalogue import named_prompts
from pessimal.errors import ConfigError, InputError, did_you_mean, require
from pessimal.notebook import show_in_notebooks
from pessimal.tables import ScoreTable
from pessimal.tables.result import Result, Results

if TYPE_CHECKING:
    from pessimal.rewards.base import Reward
    from pessimal.searching.run import SearchResult


show_in_notebooks()


def load(
    path: str,
    *,
    kind: str | None = None,
    dtype: str | None = None,
    cache: str = "runs/cache",
    **options,
) -> "Reward":
    """A reward of a local folder, of the Hub (`org/name`), or by a name of conf/model: of the demo
    family (`plain-bpe-0`; trained on first use and kept in `cache`), or a real model that a package
    carries (`smollm2`).

    Args:
        kind: head, log_probability, implicit or judge; by default what conf/model says of a name,
            and head of any other.
        dtype: by default float32, or what conf/model says.
        options: further options of a model (`pessimal.rewards.spec.ModelSpec`), such as
            revision="…", implicit={"reference": "org/name"}, judge={"template": "…", "positive":
            ["Yes"], "negative": ["No"]}.

    Raises:
        ConfigError, ModelError: there is none, or it is no scalar reward model.
    """
    from pessimal.config.models import spec_of
    from pessimal.rewards.load import open_model
    from pessimal.rewards.spec import Dtype, ImplicitSpec, JudgeSpec, Kind, ModelSpec
    from pessimal.training.obtain import fetch

    if dtype not in {None, *(one.value for one in Dtype)}:
        raise ConfigError(f"dtype={dtype!r}: give {', '.join(one.value for one in Dtype)}")
    if kind not in {None, *(one.value for one in Kind if "ids" in one.can)}:
        raise ConfigError(f"kind={kind!r}: give head, log_probability, implicit or judge")
    names = {one.name for one in fields(ModelSpec)}
    if unknown := set(options) - names:
        raise ConfigError(
            "a model has no option "
            f"{sorted(unknown)[0]!r}.{did_you_mean(sorted(unknown)[0], names)}"
        )
    for name, made in {"implicit": ImplicitSpec, "judge": JudgeSpec}.items():
        if isinstance(options.get(name), Mapping):
            options[name] = made(**options[name])
    given = {"kind": kind and Kind(kind), "dtype": dtype and Dtype(dtype)}
    spec = spec_of(path, **{name: value for name, value in given.items() if value}, **options)
    return open_model(spec, fetch(spec, cache=cache, progress=True))


def reward(network, tokenizer=None, *, name: str = "model", output: int | None = None) -> "Reward":
    """A reward of what is in memory: a network and its tokenizer (see
    `pessimal.rewards.head.wrap`), or a function f(prompt, responses) that gives one number a
    response; a tokenizer lets its vocabulary be scanned, as texts."""
    if not hasattr(network, "parameters") and callable(network):
        from pessimal.rewards.callable import wrap_callable

        return wrap_callable(network, name=name, tokenizer=tokenizer)
    from pessimal.rewards.head import wrap

    return wrap(network, tokenizer, name=name, output=output)


def scan(
    model: "Reward",
    prompts: str | Sequence[str] | Mapping[str, str] = "greatest",
    *,
    candidates: Sequence[str] | None = None,
    mode: str | None = None,
    certain: int = 100,
    batch_size: int | None = None,
    states: bool | None = None,
    cache: str = "runs/cache",
    progress: bool = True,
) -> "ScoreTable | list[ScoreTable]":
    """Score every token of the vocabulary, or some texts, as the response to each prompt.

    Args:
        model: of `load` or `reward`.
        prompts: a user turn, or a key of `PROMPTS`; several of them, or key → user turn, give a
            list of tables.
        candidates: texts to score instead of the vocabulary.
        mode: `ids` (any token ids), `text` (as a text would be tokenized) or `paper`; ids for the
            vocabulary, text for candidates.
        certain: k of the tails that are scored again in float32 where the model's precision is
            lower.
        batch_size: candidates a batch; found from the memory there is where None.
        states: keep the last hidden states of words, of the model's base where it is known
            (`load(…, base_path="org/name")`); by default for all but log-probabilities of a
            vocabulary.
        cache: folder for a base that is to be fetched.

    Returns:
        A ScoreTable, or for several prompts a list of them.
    """
    from pessimal.config.models import base_of
    from pessimal.progress import quiet_libraries
    from pessimal.rewards.base import NetworkReward
    from pessimal.rewards.spec import Mode
    from pessimal.scoring.candidates import listed, vocabulary_of
    from pessimal.scoring.scan import Scanner, identify, keeps_states

    quiet_libraries()
    slot = Mode(mode or ("ids" if candidates is None and "ids" in model.can else "text"))
    if candidates is None:
        model.spec.require("scan of the vocabulary", "ids" if slot is Mode.ids else "text")
        words = vocabulary_of(model)
    elif slot is Mode.text:
        words = listed(candidates, name="items")
    else:
        raise ConfigError(f"mode={mode!r}: candidates are texts, and are scored in mode='text'")
    asked = [
        identify(model, prompt=key, prompt_text=text, candidates=words, mode=slot, certain=certain)
        for key, text in named_prompts(prompts).items()
    ]
    folder = model.folder if isinstance(model, NetworkReward) else None
    states = keeps_states(model, words, states)
    base = base_of(model.spec, folder, cache=cache, progress=progress) if states else None
    with tempfile.TemporaryDirectory(prefix="pessimal-") as work:
        scanner = Scanner(
            model,
            asked,
            words,
            work=Path(work),
            trainer=_trainer_for(model),
            root=work,
            batch_size=batch_size,
            progress=progress,
            states=states,
            base=base,
        )
        tables = [scanner.scan(provenance) for provenance in asked]
    return tables[0] if isinstance(prompts, str) else tables


def compare(tables: Sequence[ScoreTable], **options) -> Results:
    """Every analysis over score tables of `scan`, or read with `pessimal.read`.

    Args:
        tables: of any models, prompts and candidate sets.
        options: as of `pessimal compare`, such as `replicates=200`, `polarity={"mine": 1}`,
            `join="stripped"`.

    Returns:
        Results in the order of the page; `results["agreement"]` is one of them, `results.skipped`
        says what could not be done and why.
    """
    from pessimal.analyses import all_analyses
    from pessimal.analyses import compare as every_analysis
    from pessimal.config.compose import configuration
    from pessimal.config.reading import read_options, reading_of
    from pessimal.config.schema import CompareConfig
    from pessimal.tables.table_set import table_sets

    tables = [tables] if isinstance(tables, ScoreTable) else list(tables)
    if not tables or not all(isinstance(table, ScoreTable) for table in tables):
        raise InputError("compare takes score tables: pessimal.scan(model), or pessimal.read(FILE)")
    config = configuration("compare", options)
    assert isinstance(config, CompareConfig)
    sets, analyses = table_sets(tables, reading_of(config)), all_analyses(config.analyses)
    results, skipped = every_analysis(sets, read_options(config), analyses=analyses)
    return Results(results, skipped)


def search(
    model: "Reward",
    prompts: str | Sequence[str] | Mapping[str, str] = "greatest",
    *,
    length: int = 2,
    goal: str = "optimal",
    **options,
) -> "SearchResult":
    """The best or the worst response of a length that a budget of evaluations finds, certified.

    Args:
        model: of `load` or `reward`.
        prompts: as for `scan`; of several, the mean reward is searched.
        length: tokens of the response, 1 to 16.
        goal: `optimal` or `pessimal`.
        options: as of `pessimal search`, such as evaluations=50_000; and mode="text", seed=1,
            batch_size=64.

    Returns:
        A SearchResult: `.text`, `.reward`, `.verdict`, `.results`.
    """
    from pessimal.rewards.base import require_network
    from pessimal.searching.run import search as search_one

    network = require_network(model, "search", "gradient")
    return search_one(
        network,
        named_prompts(prompts),
        length=length,
        goal=goal,
        device=_device_of(model),
        **options,
    )


def explain(
    model: "Reward",
    prompt: str,
    chosen: str,
    rejected: str,
    *,
    perturber: str = "rules",
    seeds: int = 1,
) -> Results:
    """Why a model prefers one response to the other: edits along named attributes, and the smallest
    that flip it.

    Args:
        model: of `load` or `reward`.
        prompt, chosen, rejected: texts; which of the two the model prefers need not be the one
            called chosen.
        perturber: a file of conf/perturber, such as `rules`, `random`, `llm`.
        seeds: edits of each kind.
    """
    from pessimal.config.compose import configuration
    from pessimal.config.plain import plain
    from pessimal.config.schema import ExplainConfig
    from pessimal.explaining.contrast import read_attributes
    from pessimal.explaining.explain import explain_pair, pair
    from pessimal.explaining.perturbers import make_perturber
    from pessimal.explaining.results import pair_results
    from pessimal.scoring.texts import text_scorer

    comparison = pair(prompt, chosen, rejected)
    config = configuration(
        "explain",
        {"prompt": prompt, "chosen": chosen, "rejected": rejected},
        groups={"perturber": perturber},
    )
    assert isinstance(config, ExplainConfig)
    attributes = read_attributes(plain(config)["contrast"])
    changes = make_perturber(
        config.perturber, attributes=attributes, cache=Path("runs/cache/answers")
    )
    sample = [comparison.conversation(text) for text in comparison.responses]
    scorer = text_scorer(model, sample, device=_device_of(model))
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
    model: "Reward",
    prompt: str = "greatest",
    *,
    sample: int = 64,
    batch_size: int = 16,
    seed: int = 0,
) -> Results:
    """Whether a model's score is the same whatever the batch, the padding and the path, on random
    responses.

    Args:
        model: of `load` or `reward`.
        prompt: as for `scan`.
        sample: random tokens; a quarter as many longer responses come on top.
    """
    from pessimal.checking import CheckPlan
    from pessimal.checking import check as check_parts
    from pessimal.checking.results import conformance_results
    from pessimal.rewards.base import require_network

    [text] = named_prompts(prompt).values()
    network = require_network(model, "check")
    plan = CheckPlan(sample, batch_size, [], seed)
    found = check_parts(network, text, plan, device=_device_of(model), progress=False)
    return Results(conformance_results(found, model.name))


def train(
    base: str,
    data: str | Path,
    folder: str | Path,
    *,
    seed: int = 0,
    cache: str = "runs/cache",
    accelerator: str = "cpu",
    progress: bool = True,
    **recipe,
) -> "Reward":
    """Train a reward model of people's preferences between items, from a language model.

    Args:
        base: the language model: a local folder, `org/name`, or a name of conf/model.
        data: CSV file with the columns name, elo_score and elo_matches.
        folder: where its checkpoint is written, which is new; transformers and `load` read it.
        seed: of the head's first weights and of the order of the items.
        recipe: options of the training (`pessimal.training.spec.PreferenceRecipe`), such as
            steps=150, layers=12, question="…".

    Raises:
        ConfigError, InputError, ModelError: an option, the data, or the base cannot be taken.
    """
    require("peft", why="training on people's preferences")
    from pessimal.config.models import spec_of
    from pessimal.rewards.spec import Kind
    from pessimal.training.preference_model import train_preferences
    from pessimal.training.spec import PreferenceRecipe

    options = {field.name for field in fields(PreferenceRecipe)}
    for name in recipe:
        if name not in options:
            guess = did_you_mean(name, options)
            raise ConfigError(f"a training has no option {name!r}.{guess}".removesuffix("."))
    folder = Path(folder).expanduser()
    train_preferences(
        spec_of(base, kind=Kind.log_probability),
        Path(data).expanduser(),
        PreferenceRecipe(**recipe),
        folder=folder,
        cache=cache,
        seed=seed,
        accelerator=accelerator,
        progress=progress,
    )
    return load(str(folder), cache=cache)


def read(path: str | Path) -> ScoreTable:
    """A score table of a file or an artifact's folder."""
    from pessimal.tables import read_score_table

    return read_score_table(Path(path).expanduser())


def save(results: Sequence[Result], folder: str | Path) -> Path:
    """Write `tables/*.parquet`, `figures/*.svg` and `results.json`, as artifacts have them; returns
    the folder.

    Raises:
        InputError: there is something in the folder already.
    """
    from pessimal.report.write import write_results

    folder = Path(folder).expanduser()
    if folder.exists() and any(folder.iterdir()):
        raise InputError(f"{folder} is not empty; give a new folder")
    folder.mkdir(parents=True, exist_ok=True)
    write_results(results, folder, skipped=getattr(results, "skipped", {}))
    return folder


def _trainer_for(model: "Reward"):
    """One device: the one that a network in memory is on, else the CPU."""
    from pessimal.scoring.spec import TrainerSpec

    return TrainerSpec(accelerator="cpu" if _device_of(model).type == "cpu" else "auto")


def _device_of(model: "Reward"):
    import torch

    held = getattr(model, "held", None)
    return torch.device("cpu") if held is None else next(held.parameters()).device
