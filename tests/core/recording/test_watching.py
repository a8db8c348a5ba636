"""`devexplorer watch --record`: a whole recording, however it ends."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from fakes.nvml import FakeCard, FakeNvml
from fakes.watching import UUID, patient, run  # noqa: F401 - `patient` is for every test here

from devexplorer.core.base import BadInput
from devexplorer.core.cli.arguments import parse
from devexplorer.core.devices.nvml.library import Nvml
from devexplorer.core.recording.format import RecordedEntry, open_recording
from devexplorer.core.records import DeviceSample
from devexplorer.core.watch.command import watch

CLI = [sys.executable, "-m", "devexplorer.core.cli"]


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        ("--record /", "'/' is not a file"),
        ("--record /no/such/folder/r", "there is no folder '/no/such/folder'"),
        ("--record / --interval 0 --count 0", "--interval"),
    ],
)
def test_bad_arguments_are_found_before_anything_starts(argv: str, expected: str) -> None:
    with pytest.raises(BadInput) as caught:
        watch(parse(["watch", *argv.split()]), Nvml(FakeNvml()))
    assert expected in str(caught.value)
    if "--interval" in argv:
        assert len(caught.value.findings) == 3


def recorded(path: Path) -> list[str]:
    """Devices of the samples in a recording that was ended properly."""
    return [entry.record.device for entry in records(path) if isinstance(entry.record, DeviceSample)]


def records(path: Path) -> list[RecordedEntry]:
    """Everything in a recording that was ended properly: events, then readings."""
    recording = open_recording(path)
    assert recording is not None
    with recording:
        assert recording.ended, "the recording has no end"
        return [*recording.events, *(entry for frame in recording.frames for entry in recording.readings(frame))]


@pytest.mark.usefixtures("cpu_build")
def test_a_recording_holds_what_was_shown_and_the_table_continues(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "run.devrec"
    fake = FakeNvml(FakeCard(uuid=UUID.format(1)))
    out, err = run(capfd, fake, "--count", "3", "--record", str(path), "--virtual", "Tesla T4")
    assert len([line for line in out.splitlines() if line.startswith("nvml:0")]) == 3
    assert "--replay" in err
    assert recorded(path) == ["cpu", "nvml:0", "vgpu:0"] * 3


def test_a_file_that_is_there_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "thesis.tex"
    path.write_text("months of work")
    with pytest.raises(BadInput, match="exists already"):
        watch(parse(["watch", "--count", "1", "--record", str(path)]), Nvml(FakeNvml()))
    assert path.read_text() == "months of work"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_and_the_request_to_end_leave_a_complete_recording_and_no_traceback(
    number: signal.Signals, tmp_path: Path
) -> None:
    path = tmp_path / "run.devrec"
    argv = [*CLI, "watch", "--json", "--interval", "0.05", "--record", str(path)]
    # No buffer: what it had read beyond three lines would be missing from the rest.
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0) as process:
        assert process.stdout is not None
        for _ in range(3):
            assert json.loads(process.stdout.readline())["schema"] == 1
        process.send_signal(number)
        out, err = process.communicate(timeout=30)
    assert process.returncode == 128 + number
    for line in out.decode().splitlines():
        json.loads(line)
    (said,) = err.decode().splitlines()
    assert said.startswith("devexplorer: recorded ")
    assert len(recorded(path)) >= 3


def test_a_full_disk_is_one_line_and_watching_continues(tmp_path: Path) -> None:
    full_disk = Path("/dev/full")
    if not full_disk.exists():
        pytest.skip("this system has no /dev/full")
    code = (
        "import sys, devexplorer.core.recording.recorder as r, os\n"
        "r._open = lambda path, overwrite: os.open('/dev/full', os.O_WRONLY)\n"
        "from devexplorer.core.cli.run import main\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    argv = ["watch", "--json", "--interval", "0.3", "--count", "6", "--record", str(tmp_path / "run.devrec")]
    done = subprocess.run([sys.executable, "-c", code, *argv], capture_output=True, timeout=60, check=False)
    assert done.returncode == 1
    assert len([line for line in done.stdout.splitlines() if b'"cpu"' in line]) == 6
    (said,) = done.stderr.decode().splitlines()
    assert "no space left" in said.lower() or "full" in said.lower()
