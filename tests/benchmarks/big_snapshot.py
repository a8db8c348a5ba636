"""Reads allocator snapshots of any size, and says what that takes: a file of about as many MB as asked for is written
in PyTorch's own format (torch 2.13: segments and blocks, then the trace of a device with stacks of 30 frames), quickly,
because a batch of 1,000 entries is the same bytes wherever it stands. A process of its own reads it.

    python tests/benchmarks/big_snapshot.py 100 500 2000
    python tests/benchmarks/big_snapshot.py 500 --write big.pickle    only write it

Linux only: the peak comes from /proc.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, BinaryIO

MIB = 1 << 20
BATCH = 1_000
"""Items that a pickle appends at once."""
FRAMES, STACKS, DEPTH = 1_500, 400, 30
ACTIONS = ("alloc", "free_requested", "free_completed")
DUMPED_EACH = 200
"""Batches that are made; they take turns."""

Frame = dict[str, Any]


def stacks_of(chance: random.Random) -> list[list[Frame]]:
    """Stacks as of a training script: frames are shared, as torch shares them."""
    frames = [
        {"name": f"forward_{number}", "filename": f"/home/me/model/part_{number % 40}.py", "line": 10 + number}
        for number in range(FRAMES)
    ]
    return [chance.sample(frames, DEPTH) for _ in range(STACKS)]


def entry(chance: random.Random, stack: list[Frame], number: int) -> dict[str, Any]:
    """One entry of a trace, with the keys in torch's order. Its list of frames and its texts are its own."""
    return {
        "action": ACTIONS[number % 3],
        "addr": 0x7F00_0000_0000 + 512 * chance.randrange(1 << 28),
        "size": 512 * chance.randrange(1, 4_000),
        "stream": 0,
        "time_us": 1_700_000_000_000_000 + number,
        "compile_context": "".join(["N/", "A"]),
        "user_metadata": "",
        "frames": list(stack),
    }


