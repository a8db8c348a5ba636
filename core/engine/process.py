"""One engine process: start it, feed it, listen to it, notice its end, end its whole group. Three plain threads per
process.

- `engine-watch` makes another Python ready where one was chosen, starts the process and waits for the process itself,
  not for the end of its output: a forked child can hold the pipe.
- `link-in` reads events into the mailbox.
- `link-out` writes commands, so that a stuck engine never blocks the window.

An `EngineProcess` is used once; after `EngineLost` the session makes a new one.
"""

from __future__ import annotations

import math
import os
import queue
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, Protocol

from devexplorer.core.base import (
    BadInput,
    Cancelled,
    Clock,
    DevExplorerError,
    LinkError,
    ProgressMonitor,
    module_command,
    sentence,
)
from devexplorer.core.devices.cpu import CpuBusy
from devexplorer.core.engine.link import (
    CANNOT_START,
    CUDA_BROKEN,
    EVENT_LIMIT,
    Joiner,
    decode_event,
    frame,
    read_payload,
)
from devexplorer.core.feature import pythons
from devexplorer.core.records import Command, EngineLost, EnginePaused, EventSink, Log

GRACE_SECONDS = 0.7
"""How long an engine that was asked to end may take before its group is killed."""


class EngineLike(Protocol):
    """What the window needs of an engine process."""

    def start(self) -> None: ...  # noqa: D102 - see EngineProcess
    def send(self, command: Command) -> None: ...  # noqa: D102
    def kill(self) -> None: ...  # noqa: D102
    def close(self) -> None: ...  # noqa: D102
    def join(self, deadline_s: float) -> bool: ...  # noqa: D102
    def beat(self) -> None: ...  # noqa: D102


