"""`devexplorer place`: which parameter and buffer of a model is where. A model of the user's own runs in this
process."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable
from functools import partial

import torch

from devexplorer.core.base import MISSING, bytes_text, count_text, shape_text
from devexplorer.core.cli.findings import TerminalFindings
from devexplorer.core.cli.terminal import console, print_document, quiet_stdout, table
from devexplorer.core.isolation.model_source import parse
from devexplorer.core.models import Extras, SourceRecipe, builder_of, crossings, device_id, named_modules
from devexplorer.core.models.extras import left_behind
from devexplorer.core.records import BuildModel, Move, ObjectSnapshot, Row

NAME = "model"
Crossing = tuple[str, str, str]
"""Path, device before it, its own."""
Left = tuple[str, str, str]
"""Path of an optimizer, device of its state, device of its parameters."""


def place(arguments: argparse.Namespace) -> int:
    """Build the model, move it when asked, print its placement."""
    with quiet_stdout():
        snapshot, crossed, left = _placed(arguments.target, arguments.device, arguments.virtual)
    rows = [row for row in snapshot.rows if row.kind in ("parameter", "buffer") and row.registered]
    loose = [row for row in snapshot.rows if row.kind != "module" and not row.registered]
    if arguments.json:
        print_document(
            target=arguments.target,
            rows=[_row(row) for row in rows],
            devices={
                name: {"bytes": size, "tensors": snapshot.tensors_by_device[name]}
                for name, size in snapshot.bytes_by_device.items()
            },
            unregistered=[_row(row) for row in loose],
            crossings=[{"path": path, "from": before, "to": after} for path, before, after in crossed],
            optimizers=[{"path": path, "state": state, "parameters": device} for path, state, device in left],
            simulated=[name for name in snapshot.bytes_by_device if name.startswith("vgpu")],
        )
        return 0
    listing = table("path", "kind", ">shape", "dtype", "device", ">bytes", "tied to")
    for row in (*rows, *loose):
        shape = shape_text(row.shape) if row.initialised else "not yet known"
        kind = row.kind if row.registered else "not registered"
        listing.add_row(
            row.path,
            kind,
            shape,
            row.dtype,
            row.devices[0] if row.devices else MISSING,
            f"{row.bytes:,}",
            row.tied_to or "",
        )
    out = console()
    out.print(listing)
    for name, size in snapshot.bytes_by_device.items():
        simulated = " (simulated)" if name.startswith("vgpu") else ""
        out.print(f"{name}{simulated}: {count_text(snapshot.tensors_by_device[name], 'tensor')}, {bytes_text(size)}")
    for path, before, after in crossed:
        carrier = "forward has to move" if snapshot.dispatched is None else "accelerate's hooks move"
        out.print(f"At {path} activations cross from {before} to {after}: {carrier} them.")
    for path, state, device in left:
        out.print(f"The state of the optimizer {path} is on {state}, its parameters on {device}: its next step fails.")
    if not rows:
        out.print(f"{arguments.target} has no parameters and no buffers.")
    return 0


def _placed(
    target: str, device: str | None, virtual_spec: str | None
) -> tuple[ObjectSnapshot, list[Crossing], list[Left]]:
    from devexplorer.core.engine.engine import LocalEngine

    findings = TerminalFindings()
    builder = None if ":" in target else findings.checked(partial(builder_of, target, os.curdir), None)
    if not findings.check_virtual(virtual_spec):  # it is not known which devices there would be
        findings.demand_none()
    with LocalEngine(virtual_spec) as local:
        if device is not None:
            device = findings.checked(partial(local.engine.registry.choose, device), None)
        model = findings.checked(partial(user_model, target), None) if ":" in target else None
        findings.demand_none()
        if model is not None:
            local.engine.workspace.add(NAME, model, Extras(source=target))
        elif builder is not None:
            local.demand(BuildModel(recipe=builder.title, name=NAME))
        if device is not None:
            local.demand(Move(targets=(NAME,), device=device))
        modules = named_modules(local.engine.workspace.model(NAME).module)
        return local.engine.workspace.snapshot(NAME), crossings(modules), _left(modules)


def _left(modules: Iterable[tuple[str, torch.nn.Module]]) -> list[Left]:
    """The optimizers that the model holds and whose state did not follow it."""
    found = []
    for path, module in modules:
        for name, value in vars(module).items():
            if isinstance(value, torch.optim.Optimizer):
                behind, device = left_behind(value)
                if device is not None:
                    found.append((f"{path}.{name}".lstrip("."), device_id(behind[0].device), device_id(device)))
    return found


def user_model(target: str) -> torch.nn.Module:
    """The model of a source (`core.isolation.model_source`), made in this process; the current folder is importable,
    and `cuda:N` is the virtual GPU `vgpu:N` where there are some.

    Raises `BadInput` with the one thing that is wrong; whatever its code changed for the whole process is taken back.
    """
    return SourceRecipe(parse(target), os.curdir).make(cuda=True).model


def _row(row: Row) -> dict[str, object]:
    names = ("path", "kind", "shape", "dtype", "bytes", "tied_to", "requires_grad", "initialised")
    return {name: getattr(row, name) for name in names} | {"device": row.devices[0] if row.devices else None}
