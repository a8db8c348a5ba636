"""What `devexplorer run`, `attach`, `explain` and `compare` take. Data; main thread, no torch."""

from __future__ import annotations

import argparse

from devexplorer.core.cli.arguments import CliCommand, WindowOption, add_options, json_option


def _run(run: argparse.ArgumentParser) -> None:
    run.usage = (
        "devexplorer run [--virtual SPEC] [--python PATH] [--window] [--report FILE]"
        " SCRIPT [ARGUMENT ...] | -m MODULE [ARGUMENT ...] | -- COMMAND [ARGUMENT ...]"
    )
    run.epilog = "With --virtual, what the script asks of CUDA is answered by virtual GPUs."
    add_options(run, ("--window", None, "open a window that shows the script while it runs"))
    add_options(run, ("--report", "FILE", "write what was observed there, as JSON"))
    run.add_argument("-m", dest="module", metavar="MODULE", nargs=argparse.REMAINDER, help="as python -m MODULE")
    run.add_argument(
        "words",
        metavar="SCRIPT",
        nargs=argparse.REMAINDER,
        help="a Python file with its arguments; after --: a command that starts Python, as torchrun does",
    )


def _check_script(pid: str, _arguments: argparse.Namespace) -> None:
    from devexplorer.core.observe.running import checked_script

    checked_script(pid)


def _attach(attach: argparse.ArgumentParser) -> None:
    attach.add_argument("pid", metavar="PID", help="the number of the process, in CPython 3.14 or later")
    add_options(attach, ("--window", None, "open a window that shows it"))


def _explain(explain: argparse.ArgumentParser) -> None:
    explain.add_argument("path", metavar="FILE", help="devexplorer-oom-SCRIPT-PID.json")
    json_option(explain)


def _compare(compare: argparse.ArgumentParser) -> None:
    compare.add_argument("first", metavar="A", help="a report of devexplorer run --report")
    compare.add_argument("second", metavar="B", help="the report of a later run")
    add_options(compare, ("--fail-slower", "PERCENT", "exit code 1 where a step of B is slower by more, as in 5%%"))
    json_option(compare)


COMMANDS = (
    CliCommand(
        "run", "run a script of yours, unchanged, and say what it did", _run, "observe.launch:run", elsewhere=True
    ),
    CliCommand(
        "attach",
        "look into a script that runs already, in CPython 3.14 or later",
        _attach,
        "observe.attaching:attach",
        takes_common=False,
    ),
    CliCommand(
        "explain",
        "say why a script ran out of memory, from the file that was written then",
        _explain,
        "observe.explain:explain",
        takes_common=False,
    ),
    CliCommand(
        "compare",
        "what became slower or larger from one run to another",
        _compare,
        "observe.compare:compare",
        takes_common=False,
    ),
)
WINDOW_OPTIONS = (
    WindowOption(
        "script",
        "PID",
        "show the script of this process, which 'devexplorer run' has started or 'attach' has found",
        _check_script,
        "observe.scripts:begin_with",
        kind="script",
    ),
)
