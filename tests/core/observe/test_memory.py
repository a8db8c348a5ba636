"""Memory that grows at every step, and memory that only the heap keeps."""

from __future__ import annotations

import ctypes

import pytest

from devexplorer.core.observe import memory
from devexplorer.core.observe.memory import MemoryWatch

MIB, STEPS = 1 << 20, 40
PIECE, PIECES = 100_000, 100


@pytest.mark.parametrize("held", [False, True])
def test_what_is_free_in_the_heap_is_not_held_by_a_step(monkeypatch: pytest.MonkeyPatch, held: bool) -> None:
    watch = MemoryWatch()
    monkeypatch.setattr(memory, "virtual_machine", lambda: None)
    for step in range(STEPS):
        grown = step * MIB
        monkeypatch.setattr(watch, "_resident", lambda grown=grown: 500 * MIB + grown)
        monkeypatch.setattr(memory, "_free_in_heap", lambda grown=grown: 0 if held else grown)
        watch.step_ended(step)
    assert (watch.growth() is not None) == held
    (use,) = watch.devices()
    assert use.peak_allocated_bytes == (500 + STEPS - 1) * MIB


@pytest.mark.skipif(memory._heap_counts() is None, reason="this C library does not say what is free in its heap")
def test_what_was_given_back_below_a_piece_that_stays_is_free() -> None:
    heap = ctypes.CDLL(None)
    heap.malloc.restype, heap.free.argtypes = ctypes.c_void_p, (ctypes.c_void_p,)
    taken = [heap.malloc(PIECE) for _ in range(PIECES)]
    before = memory._free_in_heap()
    for piece in taken[:-1]:
        heap.free(piece)
    freed = memory._free_in_heap() - before
    heap.free(taken[-1])
    assert freed > 0.9 * PIECE * PIECES
