"""Fleets of real machines: this one, and those that are reached over a link."""
