"""Makes a Python of the far machine ready to run our code: puts our code and what it lacks into the cache there, and
nothing into that Python. On the thread of the connection."""

from __future__ import annotations

from pathlib import Path

from devexplorer.core.base import ProgressMonitor, Unavailable
from devexplorer.core.environments import code_cache, packages
from devexplorer.core.environments.environment import Probe, is_likely, refusal
from devexplorer.core.machines.ssh.connection import Connection
from devexplorer.core.machines.ssh.records import Step

UNPACK_S = 120.0
"""For a disk of a network to take a few hundred files."""
INSTALL_S = 180.0


def prepare(connection: Connection, python: str) -> list[str]:
    """The command that runs one of our modules there, when the module's name and its arguments follow. `python` is an
    interpreter there, or the folder of one."""
    python = connection.interpreter(python)
    about = connection.probe(python, with_torch=False)
    reason = refusal(about)
    if reason is not None:
        connection.fail("python refused", f"{python} cannot be used: {reason}")
    bootstrap = f"{_code(connection)}/{code_cache.BOOTSTRAP}"
    return [python, "-P", bootstrap, *_packages(connection, python, about)]


def choose(connection: Connection, folder: str = "~") -> str:
    """The Python there that concerns somebody who works in that folder and has a torch that will do."""
    connection.progress("python")
    found = connection.find(folder)
    python = next((environment.python for environment in found if is_likely(environment)), None)
    if python is None:
        listed = ", ".join(environment.python for environment in found[:5]) or "none"
        connection.fail("no torch", listed)
    return python


def _code(connection: Connection) -> str:
    """The folder with our code, of this very version."""
    connection.progress("code")
    name = code_cache.name()
    return _there(connection, code_cache.KIND, name) or _put(
        connection, "code", code_cache.KIND, name, code_cache.packed()[1]
    )


def _packages(connection: Connection, python: str, about: Probe) -> tuple[str, ...]:
    """Options of the bootstrap: the folders with what that environment lacks."""
    folders = []
    for need in packages.needs(about):
        folder = None if need is None else _need(connection, python, about, need)
        folders.append(None if folder is None else Path(folder))
    return packages.Folders(*folders).options()


def _need(connection: Connection, python: str, about: Probe, need: packages.Need) -> str:
    """First what is there already, then what can be had here, which asks for no network there; then that Python's own
    pip."""
    connection.progress("packages")
    there = _there(connection, packages.KIND, need.name)
    if there is not None:
        return there
    monitor = ProgressMonitor(
        lambda done, text, part="": connection.progress("packages", detail=text), lambda: connection.is_cancelled
    )
    try:
        folder = packages.folder(None, about, need, monitor)
    except Unavailable as problem:
        if not about.pip:
            connection.fail("packages", str(problem))
        request = {"do": "install", "python": python, "wanted": need.wanted, "seconds": INSTALL_S}
        where = {"kind": packages.KIND, "name": need.name, "without": []}
        return str(connection.ask(request | where, INSTALL_S + UNPACK_S))
    return _put(connection, "packages", packages.KIND, need.name, code_cache.packed_folder(folder))


def _there(connection: Connection, kind: str, name: str) -> str | None:
    found = connection.ask({"do": "keep", "kind": kind, "name": name})
    return found if isinstance(found, str) else None


def _put(connection: Connection, step: Step, kind: str, name: str, archive: bytes) -> str:
    def sent(done: float) -> None:
        connection.progress(step, done)

    return str(connection.ask({"do": "keep", "kind": kind, "name": name}, UNPACK_S, archive, sent=sent))
