"""The fleet that a window watches: which one it is, its beat, its check, its end. Main thread; `room_of` has the one of
a window."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

from PySide6.QtCore import QObject, Signal

from devexplorer.core.alerts.rules import rules_of
from devexplorer.core.base import BadInput, count_text, left_text, sentence
from devexplorer.core.fleet.check.plan import CheckPlan
from devexplorer.core.fleet.cluster.cluster_fleet import ClusterFleet, OverSsh
from devexplorer.core.fleet.events import FleetSource
from devexplorer.core.fleet.hosts.host_fleet import HostFleet, host_members
from devexplorer.core.fleet.report.history import TABLE, as_row, fleet_name, former, kept, stored_checks
from devexplorer.core.fleet.simulated import SimulatedFleet
from devexplorer.core.fleet.window.watched_fleet import KnownInWindow, WatchedFleet, WindowMachines
from devexplorer.core.machines.ssh.hosts import address
from devexplorer.core.machines.window.link import link_of
from devexplorer.gui.actions import WindowContext, WindowWork
from devexplorer.gui.machines.room import room_of as machines_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from devexplorer.core.history.store_thread import StoreThread

WINDOW = "Machines of this window"


class FleetRoom(QObject):
    """`fleet` is what is watched; `opened` when it is another one, `check_changed` as its check begins and ends."""

    opened = Signal()
    check_changed = Signal()

    def __init__(self, context: WindowContext) -> None:
        super().__init__(context)
        self.setObjectName("fleetRoom")
        self.context = context
        self._ended = False
        self.fleet = self._watched(WindowMachines(self._known), WINDOW)
        context.beaten.connect(self._beat)
        context.settings_changed.connect(self._set_rules)
        context.closed.connect(self.end)

    # --- which machines

    def open_window_machines(self) -> None:
        """Those that are in this window anyway."""
        self.open(WindowMachines(self._known), WINDOW)

    def open_simulation(self, source: SimulatedFleet) -> None:
        """A simulated fleet."""
        self.open(source, f"Simulated: {count_text(len(source.machines), 'machine')}")

    def open_hosts(self, path: Path) -> None:
        """The hosts of a list file, each over ssh."""
        try:
            members = host_members(path)
        except BadInput as error:
            self.context.hint(" ".join(map(sentence, error.findings)))
            return
        self.open(HostFleet(members), f"Hosts of {path.name}")

    def open_cluster(self, address: str, host: str = "", python: str = "") -> None:
        """The nodes of a Ray cluster. `host`: the machine that is one of them; empty: it is this one. `python`: the one
        there; empty: that of the window's machine."""
        if host:
            way = OverSsh(host, python or machines_of(self.context).python_of(host))
            self.open(ClusterFleet(address, way=way), f"Cluster {address} on {host}")
        else:
            self.open(ClusterFleet(address), f"Cluster {address}")

    def open(self, source: FleetSource, name: str) -> None:
        """Watch this one in place of the present one."""
        self._leave()
        self.fleet = self._watched(source, name)
        self.opened.emit()

    def _watched(self, source: FleetSource, name: str) -> WatchedFleet:
        fleet = WatchedFleet(source, name, rules_of(self.context.settings))
        fleet.start()
        return fleet

    def _leave(self) -> None:
        """Give the present one back, without waiting for it."""
        self.context.in_background("fleet-close", self.fleet.end(), lambda _: None)
        self.context.work_changed.emit(None)

    def end(self) -> None:
        """The window closes."""
        if not self._ended:
            self._ended = True
            self._leave()

    def _known(self) -> Iterator[KnownInWindow]:
        room, state = machines_of(self.context), self.context.state
        for machine in room.machines:
            on_show = machine is room.shown and state.recording is None
            yield KnownInWindow(
                machine.name, state if on_show else machine.aside, link_of(machine), machine.session,
                *(() if machine.is_here else (partial(address, machine.name),)),
            )  # fmt: skip

    # --- as time goes by

    def _set_rules(self) -> None:
        self.fleet.alerts.set_rules(rules_of(self.context.settings))

    def _beat(self) -> None:
        if self._ended:
            return
        before = self.fleet.check
        self.fleet.beat(time.time())
        if before is not None:
            self.context.work_changed.emit(self.work)
        if self.fleet.check is not before:
            self._keep(self.fleet)
            self.check_changed.emit()

    # --- the check

    @property
    def work(self) -> WindowWork | None:
        """The check that runs, for the line at the bottom of the window."""
        check = self.fleet.check
        if check is None:
            return None
        step = check.step
        what = "" if step is None else f": {step.kind.value} {step.dtype}".rstrip()
        left_s = self.fleet.left_s
        left = "" if left_s is None else f", {left_text(left_s)}"
        return WindowWork(f"Checking {count_text(len(check.cards), 'card')}{what}{left}", check.done, self.cancel_check)

    def begin_check(self, plan: CheckPlan) -> None:
        """Check every card of the fleet."""
        reason = self.fleet.why_no_check
        if reason is not None:
            self.context.hint(reason)
            return
        self.fleet.begin(plan)
        self._remember(self.fleet)
        self.context.work_changed.emit(self.work)
        self.check_changed.emit()

    @property
    def _history(self) -> StoreThread | None:
        """Of this machine: checks are kept where they were made, whatever is shown."""
        session = machines_of(self.context).machines[0].session
        return None if session is None else cast("StoreThread", session.listener("history"))

    def _remember(self, fleet: WatchedFleet) -> None:
        """Let the check know what earlier ones said of its cards, when that has been read."""
        check = fleet.check
        if check is not None and (history := self._history) is not None:
            plan, name = check.plan, fleet_name(fleet.source)
            history.rows(TABLE, lambda rows: check.know(former(stored_checks(rows), check.cards, plan, name)))

    def _keep(self, fleet: WatchedFleet) -> None:
        report, history = fleet.report, self._history
        if report is not None and not report.cancelled and history is not None:
            history.add_row(TABLE, as_row(kept(report, fleet_name(fleet.source))))

    def cancel_check(self) -> None:
        """End it with what was measured."""
        if self.fleet.check is not None:
            self.fleet.check.cancel()


def room_of(context: WindowContext) -> FleetRoom:
    """The fleet of this window."""
    return context.findChild(FleetRoom) or FleetRoom(context)
