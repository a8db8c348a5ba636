"""Virtual GPUs that measure: memory without end that notes every block, and a roofline that notes every operation. Any
thread.

They replace this process's virtual GPUs, so they belong in their own process (or a test that has
reset the machine).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
import torch

from devexplorer.core.devices.profiles import Profile
from devexplorer.core.models import is_irregular
from devexplorer.core.planner.trace import UNLIMITED, Copied, Trace
from devexplorer.core.virtual.backend import install
from devexplorer.core.virtual.device.cost import HostCall, Roofline, Work
from devexplorer.core.virtual.device.memory import Block, CachingAllocator, OutOfDeviceMemoryError, round_up

VALUES_BYTES = 16 << 20
"""Inputs up to this size have values, and so has what is made of them without parameters: positions and masks, which
models look at."""


class MeasuringMemory(CachingAllocator):
    """Gives every request its own block and notes it; an address is never used twice, so it identifies a block."""

    def __init__(self, index: int, limit_bytes: int = UNLIMITED) -> None:
        """`limit_bytes`: the most that may be taken, for tensors with values, whose memory is the host's."""
        super().__init__(limit_bytes, 0, index)
        self.sizes: list[int] = []
        self.events: list[int] = []
        self.state_at: int | None = None
        """Where in `events` the first step of the optimizer begins."""
        self.rest_at: int | None = None
        """Where in `events` the last step ends."""
        self.kinds: dict[int, str] = {}
        """Number of a block -> what it is for."""
        self._numbers: dict[int, int] = {}
        self._free_address = (index + 1) << 44

    def allocate(self, nbytes: int) -> Block:
        """Note a block that is taken; a request of 0 bytes takes nothing."""
        if nbytes <= 0:
            return Block(0, 0, small=True)
        with self._lock:
            size = round_up(nbytes)
            if self._allocated.current + size > self.capacity_bytes:
                raise OutOfDeviceMemoryError("the values need more memory than this machine has for them")
            block = Block(self._free_address, size, small=False)
            block.free, block.requested = False, nbytes
            self._free_address += size
            self._numbers[block.address] = len(self.sizes)
            self.events.append(len(self.sizes))
            self.sizes.append(nbytes)
            self._allocated.add(size)
        return block

    def free(self, block: Block) -> None:
        """Note that a block is given back. Called by finalizers, wherever those happen to run: it never blocks."""
        if block.size:
            self.events.append(~self._numbers[block.address])
            self._allocated.take(block.size)

    def number(self, address: int) -> int:
        """Of the block at this address."""
        return self._numbers[address]

    def label(self, address: int, kind: str) -> None:
        """Say what the block at this address is for; what was said first counts."""
        if address in self._numbers:
            self.kinds.setdefault(self._numbers[address], kind)


class MeasuringRoofline(Roofline):
    """Notes what it is asked for."""

    def __init__(self, profile: Profile) -> None:
        super().__init__(profile)
        self.work: list[Work] = []
        self.calls: Counter[HostCall] = Counter()
        self.copies: list[Copied] = []

    def seconds(self, *works: Work) -> float:
        """Note kernels."""
        self.work.extend(works)
        return 0.0

    def call_seconds(self, call: HostCall) -> float:
        """Note a call of the host."""
        self.calls[call] += 1
        return 0.0

    def copy_seconds(self, other: Profile | None, nbytes: int) -> float:
        """Note a copy."""
        self.copies.append(Copied(nbytes, None if other is None else other.name))
        return 0.0

    def forget(self) -> None:
        """What was noted."""
        self.work.clear()
        self.calls.clear()
        self.copies.clear()


class Measuring:
    """So many cards, empty."""

    def __init__(self, profiles: Sequence[Profile], limit_bytes: int | None = None) -> None:
        """With `limit_bytes` tensors have values, up to so many bytes on each card; without, as few as possible."""
        machine = install()
        machine.reset()
        self.machine = machine
        self.devices: list[str] = []
        self._memories: list[MeasuringMemory] = []
        self._rooflines: list[MeasuringRoofline] = []
        self._held: list[torch.Tensor] = []
        self.output_bytes = 0
        """Of the first tensor that forward returned."""
        self.input_bytes = 0
        for gpu in machine.add(profiles):
            memory = MeasuringMemory(gpu.index, UNLIMITED if limit_bytes is None else limit_bytes)
            roofline = MeasuringRoofline(gpu.profile)
            gpu.memory, gpu.roofline = memory, roofline
            gpu.values_bytes = VALUES_BYTES if limit_bytes is None else None
            self.devices.append(gpu.id)
            self._memories.append(memory)
            self._rooflines.append(roofline)

    def hold(self, buffer: torch.Tensor) -> None:
        """Keep the memory of a buffer until the traces are made."""
        self._held.append(buffer)
        self.label([buffer], "buffers")

    def label(self, tensors: Iterable[torch.Tensor | None], kind: str) -> None:
        """Say what the memory of these tensors is for; tensors elsewhere have none here."""
        for tensor in tensors:
            held = None if tensor is None or is_irregular(tensor) else getattr(tensor.untyped_storage(), "_vgpu", None)
            if held is not None and isinstance(held.gpu.memory, MeasuringMemory):
                held.gpu.memory.label(held.block.address, kind)

    def block_number(self, tensor: torch.Tensor) -> int:
        """The number of its block in the trace of its card. Raises `KeyError` for one that has none here."""
        held = getattr(tensor.untyped_storage(), "_vgpu", None)
        if held is None or not isinstance(held.gpu.memory, MeasuringMemory):
            raise KeyError("a tensor elsewhere has no block on a measuring GPU")
        return held.gpu.memory.number(held.block.address)

    def step_begins(self) -> None:
        """Forget the work so far: what comes is the step whose time counts."""
        for roofline in self._rooflines:
            roofline.forget()

    def module_called(self) -> None:
        """A module was called; the host is one, so that it counts on the first card."""
        self._rooflines[0].call_seconds(HostCall.MODULE)

    def optimizer_begins(self) -> None:
        """The first time, note where."""
        for memory in self._memories:
            if memory.state_at is None:
                memory.state_at = len(memory.events)

    def step_ends(self) -> None:
        """Note where: what is alive then stays."""
        for memory in self._memories:
            memory.rest_at = len(memory.events)

    def traces(self) -> tuple[Trace, ...]:
        """What happened on each card."""
        return tuple(
            Trace(
                np.array(memory.sizes, dtype=np.int64),
                np.array(memory.events, dtype=np.int64),
                dict(memory.kinds),
                Counter(roofline.work),
                dict(roofline.calls),
                Counter(roofline.copies),
                memory.state_at,
                memory.rest_at,
                self.output_bytes,
                self.input_bytes,
                gpu.attention_by_card,
            )
            for gpu, memory, roofline in zip(self.machine.gpus, self._memories, self._rooflines, strict=True)
        )
