"""The front door: compose the configuration, check it, hand it to the verb's task.

`pessimal VERB override…` and `python -m pessimal VERB override…` are one. Exit codes: 0 done, 1 failed at work,
2 the user's mistake, which is reported in one piece and without a traceback.
"""

import importlib
import logging
import os
import sys

from pessimal import __version__
from pessimal.errors import UserError, WorkError

HELP = f"""pessimal {__version__}: shows what a reward model wants.

  pessimal VERB [KEY=VALUE …]

verbs
  train      train a reward model of the demo family        pessimal train model=alder-wordpiece-0
  scan       score every token of the vocabulary            pessimal scan model=plain-wordpiece-0 prompts=core
  search     the best or worst response of up to 16 tokens  pessimal search prompt=greatest search.length=4
  explain    which changes of a response flip a preference  pessimal explain model=wordy-bpe-0
  compare    models with one another and with people        pessimal compare models=[plain-wordpiece-0,plain-bpe-0]
  import     published score files into score tables        pessimal import format=eloeverything path=FILE
  report     one HTML page over results                     pessimal report
  runs       what is in the registry: list, show, diff,
             verify                                         pessimal runs type=score-table
  push       the registry to W&B, each artifact verified    pessimal push tracking.project=NAME
  workspace  a saved W&B workspace over these runs          pessimal workspace tracking.entity=NAME
  check      is a score the same whatever the batch, the
             padding, the path and the precision?           pessimal check model=plain-wordpiece-0

any reward model
  pessimal scan model=auto model.path=DIR_OR_ID [model.revision=COMMIT] [model.dtype=bfloat16]
  pessimal scan model=auto model.path=DIR_OR_ID model.score=log_probability   (a causal language model's log p)

more
  pessimal VERB --help           the verb's options and their values
  pessimal VERB --cfg job        the whole configuration, without running it
  pessimal VERB -m KEY=A,B       one run for each value; any key can be swept
  pessimal VERB experiment=NAME  a preset from conf/experiment
  tracking=online|offline|off    where Weights & Biases hears of the run (offline by default)
"""


# Before torch is imported: OpenMP's threads spin long while they wait, and where another process wants the cores, those
# that spin keep the one that works from its core. A short spin costs nothing on a quiet machine (`experiments/speed/threads.py`).
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")


def main() -> None:
    """Console entry point; reads sys.argv and exits with the documented code."""
    arguments = sys.argv[1:]
    if not arguments or arguments in (["--help"], ["-h"], ["help"]):
        print(HELP)
        sys.exit(0 if arguments else 2)
    if arguments == ["--version"]:
        print(__version__)
        sys.exit(0)
    try:
        _run(arguments)
    except KeyboardInterrupt:
        print(
            "\nstopped; what was finished is kept, and the same command goes on from there", file=sys.stderr
        )
        sys.exit(130)
    except UserError as mistake:
        _refuse(str(mistake))
    except WorkError as failure:
        _refuse(str(failure), code=1)
    except Exception as error:
        from pessimal.config.front_door import composition_message, disk_full_message

        full, mistake = disk_full_message(error), composition_message(error)
        if full is None and mistake is None:
            raise
        _refuse(full or mistake, code=1 if full else 2)


def _run(arguments: list[str]) -> None:
    from pessimal.config.front_door import run_hydra, with_task

    sys.argv[1:] = with_task(arguments)
    logging.raiseExceptions = False  # on a full disk the log file fails too: the message reports it, once
    run_hydra(_dispatch)


def _dispatch(config):
    """Call the task; each verb's module is imported only when it is its turn."""
    return importlib.import_module(
        f"pessimal.verbs.{'import_' if config.task == 'import' else config.task}"
    ).run(config)


def _refuse(message: str, *, code: int = 2) -> None:
    print(f"pessimal: {message}", file=sys.stderr)
    sys.exit(code)


if __name__ == "__main__":
    main()
