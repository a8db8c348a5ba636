"""How `watch` names cards without torch: as torch would, or by NVML's number if ambiguous."""

from __future__ import annotations

from pathlib import Path

import pytest

from devexplorer.core.devices import catalog
from devexplorer.core.devices.catalog import Build, expected_devices, installed_build
from devexplorer.core.devices.nvml_card import Card

CUDA = Build("2.13.0+cu130", cuda="13.0")
A, B, C = (f"GPU-aaaaaaaa-0000-0000-0000-00000000000{number}" for number in range(3))


def card(index: int, uuid: str, bus: str, name: str = "NVIDIA H200", *, mig: bool = False) -> Card:
    return Card(index=index, uuid=uuid, name=name, bus_id=f"00000000:{bus}:00.0", mig=mig)


H200S = [card(0, A, "1B"), card(1, B, "27"), card(2, C, "33")]


@pytest.mark.parametrize(
    ("environ", "uuids"),
    [
        ({}, [A, B, C]),
        ({"CUDA_VISIBLE_DEVICES": "2,0"}, [C, A]),
        ({"CUDA_VISIBLE_DEVICES": B}, [B]),
        ({"CUDA_VISIBLE_DEVICES": ""}, []),
    ],
)
def test_cards_are_numbered_as_cuda_does(environ: dict[str, str], uuids: list[str]) -> None:
    found = expected_devices(H200S, {}, environ, CUDA, "CPU")
    assert [(info.id, info.uuid) for info in found.devices] == [(f"cuda:{at}", uuid) for at, uuid in enumerate(uuids)]


def test_models_that_differ_have_no_certain_order_unless_one_is_set() -> None:
    mixed = [card(0, A, "1B"), card(1, B, "27", "Tesla T4")]
    found = expected_devices(mixed, {}, {}, CUDA, "CPU")
    assert found.devices == ()
    assert "CUDA_DEVICE_ORDER" in found.problems[0].reason
    ordered = expected_devices(mixed, {}, {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, CUDA, "CPU")
    assert [info.uuid for info in ordered.devices] == [A, B]


@pytest.mark.parametrize(
    ("build", "words"),
    [(Build("2.13.0+cpu"), "is a CPU build"), (Build(reason="torch is not installed"), "torch is not installed")],
)
def test_a_build_without_cuda_says_why_no_card_is_usable(build: Build, words: str) -> None:
    found = expected_devices(H200S, {}, {}, build, "CPU")
    assert found.devices == ()
    assert words in found.problems[0].reason


def test_mig_is_left_to_those_who_ask_cuda() -> None:
    assert expected_devices([card(0, A, "1B", mig=True)], {}, {}, CUDA, "CPU").devices == ()


def test_other_makers_cards_come_in_the_order_of_their_addresses() -> None:
    buses = {"AMD": ["0000:83:00.0", "0000:03:00.0"], "Intel": ["0000:00:02.0"]}
    rocm = expected_devices([], buses, {}, Build("2.13.0+rocm7.0", hip="7.0"), "CPU").devices
    assert [(info.id, info.bus_id) for info in rocm] == [("cuda:0", "0000:03:00.0"), ("cuda:1", "0000:83:00.0")]
    assert expected_devices([], buses, {"HIP_VISIBLE_DEVICES": "1"}, Build("2.13.0", hip="7.0"), "CPU").devices == ()
    xpu = expected_devices([], buses, {}, Build("2.13.0+xpu", xpu="20250301"), "CPU").devices
    assert [(info.id, info.kind) for info in xpu] == [("xpu:0", "xpu")]


def test_the_kind_of_build_is_read_without_importing_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "torch"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('it was imported')", encoding="utf-8")
    (package / "version.py").write_text(
        "from typing import Optional\n__version__ = '2.13.0+cu130'\ncuda: Optional[str] = '13.0'\nhip: Optional[str] ="
        " None\n",
        encoding="utf-8",
    )
    spec = catalog.importlib.util.spec_from_file_location("torch", package / "__init__.py")
    monkeypatch.setattr(catalog.importlib.util, "find_spec", lambda name: spec)
    assert installed_build() == Build("2.13.0+cu130", cuda="13.0")
    monkeypatch.setattr(catalog.importlib.util, "find_spec", lambda name: None)
    assert "not installed" in (installed_build().reason or "")
