"""`devexplorer watch --prometheus`. Data; main thread, no torch."""

from __future__ import annotations

from devexplorer.core.watch.command_line import WatchOption

WATCH_OPTIONS = (
    WatchOption(
        "prometheus",
        "PORT",
        "serve the readings for Prometheus at 127.0.0.1:PORT/metrics",
        "exporter.watching:ServedReadings",
    ),
    WatchOption(
        "address", "HOST", "where --prometheus listens (default 127.0.0.1)", "exporter.watching:belongs_to_a_port"
    ),
)
