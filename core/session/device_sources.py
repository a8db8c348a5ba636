"""What the parts of a session say of the devices, until it is joined into one catalog. Filled by the sampler's threads
and on the main thread, joined on the main thread."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from devexplorer.core.devices.catalog import Catalog, join
from devexplorer.core.devices.drm import DrmCard
from devexplorer.core.devices.nvml.library import Card
from devexplorer.core.devices.profiles import load_profiles
from devexplorer.core.records import DeviceInfo, EngineDevices, Problem


class DeviceSources:
    """The newest word of each source; `due` when there is a newer one than the catalog has."""

    def __init__(self, cpu: Callable[[], DeviceInfo]) -> None:
        self.due = True
        self._cpu = cpu
        self._cards: tuple[Card, ...] = ()
        self._drm_cards: tuple[DrmCard, ...] = ()
        self._torch: tuple[DeviceInfo, ...] | None = None
        self._card_problems: tuple[Problem, ...] = ()
        self._torch_problems: tuple[Problem, ...] = ()
        self._datasheets = load_profiles()

    def take_cards(self, cards: Sequence[Card], problems: Sequence[Problem]) -> None:
        """Of NVML; called by the sampler thread."""
        self._cards, self._card_problems = tuple(cards), tuple(problems)
        self.due = True

    def take_drm_cards(self, cards: tuple[DrmCard, ...]) -> None:
        """Of AMD and Intel; called once by the thread that watches them."""
        self._drm_cards = cards
        self.due = True

    def take_torch(self, event: EngineDevices) -> None:
        """Of the engine."""
        self._torch, self._torch_problems = event.devices, event.problems
        self.due = True

    def join(self, cuda_visible_devices: str | None) -> Catalog:
        """One catalog of everything; `cuda_visible_devices`: as the engine has it."""
        self.due = False
        return join(
            self._cpu(),
            self._cards,
            self._torch,
            problems=(*self._card_problems, *self._torch_problems),
            datasheets=self._datasheets,
            cuda_visible_devices=cuda_visible_devices,
            cuda_device_order=os.environ.get("CUDA_DEVICE_ORDER"),
            drm=self._drm_cards,
        )
