"""What `devexplorer fleet` and `devexplorer cluster` take, and the window for a fleet. Data; main thread, no torch."""

from __future__ import annotations

import argparse

from devexplorer.core.base import BadInput
from devexplorer.core.cli.arguments import VIRTUAL, CliCommand, WindowOption, add_options, json_option

HOSTS = (
    "a list of machines, one a line, as ssh takes them; name=, rack= and python= may follow; with --virtual each of"
    " them gets virtual GPUs, if it has none"
)
CLUSTER = "the nodes of a Ray cluster: auto on one of its nodes, or HOST:PORT of its head"
DEFECT = (
    "with --nodes: give a card a fault, KIND:NODE/CARD[:SHARE%%]; KIND is slow, hot, pcie, link or lost; nodes and"
    " cards count from 0; may be given again"
)


def _fleet(fleet: argparse.ArgumentParser) -> None:
    """`fleet` alone lists the cards; further words come behind it."""
    _machines(fleet)
    fleet.add_argument("--interval", metavar="S", default="1", help="seconds between readings (default 1)")
    add_options(
        fleet,
        ("--count", "TICKS", "print so many readings (default 1)"),
        ("--prometheus", "PORT", "serve all cards for Prometheus at 127.0.0.1:PORT/metrics, until Ctrl-C"),
        ("--address", "HOST", "where --prometheus listens (default 127.0.0.1)"),
    )
    json_option(fleet)
    fleet.set_defaults(word=None)
    words = fleet.add_subparsers(dest="word", metavar="WORD", parser_class=type(fleet))
    check = words.add_parser("check", help="measure all cards and find the slow one")
    _machines(check)
    add_options(
        check,
        (
            "--kind",
            "KINDS",
            "matmul,memory,copies,peer,model,allreduce (default: all but peer and model)",
        ),
        ("--seconds", "S", "of each measurement (default 20); simulated fleets take less"),
        ("--soak", "MINUTES", "of products before those that are measured, so that the cards are hot"),
        ("--budget", "S", "for all of it: measures for less time, and leaves out what does not fit"),
        ("--in-turn", None, "one card of a machine after the other, rather than all at once"),
        ("--report", "FILE", "write it to FILE.html, for a reader, or FILE.json"),
        ("--uuids", None, "with UUIDs and PCI addresses of the cards, in the report and in --json"),
    )
    check.add_argument("--dtype", metavar="T", action="append", default=[], help="of products (default float16)")
    json_option(check)
    history = words.add_parser("history", help="list the checks that were made")
    add_options(history, ("--count", "N", "so many of the latest (default 20)"))
    json_option(history)


def _machines(command: argparse.ArgumentParser) -> None:
    command.add_argument("--hosts", metavar="FILE", help=HOSTS)
    command.add_argument("--cluster", metavar="ADDRESS", default=argparse.SUPPRESS, help=CLUSTER)
    command.add_argument(
        "--nodes", metavar="N", help="a simulated fleet of so many machines; --virtual says which cards"
    )
    command.add_argument("--virtual", metavar="SPEC", default=argparse.SUPPRESS, help=VIRTUAL)
    command.add_argument("--defect", metavar="DEFECT", action="append", default=[], help=DEFECT)
    command.add_argument("--seed", metavar="N", default="0", help="of the noise of a simulated fleet (default 0)")


def _cluster(cluster: argparse.ArgumentParser) -> None:
    words = cluster.add_subparsers(dest="word", metavar="WORD", required=True, parser_class=type(cluster))
    up = words.add_parser("up", help="start it, print its address, end it on Ctrl-C")
    up.add_argument("--nodes", metavar="N", default="3", help="how many nodes (default 3)")


def _check_cluster(address: str, arguments: argparse.Namespace) -> None:
    if arguments.command == "tour" or getattr(arguments, "replay", None) is not None:
        raise BadInput("--cluster opens the window on a cluster; leave tour and --replay away")
    check_address(address)


def check_address(address: str) -> None:
    """Raises `BadInput` for what is none of a cluster."""
    if not address.strip() or address.startswith("-"):
        raise BadInput(f"--cluster '{address}' is no address; write auto or HOST:PORT of the cluster's head")


COMMANDS = (
    CliCommand(
        "fleet",
        "show every card of many machines",
        _fleet,
        "fleet.commands.command:fleet",
        takes_common=False,
        elsewhere=True,
        one_kind=True,
    ),
    CliCommand(
        "cluster",
        "a Ray cluster on this machine, for trying",
        _cluster,
        "fleet.commands.cluster:cluster",
        takes_common=False,
    ),
)
WINDOW_OPTIONS = (
    WindowOption(
        "cluster",
        "ADDRESS",
        f"open the window on the page Fleet with {CLUSTER}",
        _check_cluster,
        "fleet.actions:begin",
    ),
)
