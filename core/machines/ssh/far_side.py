"""Stage 2: what serves a connection at the far end, until it becomes what was asked for. It is sent there as text with
the files named in `SOURCES`: the standard library only, and syntax of Python 3.6.

Frames in both directions: the lengths of a JSON object and of the bytes that follow it, four bytes each (big-endian).
`{"do": NAME, …}` is answered with frames `{"progress": …}` and then one `{"result": …}` or `{"error": KIND, "detail":
…}`. The main thread serves. Thread `watch` ends everything that was started here when the connection ends: nothing is
left behind on a machine that nobody looks at any more.
"""

import errno
import fcntl
import json
import os
import pathlib
import select
import signal
import struct
import subprocess
import termios
import threading
import time
import types
import typing

SOURCES = {}  # type: dict[str, str]
"""Files of ours by name, as text; filled by who sends this one."""
HEAD = struct.Struct(">II")
LARGEST_JSON = 1 << 20
LARGEST_BYTES = 1 << 29
PIECE = 1 << 16
GRACE_SECONDS = 2.0
"""For a command that was interrupted, before it is killed."""


class FarRefusal(Exception):
    """It cannot be done: a kind of failure, and a line about it."""

    def __init__(self, kind: str, detail: str = "") -> None:
        super().__init__(detail)
        self.kind = kind


class FarLink:
    """The two descriptors of the connection, kept away from what is started here."""

    def __init__(self) -> None:
        self.input, self.output = os.dup(0), os.dup(1)
        for descriptor in (self.input, self.output):
            os.set_blocking(descriptor, True)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        os.dup2(2, 1)

    def read(self) -> "tuple[dict[str, object], bytes]":
        """The next request with its bytes; ends the process where there is none."""
        head, body = HEAD.unpack(self._exactly(HEAD.size))
        if head > LARGEST_JSON or body > LARGEST_BYTES:
            os._exit(1)
        return json.loads(self._exactly(head).decode("utf-8")), self._exactly(body)

    def send(self, record: "dict[str, object]", data: bytes = b"") -> None:
        """Send one frame."""
        text = json.dumps(record).encode("ascii")
        rest = memoryview(HEAD.pack(len(text), len(data)) + text + data)
        try:
            while rest:
                rest = rest[os.write(self.output, rest) :]
        except OSError:  # nobody listens any more
            end_everything()

    def hand_over(self) -> None:
        """Put the descriptors where a program expects them."""
        os.dup2(self.input, 0)
        os.dup2(self.output, 1)

    def _exactly(self, count: int) -> bytes:
        parts = []
        while count:
            piece = os.read(self.input, min(count, PIECE))
            if not piece:
                end_everything()
            parts.append(piece)
            count -= len(piece)
        return b"".join(parts)


# --- what can be asked for ----------------------------------------------------------------------------------------


def find(link: FarLink, request: "dict[str, object]", _: bytes) -> object:
    """The Python environments of this machine."""
    return _source("finding").find(os.path.expanduser(str(request["folder"])), dict(os.environ))


def interpreter(link: FarLink, request: "dict[str, object]", _: bytes) -> object:
    """The interpreter that a path names, which can be that of its folder."""
    path = str(request["path"])
    if not os.path.exists(os.path.expanduser(path)):
        raise FarRefusal("python refused", "there is no file " + path)
    found = _source("finding").interpreter(path)
    if not found:
        raise FarRefusal("python refused", path + " is neither a Python nor the folder of one")
    return found


def probe(link: FarLink, request: "dict[str, object]", _: bytes) -> object:
    """What one of them has."""
    asking = _source("probe")
    seconds, with_torch = float(str(request["seconds"])), bool(request["with_torch"])
    return asking.ask(str(request["python"]), SOURCES["probe"], seconds, _environ(request), with_torch)


def keep(link: FarLink, request: "dict[str, object]", data: bytes) -> object:
    """A folder that is kept here, made of an archive where one is sent; None: it is not there."""
    folders = _source("whole_folders")
    kind, name = str(request["kind"]), str(request["name"])
    if not data:
        found = folders.find(kind, name)
        return None if found is None else str(found)
    return _kept(folders, kind, name, lambda folder: folders.unpack(data, folder))


