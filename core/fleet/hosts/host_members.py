"""The hosts of a list file as members of a fleet, each reached over ssh. Main thread."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from devexplorer.core.base import BadInput, printable
from devexplorer.core.fleet.hosts.host_fleet import Member
from devexplorer.core.machines.ssh.connection import Connection
from devexplorer.core.machines.ssh.hosts import address, checked
from devexplorer.core.machines.ssh.records import Prompt, Report
from devexplorer.core.machines.window.routes import SshRoute

# The list of the hosts of a fleet, as a small text file: a host a line, as ssh takes it, with `name=`, `rack=` and
# `python=` behind it where they are wanted. Pure functions on one file, any thread.

LARGEST = 1 << 20
"""Bytes; a larger file is no list of hosts."""
MOST_HOSTS = 64
"""Each is a process of ssh and three threads here; more machines than that are a cluster's job."""


class FleetHost(NamedTuple):
    """One line of the file."""

    host: str
    """As ssh takes it."""
    name: str
    """As it is listed; the host, where nothing else is said."""
    rack: str = ""
    python: str = ""
    """The interpreter there; empty: the one that is most likely meant."""


def read_hosts(path: Path) -> list[FleetHost]:
    """The hosts of the file. Raises `BadInput` with everything that is wrong, each with its line."""
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
    except OSError as error:
        raise BadInput(f"--hosts '{path}' cannot be read: {(error.strerror or str(error)).lower()}") from None
    if len(data) > LARGEST:
        raise BadInput(f"--hosts '{path}' is no list of hosts: it has more than {LARGEST >> 20} MiB")
    hosts: list[FleetHost] = []
    wrong: list[str] = []
    for number, line in enumerate(data.decode("utf-8", "replace").splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        try:
            host = _host(words)
            if any(other.name == host.name for other in hosts):
                raise BadInput(f"{host.name} is listed twice; give one of them another name=")
            hosts.append(host)
        except BadInput as error:
            wrong.append(f"{path.name}, line {number}: {printable(str(error))}")
    if len(hosts) > MOST_HOSTS:
        wrong.append(f"{path.name} lists {len(hosts)} hosts; at most {MOST_HOSTS} are reached over ssh")
    if not hosts and not wrong:
        wrong.append(f"{path.name} lists no host; write one a line, as ssh takes it: gpu1 or user@gpu1")
    if wrong:
        raise BadInput(*wrong)
    return hosts


def _host(words: list[str]) -> FleetHost:
    """What one line says.

    >>> _host(["user@gpu1", "rack=A", "name=gpu1"])
    FleetHost(host='user@gpu1', name='gpu1', rack='A', python='')
    """
    said: dict[str, str] = {}
    for word in words[1:]:
        key, equals, value = word.partition("=")
        if key not in ("name", "rack", "python") or not equals or not value or key in said:
            raise BadInput(f"'{word}' is not understood; a host may be followed by name=, rack= and python=")
        said[key] = value
    host = checked(words[0])
    if "/" in said.get("name", ""):
        raise BadInput(f"name={said['name']} has a slash, which stands between machine and device")
    return FleetHost(host, said.pop("name", host), **said)


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
