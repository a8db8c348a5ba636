"""Work in a subprocess ends with a result or a one-line error, and leaves no process."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import psutil
import pytest

from devexplorer.core.base import NO_PROGRESS, BadInput, Cancelled, ProgressMonitor, Unavailable
from devexplorer.core.isolation import worker
from devexplorer.core.isolation.worker import run_in_subprocess

HEAD = """
import os, signal, subprocess, sys, threading, time
import msgspec
from devexplorer.core.isolation.worker import serve
from devexplorer.core.base.errors import BadInput, Unavailable

class Request(msgspec.Struct):
    text: str
    folder: str

class Result(msgspec.Struct):
    text: str

def work(request, progress):
"""
TAIL = """
if __name__ == "__main__":
    serve(Request, work, lambda request: request.folder)
"""


class Request(msgspec.Struct):
    text: str
    folder: str


class Result(msgspec.Struct):
    text: str


Apart = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Apart]:
    """Runs the lines of a function `work(request, progress)`; afterwards nothing of it is alive."""
    inherited = os.environ.get("PYTHONPATH")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(tmp_path), inherited))))

    def carried_out(
        body: str, *, seconds: float = 60.0, progress: ProgressMonitor = NO_PROGRESS, text: str = "", folder: str = ""
    ) -> Result:
        lines = "\n".join(f"    {line}" for line in body.strip("\n").splitlines())
        (tmp_path / "child_of_a_test.py").write_text(f"{HEAD}{lines}\n{TAIL}")
        request = Request(text, folder or str(tmp_path))
        return run_in_subprocess(
            "child_of_a_test", request, Result, title="the work", seconds=seconds, progress=progress, lacking="no text"
        )

    yield carried_out
    left = [
        process
        for process in psutil.Process().children(recursive=True)
        if "child_of_a_test" in " ".join(process.cmdline())
    ]
    assert not left


def said(run: Apart, body: str, seconds: float = 60.0) -> str:
    """The error of work without a result."""
    with pytest.raises(BadInput) as refused:
        run(body, seconds=seconds)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def line_of(tmp_path: Path, text: str) -> int:
    lines = (tmp_path / "child_of_a_test.py").read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


def ends(pid: int) -> bool:
    """Whether a killed process has ended, or is a zombie, in the end."""
    until = time.monotonic() + 30
    while time.monotonic() < until:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        threading.Event().wait(0.02)
    return False


def test_a_result_comes_back(run: Apart) -> None:
    assert run("return Result(request.text.upper())", text="é\n\u2028").text == "É\n\u2028"


def test_a_huge_result_comes_back_whole(run: Apart) -> None:
    assert run("return Result('ab' * 4_000_000)").text == "ab" * 4_000_000


def test_a_result_without_an_end_is_refused(run: Apart, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "RESULT_LIMIT", 1 << 20)
    assert "the work gave a result of more than 1 MiB" in said(run, "return Result('a' * (2 << 20))")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("raise BadInput('this is wrong', 'and that')", "this is wrong; and that"),
        ("raise Unavailable('there is no such thing')", "there is no such thing"),
        ("raise ValueError('first\\nsecond')", "the work failed: ValueError: first"),
        ("sys.exit(4)", "the work failed: SystemExit: 4"),
        ("class Odd(Exception):\n    def __str__(self): raise KeyError\nraise Odd", "the work failed: Odd"),
        ("os._exit(3)", "the work ended its process itself with exit code 3 (sys.exit or os._exit) and gave no text"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "the work ended its process by signal SIGSEGV and gave no text"),
        ("os.kill(os.getpid(), signal.SIGKILL)",
         "by signal SIGKILL (as the system does when memory runs out) and gave no text"),
        ("os.write(int(sys.argv[1]), b'{\"result\": {\"te')\nos._exit(0)", "itself with exit code 0"),
        ("os.write(int(sys.argv[1]), b'no JSON\\n')\nos._exit(0)", "itself with exit code 0"),
        ("os.write(int(sys.argv[1]), b'{\"result\": 3}\\n')\ntime.sleep(600)", "gave something else than its result"),
        ("os.closerange(3, 200)\nreturn Result('')", "the work ended its process"),
    ],
)  # fmt: skip
def test_work_that_gives_nothing_says_why_in_one_line(run: Apart, body: str, words: str) -> None:
    assert words in said(run, body)


def test_everything_that_is_wrong_comes_back_apart_and_with_what_would_help(run: Apart) -> None:
    with pytest.raises(BadInput) as refused:
        run("raise BadInput('one', 'two', virtual_helps=True)")
    assert refused.value.findings == ("one", "two")
    assert refused.value.virtual_helps


def test_a_module_that_is_not_there_gives_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(BadInput, match="ended its process itself with exit code 1"):
        run_in_subprocess("devexplorer.no_such_module", Request("", ""), Result, title="the work", seconds=60)
    assert "no_such_module" in capfd.readouterr().err


def test_work_that_hangs_is_ended_with_the_line_that_it_was_at(run: Apart, tmp_path: Path) -> None:
    words = said(run, "while True:\n    time.monotonic()  # here", seconds=2.5)
    here = line_of(tmp_path, "# here")
    assert words in [
        f"the work was not ready after 2.5 s and was ended (at child_of_a_test.py, line {n})" for n in (here - 1, here)
    ]


def test_the_users_own_line_is_named_before_that_of_what_it_called(
    run: Apart, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "slow.py").write_text("import time\n\ndef wait(): time.sleep(600)\n")
    words = said(run, f"sys.path.insert(0, {str(elsewhere)!r})\nfrom slow import wait\nwait()  # here", seconds=2.5)
    assert f"(at child_of_a_test.py, line {line_of(tmp_path, '# here')})" in words


def test_a_line_outside_of_the_users_folder_is_better_than_none(run: Apart, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"was ended \(at child_of_a_test.py, line"):
        run("time.sleep(600)", seconds=2.5, folder="/no/such")


def test_where_none_of_the_users_lines_is_run_the_step_is_named_and_no_line_of_a_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = tmp_path / "site-packages"
    library.mkdir()
    (library / "child_of_a_test.py").write_text(
        f"{HEAD}    progress(0.1, 'importing torch')\n    time.sleep(600)\n{TAIL}"
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(library), os.environ.get("PYTHONPATH")))))
    with pytest.raises(BadInput) as refused:
        run_in_subprocess(
            "child_of_a_test",
            Request("", "/no/such"),
            Result,
            title="the work",
            seconds=2.5,
            progress=NO_PROGRESS,
            lacking="no text",
        )
    assert str(refused.value) == "the work was not ready after 2.5 s and was ended (while: importing torch)"


def test_work_that_is_stuck_below_python_is_ended_too(run: Apart, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "SPARE_SECONDS", 0.5)
    body = "import ctypes\nctypes.PyDLL(None).sleep(600)  # keeps the interpreter's lock"
    assert said(run, body, seconds=1.5) == "the work was not ready after 1.5 s and was ended"


def test_what_forked_and_holds_the_descriptor_does_not_hold_up_the_end(run: Apart, tmp_path: Path) -> None:
    body = (
        f"child = os.fork()\nif not child:\n    time.sleep(600)\nopen({str(tmp_path / 'pid')!r},"
        " 'w').write(str(child))\nos._exit(5)"
    )
    started = time.monotonic()
    assert "exit code 5" in said(run, body, seconds=500)
    assert time.monotonic() - started < 400
    assert ends(int((tmp_path / "pid").read_text()))


def test_a_fork_that_returns_twice_answers_once(run: Apart) -> None:
    heard: list[str] = []
    progress = ProgressMonitor(report=lambda done, text, part="": heard.append(text))
    body = "me = os.getpid()\nos.fork()\nprogress(0.5, str(os.getpid() == me))\nreturn Result(str(os.getpid() == me))"
    assert run(body, progress=progress).text == "True"
    assert heard == ["True"]


def test_progress_is_passed_on_in_order(run: Apart) -> None:
    heard: list[tuple[float, str]] = []
    progress = ProgressMonitor(report=lambda done, text, part="": heard.append((done, text)))
    run("progress(0.0, 'one')\nprogress(0.3, 'two')\nprogress(7, 'three')\nreturn Result('')", progress=progress)
    assert heard == [(0.0, "one"), (0.3, "two"), (1.0, "three")]


def test_progress_is_not_sent_more_often_than_it_is_shown(run: Apart) -> None:
    heard: list[float] = []
    progress = ProgressMonitor(report=lambda done, text, part="": heard.append(done))
    counted = int(
        run("for n in range(20_000): progress(n / 20_000, 'the same')\nreturn Result('20000')", progress=progress).text
    )
    assert 1 <= len(heard) < counted / 10


def test_a_cancelled_work_is_ended_with_everything_that_it_started(run: Apart, tmp_path: Path) -> None:
    asked = threading.Event()
    progress = ProgressMonitor(report=lambda done, text, part="": asked.set(), cancelled=asked.is_set)
    body = f"""
