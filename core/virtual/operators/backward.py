"""Re-raises Python exceptions that occur inside backward on a virtual GPU, which would otherwise end the process. Any
thread.

While autograd's engine is at work it holds a stream guard, which asks `DeviceGuard.type_`, in Python, when it puts the
stream back. A call of Python fails while an exception is on its way through C++, and a failure there ends the process.
So there must be none by then:

- from an operation that the engine itself runs, `__torch_dispatch__` returns a `FailedResult` instead of raising: C++
  raises that it is no tensor, with our text in its message;
- from hooks and whatever else runs Python during backward, `DeviceGuard.type_` takes it: the engine fails
  without one.

`backward_guard`, which is around `VirtualTensor.backward`, raises the exception itself in place of what either leaves
behind.
"""

from __future__ import annotations

import ctypes
import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import torch

_look = ctypes.pythonapi.PyErr_Occurred
"""Called through ctypes, it raises the pending exception."""

_log = logging.getLogger(__name__)


class _Thread(threading.local):
    kept: list[BaseException] | None = None
    """What was raised inside the backward of this thread; None where no guard waits for it."""


_thread = _Thread()


class FailedResult:
    """An operation's exception, in the place of its result. It says what happened where torch quotes it."""

    def __init__(self, error: BaseException) -> None:
        self._words = f"what failed, '{type(error).__name__}: {error}',"

    def __str__(self) -> str:
        return self._words


def is_engine_calling(frame: FrameType | None) -> bool:
    """Whether autograd's engine has called `__torch_dispatch__`, at this frame: on the calling thread
    Python is around it, on its own threads nothing is. Who measures may have wrapped the method, under its name."""
    while frame is not None and frame.f_code.co_name == "__torch_dispatch__":
        frame = frame.f_back
    return frame is None or frame.f_code.co_name == "_engine_run_backward"


def failure(error: BaseException, results: int) -> Any:
    """What an operation with so many results returns when the engine called it; None when Python did, so that it can
    raise."""
    if not is_engine_calling(sys._getframe(1)):
        return None
    _keep(error)
    return FailedResult(error) if results == 1 else (FailedResult(error),) * results


def _keep(error: BaseException) -> bool:
    if _thread.kept is not None:
        _thread.kept.append(error)
    return _thread.kept is not None


def device_guard() -> Any:
    """torch's own device guard for Python backends, which is asked for its type all the time, also with an exception
    pending."""

    class DeviceGuard(torch._C._acc.DeviceGuard):  # not there in a torch that is too old
        def type_(self) -> Any:
            """The device type; takes the pending exception, if any."""
            try:
                _look()
            except BaseException as error:
                if not _keep(error):
                    _log.error("backward on a virtual GPU failed: %s: %s", type(error).__name__, error)
            return torch._C._autograd.DeviceType.PrivateUse1

    return DeviceGuard()


@contextmanager
def backward_guard() -> Iterator[None]:
    """Run backward on the calling thread, and raise what was raised inside it.

    `loss.backward()` of a loss on a virtual GPU has it built in. It is of use around `torch.autograd.backward` and
    `grad`, and around the backward of a loss on the CPU whose graph goes through a virtual GPU. A thread that gets a
    whole graph, gradients included, from another one needs it there; creating a tensor on a virtual GPU sets the
    calling thread for that thread.
    """
    kept: list[BaseException] = []
    before, _thread.kept = _thread.kept, kept
    try:
        with torch.autograd.set_multithreading_enabled(False):
            yield
    except (RuntimeError, SystemError):
        if not kept:
            raise
        raise kept.pop() from None
    finally:
        _thread.kept = before
        kept.clear()
