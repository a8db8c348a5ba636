"""`devexplorer watch`: a table that fits its terminal, whole JSON lines, messages about cards with problems."""

from __future__ import annotations

import io
import json
import os
from contextlib import ExitStack
from typing import Any

import pytest
from fakes.nvml import FakeCard, FakeNvml
from fakes.watching import GIB, UUID, full, info, nothing, patient, run  # noqa: F401 - `patient` is for every test here
from rich.cells import cell_len
from rich.console import Console

from devexplorer.core.base import running_text
from devexplorer.core.records import DeviceSample, ProcessUse
from devexplorer.core.watch import command as watch_module
from devexplorer.core.watch.command import document
from devexplorer.core.watch.table import WatchReading, WatchTable

CONTRACT = (
    "schema", "time_unix_s", "device", "memory_used_bytes", "memory_total_bytes", "utilization_percent",
    "temperature_c", "power_w",
    "sm_clock_mhz", "processes",
)  # fmt: skip


def lines(readings: list[WatchReading], width: int, height: int | None = None, **how: Any) -> list[str]:
    """The table as text; each line is checked against the width."""
    made = [line.plain for line in WatchTable(**how).lines(readings, width, height)]
    for line in made:
        assert cell_len(line) <= width, line
    assert height is None or len(made) <= height
    return made


# --- the table


@pytest.mark.parametrize("count", [1, 2, 8, 16])
@pytest.mark.parametrize("model", ["T4", "NVIDIA H100 80GB HBM3", "卡" * 60, "A" * 200])
def test_the_table_fits_80_columns_with_what_matters(count: int, model: str) -> None:
    readings = [WatchReading(info(reading.info.id, model=model), reading.sample) for reading in map(full, range(count))]
    readings += [
        full(count, f"vgpu:{count}", simulated=True),
        nothing("nvml:15", "nvml", "the card is lost; a reboot brings it back"),
    ]
    header, *rows = lines(readings, 80)
    assert header.split() == ["device", "name", "memory", "util%", "°C", "W/cap", "MHz"]
    assert [row.split()[0] for row in rows] == [reading.info.id for reading in readings]
    for row in rows[:count]:
        assert "40.0/80.0 GiB" in row
        assert row.split()[-6:-2] == ["100", "61", "700/700", "1980"] or "power" in row
    assert "simulated" in rows[count]
    assert "✕ the card is lost" in rows[-1]


@pytest.mark.parametrize("width", [1, 20, 40, 60, 79, 81, 100, 133, 160, 200, 400])
def test_no_width_folds_a_line(width: int) -> None:
    readings = [full(0), full(1, "vgpu:1", simulated=True), nothing("cuda:2", problem="x" * 300), nothing("mps", "mps")]
    lines(readings, width, 10)


def test_more_columns_come_when_there_is_room_and_the_names_are_whole_then() -> None:
    readings = [nothing("cpu", "cpu"), *map(full, range(2))]
    counts = [
        len(lines(readings, width)[0].replace(" rx/tx GB/s", "").replace("mem MHz", "mem").split())
        for width in (80, 100, 130, 240)
    ]
    assert counts == sorted(counts)
    assert len(set(counts)) == 4
    header, *rows = lines(readings, 240)
    for title in ("mem%", "fan%", "PCIe rx/tx GB/s", "NVLink rx/tx GB/s", "enc/dec%", "kWh"):
        assert title in header
    assert "NVIDIA H100 80GB HBM3" in rows[1]
    assert "1.20/12.30" in rows[1]
    assert rows[1].endswith("power cap")


def test_unknown_values_are_a_dash_and_no_column_of_dashes_for_what_a_machine_does_not_have() -> None:
    header, row = lines([nothing("cpu", "cpu")], 80)
    assert header.split() == ["device", "name", "memory"]
    assert row.split()[-1] == "—"
    header, row = lines([nothing("cuda:0")], 80)
    assert header.split() == ["device", "name", "memory", "util%", "°C", "W/cap", "MHz"]
    assert row.split()[-5:] == ["—"] * 5
    assert " 0" not in row


def test_a_column_that_was_there_stays() -> None:
    table = WatchTable()
    wide = table.lines([full(0)], 200)[0].plain
    assert table.lines([nothing("cuda:0", "cpu")], 200)[0].plain.split() == wide.split()


def test_one_reason_for_lower_clocks_is_shown_once() -> None:
    hot = full(
        0, throttle_reasons=("too hot (the driver lowers the clocks)", "too hot (the hardware lowers the clocks)")
    )
    assert lines([hot], 300)[1].count("too hot") == 1


def test_processes_are_below_as_far_as_they_fit() -> None:
    many = tuple(ProcessUse(pid=pid, name=f"train-{pid}", memory_bytes=pid * GIB, user="ada") for pid in range(1, 31))
    readings = [full(0, processes=many), nothing("cuda:1")]
    made = lines(readings, 80, 12)
    assert len(made) == 12
    assert "train-30" in made[5], "the largest first"
    assert made[-1].startswith("… 25 more lines")
    assert not any("train" in line for line in lines(readings, 80, 5))
    assert any("cuda:1: processes are not visible from here" in line for line in lines(readings, 80, 60))
    assert not any("train" in line for line in lines(readings, 80)), "not on a pipe"