class EngineProcess:
    """Starts at once on its own threads; `put` receives events from them (a `Mailbox.put`)."""

    def __init__(
        self,
        put: EventSink,
        virtual_spec: str | None = None,
        visible_devices: str | None = None,
        *,
        python: str | None = None,
        command: Sequence[str] | None = None,
        environ: Mapping[str, str] | None = None,
        clock: Clock = time.time,
    ) -> None:
        """`visible_devices` is the process's CUDA_VISIBLE_DEVICES, the empty one included; None: as inherited. `python`
        is the interpreter, or the folder of its environment, which is made ready first; None: that of this process.
        `command` starts an engine in another way, `environ` are its variables."""
        self._put = put
        self._clock = clock
        self._python, self._command, self._environ = python, command, environ
        self._options = [] if virtual_spec is None else ["--virtual", virtual_spec]
        if visible_devices is not None:
            self._options.append(f"--visible={visible_devices}")  # in one piece: a list can begin with a minus
        self._outbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._process: subprocess.Popen[bytes] | None = None
        self._closing = threading.Event()
        self._killed = threading.Event()
        self._error = ""
        """The last one that the engine told."""
        self._ended = threading.Event()
        self._over = threading.Event()
        self._watch = threading.Thread(target=self._run, name="engine-watch", daemon=True)
        self.priority = EnginePriority(self.set_group_nice, OtherPrograms(self.cpu_seconds))

    def start(self) -> None:
        """Start the process; returns at once."""
        self._watch.start()

    @property
    def pid(self) -> int | None:
        """Process id, once it has been started."""
        return None if self._process is None else self._process.pid

    def send(self, command: Command) -> None:
        """Send a command soon; after the end it is dropped. Raises `BadInput` for one that cannot be put into a
        frame."""
        try:
            self._outbox.put(frame(command))
        except (
            OverflowError,
            ValueError,
            TypeError,
        ) as error:  # a number above 64 bits, half a surrogate pair in a name
            raise BadInput(f"this cannot be sent to the engine: {error}") from error

    def kill(self) -> None:
        """End the process and its group at once, also one that is not there yet; `EngineLost` follows."""
        self._killed.set()
        if self._process is not None and not self._ended.is_set():
            _kill_group(self._process.pid)

    def beat(self) -> None:
        """Called at each beat of the window, on its thread: adapts the priority."""
        self.priority.beat()

    def cpu_seconds(self) -> float:
        """CPU time that the process and its ended children have used; 0 where the system does not report it."""
        try:
            line = Path(f"/proc/{self.pid}/stat").read_text(encoding="ascii", errors="replace")
            ticks = line.rpartition(")")[2].split()[11:15]  # utime, stime, cutime, cstime of proc(5)
            return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")
        except OSError:
            return 0.0

    def set_group_nice(self, nice: int) -> bool:
        """Give the session of the process a nice value among all sessions; False where there are no such groups, or not
        just now."""
        if self._process is None or self._ended.is_set():
            return False
        try:
            Path(f"/proc/{self._process.pid}/autogroup").write_text(str(nice), encoding="ascii")
        except OSError:  # another system, a kernel without such groups; or one was changed less than 0.1 s ago
            return False
        return True

    def close(self) -> None:
        """Ask the process to end by ending its input. Returns at once; no `EngineLost` follows."""
        self._closing.set()
        self._outbox.put(None)

    def join(self, deadline_s: float) -> bool:
        """After `close`: wait for the end, kill the group after a grace period; False when the deadline came first."""
        if self._watch.ident is None:  # it never started
            return True
        self._watch.join(min(GRACE_SECONDS, deadline_s))
        if self._watch.is_alive():
            self.kill()
            self._watch.join(max(deadline_s - GRACE_SECONDS, 0))
        return not self._watch.is_alive()

    # --- threads -----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            process, events = self._start()
        except OSError as error:
            self._lost(f"The engine could not be started: {error}.")
            return
        except Cancelled:
            self._lost("The engine was ended before it had started.")
            return
        except DevExplorerError as error:
            self._lost(f"The engine could not be started: {error}.", cannot_start=True)
            return
        self._process = process
        if self._killed.is_set():
            _kill_group(process.pid)
        assert process.stdin is not None
        reader = threading.Thread(target=self._read, args=(events,), name="link-in", daemon=True)
        writer = threading.Thread(target=self._write, args=(process.stdin,), name="link-out", daemon=True)
        reader.start()
        writer.start()
        code = self._wait(process)
        self._ended.set()
        self._outbox.put(None)
        writer.join(1.0)
        reader.join(1.0)  # its last events come before its end
        self._over.set()  # a child that escaped the group may still hold the pipe: ignore its output
        if not reader.is_alive():
            events.close()
        if code == CANNOT_START:
            self._lost(sentence(self._error or "the engine cannot start in this Python"), cannot_start=True)
        elif code == CUDA_BROKEN and self._error:
            self._lost(sentence(self._error))
        else:
            self._lost(f"The engine ended {_how(code)}.")

    def _start(self) -> tuple[subprocess.Popen[bytes], BinaryIO]:
        """The process, and where its events come from."""
        command, environ = self._command or module_command("devexplorer.core.engine"), self._environ
        if self._python is not None:
            prefix, environ = pythons().start(self._python, ProgressMonitor(self._tell, self._is_unwanted))
            command = [*prefix, "devexplorer.core.engine"]
        readable, writable = os.pipe()  # standard output belongs to whatever that Python prints as it starts
        events: BinaryIO = os.fdopen(readable, "rb")
        try:
            process = subprocess.Popen(
                [*command, *self._options, f"--events={writable}"],
                stdin=subprocess.PIPE,
                stdout=2,
                pass_fds=[writable],
                env=environ,
                # a group of its own: Ctrl-C in the terminal is the window's business, and it can be ended whole
                start_new_session=True,
            )
            return process, events
        except OSError:
            events.close()
            raise
        finally:
            os.close(writable)

    def _is_unwanted(self) -> bool:
        return self._closing.is_set() or self._killed.is_set()

    def _tell(self, done: float, text: str, part: str = "", /) -> None:
        """How far the preparation of another Python is."""
        self._put(Log(level="info", text=f"{self._python}: {text}", time_unix_s=self._clock()))

    def _wait(self, process: subprocess.Popen[bytes]) -> int:
        """Wait for the process, telling when it is paused; end its group before the id is reaped and can be given to
        another process."""
        if os.name == "posix":
            while True:
                news = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WSTOPPED | os.WCONTINUED | os.WNOWAIT)
                assert news is not None  # only without waiting
                if news.si_code not in (os.CLD_STOPPED, os.CLD_CONTINUED):
                    break
                os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WCONTINUED | os.WNOHANG)
                self._put(EnginePaused(paused=news.si_code == os.CLD_STOPPED))
            _kill_group(process.pid)
        return process.wait()

    def _lost(self, reason: str, *, cannot_start: bool = False) -> None:
        self._ended.set()
        if not self._closing.is_set():
            lost = EngineLost(reason=reason, will_restart=False, time_unix_s=self._clock(), cannot_start=cannot_start)
            self._put(lost)

    def _read(self, stream: BinaryIO) -> None:
        joiner = Joiner()
        try:
            while (payload := read_payload(stream, EVENT_LIMIT)) is not None:
                try:
                    event = joiner.take(decode_event(payload))
                except LinkError as error:
                    self._put(Log(level="error", text=str(error), time_unix_s=self._clock()))
                    continue
                if event is None or isinstance(event, EngineLost):
                    continue  # the rest follows; only this supervisor reports a lost engine
                if self._over.is_set():
                    return
                if isinstance(event, Log) and event.level == "error":
                    self._error = event.text
                if not self._closing.is_set():
                    self._put(event)
        except LinkError as error:
            if not self._ended.is_set() and not self._closing.is_set():
                self._put(Log(level="error", text=f"the link to the engine broke: {error}", time_unix_s=self._clock()))
                self.kill()
        except (OSError, ValueError):  # the pipe was closed under us at the end
            pass

    def _write(self, stream: BinaryIO) -> None:
        try:
            while (data := self._outbox.get()) is not None:
                stream.write(data)
                stream.flush()
        except OSError:  # the engine is gone; the watch thread reports it
            pass
        finally:
            try:
                stream.close()
            except OSError:
                pass


