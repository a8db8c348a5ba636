"""What one Python environment has: its Python is started, says it in JSON, and is ended when it takes too long. Any
thread.

Two sides in one file, because the whole file is given to that Python as a program (`-c`) and is also sent to other
machines as text: `ask` starts and waits, `main` answers. The standard library only, and syntax of Python 3.6. What
that Python or torch prints is not taken for an answer: the answer has a descriptor of its own.
"""

import sys

if __name__ == "__main__" and sys.path and not sys.path[0]:
    del sys.path[0]  # the current folder may have a torch.py, or a json.py

import json
import os
import select
import signal
import subprocess
import time
import typing

LIMIT_S = 30.0
"""torch is imported in one to three seconds, in ten from a network's disk, and a driver can take ten more."""
LARGEST_ANSWER = 1 << 20
KEPT_NOISE = 4096
LOOK_S = 0.2
"""Between two looks whether somebody still waits."""
END_S = 0.5
"""For a process that was killed; one that is held up inside the system is left behind."""

PACKAGES = ("msgspec", "psutil", "numpy", "nvidia-ml-py", "platformdirs", "safetensors", "rich", "markdown-it-py",
            "mdurl", "pygments", "pynvml", "triton")  # fmt: skip
"""Whose versions are told."""


# --- the side that asks -------------------------------------------------------------------------------------------


def ask(
    python: str,
    source: str,
    limit_s: float = LIMIT_S,
    environ: "dict[str, str] | None" = None,
    with_torch: bool = True,
    stop: "typing.Callable[[], bool]" = lambda: False,
) -> "dict[str, object]":
    """What that Python says of itself; `source` is the text of this file. Never raises: `problem` says in one line what
    went wrong, and what was said until then is there as well. `stop` ends it before its time."""
    answer: "dict[str, object]" = {}
    readable, writable = os.pipe()
    try:
        process = subprocess.Popen(
            [python, "-c", source, str(writable), "torch" if with_torch else ""],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=[writable],
            start_new_session=True,
            env=environ,
        )
    except (OSError, ValueError) as error:
        os.close(readable)
        return {"problem": "it cannot be started: " + str(getattr(error, "strerror", None) or error).lower()}
    finally:
        os.close(writable)
    try:
        said, noise, in_time = _listen(process, readable, time.monotonic() + limit_s, stop)
    finally:
        os.close(readable)
        code = _end(process)
    lines = said.split(b"\n")
    for line in lines[:-1]:
        try:
            answer.update(json.loads(line.decode("utf-8")))
        except (ValueError, TypeError):
            return {"problem": "what it answered is not understood"}
    if answer.pop("complete", False) is not True:
        what = "torch" if answer else "it"
        if not in_time:
            answer["problem"] = "%s did not answer within %g s" % (what, limit_s)
        elif not answer:
            last = noise.decode("utf-8", "replace").strip().splitlines()[-1:]
            answer["problem"] = "it is not a Python that answers: " + (last[0][:200] if last else _how(code))
        else:
            answer["problem"] = "torch ended it " + _how(code)
    return answer


def _listen(
    process: "subprocess.Popen[bytes]", readable: int, until: float, stop: "typing.Callable[[], bool]"
) -> "tuple[bytes, bytes, bool]":
    """What came as answer, the end of what was printed, and whether it ended before its time was over."""
    assert process.stdout is not None
    said, noise, printed = b"", b"", process.stdout.fileno()
    pending = [readable, printed]
    while readable in pending:
        rest = until - time.monotonic()
        if rest <= 0 or stop():
            return said, noise, False
        poll = select.poll()  # `select` knows no descriptor above 1023
        for descriptor in pending:
            poll.register(descriptor, select.POLLIN)
        for descriptor, _ in poll.poll(min(rest, LOOK_S) * 1000):
            piece = os.read(descriptor, 1 << 16)
            if not piece:
                pending.remove(descriptor)
            elif descriptor == printed:
                noise = (noise + piece)[-KEPT_NOISE:]
            else:
                said += piece
                if len(said) > LARGEST_ANSWER or (b'"complete"' in piece and piece.endswith(b"\n")):
                    return said, noise, True
    return said, noise, True


