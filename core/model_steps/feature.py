"""Model steps: how many samples a second a model takes. Data; any thread."""

from __future__ import annotations

from devexplorer.core.feature import Feature

FEATURE = Feature(benchmark="core.model_steps.kind:ModelKind")
