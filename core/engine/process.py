"""One engine process: start it, feed it, listen to it, notice its end, end its whole group. Three plain threads per
process.

- `engine-watch` makes another Python ready where one was chosen, starts the process and waits for the process itself,
  not for the end of its output: a forked child can hold the pipe.
- `link-in` reads events into the mailbox.
- `link-out` writes commands, so that a stuck engine never blocks the window.

An `EngineProcess` is used once; after `EngineLost` the session makes a new one.
"""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
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
from devexplorer.core.engine.link import (
    CANNOT_START,
    CUDA_BROKEN,
    EVENT_LIMIT,
    Joiner,
    decode_event,
    frame,
    read_payload,
)
from devexplorer.core.engine.priority import EnginePriority, OtherPrograms
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
            from devexplorer.core.environments.environment import environ_for, given
            from devexplorer.core.environments.preparing import prepare  # importlib.metadata, tarfile: only for this

            python = given(self._python).python
            prefix = prepare(python, ProgressMonitor(self._tell, self._is_unwanted))
            command, environ = [*prefix, "devexplorer.core.engine"], environ_for(python)
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
