"""The tabs Device and Processes, and actions about devices: virtual GPUs, CPU threads, CUDA_VISIBLE_DEVICES. Main
thread only; a dialog's module is loaded when it is first opened."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from PySide6.QtWidgets import QInputDialog, QSpinBox

from devexplorer.core.records import SetThreads
from devexplorer.core.session import Change
from devexplorer.gui.actions import ActionSpec, TabSpec, WindowContext, lazy_page
from devexplorer.gui.widgets import give_room

if TYPE_CHECKING:
    from devexplorer.gui.devices.details import DetailsPanel


def _connect(context: WindowContext, page: DetailsPanel) -> None:
    page.set_device(context.device)
    context.device_selected.connect(page.set_device)


DETAILS = TabSpec(
    "device",
    lazy_page("devexplorer.gui.devices.details:DetailsPanel", _connect),
    "monitor",
    Change.DETAILS | Change.DEVICES | Change.ENGINE,
    live=True,
    order=90,
    also_in=("learn",),
    tooltip="All that the driver says of a device: temperature, power, clocks, PCIe, memory errors",
)
PROCESSES = TabSpec(
    "processes",
    lazy_page("devexplorer.gui.devices.processes:ProcessesPanel"),
    "monitor",
    live=True,
    order=110,
    tooltip="Which processes use which device, and how much of its memory",
)


def actions(context: WindowContext) -> list[ActionSpec]:
    """The actions, in the order of the palette."""
    c = context.controller
    return [
        ActionSpec("add_virtual", "Add virtual GPUs…", "Choose profiles of simulated cards",
                   partial(add_virtual_gpus, context), c.why_no_engine),
        ActionSpec("add_two", "Add two virtual GPUs", "Two simulated Tesla T4", c.add_two_virtual,
                   c.why_no_engine),
        ActionSpec("threads", "CPU threads…", "How many threads one operation on the CPU uses",
                   partial(_choose_threads, context), c.why_no_engine),
        ActionSpec("visible", "CUDA_VISIBLE_DEVICES…",
                   "Choose which cards the engine sees, and in which order; it is restarted",
                   partial(_choose_visible_devices, context), c.why_no_engine),
    ]  # fmt: skip


def add_virtual_gpus(context: WindowContext) -> None:
    """Choose profiles of simulated cards."""
    from devexplorer.gui.devices.dialogs import VirtualGpusDialog

    context.ask(VirtualGpusDialog(context.window))


def _choose_visible_devices(context: WindowContext) -> None:
    from devexplorer.gui.devices.dialogs import VisibleDevicesDialog

    dialog = VisibleDevicesDialog(context.state, context.window)
    if context.session is not None:
        dialog.chosen.connect(context.session.set_visible_devices)
    context.open_dialog(dialog, about_machine=True)


def _choose_threads(context: WindowContext) -> None:
    state = context.state
    assert state.engine is not None
    dialog = QInputDialog(context.window)
    dialog.setWindowTitle("CPU threads")
    dialog.setLabelText("Threads that torch uses for one operation on the CPU:")
    dialog.setInputMode(QInputDialog.InputMode.IntInput)
    dialog.setIntRange(1, 1024)
    dialog.setIntValue(state.devices["cpu"].info.threads or state.engine.threads)
    give_room(dialog.findChild(QSpinBox))
    dialog.intValueSelected.connect(lambda threads: context.controller.send(SetThreads(threads=threads)))
    context.open_dialog(dialog, about_machine=True)
