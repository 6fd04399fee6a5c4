"""The end of a study: the best options against the defaults on held-out prompts, and all trials as Results.

Knows the study and a trial context. A job of its own, so that it runs where trials run.
"""

import hashlib
import json
import logging
from dataclasses import dataclass
from pathlib import Path

import optuna
import pandas as pd

from pessimal import __version__
from pessimal.config.schema import SearchConfig
from pessimal.errors import WorkError
from pessimal.tables.result import Result
from pessimal.tracking.registry import Registry
from pessimal.tuning import held_out
from pessimal.tuning.results import study_results
from pessimal.tuning.space import Options, options_of
from pessimal.tuning.study import FINISHED, STUDY_SPEC, check_prompts, load, options_tried
from pessimal.tuning.study_tables import (
    best_of,
    importances,
    names,
    options_table,
    searches_table,
    short,
    trials_table,
)
from pessimal.tuning.trial import PROVENANCE, SEARCHES, Prepare, same_model

log = logging.getLogger(__name__)

STUDY = "study"
"""The artifact's type."""


def concluded(config: SearchConfig, study: optuna.Study, registry: Registry) -> Path | None:
    """The folder of the published study with exactly these trials and held-out prompts; None where there is none."""
    published = registry.find(STUDY, _key(config, study))
    return None if published is None else published[0]


@dataclass(frozen=True)
class Conclusion:
    """The results of a study, ready to be published."""

    study: str
    key: str
    tuned: Options
    """The best trial's options."""
    results: list[Result]


def conclude(config: SearchConfig, prepare: Prepare) -> Conclusion:
    """Compare the best options with the defaults, and report all trials.

    Raises:
        WorkError: no trial of the study is complete.
    """
    check_prompts(config)
    study, storage = load(config)
    best = best_of(study)
    if best is None:
        raise WorkError(f"no trial of the study {study.study_name!r} in {storage.file} is complete yet")
    tuned = options_tried(best)
    compared = None
    if config.tuning.held_out:
        log.info("trial %d is the best; comparing it with the defaults on held-out prompts", best.number)
        compared = held_out.compare(
            config, tuned, lambda options, prompts: same_model(study, prepare(options, prompts))
        )
    texts = study.user_attrs[STUDY_SPEC]["params"]
    tables = {
        "trials": trials_table(study),
        "searches": searches_table(study),
        "options": options_table(study, options_of(config, names(study))),
        "importances": importances(study, seed=config.seed),
        "held_out": compared,
        "held_out_differences": None if compared is None else held_out.differences(compared),
        "provenance": _provenance(config, study),
    }
    logarithmic = [short(name) for name, text in texts.items() if json.loads(text)["attributes"].get("log")]
    results = study_results({name: t for name, t in tables.items() if t is not None}, logarithmic=logarithmic)
    return Conclusion(study.study_name, _key(config, study), tuned, results)


def _key(config: SearchConfig, study: optuna.Study) -> str:
    """sha256 of all that the artifact depends on, hours and durations aside."""
    tuning = config.tuning
    content = {
        "study": study.study_name,
        "subject": study.user_attrs[STUDY_SPEC],
        "identity": study.user_attrs.get(PROVENANCE),
        "trials": [
            [
                t.number,
                t.state.name,
                t.values,
                options_tried(t),
                [s[:3] for s in t.user_attrs.get(SEARCHES, [])],
            ]
            for t in study.get_trials(deepcopy=False, states=FINISHED)
        ],
        "held_out": {key: config.prompts[key] for key in tuning.held_out},
        "held_out_seeds": tuning.held_out_seeds,
        "seed": config.seed,
        "version": __version__,
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _provenance(config: SearchConfig, study: optuna.Study) -> pd.DataFrame:
    """A row a prompt: what was searched on it, and with what."""
    tuning, search = config.tuning, config.search
    rows = [("tuned on", key, tuning.seeds) for key in tuning.prompts]
    rows += [("held out", key, tuning.held_out_seeds) for key in tuning.held_out]
    return pd.DataFrame(
        [
            {
                "model": config.model.name,
                "study": study.study_name,
                "prompt": key,
                "used": used,
                "text": config.prompts[key],
                "starts": count,
                "evaluations": tuning.evaluations,
                "goal": search.goal.value,
                "length": search.length,
                "mode": config.mode.value,
                "seed": config.seed,
                **{name: str(digest)[:12] for name, digest in study.user_attrs[PROVENANCE].items()},
                "pessimal": __version__,
                "optuna": optuna.__version__,
            }
            for used, key, count in rows
        ]
    )
