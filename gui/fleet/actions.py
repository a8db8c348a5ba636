"""Actions of the page Fleet: which machines it shows, the check, its report. Main thread; what a fleet needs is loaded
when it is first asked for."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from time import strftime
from typing import TYPE_CHECKING, cast

from PySide6.QtCore import QObject

from devexplorer.core.base import DevExplorerError, sentence
from devexplorer.core.session import Change
from devexplorer.gui.actions import MACHINE, ActionSpec, WindowContext

if TYPE_CHECKING:
    from argparse import Namespace

    from devexplorer.core.fleet.check.fleet_check import CheckReport
    from devexplorer.gui.fleet.room import FleetRoom


def actions(context: WindowContext) -> list[ActionSpec]:
    """In the order of the menu."""
    return [
        ActionSpec("fleet_simulate", "Simulated fleet…", "Any number of virtual machines with defects, on the page"
                   " Fleet", partial(simulate, context), menu=MACHINE, section=3),
        ActionSpec("fleet_hosts", "Hosts from file…", "Every card of the machines in a text file, over ssh, on the page"
                   " Fleet", partial(choose_hosts, context), menu=MACHINE, section=3),
        ActionSpec("fleet_cluster", "Ray cluster…", "Every card of a running Ray cluster, on the page Fleet",
                   partial(attach, context), menu=MACHINE, section=3),
        ActionSpec("fleet_check", "Check the fleet…", "Measure every card on the page Fleet and find the slow one",
                   partial(check, context), partial(_why_no_check, context), menu=MACHINE, section=3,
                   asks=Change.ENGINE),
        ActionSpec("fleet_report", "Export the check's report…", "What the last check of the fleet found, as one file"
                   " for others", partial(export, context), partial(_why_no_report, context),
                   asks=Change.ENGINE),
    ]  # fmt: skip


def _why_no_check(context: WindowContext) -> str | None:
    room = _room_there_is(context)
    return "Open the page Fleet first." if room is None else room.fleet.why_no_check


def _why_no_report(context: WindowContext) -> str | None:
    room = _room_there_is(context)
    return None if room is not None and room.fleet.report is not None else "Check the fleet first."


def _room_there_is(context: WindowContext) -> FleetRoom | None:
    """Does not load what a fleet needs."""
    return cast("FleetRoom | None", context.findChild(QObject, "fleetRoom"))


def simulate(context: WindowContext) -> None:
    """Choose a fleet to be simulated, and show it."""
    from devexplorer.gui.fleet.dialogs import SimulatedFleetDialog
    from devexplorer.gui.fleet.room import room_of

    dialog = SimulatedFleetDialog(context.window)
    dialog.chosen.connect(room_of(context).open_simulation)
    dialog.accepted.connect(partial(context.show_tab, "fleet"))
    context.open_dialog(dialog)


def choose_hosts(context: WindowContext) -> None:
    """Choose a list of hosts, and show them."""
    from devexplorer.gui.fleet.room import room_of

    def chosen(paths: list[Path]) -> None:
        context.show_tab("fleet")
        room_of(context).open_hosts(paths[0])

    context.choose_files("List of hosts", "Lists of hosts (*.txt *.hosts);;All files (*)", chosen, by_window=True)


def attach(context: WindowContext) -> None:
    """Name a cluster, and show it."""
    from devexplorer.gui.fleet.dialogs import ClusterDialog
    from devexplorer.gui.machines.room import room_of as machines_of

    dialog = ClusterDialog([machine.name for machine in machines_of(context).others], context.window)
    dialog.chosen.connect(partial(open_cluster, context))
    context.open_dialog(dialog)


def open_cluster(context: WindowContext, address: str, host: str = "", python: str = "") -> None:
    """Show the nodes of this cluster; `host`: attached to on that machine, in this Python there."""
    from devexplorer.gui.fleet.room import room_of

    context.show_tab("fleet")
    room_of(context).open_cluster(address, host, python)


def begin(context: WindowContext, arguments: Namespace) -> None:
    """The window was started for a cluster."""
    open_cluster(context, arguments.cluster, getattr(arguments, "ssh", None) or "", arguments.python or "")


def check(context: WindowContext) -> None:
    """Choose what to measure, and begin."""
    from devexplorer.gui.fleet.dialogs import CheckDialog
    from devexplorer.gui.fleet.room import room_of

    context.show_tab("fleet")
    room = room_of(context)
    cards = room.fleet.measured
    dialog = CheckDialog(
        len(cards), all(card.info.simulated for card in cards), room.fleet.left_out, parent=context.window
    )
    dialog.chosen.connect(room.begin_check)
    context.open_dialog(dialog)


def export(context: WindowContext) -> None:
    """Ask where to, and write the report of the last check."""
    from devexplorer.gui.fleet.room import room_of

    report = room_of(context).fleet.report
    if report is None:
        return

    def chosen(path: Path) -> None:
        context.in_background("fleet-report", partial(_write, path, report), context.hint)

    formats = {"html": "Page for a browser", "json": "JSON document"}
    context.save_file("Export report", f"fleet-{strftime('%Y%m%d-%H%M')}.html", formats, chosen, by_window=True)


def _write(path: Path, report: CheckReport) -> str:
    """What the window says about it."""
    from devexplorer.core.fleet.report.files import write_check

    try:
        write_check(path, report)
    except DevExplorerError as error:
        return sentence(str(error))
    return f"The report is in {path}."
