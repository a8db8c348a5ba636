"""What NVML lists (`Card`), and who a process is. Plain frozen records, any thread."""

from __future__ import annotations

from typing import NamedTuple

import msgspec


class Card(msgspec.Struct, frozen=True, kw_only=True):
    """One NVIDIA card, or one MIG instance of a card, as NVML enumerates it.

    Listing the cards again gives an equal record as long as nothing of importance changed.
    """

    index: int
    """What nvidia-smi counts (`index`); a MIG instance has its card's."""
    uuid: str | None
    """`GPU-…` or `MIG-…` (`uuid`); None for a card that is too broken to say."""
    name: str
    """Of a MIG instance with its profile, where the driver says it: `NVIDIA A100-SXM4-40GB MIG 1g.5gb`."""
    named: bool = True
    """Whether the driver told the name; else it is made of the card's number."""
    mig_instance: int | None = None
    """Number of the MIG instance within its card; None for a card itself."""
    mig_profile: str | None = None
    """`1g.5gb`: seventh parts of the chip and gigabytes; None for a card itself."""
    gpu_instance_id: int | None = None
    """What nvidia-smi calls its GPU instance (`GI`); None for a card itself."""
    parent_key: str | None = None
    """`key` of the card that a MIG instance is a part of."""
    bus_id: str | None = None
    """`pci.bus_id`"""
    memory_total_bytes: int | None = None
    """`memory.total`"""
    memory_used_bytes: int | None = None
    """`memory.used` when the card was first listed"""
    memory_shared: bool = False
    """True where the card has no memory of its own (GB10, Jetson): the figures are the system's."""
    compute_capability: str | None = None
    """`compute_cap`"""
    driver_version: str | None = None
    """`driver_version`"""
    cuda_version: str | None = None
    """The newest CUDA that the driver supports, as the head of nvidia-smi's table shows it."""
    ecc: bool | None = None
    """`ecc.mode.current`"""
    compute_mode: str | None = None
    """`compute_mode`"""
    mig: bool | None = None
    """`mig.mode.current`"""
    broken: str | None = None
    """Why nothing can be read from it."""

    @property
    def key(self) -> str:
        """What identifies it: the UUID, or its place where there is none (two handles of one card compare unequal)."""
        return self.uuid or f"index {self.index}"

    @property
    def nvml_id(self) -> str:
        """The device id `nvml:N`, by which problems name it."""
        return f"nvml:{self.index}"


class ProcessLoad(NamedTuple):
    """What a process has used until now; None where it is gone, or the system does not tell."""

    cpu_s: float | None = None
    memory_bytes: int | None = None
    running_s: float | None = None


class ProcessFacts(NamedTuple):
    """What the system says about a process; None where it is gone or belongs to another user."""

    name: str | None = None
    user: str | None = None
    command: str | None = None
