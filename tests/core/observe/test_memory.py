"""Memory that grows at every step, and memory that only the heap keeps."""

from __future__ import annotations

import ctypes

import pytest

from devexplorer.core.observe.memory import MemoryWatch, _heap_counts

PIECE, PIECES, STEPS = 100_000, 10, 40


@pytest.mark.skipif(_heap_counts() is None, reason="this C library does not say what is free in its heap")
@pytest.mark.parametrize("held", [False, True])
def test_what_is_free_in_the_heap_is_not_held_by_a_step(monkeypatch: pytest.MonkeyPatch, held: bool) -> None:
    """Each step takes more than the one before and gives it back; the heap keeps it where its last piece stays."""
    monkeypatch.setattr("devexplorer.core.observe.memory.virtual_machine", lambda: None)
    heap = ctypes.CDLL(None)
    heap.malloc.restype, heap.free.argtypes = ctypes.c_void_p, (ctypes.c_void_p,)
    watch, kept = MemoryWatch(), []
    for step in range(STEPS):
        number = PIECES
        if not held:
            number *= step + 1
        taken = [heap.malloc(PIECE) for _ in range(number)]
        for piece in taken:
            ctypes.memset(piece, 1, PIECE)
        kept.append(taken.pop())
        if held:
            kept += taken
        else:
            for piece in taken:
                heap.free(piece)
        watch.step_ended(step)
    for piece in kept:
        heap.free(piece)
    assert (watch.growth() is not None) == held
