"""What does watching another machine cost on the link? Bytes per second from a host to one window, 8 cards at 10 Hz.

    python tests/benchmarks/link_traffic.py [--seconds 20] [--cards 8] [--virtual "8x Tesla T4"]

A real host (`Server` over a real `Session`, with its engine) and the window's end of the link run in a subprocess, on
the fake NVML library of tests/fakes/nvml_c, whose readings change from call to call as those of a busy card do. The
first seconds are left out. Wanted: at most 30 kB/s. Exit code 1 if that is missed, 2 if it could not be measured."""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

WANTED_KB_S = 30.0
WARM_UP_S = 5.0
CHILD = "--in-this-process"


def main() -> int:
    """The outer process: builds the library and starts the inner one on it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--cards", type=int, default=8)
    parser.add_argument(
        "--virtual", metavar="SPEC", help="virtual GPUs beside them, with the readings of their allocators"
    )
    parser.add_argument(CHILD, action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).parents[1]))
    if arguments.in_this_process:
        print(json.dumps(measure(arguments.seconds, arguments.virtual)))
        return 0
    from fakes.nvml_library import CannotBuildError, build

    with tempfile.TemporaryDirectory() as folder:
        try:
            library = build(Path(folder) / "nvml")
        except CannotBuildError as error:
            print(error, file=sys.stderr)
            return 2
        environment = {
            **os.environ, "LD_LIBRARY_PATH": str(library.parent), "FAKE_NVML_CARDS": str(arguments.cards),
            "XDG_CONFIG_HOME": folder, "XDG_DATA_HOME": folder, "XDG_STATE_HOME": folder,
        }  # fmt: skip
        command = [sys.executable, __file__, CHILD, "--seconds", str(arguments.seconds)]
        command += ["--virtual", arguments.virtual] if arguments.virtual else []
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0 or not done.stdout.strip():
        print(done.stderr.rstrip(), file=sys.stderr)
        return 2
    found = json.loads(done.stdout.strip().splitlines()[-1])
    reached = found["kb_s"] <= WANTED_KB_S
    print(
        f"{arguments.cards} cards: {found['kb_s']:.1f} kB/s (wanted: at most {WANTED_KB_S:.0f})"
        f"{'' if reached else ', not reached'}; {found['plain_kb_s']:.1f} kB/s before compression;"
        f" {found['samples_s']:.1f} readings a second; back {found['back_kb_s']:.2f} kB/s;"
        f" host {found['cpu_percent']:.1f} % of one core, window's end included"
    )
    print("; ".join(f"{name}: {count:.1f}/s, {size:.0f} bytes" for name, (count, size) in found["kinds"].items()))
    return 0 if reached else 1


def measure(seconds: float, virtual_spec: str | None) -> dict[str, Any]:
    """The inner process: a host and the window's end, timed."""
    from fakes.hosts import decode

    from devexplorer.core.machines.host.server import Server
    from devexplorer.core.machines.host.wire import SocketStream, Wire, read_hello, send_hello
    from devexplorer.core.machines.records import Happened, Hello
    from devexplorer.core.session.session import Session

    kinds: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    plain = [0]

    def decoded(payload: bytes) -> Any:
        record = decode(payload)
        name = type(record.event if isinstance(record, Happened) else record).__name__
        kinds[name] += 1
        sizes[name] += len(payload)
        plain[0] += len(payload)
        return record

    session = Session(virtual_spec=virtual_spec)
    server = Server(session)
    session.start()
    near, far = socket.socketpair()
    server.take(far)
    stream = SocketStream(near)
    send_hello(stream, Hello(client="w" * 32, machine="me@desk"))
    while not server.connected:
        server.tick()
        server.wait()
    read_hello(stream)
    wire = Wire(stream, decoded, lambda record: None, lambda reason: None, stream.hang_up)
    wire.start()
    begun: tuple[float, float, int, int, int] | None = None
    until = time.monotonic() + WARM_UP_S + seconds
    while (now := time.monotonic()) < until:
        if begun is None and now > until - seconds:
            kinds.clear()
            sizes.clear()
            begun = now, time.process_time(), wire.received_bytes, wire.sent_bytes, plain[0]
        server.tick()
        server.wait()
        wire.beat()
    assert begun is not None
    wall, cpu, came, went, before = (
        after - start
        for after, start in zip(
            (time.monotonic(), time.process_time(), wire.received_bytes, wire.sent_bytes, plain[0]), begun, strict=True
        )
    )
    wire.close()
    server.end("measured")
    session.close()
    return {
        "kb_s": came / wall / 1000,
        "plain_kb_s": before / wall / 1000,
        "back_kb_s": went / wall / 1000,
        "samples_s": kinds["DeviceSample"] / wall,
        "cpu_percent": 100 * cpu / wall,
        "kinds": {name: (count / wall, sizes[name] / count) for name, count in kinds.most_common(5)},
    }


if __name__ == "__main__":
    sys.exit(main())
