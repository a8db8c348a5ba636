"""Recognises the empty samples that the sampler puts for a card that does not answer. Pure functions, any thread."""

from __future__ import annotations

from devexplorer.core.records.devices import DeviceSample

_READINGS = tuple(name for name in DeviceSample.__struct_fields__ if name not in ("device", "time_unix_s", "simulated"))


def is_empty_sample(sample: DeviceSample) -> bool:
    """Whether a sample has no reading at all."""
    if sample.memory_used_bytes is not None or sample.utilization_percent is not None:
        return False  # quick, for nearly all
    return all(getattr(sample, name) is None for name in _READINGS)
