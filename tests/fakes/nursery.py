"""The process that `fakes.warm` has others forked from: it imports torch once, and forks for each order it gets."""

from __future__ import annotations

import fcntl
import gc
import importlib
import json
import os
import runpy
import socket
import sys
from contextlib import suppress
from typing import Any

LOADED = (
    "torch.distributed.tensor",  # what any virtual GPU imports
    "torch._dynamo",  # what any optimizer imports
    "devexplorer.core.doctor.examine",
    "devexplorer.core.planner.run",
    "devexplorer.core.files.workspace_commands",
)
LONGEST = 1 << 20
"""Bytes of an order."""
Order = dict[str, Any]


def _orders(door: socket.socket) -> Order | None:
    """Fork for each order; returns it in the new process, and None in this one when no more come."""
    while True:
        text, files, _, _ = socket.recv_fds(door, LONGEST, 16)
        if not text:
            return None
        readable, writable = os.pipe()
        between = os.fork()
        if between == 0:
            pid = os.fork()
            if pid == 0:
                os.close(readable)
                os.close(writable)
                return {**json.loads(text), "files": files}
            os.write(writable, str(pid).encode())
            os._exit(0)  # the new process goes to who adopts it
        os.waitpid(between, 0)
        door.send(os.read(readable, 32))
        for file in (readable, writable, *files):
            os.close(file)


def _become(order: Order) -> None:
    """Be a new process in which `python argv…` begins."""
    if order["session"]:
        os.setsid()
    above = max(order["numbers"]) + 1
    files = [fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, above) for file in order["files"]]  # not among the numbers
    for file in order["files"]:
        os.close(file)
    for file, number in zip(files, order["numbers"], strict=True):
        os.dup2(file, number)
        os.close(file)
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["env"])
    sys.path[:0] = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    argv = order["argv"]
    if argv[0] == "-P":
        del argv[0]
    else:
        folder = {"-c": "", "-m": order["cwd"]}.get(argv[0], os.path.dirname(os.path.abspath(argv[0])))
        sys.path.insert(0, folder)
    match argv:
        case ["-m", module, *rest]:
            sys.argv = [module, *rest]
            sys.modules.pop(module, None)  # what others have imported of it is not `__main__`
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        case ["-c", code, *rest]:
            sys.argv = ["-c", *rest]
            exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})
        case [path, *rest]:
            sys.argv = [path, *rest]
            runpy.run_path(path, run_name="__main__")


if __name__ == "__main__":
    gc.disable()  # nothing that is imported is garbage
    for name in LOADED:
        with suppress(ModuleNotFoundError):  # of a feature that was taken out
            importlib.import_module(name)
    gc.collect()
    gc.freeze()
    gc.enable()
    _door = socket.socket(fileno=int(sys.argv[1]))
    if (_order := _orders(_door)) is not None:
        _door.close()
        _become(_order)