def install(link: FarLink, request: "dict[str, object]", _: bytes) -> object:
    """A folder with packages that the pip of a Python here fetches; nothing is installed into that Python."""
    words = "install --no-deps --only-binary :all: --quiet --no-input --disable-pip-version-check --target"
    command = [str(request["python"]), "-P", "-m", "pip", *words.split()]

    def fill(folder: "pathlib.Path") -> None:
        whole = [*command, str(folder), *map(str, _list(request["wanted"]))]
        environ = dict(_environ(request), PIP_USER="0", PIP_REQUIRE_VIRTUALENV="0")
        pip = subprocess.Popen(
            whole, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environ
        )
        try:
            output = pip.communicate(timeout=float(str(request["seconds"])))[0].decode("utf-8", "replace")
        except subprocess.TimeoutExpired:
            pip.kill()
            raise FarRefusal("packages", f"pip was not ready after {request['seconds']} s") from None
        if pip.returncode:
            lines = [line for line in output.splitlines() if line.strip()] or ["pip failed"]
            raise FarRefusal("packages", ([line for line in lines if line.lower().startswith("error")] or lines)[-1])

    return _kept(_source("whole_folders"), str(request["kind"]), str(request["name"]), fill)


def _kept(folders: "types.ModuleType", kind: str, name: str, fill: "typing.Callable[[pathlib.Path], None]") -> str:
    try:
        return str(folders.make(kind, name, fill))
    except folders.CannotKeepError as error:
        raise FarRefusal("no space" if error.is_full else "read-only", str(error)) from None


def launch(link: FarLink, request: "dict[str, object]", _: bytes) -> object:
    """Become another program, which has the connection to itself."""
    command = [str(part) for part in _list(request["command"])]
    environ = _environ(request)
    if not os.access(command[0], os.X_OK):
        raise FarRefusal("not started", f"{command[0]} is not a program")
    link.send({"result": None})
    link.hand_over()
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    os.execve(command[0], command, environ)


def run(link: FarLink, request: "dict[str, object]", _: bytes) -> object:
    """Run a program and pass on what it prints; the result is its exit code. `{"do": "interrupt"}` meanwhile is
    Ctrl-C, `{"do": "resize"}` another size of the terminal that its outputs named in `terminals` are."""
    command = [str(part) for part in _list(request["command"])]
    names = [str(name) for name in _list(request.get("terminals", []))]
    terminal, inside = _terminal(request) if names else (-1, subprocess.PIPE)
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=inside if "out" in names else subprocess.PIPE,
        stderr=inside if "err" in names else subprocess.PIPE,
        env=_environ(request),
        start_new_session=True,
    )
    watched.interrupts = process.pid
    outputs = {pipe.fileno(): name for name, pipe in (("out", process.stdout), ("err", process.stderr)) if pipe}
    if terminal >= 0:
        os.close(inside)
        outputs[terminal] = names[0]
    poll = select.poll()
    for descriptor in [*outputs, link.input]:
        poll.register(descriptor, select.POLLIN)
    while outputs:
        for descriptor, _event in poll.poll(200):
            if descriptor == link.input:
                wanted, _ = link.read()
                if wanted["do"] == "interrupt":
                    os.killpg(process.pid, signal.SIGINT)
                elif terminal >= 0:
                    _set_size(terminal, wanted)
                continue
            try:
                piece = os.read(descriptor, PIECE)
            except OSError:  # of a terminal that nobody has open any more
                piece = b""
            if piece:
                link.send({"progress": outputs[descriptor]}, piece)
            else:
                poll.unregister(descriptor)
                del outputs[descriptor]
        if _has_ended(process.pid) and not poll.poll(0):  # a child of its own holds what it printed to
            break
    _kill_group(process.pid)
    code = process.wait()
    watched.interrupts = 0
    if terminal >= 0:
        os.close(terminal)
    return 128 - code if code < 0 else code


def _terminal(request: "dict[str, object]") -> "tuple[int, int]":
    """A terminal for a program to print to, which changes nothing of it: our end and its own. Where there is none, a
    pipe will do."""
    try:
        ours, inside = os.openpty()
    except OSError:
        return -1, subprocess.PIPE
    settings = termios.tcgetattr(inside)
    settings[1] &= ~termios.OPOST
    termios.tcsetattr(inside, termios.TCSANOW, settings)
    _set_size(ours, request)
    return ours, inside


