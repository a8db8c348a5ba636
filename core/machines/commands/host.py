"""`devexplorer host`: the hosts of this user on this machine: start, list, end, and the proxy that ssh runs. Main
thread; neither torch nor Qt."""

from __future__ import annotations

import argparse
import os
import time

from devexplorer.core.base import BadInput, Unavailable, elapsed_text
from devexplorer.core.cli.terminal import console, print_document, table
from devexplorer.core.machines.host import listing
from devexplorer.core.machines.host.proxy import proxy
from devexplorer.core.machines.host.socket_folder import HostError
from devexplorer.core.machines.host.starting import find, reach, serve_command

DESCRIBED = ("since_unix_s", "clients", "busy", "python", "protocol", "devexplorer")


def host(arguments: argparse.Namespace) -> int:
    """Do what the word behind `host` says."""
    words = {"serve": _serve, "proxy": _proxy, "list": _list, "stop": _stop}
    return words[arguments.word](arguments)


def _serve(arguments: argparse.Namespace) -> int:
    if arguments.foreground:
        from devexplorer.core.machines.host.daemon import serve

        return serve(arguments.virtual)
    was_there = _runs()
    try:
        reach(os.environ, lambda: serve_command(_virtual(arguments))).close()
    except HostError as error:
        raise Unavailable(str(error)) from error
    print("a host of this Python environment runs already" if was_there else "the host runs")
    return 0


def _proxy(arguments: argparse.Namespace) -> int:
    return proxy(arguments.marker, command=lambda: serve_command(_virtual(arguments)))


def _list(arguments: argparse.Namespace) -> int:
    hosts = listing.running()
    if arguments.json:
        print_document(hosts=[_document(host) for host in hosts])
        return 0
    if not hosts:
        print("no host of yours runs on this machine")
        return 0
    rows = table(">pid", "runs for", ">windows", "under way", "Python", ">protocol")
    for found in hosts:
        about = found.hello
        if about is None:
            rows.add_row(str(found.pid), "", "", "", "", "")
            continue
        rows.add_row(
            str(found.pid), elapsed_text(time.time() - about.since_unix_s), str(about.clients), ", ".join(about.busy),
            about.python, str(about.protocol),
        )  # fmt: skip
    console().print(rows)
    return 0


def _stop(arguments: argparse.Namespace) -> int:
    hosts = listing.running()
    if arguments.pid is not None:
        hosts = [found for found in hosts if str(found.pid) == arguments.pid]
        if not hosts:
            raise BadInput(f"no host of yours on this machine has the process id {arguments.pid}; see 'host list'")
    stopped: list[int] = []
    hanging: list[int] = []
    for found in hosts:
        (stopped if listing.stop(found) else hanging).append(found.pid)
    if arguments.json:
        print_document(stopped=stopped, hanging=hanging)
    else:
        for pid in stopped:
            print(f"host {pid} ended")
        if not hosts:
            print("no host of yours runs on this machine")
    if hanging:
        raise Unavailable(f"it does not end: host {', '.join(map(str, hanging))}; kill -9 ends it with its engine")
    return 0


def _document(found: listing.Running) -> dict[str, object]:
    return {
        "pid": found.pid,
        **{name: getattr(found.hello, name, None) for name in DESCRIBED},
        "socket": found.socket,
        "log": found.log,
    }


def _runs() -> bool:
    connection = find(os.environ)
    if connection is not None:
        connection.close()
    return connection is not None


def _virtual(arguments: argparse.Namespace) -> list[str]:
    return [] if arguments.virtual is None else ["--virtual", arguments.virtual]