def _kill_group(pid: int) -> None:
    """Kill a process group led by `pid`; its members may have ended already."""
    try:
        if os.name == "posix":
            os.killpg(pid, signal.SIGKILL)
        else:
            os.kill(pid, signal.SIGTERM)
    except (ProcessLookupError, PermissionError):
        pass


def _how(code: int) -> str:
    if code < 0:
        try:
            return f"by signal {signal.Signals(-code).name}"
        except ValueError:
            return f"by signal {-code}"
    return f"with exit code {code}"


# The priority of the engine among the programs of the machine. Window's main thread, once per beat; no Qt, no torch.
#
# Linux schedules sessions as groups (autogroup): the nice value of the engine's group counts against every other
# session, the window's and those of other users. While no other program needs the cores, the group yields: only the
# window can profit from that. On a busy machine a group that always yields starves (measured at load 8: a start took
# 54 s instead of 7), so there it has the default value until the window itself has to wait for a core; then it yields
# for a while, each time for longer. If the window waits all the same, it is waiting for other programs, and the
# engine goes on.

BEAT_S = 0.033
"""What the window leaves between two beats."""
WAITED_S = 0.03
"""A beat that waited so long for a core is late: one was missed. Other programs on every core make it wait 10 to 20
ms."""
HELD_UP = (3, 1.0)
"""So many late beats within so many seconds: the engine holds the window up."""
IN_VAIN = (8, 2.0)
"""So many although the engine yields: other programs hold it up."""
HIDDEN_S = 0.5
"""Beats this far apart are ignored: the window is hidden, or the machine slept."""
FIRST_S, LONGEST_S = 8.0, 64.0
"""How long the engine yields on a busy machine, the first time and at most."""
CALM_S = 10.0
"""After so long without yielding the next time counts as the first."""
PAUSE_S = 10.0
"""How long yielding is not tried again after it was in vain."""
LOOK_S = 1.0
"""Between two readings of what other programs use."""
BUSY_SHARE = 0.25
"""Share of all cores from which on other programs make the machine a busy one."""
YIELDING = 10
"""The nice value of a group that yields."""


