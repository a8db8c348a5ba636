"""A workspace file in the Python of a session: what the script of a session that opened one calls. Any thread, one at a
time."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from devexplorer.core.base import NO_PROGRESS
from devexplorer.core.commands.rebuild import run_model_code
from devexplorer.core.commands.workspace_file import open_workspace
from devexplorer.core.devices.backend import DeviceRegistry
from devexplorer.core.devices.torch_devices import TorchBackend
from devexplorer.core.files.workspace_reading import opened_workspace
from devexplorer.core.records import OpenWorkspace, RunModelCode
from devexplorer.core.virtual import backend
from devexplorer.core.workspace import Workspace


class OpenedWorkspace:
    """The objects of a file on the devices that they were on; virtual GPUs that are missing are added.

    Code of the user's runs for the models in `code`, and for others at `run_code`; a model whose code has not run has
    its tensors alone. Warns where the file is not the one with this `stamp`. Raises `BadInput` for a file that cannot
    be opened, and where a model's code makes another model now.
    """

    def __init__(self, path: str, *, stamp: str = "", code: Sequence[str] = (), virtual: bool = False) -> None:
        with opened_workspace(path) as file:
            if stamp and file.manifest.stamp != stamp:
                warnings.warn(f"{path} was saved again since the session opened it: it has other values", stacklevel=2)
        cards = backend.installed()
        self._workspace = Workspace(DeviceRegistry([TorchBackend(), *([] if cards is None else [cards])]))
        command = OpenWorkspace(path=str(Path(path).absolute()), code=tuple(code), virtual=virtual)
        with self._workspace.history.transaction(command):
            open_workspace(self._workspace, command, NO_PROGRESS)

    def __getitem__(self, name: str) -> Any:
        """The tensor or model of that name."""
        return self._workspace.get(name)

    def optimizer(self, name: str) -> Any:
        """The optimizer of the model of that name, with its state."""
        return self._workspace.extras(name).optimizer

    def hops(self, name: str) -> Any:
        """What brings activations to the parts of the model; `remove()` takes it away."""
        return self._workspace.extras(name).hops

    def run_code(self, name: str) -> Any:
        """The model of that name, built by its code, with the very tensors of the file."""
        command = RunModelCode(target=name)
        with self._workspace.history.transaction(command):
            run_model_code(self._workspace, command, NO_PROGRESS)
        return self[name]
