"""What `devexplorer host` takes, and --ssh, which leads to another machine. Data; main thread, no torch."""

from __future__ import annotations

import argparse

from devexplorer.core.cli.arguments import VIRTUAL, CliCommand, WindowOption, add_options, json_option


def _host(host: argparse.ArgumentParser) -> None:
    words = host.add_subparsers(dest="word", metavar="WORD", required=True, parser_class=type(host))
    serve = words.add_parser("serve", help="start the host of this Python environment, if none runs")
    add_options(serve, ("--foreground", None, "in this process, for service managers"))
    proxy = words.add_parser("proxy", help="connect standard input and output to it (what ssh runs)")
    proxy.add_argument("--marker", metavar="HEX", required=True, help="what is printed before everything else")
    for command in (serve, proxy):
        command.add_argument("--virtual", metavar="SPEC", default=argparse.SUPPRESS, help=VIRTUAL)
    stop = words.add_parser("stop", help="end the hosts of this user on this machine")
    stop.add_argument("pid", metavar="PID", nargs="?", help="only the one with this process id")
    json_option(stop)
    json_option(words.add_parser("list", help="list the hosts of this user on this machine"))


def _check_ssh(host: str, _arguments: argparse.Namespace) -> None:
    from devexplorer.core.machines.ssh.hosts import checked

    checked(host)


COMMANDS = (
    CliCommand(
        "host",
        "what windows on other machines connect to: start it, list it, end it",
        _host,
        "machines.commands.command:host",
        takes_common=False,
    ),
)
WINDOW_OPTIONS = (
    WindowOption(
        "ssh",
        "HOST",
        "run on this machine, which ssh reaches; PATH and files are then that machine's",
        _check_ssh,
        "machines.actions:begin_there",
        away="machines.commands.command:over_ssh",
    ),
)