def _end(process: "subprocess.Popen[bytes]") -> int:
    """End it with all that it started; its exit code, as far as it has one."""
    until = time.monotonic() + END_S
    try:
        code = process.wait(END_S / 5)  # one that could not start has ended by itself, and its code says why
    except subprocess.TimeoutExpired:
        code = -signal.SIGKILL
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except OSError:
        pass
    try:
        process.wait(max(until - time.monotonic(), 0.01))
    except subprocess.TimeoutExpired:
        pass
    if process.stdout is not None:
        process.stdout.close()
    return code


def _how(code: int) -> str:
    if code >= 0:
        return "with exit code %d" % code
    try:
        return "by signal " + signal.Signals(-code).name
    except ValueError:
        return "by signal %d" % -code


# --- the side that is asked ---------------------------------------------------------------------------------------


def main() -> None:
    """Answer on the descriptor that the command line names, first what is known without torch, and end."""
    out = int(sys.argv[1])
    os.write(out, _line(about_python()))
    try:
        about = about_torch() if sys.argv[2] else {}
    except BaseException as error:  # a torch that does not fit this machine can raise anything
        about = {"torch_problem": "torch cannot be imported: %s: %s" % (type(error).__name__, _first_line(error))}
    os.write(out, _line(dict(about, complete=True)))
    os._exit(0)  # without the exit handlers of what torch has loaded


def about_python() -> "dict[str, object]":
    """Python itself and the packages that we need, without importing any of them."""
    import importlib.util
    import platform
    import sysconfig

    return {
        "version": "%d.%d.%d" % sys.version_info[:3],
        "implementation": sys.implementation.name,
        "executable": sys.executable or "",
        "prefix": sys.prefix,
        "platform": sysconfig.get_platform(),
        "libc": " ".join(platform.libc_ver()).strip(),
        "free_threaded": bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
        "pip": bool(_version("pip")),
        "packages": {name: version for name, version in ((name, _version(name)) for name in PACKAGES) if version},
        "torch": _version("torch") or ("?" if importlib.util.find_spec("torch") else ""),
    }


def _version(package: str) -> str:
    try:
        from importlib import metadata

        return str(metadata.version(package) or "")
    except Exception:  # not there, half removed, or a Python without importlib.metadata
        return ""


def about_torch() -> "dict[str, object]":
    """torch itself and the devices that it lists; empty where it is not installed."""
    import importlib.util

    if importlib.util.find_spec("torch") is None:
        return {}
    import torch  # type: ignore[import-not-found, unused-ignore]

    devices = []
    for kind in ("cuda", "xpu"):
        part: "typing.Any" = getattr(torch, kind, None)
        try:
            count = part.device_count() if part is not None and part.is_available() else 0
            for index in range(count):
                about = part.get_device_properties(index)
                devices.append({"id": "%s:%d" % (kind, index), "name": about.name, "memory_bytes": about.total_memory})
        except Exception as error:
            devices.append({"id": kind, "name": "", "problem": _first_line(error)})
    mps = getattr(getattr(torch, "backends", None), "mps", None)
    if mps is not None and mps.is_available():
        devices.append({"id": "mps", "name": "Apple GPU"})
    build = torch.version
    return {
        "torch": str(torch.__version__),
        "cuda": getattr(build, "cuda", None) or "",
        "rocm": getattr(build, "hip", None) or "",
        "devices": devices,
    }


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:300] if lines else ""


def _line(answer: "dict[str, object]") -> bytes:
    return json.dumps(answer).encode("ascii") + b"\n"


if __name__ == "__main__":
    main()
