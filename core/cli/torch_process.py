"""What torch says about this machine, asked in a process of its own: the side that imports torch. Main thread.

The answer is one JSON document on standard output; whatever torch and its backends print goes to standard error.
"""

from __future__ import annotations

import os
import time

import msgspec

from devexplorer.core.base import typed_line
from devexplorer.core.cli.torch_answers import TorchAnswers


def answers() -> TorchAnswers:
    """Import torch and ask it. What it raises is an answer, too: torch can be half installed, or not fit this
    machine."""
    try:
        from devexplorer.core.devices.torch_devices import TorchBackend, torch_facts
        from devexplorer.core.virtual.backend import unsupported
    except Exception as error:
        return TorchAnswers.nothing(f"torch cannot be imported: {typed_line(error)}")
    try:
        backend = TorchBackend()
        devices = backend.devices()
        now = time.time()
        readable = [info.id for info in devices if info.usable and info.kind not in ("cpu", "cuda", "virtual")]
        samples = tuple(sample for device in readable if (sample := backend.device_sample(device, now)) is not None)
        return TorchAnswers(devices, backend.problems(), torch_facts(), samples, unsupported())
    except Exception as error:  # third-party backends are asked here as well
        return TorchAnswers.nothing(f"torch cannot list its devices: {typed_line(error)}")


def main() -> None:
    """Answer and end, without waiting for what a backend may have started."""
    out = os.dup(1)
    os.dup2(2, 1)
    encoded = msgspec.json.encode(answers())
    with open(out, "wb") as pipe:
        pipe.write(encoded)
    os._exit(0)


if __name__ == "__main__":
    main()
