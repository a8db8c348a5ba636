"""The allocator's rules, and its accounting against a naive model."""

import gc
import threading
from itertools import pairwise
from types import FunctionType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devexplorer.core.virtual.device.memory import (
    TRACE_ENTRIES,
    CachingAllocator,
    OutOfDeviceMemoryError,
    current_line,
    current_stack,
)

MIB = 1 << 20


def test_a_small_request_takes_a_block_of_512_bytes_from_a_segment_of_2_mib():
    memory = CachingAllocator(100 * MIB)
    memory.allocate(1)
    assert (memory.allocated_bytes, memory.reserved_bytes) == (512, 2 * MIB)
    memory.allocate(513)
    assert (memory.allocated_bytes, memory.reserved_bytes) == (512 + 1024, 2 * MIB)


@pytest.mark.parametrize(
    ("request_bytes", "reserved"),
    [
        (MIB, 2 * MIB),
        (MIB + 1, 20 * MIB),
        (10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB),
        (10 * MIB + 1, 12 * MIB),
        (33 * MIB, 34 * MIB),
    ],
)
def test_segments_are_as_large_as_cuda_makes_them(request_bytes, reserved):
    memory = CachingAllocator(100 * MIB)
    memory.allocate(request_bytes)
    assert memory.reserved_bytes == reserved


def test_a_large_block_is_split_only_when_more_than_1_mib_is_left():
    memory = CachingAllocator(100 * MIB)
    memory.allocate(11 * MIB)  # its segment has 12 MiB; the last one stays with the block
    assert memory.allocated_bytes == 12 * MIB
    other = CachingAllocator(100 * MIB)
    other.allocate(10 * MIB + 512)
    assert other.allocated_bytes == 10 * MIB + 512
    assert other.figures().largest_free_block_bytes == 2 * MIB - 512


def test_the_smallest_block_that_fits_is_taken():
    memory = CachingAllocator(200 * MIB)
    blocks = [memory.allocate(size * MIB) for size in (40, 20, 30)]
    middle = blocks[1].address
    for block in blocks:
        memory.free(block)
    assert memory.allocate(20 * MIB).address == middle
    assert memory.reserved_bytes == 90 * MIB


def test_a_full_device_gives_cached_segments_back_before_it_refuses():
    memory = CachingAllocator(50 * MIB)
    memory.free(memory.allocate(30 * MIB))
    assert memory.reserved_bytes == 30 * MIB
    memory.allocate(40 * MIB)
    assert memory.reserved_bytes == 40 * MIB


def test_the_refusal_is_worded_as_cuda_words_it():
    memory = CachingAllocator(64 * MIB, context_bytes=4 * MIB, index=1)
    memory.allocate(30 * MIB)
    memory.allocate(15 * MIB)
    memory.free(memory.allocate(1))  # its segment is given back before the refusal
    with pytest.raises(OutOfDeviceMemoryError) as caught:
        memory.allocate(31 * MIB)
    assert (
        str(caught.value)
        == "vgpu out of memory. Tried to allocate 32.00 MiB. GPU 1 has a total capacity of 64.00 MiB of which 14.00 MiB"
        " is free. Including non-PyTorch memory, this process has 50.00 MiB memory in use. Of the allocated memory"
        " 46.00 MiB is allocated by PyTorch, and 0 B is reserved by PyTorch but unallocated."
    )


def test_what_requests_would_take_is_what_they_take():
    memory = CachingAllocator(500 * MIB)
    memory.free(memory.allocate(40 * MIB))
    memory.allocate(700)
    sizes = [4, 100_000, 3 * MIB, 15 * MIB, 33 * MIB]
    before, expected = memory.free_bytes, memory.footprint(sizes)
    assert memory.free_bytes == before
    cached_before = memory.reserved_bytes - memory.allocated_bytes
    reserved_before = memory.reserved_bytes
    allocated_before = memory.allocated_bytes
    for size in sizes:
        memory.allocate(size)
    new_segments = memory.reserved_bytes - reserved_before
    from_cache = memory.allocated_bytes - allocated_before
    assert new_segments <= expected <= new_segments + min(cached_before, from_cache)


def test_a_free_from_a_finalizer_inside_the_allocator_does_not_deadlock():
    memory = CachingAllocator(100 * MIB)
    block = memory.allocate(1000)
    with memory._held():  # as when a garbage collection starts in the middle of `allocate`
        memory.free(block)
    assert memory.allocated_bytes == 0


def test_threads_may_allocate_and_free_at_the_same_time():
    memory = CachingAllocator(1000 * MIB)

    def work():
        for step in range(300):
            memory.free(memory.allocate(step * 3000))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert memory.allocated_bytes == 0
    memory.empty_cache()
    assert memory.reserved_bytes == 0
    gc.collect()


def test_figures_are_those_of_one_moment():
    memory = CachingAllocator(200 * MIB)
    kept = memory.allocate(700)
    memory.free(memory.allocate(30 * MIB))
    assert memory.figures() == (1024, 32 * MIB, 30 * MIB + 1024, 30 * MIB, 2, 0)
    memory.empty_cache()
    assert memory.figures() == (1024, 2 * MIB, 30 * MIB + 1024, 2 * MIB - 1024, 1, 0)
    memory.free(kept)
    memory.empty_cache()
    assert memory.figures() == (0, 0, 30 * MIB + 1024, 0, 0, 0)


