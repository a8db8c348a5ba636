"""Joining NVML's cards with torch's devices: by UUID, keeping every reason, in the order of the window."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import uuid

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from devexplorer.core.devices.catalog import Catalog, join, uuid_bytes
from devexplorer.core.devices.drm import DrmCard
from devexplorer.core.devices.nvml.library import Card
from devexplorer.core.devices.profiles import Profile, load_profiles
from devexplorer.core.records import DeviceInfo, Problem

A = "aaaaaaaa-0000-0000-0000-000000000001"
B = "bbbbbbbb-0000-0000-0000-000000000002"
C = "cccccccc-0000-0000-0000-000000000003"
CPU = DeviceInfo(id="cpu", kind="cpu", name="AMD EPYC")


def card(index: int, key: str, name: str = "Tesla T4", **more: object) -> Card:
    return Card(index=index, uuid=f"GPU-{key}", name=name, **more)  # type: ignore[arg-type]


def cuda(ordinal: int, key: str | None, **more: object) -> DeviceInfo:
    return DeviceInfo(id=f"cuda:{ordinal}", kind="cuda", name="T4", uuid=key, cuda_ordinal=ordinal, **more)  # type: ignore[arg-type]


def datasheet(tflops: dict[str, float], memory_gb_s: float) -> Profile:
    """A profile with these figures."""
    return dataclasses.replace(load_profiles()["Tesla T4"], tflops=tflops, memory_gb_s=memory_gb_s)


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


def test_a_broken_card_stays_with_its_own_reason_and_hides_no_other() -> None:
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
    sheet = {whole.name: datasheet({"float32": 19.5}, 1555)}
    catalog = join(CPU, [whole, part], [cuda(0, f"GPU-{B}", bus_id=bus)], datasheets=sheet)
    assert [(d.id, d.memory_total_bytes, d.usable, d.parent) for d in catalog.devices[1:]] == [
        ("nvml:0", 40, False, None),
        ("cuda:0", 10, True, "nvml:0"),
    ]
    assert "MIG mode" in (catalog.devices[1].reason or "")
    assert catalog.devices[2].datasheet_tflops == {}, "the card's datasheet is not its instance's"
    unlisted = join(CPU, [whole], [cuda(0, f"GPU-{B}", bus_id=bus)])
    assert unlisted.devices[1].nvml_index is None, "an instance that NVML does not list is not taken for its card"


def mig_card(index: int, key: str, *parts: str) -> list[Card]:
    """A card in MIG mode and its instances; empty slots between them are skipped, as NVML does."""
    whole = card(index, key, "NVIDIA A100", mig=True)
    name = f"{whole.name} MIG 1g.5gb"
    return [
        whole,
        *(Card(index=index, uuid=f"MIG-{part}", name=name, mig_instance=2 * at) for at, part in enumerate(parts)),
    ]


def test_every_mig_instance_is_below_its_card_and_says_how_it_can_be_used() -> None:
    cards = [card(0, A), *mig_card(1, B, C, C.replace("c", "d")), *mig_card(2, A.replace("a", "e"))]
    catalog = join(CPU, cards, [cuda(0, A), cuda(1, f"MIG-{C}")])
    assert [(d.id, d.parent, d.usable) for d in catalog.devices[1:]] == [
        ("cuda:0", None, True),
        ("nvml:1", None, False),
        ("cuda:1", "nvml:1", True),
        ("nvml:1/2", "nvml:1", False),
        ("nvml:2", None, False),
    ]
    other = catalog.devices[4]
    assert (other.nvml_index, other.uuid) == (1, f"MIG-{C.replace('c', 'd')}")
    assert f"CUDA_VISIBLE_DEVICES={other.uuid}" in (other.reason or "")
    assert "without an instance" in (catalog.devices[5].reason or "")
    assert catalog.names == {d.uuid: d.id for d in catalog.devices[1:]}, "each is sampled under its id"


def test_before_the_engine_has_reported_instances_are_listed_too() -> None:
    catalog = join(CPU, mig_card(0, B, C))
    assert ids(catalog) == ["cpu", "nvml:0", "nvml:0/0"]
    assert "has not reported yet" in (catalog.devices[2].reason or "")


def test_an_instance_that_torch_cannot_use_is_no_second_card_with_its_number() -> None:
    catalog = join(CPU, mig_card(0, B, C), [cuda(0, f"MIG-{C}", usable=False, reason="needs sm_120")])
    assert [(d.id, d.reason) for d in catalog.devices[2:]] == [("nvml:0/0", "needs sm_120")]


def test_a_card_that_is_lost_stays_where_it_was_with_its_reason() -> None:
    whole = card(0, A, broken="the card is lost")
    catalog = join(CPU, [whole, card(1, B)], [cuda(0, A), cuda(1, B)])
    assert [(d.id, d.usable, d.reason) for d in catalog.devices[1:]] == [
        ("cuda:0", False, "the card is lost"),
        ("cuda:1", True, None),
    ]
    assert catalog.names[f"GPU-{A}"] == "cuda:0"


def test_the_one_card_too_broken_to_say_its_name_is_the_one_that_torch_has_left() -> None:
    broken = Card(index=0, uuid=None, name="NVIDIA card 0", broken="the card is lost")
    catalog = join(CPU, [broken, card(1, B)], [cuda(0, A), cuda(1, B)])
    assert [(d.id, d.nvml_index, d.usable) for d in catalog.devices[1:]] == [("cuda:0", 0, False), ("cuda:1", 1, True)]
    two = join(CPU, [broken, Card(index=1, uuid=None, name="NVIDIA card 1", broken="x")], [cuda(0, A), cuda(1, B)])
    assert ids(two) == ["cpu", "cuda:0", "cuda:1", "nvml:0", "nvml:1"], "which is which cannot be known"


KEYS = st.sampled_from([A, B, C, None])


@given(
    st.lists(st.tuples(KEYS, st.booleans(), st.sampled_from([None, 0, 1])), max_size=6),
    st.lists(st.tuples(KEYS, st.booleans()), max_size=4),
)
def test_whatever_is_said_no_two_devices_share_an_id_and_none_is_left_out(
    nvml: list[tuple[str | None, bool, int | None]], engine: list[tuple[str | None, bool]]
) -> None:
    cards = [
        Card(
            index=at // 2,
            mig_instance=part if at % 2 else None,
            uuid=key and f"GPU-{key}",
            name="T4",
            broken="lost" if broken else None,
        )
        for at, (key, broken, part) in enumerate(nvml)
        if not at % 2 or part is not None
    ]
    listed = [
        cuda(at, key, usable=usable, reason=None if usable else "too new") for at, (key, usable) in enumerate(engine)
    ]
    catalog = join(CPU, cards, listed)
    assert len(set(ids(catalog))) == len(ids(catalog))
    matched = sum(d.nvml_index is not None and d.cuda_ordinal is not None for d in catalog.devices)
    assert len(catalog.devices) == 1 + len(cards) + len(listed) - matched
    assert all(d.usable or d.reason for d in catalog.devices)
    assert all(d.parent is None or d.parent in ids(catalog) for d in catalog.devices)


def drm_card(number: int, vendor: str, bus: str) -> DrmCard:
    total = 16 << 30 if vendor == "AMD" else None
    return DrmCard(
        number, vendor, f"{vendor} card {number}", bus, "amdgpu" if vendor == "AMD" else "xe", total, shared=False
    )


def test_amd_and_intel_cards_join_torchs_devices_or_are_listed_with_their_reason() -> None:
    rocm = DeviceInfo(id="cuda:0", kind="cuda", name="ROCm device 0", cuda_ordinal=0)
    xpu = DeviceInfo(id="xpu:0", kind="xpu", name="Intel Arc B580", bus_id="0000:05:00.0")
    found = [
        drm_card(0, "AMD", "0000:03:00.0"),
        drm_card(1, "Intel", "0000:00:02.0"),
        drm_card(2, "Intel", "0000:05:00.0"),
    ]
    catalog = join(CPU, [], [rocm, xpu], drm=found)
    assert [(d.id, d.kind, d.name, d.bus_id, d.usable) for d in catalog.devices[1:]] == [
        ("cuda:0", "cuda", "AMD card 0", "0000:03:00.0", True),
        ("xpu:0", "xpu", "Intel Arc B580", "0000:05:00.0", True),
        ("drm:1", "drm", "Intel card 1", "0000:00:02.0", False),
    ]
    assert "XPU" in (catalog.devices[3].reason or "")
    assert catalog.devices[1].memory_total_bytes == 16 << 30
    assert catalog.drm_names == {"0000:03:00.0": "cuda:0", "0000:05:00.0": "xpu:0", "0000:00:02.0": "drm:1"}
    assert catalog.names == {}


def test_two_amd_cards_without_an_address_on_torchs_side_are_not_guessed() -> None:
    rocm = [DeviceInfo(id=f"cuda:{at}", kind="cuda", name=f"ROCm device {at}", cuda_ordinal=at) for at in (0, 1)]
    catalog = join(CPU, [], rocm, drm=[drm_card(0, "AMD", "0000:03:00.0"), drm_card(1, "AMD", "0000:04:00.0")])
    assert ids(catalog) == ["cpu", "cuda:0", "cuda:1", "drm:0", "drm:1"]


def test_an_nvidia_card_is_not_taken_for_the_only_amd_card() -> None:
    catalog = join(CPU, [card(0, A)], [cuda(0, A)], drm=[drm_card(1, "AMD", "0000:03:00.0")])
    assert ids(catalog) == ["cpu", "cuda:0", "drm:1"]
    without_nvml = join(CPU, [], [cuda(0, A)], drm=[drm_card(1, "AMD", "0000:03:00.0")])
    assert ids(without_nvml) == ["cpu", "cuda:0", "drm:1"]


@pytest.mark.parametrize("name", ["Tesla T4", "NVIDIA Tesla T4", "tesla  t4"])
def test_a_known_model_gets_its_datasheet(name: str) -> None:
    sheets = {"Tesla T4": datasheet({"float16": 65.0}, 320.0), "NVIDIA A10": datasheet({"float16": 125.0}, 600.0)}
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
    nameless = msgspec.structs.replace(card(1, B, "NVIDIA card 1"), named=False)
    assert join(CPU, [card(0, A), nameless], []).problems == (), (
        "a name that cannot be read says nothing about the model"
    )


def test_the_catalog_and_the_telemetry_come_without_torch_and_pynvml() -> None:
    modules = [
        "devices.catalog",
        "devices.cpu",
        "devices.nvml",
        "devices.drm",
        "devices.cuda_visible_devices",
        "telemetry.history",
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
