"""Readings for Prometheus: of `devexplorer watch` and of fleets. No Qt, no torch."""
