"""A session with the real engine in this process, and what its script must reproduce in a new one."""

from __future__ import annotations

import dis
import json
import subprocess
import sys
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from devexplorer.core.base.python_names import variable
from devexplorer.core.devices.nvml.library import Nvml
from devexplorer.core.records import Answer, Command, Event, JobEnded, Rebuilt
from devexplorer.core.session.session import Session
from fakes.engine import EngineHere

PROBE = """
import hashlib, json, torch
from devexplorer.core.workspace.placement import snapshot


def _look(name, thing):
    if isinstance(thing, torch.Tensor):
        held = {"": thing}
    else:
        held = {**dict(thing.named_parameters()), **dict(thing.named_buffers())}
    rows = [
        (r.path, r.kind, r.type, r.shape, r.dtype, r.devices, r.requires_grad, r.tied_to)
        for r in snapshot(name, thing).rows
        if r.kind != "state"
    ]
    values = {
        path: hashlib.sha256(t.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()).hexdigest()
        for path, t in held.items() if not isinstance(t, torch.nn.parameter.UninitializedTensorMixin)
    }
    modes = [] if isinstance(thing, torch.Tensor) else [m.training for m in thing.modules()]
    return [rows, values, modes]


with open(__OUT__, "w") as _file:
    json.dump({_name: _look(_name, globals()[_variable]) for _name, _variable in __NAMES__.items()}, _file)
"""


class Here:
    """A session with the real engine in this process."""

    def __init__(self, virtual_spec: str | None) -> None:
        self._threads = torch.get_num_threads()
        self.session = Session(make_engine=self._make, nvml=Nvml(), virtual_spec=virtual_spec)
        self.engine: EngineHere
        self.engine.start()
        self.session.drain()

    def _make(self, put: Any, spec: str | None, visible: str | None) -> EngineHere:
        self.engine = EngineHere(put, spec, visible)
        return self.engine

    def do(self, command: Command) -> list[Event]:
        """Send a command, wait for its end; it must succeed."""
        request = self.session.send(command)
        events: list[Event] = []
        deadline = time.monotonic() + 60
        while not any(isinstance(event, JobEnded) and event.request == request for event in events):
            assert time.monotonic() < deadline, command
            time.sleep(0.001)  # the engine's threads need the interpreter
            events += self.session.drain().events
        said = [event for event in events if isinstance(event, Answer)]
        assert not any(answer.failed for answer in said), (command, said)
        return events

    def die(self) -> Rebuilt:
        """End the engine as a crash would, and wait until a new one has rebuilt everything."""
        self.engine.kill()
        deadline = time.monotonic() + 120
        while True:
            assert time.monotonic() < deadline
            time.sleep(0.001)
            for event in self.session.drain().events:
                if isinstance(event, Rebuilt):
                    return event

    def close(self) -> None:
        self.session.close()
        torch.set_num_threads(
            self._threads
        )  # a session may change them, and later tests would round sums in another order
        if self.engine.engine.machine is not None:
            self.engine.engine.machine.reset()


def look(name: str, thing: nn.Module | Tensor) -> Any:
    """The probe's output for a live object."""
    names: dict[str, Any] = {}
    exec(PROBE.partition("\nwith open")[0], names)
    return json.loads(json.dumps(names["_look"](name, thing)))


def script_gives_the_same(here: Here, folder: Path) -> str:
    """Run the session's Python in a new process, without a warning, and compare every object bit by bit; returns the
    Python."""
    text = here.session.listener("files").script()
    workspace = here.engine.engine.workspace
    names = {name: variable(name) for name in workspace.names}
    expected = {name: look(name, workspace.get(name)) for name in names}
    out, path = folder / "seen.json", folder / "session.py"
    path.write_text(text + PROBE.replace("__OUT__", repr(str(out))).replace("__NAMES__", repr(names)))
    ran = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=120, cwd=folder)
    said, _, _at_the_end = ran.stderr.partition("nanobind: leaked")  # triton beside torch 2.15
    assert (ran.returncode, said) == (0, ""), f"{ran.stderr[-3000:]}\n{text}"
    seen = json.loads(out.read_text())
    for name in names:
        for what, mine, theirs in zip(("placement", "values", "modes"), expected[name], seen[name], strict=True):
            assert theirs == mine, (name, what)
    return text


def bound_beside(text: str, objects: Collection[str]) -> set[str]:
    """Names that a script binds at its top level in addition to the variables of its objects, and that could clash with
    one."""
    code = dis.get_instructions(compile(text, "script", "exec"))
    bound = {one.argval for one in code if one.opname == "STORE_NAME"} - {variable(name) for name in objects}
    return {
        name
        for name in bound
        if not name.startswith(("_", "AutoModel")) and not name.endswith(("_hops", "_file")) and variable(name) == name
    }
