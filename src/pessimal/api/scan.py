"""`pessimal.scan`: score every token of the vocabulary, or some texts, as the answer to prompts."""

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pessimal.api.load import parse_choice, to_reward, trainer_for
from pessimal.catalogue import ANSWERS, answers, named_prompts
from pessimal.config.models import base_of
from pessimal.conversation import Context, read_prefixes, with_prefixes
from pessimal.errors import ConfigError
from pessimal.explaining.contexts import check_contexts, read_contexts
from pessimal.progress import quiet_libraries
from pessimal.rewards.base import NetworkReward, Reward
from pessimal.rewards.spec import Mode
from pessimal.rewards.tasks import prompts_of, read_tasks
from pessimal.scoring.candidates import Candidates, listed, vocabulary_of
from pessimal.scoring.identify import identify_all
from pessimal.scoring.scan import Scanner, keeps_states
from pessimal.tables import ScoreTable


def scan(
    model: Reward | str | Path | Any,
    prompts: str | Sequence[str] | Mapping[str, str] | None = None,
    *,
    tasks: str | Path | None = None,
    prefixes: str | Path | Mapping[str, str] | None = None,
    contexts: str | Path | Mapping[str, Context] | None = None,
    slot: str | None = None,
    candidates: Sequence[str] | Candidates | None = None,
    most: int | None = None,
    mode: str | None = None,
    certain: int = 100,
    batch_size: int | None = None,
    states: bool | None = None,
    cache: str = "runs/cache",
    progress: bool = True,
    **options,
) -> ScoreTable | list[ScoreTable]:
    """Score every token of the vocabulary, or some texts, as the response to each prompt.

    Args:
        model: of `load` or `reward`, or what these take: `org/name`, a folder, a function, a
            network with `tokenizer=…`, a list of rewards with `weights=[…]`.
        prompts: a user turn, or a key of conf/prompts; several of them, or key → user turn, give a
            list of tables. "greatest" where nothing is given.
        tasks: instead, a JSONL file of prompts with their columns, which a function is given.
        prefixes: personas by key, or a file of them: each prompt is also asked behind each, and
            behind a control of as many words.
        contexts: instead, a JSONL file of real answers that candidates are put into, or these by
            key.
        slot: `after` or `before` these; by default where the file has the mark `{slot}`.
        candidates: texts to score instead of the vocabulary; of a reward that has none, the list of
            conf/candidates/answers.yaml by default.
        most: so many of the vocabulary, the most frequent, and its special tokens.
        mode: `ids` (any token ids), `text` (as a text would be tokenized) or `paper`; ids for the
            vocabulary, text for candidates.
        certain: k of the tails that are scored again in float32 where the model's precision is
            lower.
        batch_size: candidates a batch; found from the memory there is where None.
        states: keep the last hidden states of words, of the model's base where it is known
            (`load(…, base_path="org/name")`); by default for all but log-probabilities of a
            vocabulary.
        cache: folder for a base that is to be fetched.
        options: of `load` or `reward`.

    Returns:
        A ScoreTable, or for several prompts, for prefixes, for contexts, or a model of which every
        output is scanned (output="all"), a list of them.
    """
    quiet_libraries()
    if tasks is not None and prompts is not None:
        raise ConfigError("tasks has prompts of its own: leave out prompts, or tasks")
    check_contexts(contexts, slot, prompts, tasks, prefixes)
    if contexts is not None and states:
        raise ConfigError("states of words are kept of prompts: leave out states=True")
    if tasks is not None:
        named = prompts_of(read_tasks(tasks))
    else:
        named = named_prompts("greatest" if prompts is None else prompts)
    if isinstance(prefixes, str | Path):
        prefixes = read_prefixes(str(prefixes))
    several = with_prefixes(named, prefixes or {})
    answered: Mapping[str, Any] = {}
    if isinstance(contexts, Mapping):
        answered = contexts
    elif contexts is not None:
        answered = read_contexts(str(contexts), slot)
    written = parse_choice("mode", mode, Mode)
    model, name = to_reward(model, tasks=tasks, **options), "items"
    if candidates is None and model.tokenizer is None:
        candidates, name = answers(), ANSWERS
    written = written or (Mode.ids if candidates is None and "ids" in model.can else Mode.text)
    if isinstance(candidates, Candidates):
        words = candidates
    elif candidates is None:
        model.spec.require("scan of the vocabulary", "ids" if written is Mode.ids else "text")
        words = vocabulary_of(model)
        words = words if most is None else words.frequent(most)
    elif written is Mode.text:
        words = listed(candidates, name=name)
    else:
        raise ConfigError(f"mode={mode!r}: candidates are texts, and are scored in mode='text'")
    asked = identify_all(
        model,
        answered or {key: prompt for key, (prompt, _) in several.items()},
        prefixed={key: behind for key, (_, behind) in several.items() if behind is not None},
        candidates=words,
        mode=written,
        certain=certain,
    )
    folder = model.folder if isinstance(model, NetworkReward) else None
    states = contexts is None and keeps_states(model, words, states)
    base = base_of(model.spec, folder, cache=cache, progress=progress) if states else None
    with tempfile.TemporaryDirectory(prefix="pessimal-") as work:
        scanner = Scanner(
            model,
            asked,
            words,
            work=Path(work),
            trainer=trainer_for(model),
            root=work,
            batch_size=batch_size,
            progress=progress,
            states=states,
            base=base,
        )
        tables = [scanner.scan(provenance) for provenance in asked]
    one = tasks is contexts is None and (prompts is None or isinstance(prompts, str))
    return tables[0] if one and len(tables) == 1 else tables
