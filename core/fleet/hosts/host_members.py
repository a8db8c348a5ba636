"""The hosts of a list file as members of a fleet, each reached over ssh. Main thread."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from devexplorer.core.fleet.hosts.host_fleet import Member
from devexplorer.core.fleet.hosts.hosts_file import read_hosts
from devexplorer.core.machines.ssh.connection import Connection
from devexplorer.core.machines.ssh.hosts import address
from devexplorer.core.machines.ssh.records import Prompt, Report
from devexplorer.core.machines.window.routes import SshRoute


def host_members(path: Path, virtual: str | None = None) -> list[Member]:
    """Those of the file; each gets these virtual GPUs. Raises `BadInput` with everything that is wrong in it."""
    return [
        Member(host.name, SshRoute(host.host, host.python, silently), host.rack, partial(address, host.host), virtual)
        for host in read_hosts(path)
    ]


def silently(host: str, report: Callable[[Report], None]) -> Connection:
    """A connection that gives up where ssh asks something: questions of a dozen hosts at once could not be told
    apart."""
    connection: Connection

    def told(what: Report) -> None:
        report(what)
        if isinstance(what, Prompt):
            connection.answer(what.number, None)

    connection = Connection(host, told)
    return connection