def _set_size(terminal: int, request: "dict[str, object]") -> None:
    lines, columns = (min(int(str(request[name])), 9999) for name in ("lines", "columns"))
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))


REQUESTS = {
    "find": find, "interpreter": interpreter, "probe": probe, "keep": keep, "install": install, "launch": launch,
    "run": run,
}  # fmt: skip


# --- the end ------------------------------------------------------------------------------------------------------


class WatchedProcesses:
    """What is ended with the connection."""

    interrupts = 0
    """The process group that is interrupted first, and then killed like all others; 0: none."""


watched = WatchedProcesses()


def watch(descriptor: int) -> None:
    """Wait for the end of the connection, without reading from it."""
    poll = select.poll()
    poll.register(descriptor, getattr(select, "POLLRDHUP", 0))
    while not any(event & ~select.POLLIN for _, event in poll.poll()):
        pass
    end_everything()


def end_everything() -> None:
    """End this process and all that it started."""
    if watched.interrupts:
        try:
            os.killpg(watched.interrupts, signal.SIGINT)
        except OSError:
            pass
        until = time.monotonic() + GRACE_SECONDS
        while not _has_ended(watched.interrupts) and time.monotonic() < until:
            time.sleep(0.02)
        _kill_group(watched.interrupts)
    for pid in _descendants(os.getpid()):
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            pass
    os._exit(1)


def _descendants(pid: int) -> "list[int]":
    """Processes that were started from this one, where the system tells."""
    children = {}  # type: dict[int, list[int]]
    try:
        names = [name for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []
    for name in names:
        try:
            with open(f"/proc/{name}/stat", encoding="ascii", errors="replace") as file:
                parent = int(file.read().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            continue
        children.setdefault(parent, []).append(int(name))
    found = []
    pending = [pid]
    while pending:
        below = children.get(pending.pop(), [])
        found += below
        pending += below
    return found


def _has_ended(pid: int) -> bool:
    """Whether a child has ended; it is not reaped, so that its number stays its own."""
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except OSError:
        return True


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except OSError:
        pass


# --- inside -------------------------------------------------------------------------------------------------------


def _environ(request: "dict[str, object]") -> "dict[str, str]":
    """The variables of the login, without those that are meant for one Python, and with those that are asked for.

    Environment modules say by PYTHONPATH what is loaded, so with them it stays.
    """
    kept = ("PYTHONPATH",) if os.environ.get("LOADEDMODULES") else ()
    without = [name for name in _list(request.get("without", [])) if name not in kept]
    result = {name: value for name, value in os.environ.items() if name not in without}
    result.update(request.get("environ", {}))  # type: ignore[call-overload]
    return result


def _list(value: object) -> "list[object]":
    assert isinstance(value, list)
    return value


def _source(name: str) -> "types.ModuleType":
    module = types.ModuleType(name)
    exec(compile(SOURCES[name], name, "exec"), module.__dict__)
    return module


def serve() -> None:
    """Answer requests until the connection ends, or is somebody else's."""
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGCHLD):  # a login script's `trap ''` is inherited
        signal.signal(number, signal.SIG_DFL)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: end_everything())
    try:
        os.chdir(os.path.expanduser("~"))  # wherever a login script went
    except OSError:
        pass
    link = FarLink()
    threading.Thread(target=watch, args=(link.input,), daemon=True).start()
    link.send({"result": None})
    while True:
        request, data = link.read()
        if request["do"] in ("interrupt", "resize"):  # it came when the command had ended
            continue
        try:
            link.send({"result": REQUESTS[str(request["do"])](link, request, data)})
        except FarRefusal as error:
            link.send({"error": error.kind, "detail": str(error)})
        except OSError as error:
            kinds = {errno.ENOSPC: "no space", errno.EDQUOT: "no space", errno.EROFS: "read-only"}
            detail = f"{error.strerror} ({error.filename})" if error.filename else str(error.strerror)
            link.send({"error": kinds.get(error.errno or 0, "not started"), "detail": detail})
        except Exception as error:
            link.send({"error": "not started", "detail": f"{type(error).__name__}: {error}"})
