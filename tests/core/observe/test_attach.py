"""`devexplorer attach PID`. Where Python is older than 3.14, a script that runs a file when it gets a signal stands in
for `sys.remote_exec`; the last tests are of the real one."""

from __future__ import annotations

import functools
import os
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from fakes.hosts import short_folder

from devexplorer.core.base import BadInput
from devexplorer.core.cli import run as cli
from devexplorer.core.cli.arguments import parse
from devexplorer.core.machines.greeting import Greeting
from devexplorer.core.observe import attaching
from devexplorer.core.observe.running import running
from devexplorer.core.observe.site import attached

TRAINS = """import os, signal, sys, time
def taken(number, frame):
    with open(sys.argv[1] + "/devexplorer/attach-" + str(os.getpid()) + ".py") as file:
        exec(compile(file.read(), "<string>", "exec"), {})
signal.signal(signal.SIGUSR1, taken)
from torch import nn
import torch
model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
print("up", flush=True)
end = time.monotonic() + 60
while not os.path.exists(sys.argv[1] + "/enough") and time.monotonic() < end:
    optimizer.zero_grad()
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    time.sleep(0.002)
print("ended", "devexplorer" in sys.modules)
"""

BARE = """import os, signal, sys, types
sys.modules["torch"] = torch = types.ModuleType("torch")
{line}
def taken(number, frame):
    with open(sys.argv[1] + "/devexplorer/attach-" + str(os.getpid()) + ".py") as file:
        exec(compile(file.read(), "<string>", "exec"), {{}})
signal.signal(signal.SIGUSR1, taken)
print("up", flush=True)
while True:
    signal.pause()
"""
"""It has no torch, and so starts at once; `line` says what it has in its place."""


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder in which scripts and hosts of this test meet."""
    with short_folder() as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
        yield folder


@pytest.fixture
def start(runtime: Path, tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Runs a script until the end of the test; returns when it has said `up`."""
    started: list[subprocess.Popen[str]] = []

    def begin(text: str, *before: str, python: str = sys.executable, **more: str) -> subprocess.Popen[str]:
        script = tmp_path / "train.py"
        script.write_text(text)
        environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | more
        process = subprocess.Popen(
            [python, *before, str(script), str(runtime)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environ,
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        return process

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def by_signal(python: str, pid: int, path: Path) -> None:
    """In place of `_send`: the script runs the file soon."""
    assert path.name == f"attach-{pid}.py"
    os.kill(pid, signal.SIGUSR1)


def asked(*words: str | int) -> int:
    """The exit code of the command."""
    return cli.main(["attach", *map(str, words)])


def observed(pid: int) -> list[str]:
    """What the script of this process is called; other scripts may run on this machine."""
    return [one.name for one in running() if one.pid == pid]


def left(runtime: Path) -> list[str]:
    """What was left behind."""
    folder = runtime / "devexplorer"
    return sorted(path.name for path in folder.glob("*attach*")) if folder.exists() else []


def test_a_script_is_attached_to_once_and_goes_on(
    start: Any, runtime: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sent: list[int] = []

    def send(python: str, pid: int, path: Path) -> None:
        assert os.path.samefile(python, sys.executable)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        sent.append(pid)
        by_signal(python, pid, path)

    monkeypatch.setattr(attaching, "_send", send)
    script = start(TRAINS)
    assert asked(script.pid) == 0
    assert observed(script.pid) == ["train.py"]
    assert asked(script.pid) == 0
    assert sent == [script.pid]
    look = f"To look: Machine ▾ › Running here in the window, or devexplorer --script {script.pid}\n"
    name = f"train.py (process {script.pid})"
    assert capsys.readouterr().out == f"Attached to {name}.\n{look}{name} was observed already.\n{look}"
    assert left(runtime) == []
    (runtime / "enough").touch()
    assert script.communicate(timeout=60) == ("ended True\n", "")
    assert script.returncode == 0


def test_a_window_is_opened_on_it(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    greeting = Greeting(pid=4711, name="train.py", folder="/", since_unix_s=1.0, torch="2.14.1")
    opened: list[int] = []
    monkeypatch.setattr(attaching, "running", lambda: [greeting])
    monkeypatch.setattr(attaching, "open_window", lambda pid, environ: opened.append(pid))
    assert asked(4711, "--window") == 0
    assert opened == [4711]
    assert "To look" not in capsys.readouterr().out


def test_what_is_in_the_way_is_said_in_a_line(start: Any, runtime: Path, capsys: pytest.CaptureFixture[str]) -> None:
    python = start(BARE.format(line=""))
    version = "{}.{}.{}".format(*sys.version_info)
    refused = {
        "x": "takes the number of a process, not 'x'",
        "0": "takes the number",
        "999999999": "there is no process",
    }
    if sys.version_info < (3, 14):
        refused[str(python.pid)] = f"needs CPython 3.14: process {python.pid} is Python {version}; start the script by"
    sleeping = subprocess.Popen(["/bin/sleep", "60"])
    refused[str(sleeping.pid)] = f"process {sleeping.pid} is no Python, it runs /"
    try:
        for word, line in refused.items():
            assert asked(word) == 2
            said = capsys.readouterr().err
            assert said.count("\n") == 1
            assert line in said
    finally:
        sleeping.kill()
        sleeping.wait()
    assert asked(sleeping.pid) == 2
    assert capsys.readouterr().err == f"devexplorer: there is no process {sleeping.pid}\n"
    assert left(runtime) == []


def test_of_a_shell_or_a_launcher_the_python_below_it_is_named() -> None:
    shell = subprocess.Popen(
        ["/bin/sh", "-c", f"{sys.executable} -c 'print(1, flush=True); input()'; true"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert shell.stdout is not None
    shell.stdout.readline()
    with pytest.raises(
        BadInput, match=rf"process {shell.pid} is no Python, it runs .*; below it Python is process \d+$"
    ):
        attaching._python(shell.pid)
    shell.communicate(b"\n")


def test_the_process_of_another_user_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(BadInput, match=f"process {os.getpid()} belongs to another user"):
        attaching._python(os.getpid())


SAYS = {
    '{"version": "3.14.1", "implementation": "cpython", "sends": true}': "",
    '{"version": "7.3", "implementation": "pypy"}': "needs CPython 3.14: process PID is pypy 7.3",
    '{"version": "3.14.1", "implementation": "cpython", "sends": true, "forbidden": true, "problem": "no"}': (
        "this system lets no process look into another (kernel.yama.ptrace_scope is 1); 'sudo sysctl"
    ),
    '{"version": "3.14.1", "implementation": "cpython", "sends": true,'
    ' "problem": "Remote debugging is not enabled in the remote process"}': "PYTHON_DISABLE_REMOTE_DEBUG",
    '{"version": "3.14.1", "implementation": "cpython", "sends": true, "problem": "x"}': "cannot be attached to: x",
    "": "cannot be asked: ",
}


@pytest.mark.parametrize("told", SAYS)
def test_what_the_interpreter_of_the_script_says_becomes_a_line(
    told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scope = tmp_path / "scope"
    scope.write_text("1\n")
    monkeypatch.setattr(attaching, "PTRACE_SCOPE", scope)
    python = tmp_path / "python3.14"
    python.write_text(f"#!/bin/sh\necho '{told}'\n")
    python.chmod(0o700)
    line = ""
    try:
        attaching._send(str(python), os.getpid(), tmp_path / "file")
    except BadInput as error:
        line = str(error)
    assert SAYS[told].replace("PID", str(os.getpid())) in line
    assert bool(line) == bool(SAYS[told])


def test_without_that_switch_of_the_kernel_a_container_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attaching, "PTRACE_SCOPE", tmp_path / "none")
    assert attaching._forbidden(7).endswith("into process 7; in a container CAP_SYS_PTRACE allows it")


def test_a_script_in_a_long_call_is_waited_for(start: Any, runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = start(TRAINS)
    lines: list[str] = []

    def later(python: str, pid: int, path: Path) -> None:
        def send() -> None:
            until(lambda: lines)
            os.kill(pid, signal.SIGUSR1)

        threading.Thread(target=send).start()

    monkeypatch.setattr(attaching, "say", lines.append)
    monkeypatch.setattr(attaching, "PATIENCE_S", 0.05)
    monkeypatch.setattr(attaching, "_send", later)
    assert asked(script.pid) == 0
    assert lines == [
        f"waiting for process {script.pid}: its main thread is in a call that has to return first; Ctrl-C gives up"
    ]


def test_after_ctrl_c_the_script_finds_nothing_to_do(
    start: Any, runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = start(BARE.format(line=""))
    monkeypatch.setattr(attaching, "_send", lambda *words: None)
    monkeypatch.setattr(attaching, "PATIENCE_S", 0.0)
    monkeypatch.setattr(attaching, "say", lambda line: signal.raise_signal(signal.SIGINT))
    assert asked(script.pid) == 130
    assert left(runtime) == [f"attach-{script.pid}.py"]
    os.kill(script.pid, signal.SIGUSR1)
    until(lambda: not left(runtime))
    script.terminate()
    assert script.communicate(timeout=60) == ("", "")


def test_a_script_that_ends_meanwhile_leaves_nothing(
    start: Any, runtime: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = start(BARE.format(line=""))
    dead = runtime / "devexplorer" / "attach-999999999.py"
    dead.parent.mkdir(mode=0o700)
    dead.touch()  # of one that ended after Ctrl-C

    def ends(python: str, pid: int, path: Path) -> None:
        script.kill()
        script.wait()

    monkeypatch.setattr(attaching, "_send", ends)
    assert asked(script.pid) == 2
    assert capsys.readouterr().err == f"devexplorer: process {script.pid} has ended\n"
    assert left(runtime) == []


NOT_OBSERVED = {
    "del sys.modules['torch']": "it has not imported torch; attach when it has",
    "sys.path[:] = [p for p in sys.path if 'site-packages' not in p]": "its Python lacks msgspec numpy psutil: '",
    "": "Error: ",  # a torch that is none
}


@pytest.mark.parametrize("line", NOT_OBSERVED)
def test_a_script_that_cannot_be_observed_says_why_and_goes_on(
    line: str, start: Any, runtime: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(attaching, "_send", by_signal)
    script = start(BARE.format(line=line))
    assert asked(script.pid) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert said.startswith(f"devexplorer: process {script.pid} is not observed: ")
    assert NOT_OBSERVED[line] in said
    assert script.poll() is None
    assert left(runtime) == []


def test_where_the_script_holds_a_lock_or_imports_torch_it_is_tried_again(
    start: Any, runtime: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    imports = "import importlib.machinery\n"
    imports += "torch.__spec__ = importlib.machinery.ModuleSpec('torch', None)\ntorch.__spec__._initializing = True\n"
    sent: list[int] = []

    def send(python: str, pid: int, path: Path) -> None:
        sent.append(pid)
        if len(sent) == 3:
            raise BadInput("enough")
        by_signal(python, pid, path)

    monkeypatch.setattr(attaching, "_send", send)
    monkeypatch.setattr(attaching, "AGAIN_S", 0.0)
    script = start(BARE.format(line=imports))
    assert asked(script.pid) == 2
    assert capsys.readouterr().err == "devexplorer: enough\n"
    frames: list[Any] = []
    thread = threading.Thread(target=lambda: frames.append(sys._getframe()))
    thread.start()
    thread.join()
    assert attached._is_amid(frames[0])
    assert not attached._is_amid(sys._getframe())

    def backend(graph: torch.fx.GraphModule, _: Any) -> Any:
        frames.append(sys._getframe())
        return graph.forward

    torch.compile(lambda x: x + 1, backend=backend)(torch.ones(1))
    assert attached._is_amid(frames[1])
    assert left(runtime) == []


def test_devexplorer_is_found_where_it_is_not_installed(tmp_path: Path) -> None:
    code = (
        "import sys; sys.path[:0] = [sys.argv[1]]\n"
        "from attached import _bind, _is_importable\n"
        "sys.meta_path[:] = [one for one in sys.meta_path if 'editable' not in repr(one)]\n"
        "sys.path[:] = [one for one in sys.path if one]\n"
        "assert not _is_importable()\n"
        f"_bind({attaching._packages()!r})\n"
        "assert _is_importable()\n"
        "import devexplorer.core.observe.settings, devexplorer.resources\n"
        "print(devexplorer.__version__, devexplorer.core.__name__)\n"
    )
    (tmp_path / "devexplorer").mkdir()  # a folder that happens to have the name
    done = subprocess.run(
        [sys.executable, "-c", code, str(Path(attached.__file__).parent)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("0.1.0 devexplorer.core\n", "")


def test_the_command_has_one_number_and_one_option() -> None:
    assert vars(parse(["attach", "12", "--window"])).items() >= {"pid": "12", "window": True}.items()
    with pytest.raises(BadInput, match="PID"):
        parse(["attach"])


def until(done: Callable[[], Any]) -> Any:
    """Wait for it, a minute at most."""
    end = time.monotonic() + 60
    while not (result := done()):
        assert time.monotonic() < end
        time.sleep(0.01)
    return result


# --- the real one


@functools.cache
def python_314() -> str:
    """A Python with `sys.remote_exec` and what of ours runs in a script; empty: there is none."""
    needs = "import sys, torch, " + ", ".join(attached.NEEDED) + "; sys.remote_exec"
    for name in (sys.executable, "python3.14"):
        python = shutil.which(name)
        if (
            python is not None
            and not subprocess.run([python, "-c", needs], capture_output=True, check=False).returncode
        ):
            return python
    return ""


@pytest.fixture
def python() -> str:
    """The same; without one the test is skipped."""
    return python_314() or pytest.skip("no python3.14 with torch, msgspec, numpy and psutil is on the path")


def test_a_script_of_python_3_14_that_was_not_prepared(
    python: str, start: Any, runtime: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = start(TRAINS.replace("signal.SIGUSR1, taken", "signal.SIGUSR1, signal.SIG_IGN"), python=python)
    assert asked(script.pid) == 0
    assert observed(script.pid) == ["train.py"]
    assert left(runtime) == []
    (runtime / "enough").touch()
    assert script.communicate(timeout=60) == ("ended True\n", "")


def test_one_that_imports_torch_and_one_that_forbids_it(
    python: str, start: Any, runtime: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = start("print('up', flush=True)\nimport torch, time\nwhile True: time.sleep(0.01)\n", python=python)
    until(lambda: asked(script.pid) == 0 or "has not imported torch" not in capsys.readouterr().err)
    assert observed(script.pid) == ["train.py"]
    script = start(
        "import time\nprint('up', flush=True)\ntime.sleep(60)\n", "-X", "disable-remote-debug", python=python
    )
    capsys.readouterr()
    assert asked(script.pid) == 2
    assert "was started with remote debugging disabled" in capsys.readouterr().err


def test_ctrl_c_while_the_script_is_in_a_call(
    python: str, start: Any, runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = start("import time\nprint('up', flush=True)\ntime.sleep(3)\nprint('ended')\n", python=python)
    monkeypatch.setattr(attaching, "PATIENCE_S", 0.0)
    monkeypatch.setattr(attaching, "say", lambda line: signal.raise_signal(signal.SIGINT))
    assert asked(script.pid) == 130
    assert script.communicate(timeout=60) == ("ended\n", "")
    assert left(runtime) == []
