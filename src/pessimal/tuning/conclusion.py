"""The end of a study: the best options against the defaults on held-out prompts, and all of it published.

Knows the study, a bench, the registry and its mirror. A job of its own, so that it runs where trials run.
"""

import hashlib
import json
import logging
from pathlib import Path

import optuna
import pandas as pd

from pessimal import __version__
from pessimal.config.schema import SearchConfig
from pessimal.errors import WorkError
from pessimal.tracking.mirror import Mirror
from pessimal.tracking.registry import Registry
from pessimal.tracking.tell import tell_contents
from pessimal.tuning import held_out
from pessimal.tuning.space import options_of
from pessimal.tuning.study import FINISHED, SUBJECT, check_prompts, load, options_tried
from pessimal.tuning.study_contents import Findings, study_contents
from pessimal.tuning.study_tables import (
    best_of,
    importances,
    names,
    options_table,
    searches_table,
    short,
    trials_table,
)
from pessimal.tuning.trial import IDENTITY, SEARCHES, Prepare, same_model

log = logging.getLogger(__name__)

STUDY = "study"
"""The artifact's type."""


def concluded(config: SearchConfig, study: optuna.Study, registry: Registry) -> Path | None:
    """The folder of the published study with exactly these trials and held-out prompts; None where there is none."""
    found = registry.find(STUDY, _key(config, study))
    return None if found is None else found[0]


def conclude(
    config: SearchConfig, prepare: Prepare, *, registry: Registry, mirror: Mirror, config_hash: str
) -> Path:
    """Compare the best options with the defaults, make tables and figures, publish a `study` artifact; its folder.

    Raises:
        WorkError: no trial of the study is complete.
    """
    check_prompts(config)
    study, place = load(config)
    best = best_of(study)
    if best is None:
        raise WorkError(f"no trial of the study {study.study_name!r} in {place.file} is complete yet")
    tuned = options_tried(best)
    compared = None
    if config.tuning.held_out:
        log.info("trial %d is the best; comparing it with the defaults on held-out prompts", best.number)
        compared = held_out.compare(
            config, tuned, lambda options, prompts: same_model(study, prepare(options, prompts))
        )
    texts = study.user_attrs[SUBJECT]["params"]
    contents = study_contents(
        Findings(
            name=study.study_name,
            about=_about(config),
            logarithmic=[
                short(name) for name, text in texts.items() if json.loads(text)["attributes"].get("log")
            ],
            trials=trials_table(study),
            searches=searches_table(study),
            options=options_table(study, options_of(config, names(study))),
            importances=importances(study, seed=config.seed),
            held_out=compared,
            differences=None if compared is None else held_out.differences(compared),
            provenance=_provenance(config, study),
        )
    )
    folder, manifest = registry.publish(
        STUDY,
        study.study_name,
        contents.write,
        key=_key(config, study),
        config_hash=config_hash,
        run_id=mirror.run_id,
        summary={"model": config.model.name, **contents.summary},
    )
    tell_contents(mirror, contents, folder)
    mirror.artifact(folder, manifest, manifest.summary)
    for entry in contents.sections[0].entries:
        log.info("%s: %s", entry.title, entry.sentence)
    log.info("the same options in a search: %s", " ".join(f"{name}={value}" for name, value in tuned.items()))
    log.info("%s", folder)
    return folder


def _key(config: SearchConfig, study: optuna.Study) -> str:
    """sha256 of all that the artifact depends on, hours and durations aside."""
    tuning = config.tuning
    content = {
        "study": study.study_name,
        "subject": study.user_attrs[SUBJECT],
        "identity": study.user_attrs.get(IDENTITY),
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


def _about(config: SearchConfig) -> str:
    search, tuning = config.search, config.tuning
    return (
        f"{config.model.name}, {search.goal.value} responses of {search.length} tokens; {tuning.evaluations:,} candidate "
        f"evaluations a search, {tuning.seeds} starts on each of {len(tuning.prompts)} prompts a trial."
    )


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
                **{name: str(digest)[:12] for name, digest in study.user_attrs[IDENTITY].items()},
                "pessimal": __version__,
                "optuna": optuna.__version__,
            }
            for used, key, count in rows
        ]
    )
