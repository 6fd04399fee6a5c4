"""`pessimal VERB KEY=VALUE …`, which `python -m pessimal` is too.

Exit codes: 0 done, 1 an audit or a strict check fails, 2 the user's mistake, which is reported in
one piece and without a traceback, 3 an audit without its core checks, 4 work that could not be
done, 130 stopped by Ctrl-C, 143 by SIGTERM.
"""

import logging
import os
import select
import signal
import sys
import traceback

from pessimal.errors import BoundedError, UserError, WorkError, bounded, get_exit_code
from pessimal.version import __version__

HELP = f"""pessimal {__version__}: shows what a reward model wants.

  pessimal VERB [KEY=VALUE …]

verbs
  audit      before RL: one verdict per check               pessimal audit plain-wordpiece-0
  train      a reward model from people's ratings           pessimal train base=NAME data=FILE
  scan       score every token of the vocabulary            pessimal scan model=plain-wordpiece-0 prompts=core
  search     the best or worst response of up to 16 tokens  pessimal search prompt=greatest search.length=4
  explain    which changes of a response flip a preference  pessimal explain model=wordy-bpe-0
  compare    models with one another and with people        pessimal compare models=[plain-wordpiece-0,plain-bpe-0]
  import     published score files into score tables        pessimal import format=eloeverything path=FILE
  rollouts   what a policy's rollouts are paid for          pessimal rollouts completions.parquet
  report     one HTML page over results                     pessimal report
  runs       the registry: list, show, diff, verify         pessimal runs type=score-table
  push       the registry to W&B, each artifact verified    pessimal push tracking.project=NAME
  check      is a score computed, served and fed right?     pessimal check model=plain-wordpiece-0
  serve      a reward behind a URL, for trainers            pessimal serve model=plain-wordpiece-0 port=8000

any reward model
  pessimal scan ORG/NAME [model.revision=COMMIT] [model.dtype=bfloat16]      (or a folder, or http://HOST:PORT)
  pessimal scan ORG/NAME model.kind=log_probability   (a causal language model's log p)
  pessimal scan FILE.py:FUNCTION [tasks=FILE.jsonl]   (as TRL, verl, OpenRLHF, verifiers or inspect_ai calls it)

more
  pessimal VERB --help           the verb's options: default and meaning; --help=GROUP says all
  pessimal models                the models that are known by a name
  pessimal VERB --cfg job        the whole configuration, without running it
  pessimal VERB --info defaults  where it comes from; --hydra-help says what else Hydra can do
  pessimal VERB -m KEY=A,B       one run for each value; any key can be swept
  pessimal VERB experiment=NAME  a preset from conf/experiment
  tracking=online|offline|off    where Weights & Biases hears of the run (WANDB_MODE, or offline)
  eval "$(pessimal -sc install=bash)"   completion of verbs, options and values by the tab key
"""

# Before torch is imported: OpenMP's threads spin long while they wait, and where another process
# wants the cores, those that spin keep the one that works from its core. A short spin costs nothing
# on a quiet machine (`experiments/speed/threads.py`).
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")


class Termination(KeyboardInterrupt):
    """A SIGTERM, which ends a verb as Ctrl-C does."""


def main() -> None:
    """Console entry point; reads sys.argv and exits with the documented code."""
    arguments = sys.argv[1:]
    if not arguments:
        print(HELP)
        sys.exit(2)
    try:
        _raise_terminations()
        _run(arguments)
        sys.stdout.flush()
    except KeyboardInterrupt as interrupt:
        _stopped(interrupt)
    except SystemExit as end:
        if isinstance(end.__context__, KeyboardInterrupt):  # which Lightning makes an exit with 1
            _stopped(end.__context__)
        raise
    except BoundedError as error:
        _refuse(str(error), code=error.exit_code)
    except Exception as error:
        if isinstance(error, BrokenPipeError) and _nobody_reads():
            sys.exit(0)
        from pessimal.config.compose import composition_message, disk_full_message

        full, mistake = disk_full_message(error), composition_message(error)
        message = full or mistake
        if message is None:  # a fault of ours: whole, but for what a terminal would obey
            lines = traceback.format_exc().splitlines()
            print(*map(bounded, lines), sep="\n", file=sys.stderr)
            sys.exit(get_exit_code(error))
        _refuse(message, code=(WorkError if full else UserError).exit_code)


def _nobody_reads() -> bool:
    """Whether what takes our output, as in `pessimal scan --help | head`, has read enough."""
    output = select.poll()
    output.register(sys.stdout.fileno(), 0)  # an error alone
    if closed := bool(output.poll(0)):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes once more
    return closed


def _run(arguments: list[str]) -> None:
    if arguments in (["--help"], ["-h"], ["help"], ["--version"]):
        print(__version__ if arguments == ["--version"] else HELP)
        return
    if arguments == ["models"]:
        from pessimal.cli import print_models

        print_models()
        return
    from pessimal.cli import add_task, split

    sys.argv[1:] = typed = add_task(arguments)
    overrides, options = split(typed)
    if {"-sc", "--shell-completion"} & set(options) and any(
        o.startswith("query=") for o in overrides
    ):
        from pessimal.cli import completed

        if (words := completed(os.environ["COMP_LINE"])) is not None:
            print(" ".join(words))
            return
    group = options.get("--help", options.get("-h"))
    if group and not overrides:
        raise UserError(f"--help={group} takes a verb: type pessimal scan --help={group}")
    if group is not None and overrides:
        from pessimal.cli import print_help

        print_help(overrides, options, group)
        return
    if options.get("--cfg") == "job" and {"-m", "--multirun"} & set(options):
        from pessimal.cli import print_jobs

        print_jobs(overrides)
        return
    if "--hydra-help" in options:
        # Hydra composes its own configuration for it, which knows no verbs.
        sys.argv[1:] = ["--hydra-help"]
    from pessimal.cli import run_hydra

    # On a full disk the log file fails too: the message reports it, once.
    logging.raiseExceptions = False
    run_hydra()


def _raise_terminations() -> None:
    """Let the first SIGTERM raise `Termination` in this process; `timeout` sends two, and the
    second must not disturb what the first ends. Lightning calls this handler after its own, which
    by itself would only take a note."""
    process, terminations = os.getpid(), list[int]()

    def terminate(number: int, frame: object) -> None:
        if os.getpid() != process:  # a fork, whose work is not ours to end in order
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        terminations.append(number)
        if len(terminations) == 1:
            raise Termination

    signal.signal(signal.SIGTERM, terminate)


def _stopped(interrupt: KeyboardInterrupt) -> None:
    message = "\nstopped; what was finished is kept, and the same command goes on from there"
    print(message, file=sys.stderr)
    sys.exit(143 if isinstance(interrupt, Termination) else 130)


def _refuse(message: str, *, code: int) -> None:
    print(f"pessimal: {bounded(message)}", file=sys.stderr)
    sys.exit(code)


if __name__ == "__main__":
    main()
