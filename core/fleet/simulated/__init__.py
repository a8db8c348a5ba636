"""Fleets of virtual GPUs with declared noise and injected defects."""
