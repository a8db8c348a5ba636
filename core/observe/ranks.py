"""Says at once which rank of a job was killed: one that is leaves no report, and the others say only that a connection
is closed. In the process that started the ranks (torchrun, accelerate launch), on the thread `observe-ranks`; no torch.
"""

from __future__ import annotations

import gc
import os
import re
import select
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

LOOK_S = 0.25
"""Between two looks for ranks that have begun."""
CRASHES = {signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGSEGV}
MEMORY_COUNTERS = Path("/proc/vmstat")
_RANK = re.compile(r"rank-(\d+)-(\d+)")


def register(job: str, rank: int) -> None:
    """This process is that rank of a job."""
    with suppress(OSError):
        Path(job, f"rank-{rank}-{os.getpid()}").touch()


class RankWatch:
    """`start` it; it ends with the folder of the job."""

    def __init__(self, job: str) -> None:
        self._job = job
        self._waiting: dict[int, tuple[str, int]] = {}
        """File descriptor of a process that runs -> which rank it is, and its number."""
        self._seen: set[str] = set()
        self._poll = select.poll()
        self._kills = _kills_for_memory()

    def start(self) -> None:
        """Only where the system can wait for a process without taking its exit code from who started it."""
        if hasattr(os, "pidfd_open"):
            threading.Thread(target=self._watch, name="observe-ranks", daemon=True).start()

    def _watch(self) -> None:
        while self._find():
            ended = [number for number, _ in self._poll.poll(1000 * LOOK_S)]
            found = [how for number in ended if (how := self._how_it_ended(number)) is not None]
            # Those that the launcher ends because of the first can be seen at the same time.
            first = [how for how in found if how[0] != signal.SIGTERM] or found
            lines = [line for _, line in first]
            for line in lines:
                with suppress(OSError, ValueError, AttributeError):  # nobody reads it
                    print(f"devexplorer: {line}", file=sys.__stderr__, flush=True)
            if lines:  # the launcher ends all others now; those of its next try are looked at again
                for number in list(self._waiting):
                    self._leave(number)

    def _find(self) -> bool:
        """Take in the ranks that have begun; False: the job is over."""
        try:
            names = os.listdir(self._job)
        except OSError:
            return False
        for name in names:
            match = _RANK.fullmatch(name)
            if match is None or name in self._seen:
                continue
            self._seen.add(name)
            with suppress(OSError):  # it has ended already
                number = os.pidfd_open(int(match[2]))
                self._poll.register(number, select.POLLIN)
                self._waiting[number] = f"rank {match[1]} (pid {match[2]})", int(match[2])
        return True

    def _how_it_ended(self, number: int) -> tuple[int, str] | None:
        """The signal and a line, if that was by one."""
        rank, pid = self._waiting[number]
        by = _signal_of(number, pid)
        self._leave(number)
        if by is None:
            return None
        name = f"signal {by}"
        with suppress(ValueError):  # a real-time signal has no name of its own
            name = signal.Signals(by).name
        if by in CRASHES:
            return by, f"{rank} crashed: {name}"
        if by == signal.SIGKILL and _kills_for_memory() > self._kills:
            return by, f"{rank} was killed: {name}; the kernel ended a process because memory ran out"
        return by, f"{rank} was killed: {name}"

    def _leave(self, number: int) -> None:
        del self._waiting[number]
        self._poll.unregister(number)
        os.close(number)


def _signal_of(number: int, pid: int) -> int | None:
    """The signal that ended a process; None: it ended by itself, or nobody knows."""
    with suppress(OSError):  # who started it was quicker, or it is no child of this process
        status = os.waitid(os.P_PIDFD, number, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if status is not None:
            return None if status.si_code == os.CLD_EXITED else status.si_status
    for one in gc.get_objects():  # who was quicker keeps it
        if type(one) is subprocess.Popen and one.pid == pid and (one.returncode or 0) < 0:
            return -int(one.returncode)
    return None


def _kills_for_memory() -> int:
    """How many processes the kernel has ended on this machine because memory ran out."""
    with suppress(OSError):
        for line in MEMORY_COUNTERS.read_text().splitlines():
            name, _, count = line.partition(" ")
            if name == "oom_kill":
                return int(count)
    return 0
