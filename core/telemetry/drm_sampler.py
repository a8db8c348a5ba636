"""Samples AMD and Intel cards through /sys once a second, on its own thread (`sampler-drm`). No torch, no Qt.

A hanging card can block a read, so the CPU and NVIDIA cards are read on other threads. Where the engine samples a
card's memory itself (`xpu`), the readings made here complete its samples (`completed`) instead of competing with them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping

from msgspec.structs import replace

from devexplorer.core.base import Clock
from devexplorer.core.devices.drm import Drm, DrmCard
from devexplorer.core.records import DeviceSample, EventSink

INTERVAL_S = 1.0
DETAILS_INTERVAL_S = 30.0
ENGINE_READS = ("xpu:",)
"""Beginnings of the ids of devices that the engine samples too."""


class DrmSampler:
    """`start` looks for cards and calls `on_cards` once; without cards the thread ends. `put` must not block."""

    def __init__(
        self,
        put: EventSink,
        drm: Drm,
        on_cards: Callable[[tuple[DrmCard, ...]], None] = lambda cards: None,
        *,
        interval_s: float = INTERVAL_S,
        unix_clock: Clock = time.time,
    ) -> None:
        self._put = put
        self._drm = drm
        self._on_cards = on_cards
        self._interval_s = interval_s
        self._unix_clock = unix_clock
        self._names: dict[str, str] = {}
        self._cards: tuple[DrmCard, ...] | None = None
        self._latest: dict[str, DeviceSample] = {}
        self._details_read: dict[str, float] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sampler-drm", daemon=True)

    def start(self) -> None:
        """Start the thread; returns at once."""
        self._thread.start()

    def stop(self, deadline_s: float) -> bool:
        """End the thread; False if a hanging card blocks it."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join(max(deadline_s, 0))
        return not self._thread.is_alive()

    def set_names(self, names: Mapping[str, str]) -> None:
        """PCI address -> device id (`Catalog.drm_names`); others go by `drm:N`. Any thread."""
        self._names = dict(names)

    def tick(self) -> None:
        """Read every card once on this thread; finds the cards first if needed."""
        if self._cards is None:
            self._cards = self._drm.cards()
            self._on_cards(self._cards)
        for card in self._cards:
            device = self._names.get(card.bus_id or "", card.drm_id)
            now = self._unix_clock()
            sample = self._drm.read(card, device, now)
            if device.startswith(ENGINE_READS):
                self._latest[device] = sample
            else:
                self._put(sample)
            if (
                not 0 <= now - self._details_read.get(device, -DETAILS_INTERVAL_S) < DETAILS_INTERVAL_S
            ):  # also when the clock was set back
                self._details_read[device] = now
                self._put(self._drm.details(card, device, now))

    def completed(self, sample: DeviceSample) -> DeviceSample:
        """The engine's sample, with missing fields filled in from the readings made here. Any thread."""
        other = self._latest.get(sample.device)
        if other is None:
            return sample
        known = {name: value for name in sample.__struct_fields__ if (value := getattr(other, name)) is not None}
        return replace(sample, **{name: value for name, value in known.items() if getattr(sample, name) is None})

    def _run(self) -> None:
        self.tick()
        while self._cards and not self._stop.wait(self._interval_s):
            self.tick()
