"""The console script: the arguments it passes on, and one-line refusals before Qt is loaded."""

from __future__ import annotations

import json
import os
import shlex
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from devexplorer.gui.shell.main import main


@pytest.fixture(autouse=True)
def no_display(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("QT_QPA_PLATFORM", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)


def refused(capfd: pytest.CaptureFixture[str], *argv: str) -> str:
    """The one line that a refused command line gets."""
    assert main(list(argv)) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith("devexplorer: ")
    assert err.count("\n") == 1, err
    return err


@pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="these systems always have a display")
@pytest.mark.parametrize("display", [None, ":987"])
def test_without_a_display_the_window_names_what_works_there(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, display: str | None
) -> None:
    if display is not None:
        monkeypatch.setenv("DISPLAY", display)
    line = refused(capfd)
    for command in ("tour", "devices", "watch", "bench", "place", "env"):
        assert command in line


@pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="these systems always have a display")
@pytest.mark.parametrize(
    "variables",
    [
        {"QT_QPA_PLATFORM": "nonsense"},
        {"QT_QPA_PLATFORM": "xcb", "DISPLAY": ":987"},
        {"WAYLAND_DISPLAY": "wayland-987", "XDG_RUNTIME_DIR": "/"},
        {"DISPLAY": "localhost:987.0"},
    ],
    ids=str,
)
def test_a_display_that_qt_cannot_use_is_one_line(variables: dict[str, str]) -> None:
    command = [sys.executable, "-m", "devexplorer.gui.shell.main"]
    done = subprocess.run(
        command, capture_output=True, env={**os.environ, **variables}, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
    assert done.stderr.startswith("devexplorer: Qt")
    assert "tour" in done.stderr


@pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="these systems always have a display")
def test_without_a_display_as_a_process_no_qt_is_loaded() -> None:
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("QT_QPA_PLATFORM", "DISPLAY", "WAYLAND_DISPLAY")
    }
    script = (
        "import sys; from devexplorer.gui.shell.main import main; code = main([]); assert 'PySide6' not in sys.modules;"
        " sys.exit(code)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, env=environment, timeout=60, check=False
    )
    assert ended.returncode == 2
    assert ended.stdout == b""
    assert b"devexplorer tour" in ended.stderr
    assert ended.stderr.count(b"\n") == 1


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ("--virtual Voodoo", "there is no profile 'Voodoo'"),
        ("tour --virtual Voodoo", "there is no profile 'Voodoo'"),
        ("--theme pink", "'pink'"),
        ("tour --screenshots", "--screenshots"),
        ("tour --frob", "--frob"),
        ("frobnicate", "'frobnicate'"),
        ("bench convolution", "convolution"),
        ("--python /nowhere/python", "there is no file /nowhere/python"),
        ("open --python /nowhere .", "there is no file /nowhere"),
    ],
)
def test_bad_input_is_refused_before_there_is_a_window(
    capfd: pytest.CaptureFixture[str], argv: str, words: str
) -> None:
    assert words in refused(capfd, *argv.split())


def test_screenshots_into_a_file_are_refused_before_there_is_a_window(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "a-file"
    file.write_text("")
    assert "is a file; name a folder" in refused(capfd, "tour", "--screenshots", str(file))
    assert file.read_text() == ""


@pytest.mark.parametrize(
    ("folder", "words"), [("/proc/nowhere/pictures", "no picture can be saved in"), ("", "names no folder")]
)
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="this system has no folder that takes no file")
def test_screenshots_into_nowhere_are_refused_before_there_is_a_window(
    capfd: pytest.CaptureFixture[str], folder: str, words: str
) -> None:
    assert words in refused(capfd, "tour", "--screenshots", folder)


def test_a_folder_for_screenshots_that_takes_no_file_is_refused(capfd: pytest.CaptureFixture[str]) -> None:
    if not Path("/proc").is_dir():
        pytest.skip("this system has no folder that takes no file")
    assert "no picture can be saved in /proc" in refused(capfd, "tour", "--screenshots", "/proc")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no FIFOs")
def test_what_is_no_file_is_no_recording_and_is_not_waited_for(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    fifo, address = tmp_path / "fifo", tmp_path / "socket"
    os.mkfifo(fifo)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(address))
        kinds = {str(fifo): "a FIFO", str(address): "a socket", os.devnull: "a device", str(tmp_path): "a folder"}
        for path, kind in kinds.items():
            assert f"is {kind}" in refused(capfd, "--replay", path)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What the window would have been opened with."""
    calls: list[dict[str, Any]] = []

    def open_window(**arguments: Any) -> int:
        calls.append(arguments)
        return 0

    monkeypatch.setenv("QT_QPA_PLATFORM", "offscreen")
    monkeypatch.setattr("devexplorer.gui.shell.app.open_window", open_window)
    monkeypatch.setattr("gc.disable", lambda: None)
    return calls


def test_files_are_handed_to_the_window_and_a_recording_alone_is_what_it_opens_on(
    opened: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("fakes.recordings").write(tmp_path / "run.devrec", 1)
    for name in ("w.pt", "bench", "not.devrec"):
        (tmp_path / name).write_bytes(b"not what the name says")
    monkeypatch.chdir(tmp_path)
    for words, files, replay, theme in (
        ("w.pt", ["w.pt"], None, None),
        ("--theme light run.devrec", [], "run.devrec", "light"),
        ("run.devrec --theme dark", [], "run.devrec", "dark"),
        ("--virtual 'Tesla T4' w.pt run.devrec", ["w.pt", "run.devrec"], None, None),
        ("not.devrec", ["not.devrec"], None, None),
        ("open bench", ["bench"], None, None),
        (f"{tmp_path}/bench", ["bench"], None, None),
    ):
        assert main(shlex.split(words)) == 0
        call = opened.pop()
        assert call["files"] == tuple(tmp_path / name for name in files), words
        instead = None if replay is None else ("recording.actions:open_recording", str(tmp_path / replay))
        assert call["instead"] == instead, words
        assert call["theme"] == theme, words
        assert (call["virtual_spec"] is not None) == ("--virtual" in words)
    assert main([]) == 0
    assert opened.pop()["files"] == ()


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (("nowhere.pt",), "there is no file nowhere.pt"),
        (("a.pt", "b.pt"), "there is no file a.pt and no file b.pt"),
        (("open",), "FILE"),
        (("--replay", "run.devrec", __file__), "--replay names the recording already"),
        (("frobnicate",), "'install-desktop'"),
    ],
)
def test_files_that_cannot_be_handed_on_are_refused_before_there_is_a_window(
    capfd: pytest.CaptureFixture[str], opened: list[dict[str, Any]], argv: tuple[str, ...], words: str
) -> None:
    assert words in refused(capfd, *argv)
    assert not opened


def test_other_commands_are_handed_on(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["place", "mlp", "--json"]) == 0
    assert len(json.loads(capfd.readouterr().out)["rows"]) == 4