class OtherPrograms:
    """Share of all cores, 0 to 1, that programs other than this process and the engine used since the last call; None
    where the system does not report it."""

    def __init__(self, engine_cpu_s: Clock) -> None:
        """`engine_cpu_s`: seconds of CPU time that the engine has used so far."""
        self._engine_cpu_s = engine_cpu_s
        self._busy = CpuBusy()
        self._then = self._now()

    def __call__(self) -> float | None:
        """The share since the last call."""
        percent = self._busy()
        if percent is None:
            return None
        (then, then_used), (now, used) = self._then, self._now()
        self._then = now, used
        return max(percent / 100 - (used - then_used) / (now - then) / (os.cpu_count() or 1), 0.0)

    def _now(self) -> tuple[float, float]:
        return time.monotonic(), time.process_time() + self._engine_cpu_s()


class EnginePriority:
    """`beat` once per beat of the window."""

    def __init__(
        self,
        renice: Callable[[int], bool],
        others: Callable[[], float | None],
        clock: Clock = time.monotonic,
        cpu_clock: Clock = time.thread_time,
    ) -> None:
        """`renice` gives the engine's group a nice value and returns whether that worked; `others` as `OtherPrograms`;
        `cpu_clock`: what the beating thread has computed, which is not waiting."""
        self._renice, self._others, self._clock, self._cpu_clock = renice, others, clock, cpu_clock
        self._last: tuple[float, float] | None = None
        self._late: deque[float] = deque(maxlen=max(HELD_UP[0], IN_VAIN[0]))
        """When the newest late beats were."""
        self._look_at = clock() + LOOK_S
        self._yield_s = FIRST_S
        self._until = -CALM_S
        """When the engine goes on (infinite: when others need the cores); while it does: since when."""
        self._not_before = 0.0
        self.yielding = False

    def beat(self) -> None:
        """The window beats now."""
        now, cpu = self._clock(), self._cpu_clock()
        last, self._last = self._last, (now, cpu)
        if now >= self._look_at:
            self._look_at = now + LOOK_S
            self._look(now)
        if last is None or now - last[0] > HIDDEN_S:
            return
        if (now - last[0]) - max(BEAT_S, cpu - last[1]) > WAITED_S:
            self._late.append(now)
        if not self.yielding:
            if now >= self._not_before and self._were_late(*HELD_UP, now):
                seconds = FIRST_S if now - self._until > CALM_S else min(2 * self._yield_s, LONGEST_S)
                if self._yield_until(now + seconds):
                    self._yield_s = seconds
        elif self._until < math.inf and self._were_late(*IN_VAIN, now):
            self._go_on(now)
            self._not_before = now + PAUSE_S
        elif now >= self._until:
            self._go_on(now)

    def _look(self, now: float) -> None:
        share = self._others()
        if share is not None and share < BUSY_SHARE:
            self._yield_until(math.inf)
        elif self._until == math.inf:
            self._go_on(now)

    def _were_late(self, beats: int, seconds: float, now: float) -> bool:
        return len(self._late) >= beats and now - self._late[-beats] <= seconds

    def _yield_until(self, until: float) -> bool:
        if not self.yielding:
            if not self._renice(YIELDING):
                return False
            self.yielding = True
            self._late.clear()
        self._until = until
        return True

    def _go_on(self, now: float) -> None:
        if self._renice(0):
            self.yielding = False
            self._until = now
            self._late.clear()
