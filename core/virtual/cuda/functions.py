"""What `torch.cuda` and `torch.accelerator` answer when virtual GPUs replace the cards. Any thread; figures are the
virtual GPUs'."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

import torch

from devexplorer.core.virtual.cuda.cards import Cards
from devexplorer.core.virtual.device.accounting import KIND
from devexplorer.core.virtual.device.machine import VirtualGpu

NotChecked = Callable[[str, str], None]
"""Notes what could not be looked at, and why."""


class CudaProperties:
    """`torch.cuda.get_device_properties`: what the profile knows."""

    def __init__(self, gpu: VirtualGpu, capability: tuple[int, int], not_checked: NotChecked) -> None:
        self.name = gpu.profile.name
        self.major, self.minor = capability
        self.total_memory = gpu.profile.usable_bytes
        self.multi_processor_count = gpu.profile.sm_count
        self.is_integrated = self.is_multi_gpu_board = 0
        self.warp_size = 32  # of every CUDA card so far: CUDA C++ programming guide, hardware implementation
        self._not_checked = not_checked

    def __getattr__(self, name: str) -> NoReturn:
        if not name.startswith("_"):
            self._not_checked(f"get_device_properties().{name}", "No profile of a virtual GPU says that.")
        raise AttributeError(f"a virtual GPU's properties have no {name}")

    def __repr__(self) -> str:
        return (
            f"_CudaDeviceProperties(name='{self.name}', major={self.major}, minor={self.minor}, "
            f"total_memory={self.total_memory >> 20}MB, multi_processor_count={self.multi_processor_count})"
        )


def device_classes(cards: Cards, seen: Callable[[], None]) -> dict[str, Any]:
    """`torch.cuda.device` and `device_of`: the current card within a block; `seen` is called when code names a card."""

    class device:  # noqa: N801  # torch's name
        """The current card within a block; None changes nothing."""

        def __init__(self, device: Any) -> None:
            if device is not None:
                seen()
            self.idx = cards.ordinal(device) if device is not None else -1
            self.prev_idx = -1

        def __enter__(self) -> None:
            self.prev_idx = cards.current
            if self.idx >= 0:
                cards.current = self.idx

        def __exit__(self, *_: object) -> None:
            cards.current = self.prev_idx

    class device_of(device):  # noqa: N801  # torch's name
        """The card of a tensor; one on the CPU changes nothing."""

        def __init__(self, obj: Any) -> None:
            super().__init__(obj.device if obj.device.type in ("cuda", "vgpu") else None)

    return {"device": device, "device_of": device_of}


def cuda_functions(cards: Cards, not_checked: NotChecked, seen: Callable[[], None]) -> dict[str, Any]:
    """The functions of `torch.cuda` by name; `seen` is called when code names a card to work on."""
    gpu = cards.gpu

    def set_device(device: Any) -> None:
        seen()
        cards.current = device

    def empty_cache() -> None:
        for index in range(cards.count):
            gpu(index).memory.empty_cache()

    def seed(value: int) -> None:
        torch.default_generator.manual_seed(int(value))  # random values of a virtual GPU come from the CPU's generator

    def set_state(state: torch.Tensor, device: Any = None) -> None:
        torch.set_rng_state(state.cpu())

    def set_states(states: Iterable[torch.Tensor]) -> None:
        for state in states:
            set_state(state)

    def supports_bf16(including_emulation: bool = True) -> bool:
        return including_emulation or capability()[0] >= 8

    vgpu = getattr(torch, KIND)
    answers = {name: _of_card(getattr(vgpu, function), cards) for name, function in _OF_CARD.items()}
    capability = answers["get_device_capability"]
    return {
        **answers,
        "is_available": lambda: cards.count > 0,
        "is_initialized": lambda: True,
        "init": lambda: None,
        "_lazy_init": lambda: None,
        "device_count": lambda: cards.count,
        "current_device": lambda: cards.current,
        "set_device": set_device,
        "get_device_properties": lambda device=None: CudaProperties(gpu(device), capability(device), not_checked),
        "is_bf16_supported": supports_bf16,
        "is_tf32_supported": lambda: capability()[0] >= 8,
        "is_current_stream_capturing": lambda: False,
        "empty_cache": empty_cache,
        "ipc_collect": lambda: None,
        "manual_seed": seed,
        "manual_seed_all": seed,
        "seed": lambda: seed(random.getrandbits(63)),
        "seed_all": lambda: seed(random.getrandbits(63)),
        "initial_seed": vgpu.initial_seed,
        "get_rng_state": vgpu.get_rng_state,
        "set_rng_state": set_state,
        "get_rng_state_all": lambda: [torch.get_rng_state() for _ in range(cards.count)],
        "set_rng_state_all": set_states,
        "set_sync_debug_mode": lambda debug_mode: None,
        "get_sync_debug_mode": lambda: 0,
    }


_SAME = (
    "get_device_name", "get_device_capability", "synchronize", "mem_get_info", "memory_allocated",
    "max_memory_allocated", "memory_reserved", "max_memory_reserved", "memory_stats", "reset_peak_memory_stats",
    "reset_accumulated_memory_stats",
)  # fmt: skip
_OF_CARD = {
    **{name: name for name in _SAME},
    "memory_cached": "memory_reserved",
    "max_memory_cached": "max_memory_reserved",
    "reset_max_memory_allocated": "reset_peak_memory_stats",
    "reset_max_memory_cached": "reset_peak_memory_stats",
}
"""Functions of torch.cuda about one card, and those of `torch.vgpu` that answer them."""


def _of_card(function: Callable[[int], Any], cards: Cards) -> Callable[..., Any]:
    return lambda device=None: function(cards.ordinal(device))


def accelerator_functions(cards: Cards, cuda: dict[str, Any]) -> dict[str, Any]:
    """The functions of `torch.accelerator` by name."""
    device = cuda["device"]

    def current(check_available: bool = False) -> torch.device | None:
        return torch.device("cuda") if cards.count else None

    same = ("is_available", "device_count", "synchronize", "empty_cache", "memory_allocated", "max_memory_allocated",
            "memory_reserved",
            "max_memory_reserved", "memory_stats", "reset_peak_memory_stats", "reset_accumulated_memory_stats",
            "current_stream",
            "set_stream")  # fmt: skip
    return {
        **{name: cuda[name] for name in same},
        "current_accelerator": current,
        "current_device_index": cuda["current_device"],
        "current_device_idx": cuda["current_device"],
        "set_device_index": cuda["set_device"],
        "set_device_idx": cuda["set_device"],
        "device_index": device,
        "get_memory_info": cuda["mem_get_info"],
    }
