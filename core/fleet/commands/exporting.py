"""What of a fleet is served to Prometheus: the cards of machines that are connected and the alerts of all, each with
its machine's labels. Main thread."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from devexplorer.core.exporter.prometheus import MachineFigures, RaisedAlert
from devexplorer.core.fleet.alerts import Raised
from devexplorer.core.fleet.commands.document import last_heard
from devexplorer.core.fleet.table import FleetTable
from devexplorer.core.records import DeviceInfo, DeviceSample


def fleet_figures(fleet: FleetTable, raised: Sequence[Raised]) -> list[MachineFigures]:
    """Every machine; the last readings of one that is away would look like present ones, so they are left out."""
    heard = last_heard(fleet)
    figures: defaultdict[str, list[tuple[DeviceInfo, DeviceSample]]] = defaultdict(list)
    for card, sample in zip(fleet.cards, fleet.samples, strict=True):
        if sample is not None:
            figures[card.machine].append((card.info, sample))
    alerts: defaultdict[str, list[RaisedAlert]] = defaultdict(list)
    for alert in raised:
        card = fleet.cards[alert.row]
        alerts[card.machine].append(RaisedAlert(card.info, alert.metric, alert.level))
    return [
        MachineFigures(
            {"Hostname": machine.name, "machine": machine.name, "rack": machine.rack},
            figures[machine.name] if machine.state == "connected" else (),
            up=machine.state == "connected",
            read_unix_s=heard.get(machine.name),
            alerts=alerts[machine.name],
        )
        for machine in fleet.machines.values()
    ]