child = subprocess.Popen(['sleep', '600'])
open({str(tmp_path / "pid")!r}, 'w').write(str(child.pid))
progress(0.1, 'waiting')
time.sleep(600)
"""
    with pytest.raises(Cancelled, match="nothing has changed"):
        run(body, progress=progress, seconds=500)
    assert ends(int((tmp_path / "pid").read_text()))


def test_an_error_of_whoever_watches_ends_the_work(run: Apart) -> None:
    def fail(done: float, text: str, part: str = "") -> None:
        raise TimeoutError("of the watcher")

    with pytest.raises(TimeoutError, match="of the watcher"):
        run("progress(0.1, 'x')\ntime.sleep(600)", progress=ProgressMonitor(report=fail), seconds=500)


def test_what_it_prints_goes_to_standard_error_before_the_result_is_there(
    run: Apart, capfd: pytest.CaptureFixture[str]
) -> None:
    run("print('printed', end='')\nos.write(1, b' written')\nsys.stderr.write(' said')\nreturn Result('')")
    out, err = capfd.readouterr()
    assert out == ""
    assert err.replace(" ", "").replace("written", "") == "printedsaid"
    assert "written" in err


def test_streams_that_the_work_closes_or_replaces_cost_nothing(run: Apart) -> None:
    assert run("sys.stdout.close()\nsys.stderr = None\nreturn Result('here')").text == "here"


def test_its_standard_input_is_empty(run: Apart) -> None:
    assert run("return Result(repr(sys.stdin.read()))").text == "''"


def test_where_there_are_no_process_groups_it_says_so(run: Apart, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker.os, "name", "nt")
    with pytest.raises(Unavailable, match="its own process group"):
        run_in_subprocess("devexplorer.no_such_module", Request("", ""), Result, title="the work", seconds=60)
