"""What `devexplorer run` takes. Data; main thread, no torch."""

from __future__ import annotations

import argparse

from devexplorer.core.cli.arguments import CliCommand, add_options, json_option


def _run(run: argparse.ArgumentParser) -> None:
    run.usage = (
        "devexplorer run [--virtual SPEC] [--python PATH] [--report FILE]"
        " SCRIPT [ARGUMENT ...] | -m MODULE [ARGUMENT ...] | -- COMMAND [ARGUMENT ...]"
    )
    run.epilog = "With --virtual, what the script asks of CUDA is answered by virtual GPUs."
    add_options(run, ("--report", "FILE", "write what was observed there, as JSON"))
    run.add_argument("-m", dest="module", metavar="MODULE", nargs=argparse.REMAINDER, help="as python -m MODULE")
    run.add_argument(
        "script",
        metavar="SCRIPT",
        nargs=argparse.REMAINDER,
        help="a Python file with its arguments; after --: a command that starts Python, as torchrun does",
    )


def _explain(explain: argparse.ArgumentParser) -> None:
    explain.add_argument("path", metavar="FILE", help="devexplorer-oom-SCRIPT-PID.json")
    json_option(explain)


COMMANDS = (
    CliCommand(
        "run", "run a script of yours, unchanged, and say what it did", _run, "observe.launch:run", elsewhere=True
    ),
    CliCommand(
        "explain",
        "say why a script ran out of memory, from the file that was written then",
        _explain,
        "observe.explain:explain",
        takes_common=False,
    ),
)