def segments_of(chance: random.Random, stacks: list[list[Frame]], blocks: int) -> list[dict[str, Any]]:
    """Segments of 20 MiB with 40 blocks each."""
    segments = []
    for number in range(-(-blocks // 40)):
        address = 0x7F00_0000_0000 + number * 20 * MIB
        held = []
        for place in range(40):
            live = chance.random() < 0.8
            held.append(
                {
                    "address": address + place * MIB // 2,
                    "size": MIB // 2,
                    "requested_size": MIB // 2 - 100 if live else 0,
                    "state": "active_allocated" if live else "inactive",
                    "frames": list(chance.choice(stacks)) if live else [],
                }
            )
        used = sum(block["size"] for block in held if block["state"] == "active_allocated")
        segments.append(
            {
                "device": 0, "address": address, "total_size": 20 * MIB, "allocated_size": used, "active_size": used,
                "requested_size": used, "stream": 0, "segment_type": "large", "segment_pool_id": (0, 0),
                "is_expandable": False, "frames": list(chance.choice(stacks)), "blocks": held,
            }
        )  # fmt: skip
    return segments


def snapshot(segments: list[dict[str, Any]], trace: list[dict[str, Any]]) -> dict[str, Any]:
    """The whole."""
    settings = {
        "PYTORCH_CUDA_ALLOC_CONF": "", "max_split_size": -1, "garbage_collection_threshold": 0.0,
        "expandable_segments": False, "pinned_num_register_threads": 1, "last_allocator_settings": "",
    }  # fmt: skip
    return {
        "segments": segments,
        "device_traces": [[], trace],
        "allocator_settings": settings,
        "external_annotations": [],
    }


def write(file: BinaryIO, size: int, blocks: int = 20_000) -> int:
    """Write a snapshot of at least `size` bytes; returns the entries of its trace.

    Two snapshots that differ by the last batch show where it lies in the bytes. Such a batch refers only to what lies
    before all batches, and numbers are given to its values in order, so it can follow itself.
    """
    chance = random.Random(0)
    stacks = stacks_of(chance)
    segments = segments_of(chance, stacks, blocks)
    # The first batch has every key and every frame.
    first = [entry(chance, stacks[number % STACKS], number) for number in range(BATCH)]
    head, tail = _halves(snapshot(segments, first))
    one_more = [entry(chance, stacks[number % STACKS], number) for number in range(BATCH)]
    batches = [_batch(segments, first, one_more, head)]
    for _ in range(min(DUMPED_EACH, max(1, size // (300 * BATCH)) // 50)):
        one_more = [entry(chance, chance.choice(stacks), number) for number in range(BATCH)]
        batches.append(_batch(segments, first, one_more, head))
    batches = [_framed(batch) for batch in batches]
    written, entries = file.write(head[:2] + _framed(head[2:])), BATCH
    while written < size:
        written += file.write(batches[entries // BATCH % len(batches)])
        entries += BATCH
    file.write(tail)
    return entries


def _dumped(value: object) -> bytes:
    """Without frames, which only a reader that wants few calls needs: a batch can then be cut out."""
    return b"".join(_unframed(pickle.dumps(value, 4)))


def _framed(data: bytes) -> bytes:
    return pickle.FRAME + len(data).to_bytes(8, "little") + data


def _unframed(data: bytes) -> list[bytes]:
    pieces, position = [data[:2]], 2
    while position < len(data):
        if data[position : position + 1] == pickle.FRAME:
            length = int.from_bytes(data[position + 1 : position + 9], "little")
            pieces.append(data[position + 9 : position + 9 + length])
            position += 9 + length
        else:  # the last bytes can be without a frame, where there are fewer than four
            pieces.append(data[position:])
            position = len(data)
    return pieces


MARKER = "the end of the trace"


def _halves(whole: dict[str, Any]) -> tuple[bytes, bytes]:
    """The bytes up to the end of the trace, and those after it. What follows the trace may refer to no number that the
    batches between shift, so that part is pickled with new values."""
    text = _dumped({**whole, "allocator_settings": MARKER})
    at = text.index(b"\x8c" + bytes([len(MARKER)]) + MARKER.encode())
    at = text.rindex(b"\x8c\x12allocator_settings", 0, at)
    assert text[at - 2 : at] == b"ee", "the trace, and the list of traces"
    rest = {key: whole[key] for key in ("allocator_settings", "external_annotations")}
    return text[: at - 1], b"e" + _items_of(rest) + b"u."


def _items_of(values: dict[str, Any]) -> bytes:
    """Keys and values for the SETITEMS of the snapshot, in protocol 1's opcodes: nothing in them has a number."""
    return b"".join(map(_plain, (one for pair in values.items() for one in pair)))


def _plain(value: Any) -> bytes:
    if isinstance(value, dict):
        return b"}(" + _items_of(value) + b"u"
    if isinstance(value, list):
        return b"](" + b"".join(map(_plain, value)) + b"e"
    if isinstance(value, str):
        return b"X" + len(value.encode()).to_bytes(4, "little") + value.encode()
    return pickle.dumps(value, 2)[2:-1]


def _batch(
    segments: list[dict[str, Any]], first: list[dict[str, Any]], more: list[dict[str, Any]], head: bytes
) -> bytes:
    text, _ = _halves(snapshot(segments, [*first, *more]))
    assert text.startswith(head), "the beginning is the same"
    return text[len(head) :]


# --- measuring

CHILD = """
import json, sys, time
from pathlib import Path
from devexplorer.core.memory import snapshot_file

def kib(what):  # not getrusage: its peak is inherited from the process that started this one
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(what))

before = kib("VmRSS:")
told = []
start = time.perf_counter()
found = snapshot_file.load(sys.argv[1], "big.pickle", lambda share: told.append(time.perf_counter()))
end = time.perf_counter()
print(json.dumps({
    "seconds": end - start,
    "beyond_mib": (kib("VmHWM:") - before) / 1024,
    "before_mib": before / 1024,
    "longest_silence": max(b - a for a, b in zip([start, *told], [*told, end])),
    "entries": found.trace_entries,
    "blocks": sum(len(segment.blocks) for segment in found.segments),
    "cut": found.cut,
    "stacks": len(found.stacks),
}))
"""


def measure(path: str) -> dict[str, Any]:
    """What it takes a new process to read this file."""
    done = subprocess.run([sys.executable, "-c", CHILD, path], check=True, capture_output=True, text=True)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def main(arguments: list[str] | None = None) -> int:
    """Write, read, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sizes", metavar="MB", type=int, nargs="+")
    parser.add_argument("--blocks", type=int, default=20_000)
    parser.add_argument("--write", metavar="FILE", help="only write the first size, to this file")
    chosen = parser.parse_args(arguments)
    if chosen.write:
        with open(chosen.write, "wb") as file:
            print(f"{write(file, chosen.sizes[0] * 10**6, chosen.blocks):,} entries")
        return 0
    for size in chosen.sizes:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "big.pickle"
            with path.open("wb") as file:
                write(file, size * 10**6, chosen.blocks)
            found = measure(str(path))
            print(
                f"{os.path.getsize(path) / 1e6:,.0f} MB, {found['entries']:,} entries, {chosen.blocks:,} blocks: "
                f"{found['seconds']:.1f} s, {found['beyond_mib']:.0f} MiB beyond the {found['before_mib']:.0f} MiB of "
                f"the process; longest time without progress {found['longest_silence']:.2f} s; "
                f"{found['blocks']:,} blocks shown, {found['cut']:,} left out, {found['stacks']:,} places"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
