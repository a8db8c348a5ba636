"""Joining NVML's cards with torch's devices: by UUID, every reason kept, in the order of the window."""

from __future__ import annotations

import subprocess
import sys
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devexplorer.core.devices.catalog import Catalog, Datasheet, join, uuid_bytes
from devexplorer.core.devices.nvml import Card
from devexplorer.core.records.devices import DeviceInfo, Problem

A = "aaaaaaaa-0000-0000-0000-000000000001"
B = "bbbbbbbb-0000-0000-0000-000000000002"
C = "cccccccc-0000-0000-0000-000000000003"
CPU = DeviceInfo(id="cpu", kind="cpu", name="AMD EPYC")


def card(index: int, key: str, name: str = "Tesla T4", **more: object) -> Card:
    return Card(index=index, uuid=f"GPU-{key}", name=name, **more)  # type: ignore[arg-type]


def cuda(ordinal: int, key: str | None, **more: object) -> DeviceInfo:
    return DeviceInfo(id=f"cuda:{ordinal}", kind="cuda", name="T4", uuid=key, cuda_ordinal=ordinal, **more)  # type: ignore[arg-type]


def ids(catalog: Catalog) -> list[str]:
    return [info.id for info in catalog.devices]


@given(st.uuids(), st.sampled_from(["", "GPU-", "gpu-", "MIG-"]), st.booleans(), st.booleans())
def test_a_uuid_is_its_bytes_however_it_is_spelled(key: uuid.UUID, prefix: str, upper: bool, hyphens: bool) -> None:
    text = str(key) if hyphens else key.hex
    assert uuid_bytes(prefix + (text.upper() if upper else text)) == key.bytes


@pytest.mark.parametrize("text", [None, "", "GPU-", "cuda:0", f"MIG-GPU-{A}/1/0", A[:-1], f"{A}0"])
def test_what_is_no_uuid_is_none(text: str | None) -> None:
    assert uuid_bytes(text) is None


def test_the_two_numbers_of_a_card_are_joined_by_uuid() -> None:
    catalog = join(
        CPU,
        [card(0, A, memory_used_bytes=5), card(1, B, memory_used_bytes=7)],
        [cuda(0, B), cuda(1, f"GPU-{A.upper()}")],
    )
    assert [(d.id, d.cuda_ordinal, d.nvml_index, d.memory_used_bytes) for d in catalog.devices[1:]] == [
        ("cuda:0", 0, 1, 7),
        ("cuda:1", 1, 0, 5),
    ]
    assert catalog.names == {f"GPU-{B}": "cuda:0", f"GPU-{A}": "cuda:1"}


def test_nvml_completes_what_torch_says_and_its_total_counts() -> None:
    facts = {"driver_version": "550", "cuda_version": "12.4", "bus_id": "00000000:3B:00.0", "memory_total_bytes": 16}
    (_, device) = join(CPU, [card(0, A, **facts)], [cuda(0, A, memory_total_bytes=15, sm_count=40)]).devices
    assert (device.name, device.driver_version, device.cuda_version) == ("Tesla T4", "550", "12.4")
    assert (device.memory_total_bytes, device.sm_count, device.bus_id) == (16, 40, "00000000:3B:00.0")


def test_without_nvml_torch_s_own_figures_stay() -> None:
    (_, device) = join(CPU, [], [cuda(0, A, memory_total_bytes=15)]).devices
    assert (device.id, device.memory_total_bytes, device.nvml_index) == ("cuda:0", 15, None)


def test_the_order_is_cpu_cuda_others_unusable_virtual() -> None:
    virtual = DeviceInfo(id="vgpu:0", kind="virtual", name="Tesla T4", simulated=True)
    more = DeviceInfo(id="vgpu:1", kind="virtual", name="Tesla T4", simulated=True)
    xpu = DeviceInfo(id="xpu:0", kind="xpu", name="Arc")
    engine_cpu = DeviceInfo(id="cpu", kind="cpu", name="AMD EPYC", threads=8)
    catalog = join(CPU, [card(1, B), card(0, A)], [virtual, xpu, cuda(1, C), cuda(0, B), engine_cpu], [more])
    assert ids(catalog) == ["cpu", "cuda:0", "cuda:1", "xpu:0", "nvml:0", "vgpu:0", "vgpu:1"]
    assert catalog.devices[0].threads == 8, "the engine knows the CPU's threads"


@pytest.mark.parametrize(
    ("torch_devices", "problems", "visible", "words"),
    [
        (None, [], None, "has not reported yet"),
        ([], [Problem("this torch is a CPU build", field="cuda")], None, "this torch is a CPU build"),
        ([], [Problem("a card's own", device="nvml:0", field="cuda")], "1", "CUDA_VISIBLE_DEVICES=1"),
        ([], [], None, "torch does not list this card"),
    ],
)
def test_a_card_that_torch_does_not_list_says_why(
    torch_devices: list[DeviceInfo] | None, problems: list[Problem], visible: str | None, words: str
) -> None:
    catalog = join(CPU, [card(0, A)], torch_devices, (), problems, cuda_visible_devices=visible)
    device = catalog.devices[1]
    assert (device.id, device.kind, device.usable, device.nvml_index) == ("nvml:0", "nvml", False, 0)
    assert device.reason is not None
    assert words in device.reason