def test_every_block_of_every_segment_is_listed_by_address():
    memory = CachingAllocator(200 * MIB)
    first, _, third = memory.allocate(700), memory.allocate(600), memory.allocate(2 * MIB)
    memory.free(first)
    segments, _ = memory.blocks_and_trace()
    assert [[(block.size, block.requested, block.is_free) for block in blocks] for blocks in segments] == [
        [(1024, 0, True), (1024, 600, False), (2 * MIB - 2048, 0, True)],
        [(2 * MIB, 2 * MIB, False), (18 * MIB, 0, True)],
    ]
    assert segments[1][0].address == third.address
    for blocks in segments:
        assert all(after.address == block.address + block.size for block, after in pairwise(blocks))


def test_only_a_recording_allocator_keeps_stacks_and_steps():
    now = iter(range(100))
    memory = CachingAllocator(200 * MIB, clock=lambda: float(next(now)))
    before = memory.allocate(700)
    memory.record(True)
    recorded = memory.allocate(2 * MIB)
    memory.free(before)
    memory.record(False)
    memory.allocate(600)
    segments, events = memory.blocks_and_trace()
    stacks = [block.stack for blocks in segments for block in blocks if not block.is_free]
    assert [stack is None for stack in stacks] == [True, False]
    assert stacks[1][0][2] == "test_only_a_recording_allocator_keeps_stacks_and_steps"
    assert [(event.action, event.size, event.time_us) for event in events] == [
        ("segment_alloc", 20 * MIB, 0),
        ("alloc", 2 * MIB, 1_000_000),
        ("free_requested", 700, 2_000_000),
        ("free_completed", 700, 3_000_000),
    ]
    memory.free(recorded)
    memory.record(True)
    assert memory.blocks_and_trace()[1] == [], "a new recording starts afresh"


def test_a_long_recording_keeps_the_newest_steps(monkeypatch):
    memory = CachingAllocator(200 * MIB)
    memory.record(True)
    for size in range(1, TRACE_ENTRIES // 3 + 100):
        memory.free(memory.allocate(size))
    _, events = memory.blocks_and_trace()
    assert len(events) == TRACE_ENTRIES
    assert events[-1].size == TRACE_ENTRIES // 3 + 99


def test_a_stack_leaves_out_what_is_not_the_callers():
    namespace = {"__name__": "torch.nn.modules.linear"}
    exec(compile("def forward(inner):\n    return inner()", "linear.py", "exec"), namespace)
    call = {"__name__": "torch.nn.modules.module"}
    exec(compile("def _call_impl(inner):\n    return inner()", "module.py", "exec"), call)
    engine = {"__name__": "devexplorer.core.commands.registry"}
    exec(compile("def handle(inner):\n    return inner()", "dispatch.py", "exec"), engine)
    found = engine["handle"](lambda: call["_call_impl"](lambda: namespace["forward"](current_stack)))
    assert [(file.rpartition("/")[2], name) for file, _, name in found] == [
        ("linear.py", "forward"),
        ("test_memory.py", "<lambda>"),
        ("test_memory.py", "<lambda>"),
    ]


def test_what_an_impossible_request_would_take_is_refused_and_leaves_the_books_alone():
    memory = CachingAllocator(200 * MIB)
    memory.free(memory.allocate(30 * MIB))
    with pytest.raises(OutOfDeviceMemoryError):
        memory.footprint([1 << 62, 1 << 62])
    assert memory.figures().segments == 1


steps = st.lists(
    st.one_of(
        st.tuples(st.just("allocate"), st.one_of(st.integers(0, 4096), st.integers(0, 40 * MIB))),
        st.tuples(st.just("free"), st.integers(0, 1000)),
        st.tuples(st.just("empty"), st.just(0)),
    ),
    max_size=60,
)


@given(steps)
def test_books_agree_with_a_naive_model(actions):
    memory = CachingAllocator(256 * MIB)
    live = []
    for action, value in actions:
        if action == "allocate":
            try:
                block = memory.allocate(value)
            except OutOfDeviceMemoryError:
                assert memory.reserved_bytes + value > 256 * MIB - 20 * MIB
                continue
            assert block.size >= value
            if value:
                live.append(block)
        elif action == "free" and live:
            memory.free(live.pop(value % len(live)))
        elif action == "empty":
            memory.empty_cache()
        spans = sorted((block.address, block.address + block.size) for block in live)
        assert all(end <= start for (_, end), (start, _) in pairwise(spans)), "blocks overlap"
        assert memory.allocated_bytes == sum(block.size for block in live)
        assert memory.allocated_bytes <= memory.reserved_bytes <= 256 * MIB
        assert memory.reserved_bytes == memory.allocated_bytes + sum(
            size for pool in memory._pools.values() for size, _, _ in pool
        )
        assert memory.peak_allocated_bytes >= memory.allocated_bytes
        segments, _ = memory.blocks_and_trace()
        listed = [one for blocks in segments for one in blocks]
        assert sum(one.size for one in listed) == memory.reserved_bytes
        taken = sorted((one.address, one.size) for one in listed if not one.is_free)
        assert taken == sorted((block.address, block.size) for block in live)
        assert max((one.size for one in listed if one.is_free), default=0) == memory.figures().largest_free_block_bytes
    for block in live:
        memory.free(block)
    assert memory.allocated_bytes == 0
    memory.empty_cache()
    assert memory.reserved_bytes == 0


def test_the_line_of_a_block_is_the_scripts_also_where_its_calls_are_observed() -> None:
    hook = FunctionType((lambda function: function()).__code__, {"__name__": "devexplorer.core.observe.hooks"})
    ((file, _, function),) = hook(current_line)
    assert (file, function) == (__file__, "test_the_line_of_a_block_is_the_scripts_also_where_its_calls_are_observed")
