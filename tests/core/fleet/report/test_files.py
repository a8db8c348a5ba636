"""The report of a check: one file that loads and runs nothing, in which every text of a machine is only text, and
everything simulated is marked."""

from __future__ import annotations

import errno
import json
from html.parser import HTMLParser
from pathlib import Path

import pytest

from devexplorer.core.base import BadInput, Unavailable
from devexplorer.core.fleet.check.fleet_check import CheckReport, GroupRate
from devexplorer.core.fleet.check.plan import CheckPlan
from devexplorer.core.fleet.commands.command import check_lines
from devexplorer.core.fleet.records import CardMeasurement, LoadReadings, MeasuredKind, Rates
from devexplorer.core.fleet.report.files import check_html, report_file, write_check
from devexplorer.core.fleet.verdicts.judge import judge
from devexplorer.core.records import DeviceInfo

HOSTILE = "<script>alert(1)</script>\x1b[2J&\"'"


class Page(HTMLParser):
    """What is in a page: tags with their attributes, texts, and whether every tag is closed in its order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.rows: list[list[str]] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
        if tag != "meta":
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" in self._open:
            return
        self.text += data
        if self._open and self._open[-1] in ("td", "th"):
            self.rows[-1][-1] += data


def report(machine: str = "node1", *, simulated: bool = False) -> CheckReport:
    """Five cards of 100, 100.5, … TFLOP/s, and one that is hot and at 80."""
    cards = []
    for index in range(6):
        slow = index == 3
        rate = 80.0 if slow else 100 + 0.5 * index
        readings = LoadReadings(
            temperature_c=91.0 if slow else 66.0,
            sm_clock_mhz=1500.0 if slow else 1980.0,
            power_w=600.0,
            power_cap_w=700.0,
            pcie_generation=5,
            pcie_width=16,
            throttled={"too hot (the driver lowers the clocks)": 1.0} if slow else {},
        )
        blocks = tuple(rate * (1 + 0.001 * (block % 3)) for block in range(12))
        cards.append(
            CardMeasurement(
                machine=machine,
                device=f"cuda:{index}",
                name="NVIDIA H100 80GB HBM3",
                memory_total_bytes=80 << 30,
                rates=(Rates(kind=MeasuredKind.MATMUL, dtype="float16", blocks=blocks, block_s=0.25),),
                readings=readings,
                simulated=simulated,
            )
        )
    devices = tuple(
        DeviceInfo(
            id=card.device, kind="cuda", name=card.name, uuid=f"GPU-{index}", bus_id=f"0000:0{index}:00.0",
            driver_version="570.86.15", memory_total_bytes=80 << 30,
        )
        for index, card in enumerate(cards)
    )  # fmt: skip
    group = GroupRate(
        kind=MeasuredKind.ALLREDUCE,
        cards=((machine, "cuda:0"), (machine, "cuda:1")),
        failure="no way",
        simulated=simulated,
    )
    return CheckReport(
        plan=CheckPlan(kinds=(MeasuredKind.MATMUL, MeasuredKind.ALLREDUCE), soak_s=300.0, budget_s=60.0),
        left_out=(MeasuredKind.COPIES,),
        verdict=judge(cards),
        measurements=tuple(cards),
        started_unix_s=1_700_000_000.0,
        ended_unix_s=1_700_000_060.0,
        devices=devices,
        groups=(group,),
        slow_links=(((machine, "cuda:4"), (machine, "cuda:5")),),
        start_spread_s=0.012,
    )


def test_it_says_what_was_measured_when_and_with_what() -> None:
    page = Page(check_html(report()))
    for text in (
        "6 cards on 1 machine: 5 normal, 1 slow. 1 slow link.", "6 × NVIDIA H100 80GB HBM3, 80.00 GiB", "570.86.15",
        "2023-11-14 22:13:20 UTC", "2023-11-14 22:14:20 UTC", "12.0 ms", "20 s after warm-up",
        "Slow between node1/cuda:4 and node1/cuda:5", "allreduce of node1/cuda:0, node1/cuda:1: no way",
        "300 s of products before", "copies: the time budget was too short", "in 0.8 % of the checks of healthy fleets",
    ):  # fmt: skip
        assert text in page.text
    assert "imulated" not in page.text.replace("simulated seconds", "")


def test_the_slow_card_is_first_and_its_readings_stand_beside_those_of_the_others() -> None:
    page = Page(check_html(report()))
    rows = [row for row in page.rows if row[:1] == ["node1"]]
    assert len(rows) == 6
    assert rows[0][:5] == ["node1", "cuda:3", "0.792", "slow: thermal", "80.1"]
    assert rows[0][5:] == ["91", "1,500", "600", "700", "5x16"]
    assert ["temperature, °C", "91", "66"] in page.rows
    assert ["SM clock, MHz", "1,500", "1,980"] in page.rows
    assert "too hot (91 °C, equal cards 66 °C)" in page.text


def test_it_loads_nothing_and_runs_nothing() -> None:
    text = check_html(report(HOSTILE))
    page = Page(text)
    assert not {tag for tag, _ in page.tags} & {"script", "img", "link", "iframe", "object", "a", "form"}
    assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on")]
    assert "url(" not in text
    assert "@import" not in text
    assert "//" not in text
    assert "default-src 'none'" in text


def test_names_of_machines_are_only_text() -> None:
    page = Page(check_html(report(HOSTILE)))
    shown = "<script>alert(1)</script>?[2J&\"'"
    assert f"{shown}/cuda:3" in page.text
    assert "\x1b" not in page.text
    assert [row[0] for row in page.rows].count(shown) == 6


def test_what_is_simulated_is_marked_wherever_its_figures_stand() -> None:
    page = Page(check_html(report(simulated=True)))
    assert "Simulated: 6 of 6 cards" in page.text
    assert "NVIDIA H100 80GB HBM3, 80.00 GiB (simulated)" in page.text
    bodies = [attributes for tag, attributes in page.tags if tag == "tr" and attributes.get("class")]
    assert len(bodies) == len(
        [row for row in page.rows if row and not row[0].startswith(("machine", "measured", "while"))]
    )
    assert all("simulated" in (attributes["class"] or "") for attributes in bodies)
    assert "likely cause: too hot (91 °C, equal cards 66 °C) (simulated)" in page.text


def test_what_identifies_a_card_is_written_only_when_asked_for(tmp_path: Path) -> None:
    for name in ("r.html", "r.json"):
        write_check(tmp_path / name, report())
        text = (tmp_path / name).read_text(encoding="utf-8")
        assert "GPU-3" not in text
        assert "0000:03:00.0" not in text
        write_check(tmp_path / name, report(), uuids=True)
        text = (tmp_path / name).read_text(encoding="utf-8")
        assert "GPU-3" in text
        assert "0000:03:00.0" in text


def test_the_json_file_has_rates_and_readings(tmp_path: Path) -> None:
    write_check(tmp_path / "r.json", report())
    document = json.loads((tmp_path / "r.json").read_bytes())
    assert document["schema"] == 1
    assert document["slow"] == ["node1/cuda:3"]
    assert (document["started_unix_s"], document["ended_unix_s"]) == (1_700_000_000.0, 1_700_000_060.0)
    card = document["cards"][3]
    assert card["rates"][0]["unit"] == "TFLOP/s"
    assert card["rates"][0]["median"] == pytest.approx(80.08)
    assert card["readings"]["temperature_c"] == 91.0
    assert card["driver_version"] == "570.86.15"


def test_it_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = tmp_path / "r.html"
    before.write_text("the last one")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(Unavailable, match=r"r\.html could not be written \(no space left on device\)"):
        write_check(before, report())
    assert before.read_text() == "the last one"
    assert [path.name for path in tmp_path.iterdir()] == ["r.html"]


@pytest.mark.parametrize("name", ["report.pdf", "report", "no/such/folder/report.html"])
def test_where_no_report_can_be_is_said_before_anything_is_measured(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInput, match="--report"):
        report_file(name)


def test_on_a_terminal_a_verdict_is_folded_and_names_of_machines_are_only_text() -> None:
    lines = [made.plain for made in check_lines(report("[/red]\x1b[2J"), 80)]
    assert all(len(text) <= 80 for text in lines[: lines.index(next(one for one in lines if "slow between" in one))])
    assert sum(text.startswith("[/red]?[2J  cuda:") for text in lines) == 6
    assert "1 slow card of 6" in lines
    assert len(check_lines(report())) < len(lines)
