"""The fake NVML says what the ledger of the stand-in says. Needs no stand-in."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from fakes.nvml_library import NvmlLibrary

from devexplorer.core.devices.nvml.library import Nvml

MOST_CARDS = 32
SLOT = struct.Struct(f"iiQ{MOST_CARDS}q")
MIB = 1 << 20


def started(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


def slot(pid: int, *bytes_of: int, began: int | None = None) -> bytes:
    amounts = [*bytes_of, *[0] * (MOST_CARDS - len(bytes_of))]
    return SLOT.pack(pid, 0, started(pid) if began is None else began, *amounts)


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of two cards, before NVML is loaded."""
    monkeypatch.setenv("FAKE_CUDA_LEDGER", str(tmp_path / "ledger"))
    return tmp_path / "ledger"


def write(ledger: Path, *slots: bytes, lost: int | None = None) -> None:
    flags = [int(card == lost) for card in range(MOST_CARDS)]
    text = struct.pack(f"{MOST_CARDS}i", *flags) + b"".join(slots)
    with ledger.open("r+b" if ledger.exists() else "w+b") as file:
        file.write(text)


def test_processes_and_memory_are_those_of_the_ledger(ledger: Path, nvml_library: NvmlLibrary) -> None:
    other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    own = slot(os.getpid(), 300 * MIB, 0)
    write(ledger, own, slot(other.pid, 100 * MIB, 50 * MIB), slot(os.getppid(), 70 * MIB, began=1))
    nvml = Nvml(hidden_processes=lambda: False)
    assert nvml.start()

    def processes() -> list[dict[int, int | None]]:
        cards = [nvml.read_slow(card).processes or () for card in nvml.cards()]
        return [{process.pid: process.memory_bytes for process in listed} for listed in cards]

    assert processes() == [{os.getpid(): 300 * MIB, other.pid: 100 * MIB}, {other.pid: 50 * MIB}], (
        "not another's number"
    )
    idle = 5 * MIB
    used = [nvml.read(card, device="", time_unix_s=0.0).memory_used_bytes for card in nvml.cards()]
    assert used == [400 * MIB + idle, 50 * MIB + idle]
    other.kill()
    os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)
    assert processes() == [{os.getpid(): 300 * MIB}, {}], "a process that has ended, though nobody has taken notice"
    other.communicate()
    nvml.close()


def test_a_card_that_the_ledger_calls_lost_is_lost(ledger: Path, nvml_library: NvmlLibrary) -> None:
    write(ledger, slot(os.getpid(), 300 * MIB))
    nvml = Nvml(hidden_processes=lambda: False)
    assert nvml.start()
    first, second = nvml.cards()
    write(ledger, slot(os.getpid(), 300 * MIB), lost=1)
    assert nvml.read(first, device="", time_unix_s=0.0).memory_used_bytes
    lost = nvml.read(second, device="", time_unix_s=0.0)
    assert lost.memory_used_bytes is None
    assert "lost" in str(nvml.problems).lower()
    nvml.close()