@pytest.mark.parametrize(
    ("width", "further", "running_s"), [(72, 0, 42.0), (80, 1, 42.0), (100, 3, 42.0), (110, 3, 2e5), (200, 3, 2e5)]
)
def test_wider_terminals_show_what_processes_use_of_the_host(width: int, further: int, running_s: float) -> None:
    use = ProcessUse(
        pid=7, memory_bytes=GIB, user="ada", utilization_percent=98.0, command="python train.py --epochs 3",
        cpu_percent=153.4, host_memory_bytes=3 * GIB, running_s=running_s,
    )  # fmt: skip
    header, row = lines([full(0, processes=(use,))], width, 20)[-2:]
    titles = ["device", "pid", "user", "memory", "util%", *["CPU%", "host mem", "running"][:further], "process"]
    assert header.split() == " ".join(titles).split()
    shown = ["153", "3.00 GiB", running_text(running_s)]
    assert [text in row for text in shown] == [number < further for number in range(3)]
    assert "python train.py" in row


def test_more_devices_than_lines_are_counted() -> None:
    made = lines(list(map(full, range(16))), 80, 10)
    assert len(made) == 10
    assert made[-1] == "… 8 more devices; a higher terminal shows them"


def test_names_from_outside_cannot_move_the_cursor() -> None:
    evil = ProcessUse(pid=7, name="\x1b[2Jgone\nnext", memory_bytes=1)
    bad = WatchReading(info("cuda:0", model="\x1b]0;title\x07T4"), full(0, processes=(evil,)).sample)
    text = "".join(lines([bad], 120, 20))
    assert "\x1b" not in text
    assert "\n" not in text
    assert "?[2Jgone?next" in text


def test_a_terminal_without_unicode_gets_plain_characters() -> None:
    made = lines([full(0), nothing("cuda:1", problem="lost"), nothing("cuda:2")], 80, 20, ascii_only=True)
    assert all(line.isascii() for line in made)
    assert "###" in made[1]
    assert "x lost" in made[2]


def test_on_a_terminal_the_table_renews_itself_in_its_place() -> None:
    out = Console(file=io.StringIO(), force_terminal=True, width=80, height=10, color_system=None, legacy_windows=False)
    with ExitStack() as ending:
        table = watch_module._LiveTable(out, ending)
        for _ in range(3):
            table.show([full(index) for index in range(20)])
    written = out.file.getvalue()  # type: ignore[attr-defined]
    assert written.count("cuda:0 ") >= 3
    assert "\x1b[1A" in written, "the cursor goes back up"
    assert "… 13 more devices" in written, "a line stays free for the cursor"


# --- documents


def test_a_document_has_every_field_and_null_where_it_is_not_known() -> None:
    content = document(nothing("cuda:0", problem="lost"))
    assert set(DeviceSample.__struct_fields__) < set(content)
    assert content["problem"] == "lost"
    assert content["simulated"] is False
    assert all(
        value is None
        for name, value in content.items()
        if name not in ("device", "time_unix_s", "simulated", "problem", "unavailable")
    )
    (process,) = document(full(0, processes=(ProcessUse(pid=3),)))["processes"]  # type: ignore[misc]
    assert process == {
        "pid": 3, "name": None, "memory_bytes": None, "user": None, "command": None, "kind": None,
        "utilization_percent": None, "memory_utilization_percent": None, "cpu_percent": None, "host_memory_bytes": None,
        "running_s": None,
    }  # fmt: skip


@pytest.mark.usefixtures("cpu_build")
def test_json_lines_hold_the_contract_for_every_device_and_tick(capfd: pytest.CaptureFixture[str]) -> None:
    fake = FakeNvml(FakeCard(uuid=UUID.format(1), compute=[(os.getpid(), 5 << 20)]), FakeCard(uuid=UUID.format(2)))
    out, err = run(capfd, fake, "--count", "2", "--json", "--virtual", "Tesla T4")
    assert err == ""
    documents = [json.loads(line) for line in out.splitlines()]
    assert [document["device"] for document in documents] == ["cpu", "nvml:0", "nvml:1", "vgpu:0"] * 2
    for content in documents:
        assert list(content)[: len(CONTRACT)] == list(CONTRACT)
        assert content["schema"] == 1
        assert content["simulated"] is (content["device"] == "vgpu:0")
    card = documents[1]
    assert (card["temperature_c"], card["power_w"], card["sm_clock_mhz"], card["utilization_percent"]) == (
        61,
        35.5,
        1590,
        43,
    )
    (use,) = card["processes"]
    assert (use["pid"], use["memory_bytes"]) == (os.getpid(), 5 << 20)
    assert use["name"]
    assert (documents[3]["temperature_c"], documents[3]["memory_clock_mhz"]) == (32.0, None)


def test_a_lost_card_keeps_its_line_and_says_what_happened(capfd: pytest.CaptureFixture[str]) -> None:
    fake = FakeNvml(FakeCard(uuid=UUID.format(1)), FakeCard(uuid=UUID.format(2)))
    fake.lose(0)
    out, _ = run(capfd, fake, "--count", "2", "--json")
    lost, good = [
        [json.loads(line) for line in out.splitlines() if json.loads(line)["device"] == name][-1]
        for name in ("nvml:0", "nvml:1")
    ]
    assert "lost" in lost["problem"]
    assert lost["memory_used_bytes"] is None
    assert (good["problem"], good["temperature_c"]) == (None, 61)
    out, _ = run(capfd, fake, "--count", "1")
    assert "✕" in next(line for line in out.splitlines() if line.startswith("nvml:0"))
