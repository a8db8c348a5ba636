"""Which parts of the state an event changed, so that panels redraw only those. No thread."""

from __future__ import annotations

import enum


class Change(enum.Flag):
    """Parts of the state that an event changed."""

    NOTHING = 0
    DEVICES = enum.auto()
    """The list of devices, or what a device is."""
    SAMPLES = enum.auto()
    OBJECTS = enum.auto()
    ANSWER = enum.auto()
    RUNS = enum.auto()
    """A run began, started to measure, or ended."""
    POINTS = enum.auto()
    """A run has measured another block."""
    MARKERS = enum.auto()
    LOG = enum.auto()
    ENGINE = enum.auto()
    UNDO = enum.auto()
    DETAILS = enum.auto()
    """Static details of a device, and the links between devices."""
    ALERTS = enum.auto()
    JOBS = enum.auto()
    LABORATORY = enum.auto()
    """Something that was asked about values, files, checkpoints, splits, or of a feature."""
