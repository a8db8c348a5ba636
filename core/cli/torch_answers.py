"""What torch says about this machine, asked in a process of its own: the side that waits. Any thread; imports no torch.

torch takes seconds to import, can be missing or broken, and its enumeration of devices can hang in a driver. None of
that may cost what everything else says about the machine. Where this process has torch already, it is asked here, with
the same time limit.
"""

from __future__ import annotations

import importlib.util
import signal
import subprocess
import sys
import time
from typing import Any

import msgspec

from devexplorer.core.base import module_command
from devexplorer.core.base.time_limit import TimeLimitError, call_within
from devexplorer.core.devices.catalog import NO_TORCH
from devexplorer.core.records import DeviceInfo, DeviceSample, Problem

LIMIT_S = 25.0
"""torch is imported in one to three seconds; from a cold disk or over a network it takes ten. A driver that hangs costs
another ten each time that it is asked (`torch_devices.ENUMERATION_LIMIT_S`)."""

END_S = 0.5
"""For a process that was killed."""


class TorchAnswers(msgspec.Struct, frozen=True):
    """What torch lists, or why it lists nothing."""

    devices: tuple[DeviceInfo, ...]
    problems: tuple[Problem, ...]
    """One of the field `cuda` says why there is no CUDA."""
    facts: dict[str, Any] | None = None
    """`torch_devices.torch_facts`; None where torch does not answer."""
    samples: tuple[DeviceSample, ...] = ()
    """Of devices that only torch can read."""
    virtual_gpus: str | None = None
    """Why this torch cannot have virtual GPUs; None: it can."""

    @classmethod
    def nothing(cls, reason: str) -> TorchAnswers:
        """No answers, for that reason."""
        return cls((), (Problem(reason, field="cuda"),), virtual_gpus=reason)


class TorchQuestion:
    """Asked from the start on; `answers` waits for what is left of the limit. `close` it whatever happens."""

    def __init__(self, limit_s: float = LIMIT_S) -> None:
        self._limit_s = limit_s
        self._until = time.monotonic() + limit_s
        self._process: subprocess.Popen[bytes] | None = None
        self._reason: str | None = None
        if "torch" not in sys.modules:
            self._start()

    def _start(self) -> None:
        if importlib.util.find_spec("torch") is None:
            self._reason = NO_TORCH
            return
        command = module_command("devexplorer.core.cli.torch_process")
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
        except OSError as error:
            self._reason = f"no process could be started to ask torch: {error}"

    def answers(self) -> TorchAnswers:
        """What torch says; comes in time whatever it does."""
        if self._reason is not None:
            return TorchAnswers.nothing(self._reason)
        if self._process is None:
            return self._asked_here()
        try:
            output, _ = self._process.communicate(timeout=max(self._until - time.monotonic(), 0.01))
        except subprocess.TimeoutExpired:
            return TorchAnswers.nothing(f"torch did not answer within {self._limit_s:g} s")
        try:
            return msgspec.json.decode(output, type=TorchAnswers)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return TorchAnswers.nothing(f"torch ended its process {_how(self._process.returncode)}")

    def _asked_here(self) -> TorchAnswers:
        from devexplorer.core.cli import torch_process

        try:
            return call_within(self._limit_s, torch_process.answers, "torch")
        except TimeLimitError as error:
            return TorchAnswers.nothing(str(error))

    def close(self) -> None:
        """End the process, if it still runs. One that is held up inside the system is left behind."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        try:
            process.communicate(timeout=END_S)
        except subprocess.TimeoutExpired:
            pass


def _how(code: int) -> str:
    if code >= 0:
        return f"with exit code {code}"
    try:
        return f"by signal {signal.Signals(-code).name}"
    except ValueError:
        return f"by signal {-code}"