def test_a_card_too_new_for_this_torch_is_listed_by_its_nvml_index_with_torch_s_reason() -> None:
    catalog = join(CPU, [card(0, A), card(1, B)], [cuda(0, B, usable=False, reason="needs sm_120"), cuda(1, A)])
    assert ids(catalog) == ["cpu", "cuda:1", "nvml:1"]
    assert (catalog.devices[2].reason, catalog.devices[2].cuda_ordinal) == ("needs sm_120", 0)


def test_an_unusable_card_that_only_torch_knows_keeps_its_number() -> None:
    catalog = join(CPU, [], [cuda(0, B, usable=False, reason="needs sm_120")])
    assert ids(catalog) == ["cpu", "cuda:0"]
    assert not catalog.devices[1].usable


def test_a_broken_card_stays_with_its_own_reason_and_hides_nobody() -> None:
    broken = Card(index=0, uuid=None, name="NVIDIA card 0", broken="the card is lost")
    catalog = join(CPU, [broken, card(1, B)], [cuda(0, B)], (), [Problem("the card is lost", device="nvml:0")])
    assert ids(catalog) == ["cpu", "cuda:0", "nvml:0"]
    assert catalog.devices[2].reason == "the card is lost"
    assert catalog.problems == (Problem("the card is lost", device="nvml:0"),)


def test_problems_follow_the_card_to_its_device() -> None:
    problems = [Problem("no power", device="nvml:1", field="power_w"), Problem("no driver", field="nvml")]
    catalog = join(CPU, [card(0, A), card(1, B)], [cuda(0, B)], (), [*problems, problems[0]])
    assert catalog.problems == (Problem("no power", device="cuda:0", field="power_w"), problems[1])


def test_without_a_uuid_the_bus_joins() -> None:
    nvml_card = Card(index=3, uuid=None, name="Tesla T4", bus_id="00000000:3B:00.0")
    (_, device) = join(CPU, [nvml_card], [cuda(0, A, bus_id="0000:3b:00.0")]).devices
    assert (device.id, device.nvml_index) == ("cuda:0", 3)


def test_a_mig_instance_is_joined_with_itself_not_with_its_card() -> None:
    bus = "00000000:3B:00.0"
    whole = card(0, A, "NVIDIA A100-SXM4-40GB", mig=True, bus_id=bus, memory_total_bytes=40)
    part = Card(
        index=0, uuid=f"MIG-{B}", name=whole.name, mig_instance=0, bus_id=bus, memory_total_bytes=10
    )  # fmt: skip
    sheet = {whole.name: Datasheet({"float32": 19.5}, 1555)}
    catalog = join(CPU, [whole, part], [cuda(0, f"GPU-{B}", bus_id=bus)], datasheets=sheet)
    assert [(d.id, d.memory_total_bytes, d.usable) for d in catalog.devices[1:]] == [
        ("cuda:0", 10, True),
        ("nvml:0", 40, False),
    ]
    assert "MIG mode" in (catalog.devices[2].reason or "")
    assert catalog.devices[1].datasheet_tflops == {}, "the card's datasheet is not its instance's"
    unlisted = join(CPU, [whole], [cuda(0, f"GPU-{B}", bus_id=bus)])
    assert unlisted.devices[1].nvml_index is None, "an instance that NVML does not list is not taken for its card"


@pytest.mark.parametrize("name", ["Tesla T4", "NVIDIA Tesla T4", "tesla  t4"])
def test_a_known_model_gets_its_datasheet(name: str) -> None:
    sheets = {"Tesla T4": Datasheet({"float16": 65.0}, 320.0), "NVIDIA A10": Datasheet({"float16": 125.0}, 600.0)}
    (_, device) = join(CPU, [card(0, A, name)], [cuda(0, A)], datasheets=sheets).devices
    assert (device.datasheet_tflops, device.memory_gb_s) == ({"float16": 65.0}, 320.0)
    (_, other) = join(CPU, [card(0, A, "NVIDIA Z9")], [cuda(0, A)], datasheets=sheets).devices
    assert (other.datasheet_tflops, other.memory_gb_s) == ({}, None)


def test_mixed_models_without_an_order_are_warned_about() -> None:
    mixed = [card(0, A), card(1, B, "NVIDIA A10")]
    (problem,) = join(CPU, mixed, []).problems
    assert "CUDA_DEVICE_ORDER" in problem.reason
    assert join(CPU, mixed, [], cuda_device_order="PCI_BUS_ID").problems == ()
    assert join(CPU, [card(0, A), card(1, B)], []).problems == ()


def test_the_catalog_and_the_telemetry_come_without_torch_and_pynvml() -> None:
    modules = [
        "devices.catalog",
        "devices.cpu",
        "devices.nvml",
        "telemetry.timeline",
        "telemetry.mailbox",
        "telemetry.sampler",
    ]
    code = (
        "import sys\n"
        + "".join(f"import devexplorer.core.{name}\n" for name in modules)
        + "print([name for name in ('torch', 'pynvml') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"
