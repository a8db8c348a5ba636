"""Every exercise, in the order of the list. Data; main thread."""

from __future__ import annotations

from devexplorer.core.learn import models, tensors
from devexplorer.core.learn.exercise import Exercise

EXERCISES: tuple[Exercise, ...] = (*tensors.EXERCISES, *models.EXERCISES)
"""By topic: devices, tensors, models, parameters, files, several devices."""
