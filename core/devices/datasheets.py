"""The datasheets of real cards, taken from the profiles that virtual GPUs imitate. No torch, no thread."""

from __future__ import annotations

from devexplorer.core.devices.catalog import Datasheet
from devexplorer.core.devices.profiles import load_profiles


def datasheets() -> dict[str, Datasheet]:
    """Figures by the name that nvidia-smi gives a card."""
    return {name: Datasheet(profile.tflops, profile.memory_gb_s) for name, profile in load_profiles().items()}
