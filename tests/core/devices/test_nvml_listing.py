"""Listing the cards again: new cards, changed MIG modes, lost and recovered cards, unloaded drivers; healthy cards
stay."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from fakes.nvml import MIB, FakeCard, FakeNvml, opened

from devexplorer.core.devices.nvml import library as door
from devexplorer.core.devices.nvml.library import Card, Nvml
from devexplorer.core.records import DeviceSample

A = "GPU-aaaaaaaa-0000-0000-0000-000000000001"
B = "GPU-bbbbbbbb-0000-0000-0000-000000000002"
M = "MIG-cccccccc-0000-0000-0000-00000000000"


def sample(nvml: Nvml, card: Card) -> DeviceSample:
    return nvml.read(card, device="cuda:0", time_unix_s=5.0)


def part(number: int, name: str = "NVIDIA A100 MIG 1g.5gb") -> FakeCard:
    return FakeCard(uuid=f"{M}{number}", name=name, total=9 * MIB, used=MIB, reserved=0)


def test_a_second_listing_is_equal_and_cheap() -> None:
    fake = FakeNvml(FakeCard(uuid=A), FakeCard(uuid=B, mig=1, instances=[part(1)]))
    nvml, cards = opened(fake)
    fake.cards[0].used += MIB
    fake.calls.clear()
    assert nvml.cards() == cards
    assert (
        fake.calls.total() == 3 + 2 * 3 + 1 + 7 + 1
    )  # versions and count; three for each card; the places of MIG instances


def test_mig_instances_follow_their_card() -> None:
    fake = FakeNvml(FakeCard(uuid=A, mig=1, instances=[part(1), part(2, "NVIDIA A100")]), FakeCard(uuid=B))
    fake.cards[0].instances[0].gpu_instance = 5
    nvml, (card, first, second, other) = opened(fake)
    assert (card.mig, card.mig_instance, card.mig_profile) == (True, None, None)
    assert (first.index, first.mig_instance, first.memory_total_bytes) == (0, 0, 9 * MIB)
    assert (first.name, first.mig_profile, first.parent_key) == ("NVIDIA A100 MIG 1g.5gb", "1g.5gb", A)
    assert second.mig_profile is None, "an older driver does not say it"
    assert (card.gpu_instance_id, first.gpu_instance_id, second.gpu_instance_id) == (None, 5, None)
    assert other.index == 1
    assert sample(nvml, first).memory_used_bytes == MIB


def test_a_card_that_is_plugged_in_joins_and_the_others_stay_as_they_are() -> None:
    fake = FakeNvml(FakeCard(uuid=A))
    nvml, before = opened(fake)
    fake.cards.append(FakeCard(uuid=B))
    first, second = nvml.cards()
    assert (first,) == before
    assert (second.uuid, second.index) == (B, 1)
    assert sample(nvml, second).temperature_c == 61.0


def test_a_card_that_left_is_let_go_with_its_problems() -> None:
    fake = FakeNvml(FakeCard(uuid=A), FakeCard(uuid=B))
    nvml, (first, second) = opened(fake)
    fake.fail("nvmlDeviceGetPowerUsage", FakeNvml.NVML_ERROR_UNKNOWN, card=0)
    sample(nvml, first)
    assert nvml.problems
    fake.heal()
    del fake.cards[0]
    (left,) = nvml.cards()
    assert (left.uuid, left.index) == (second.uuid, 0)
    assert nvml.problems == ()
    assert sample(nvml, first) == DeviceSample(device="cuda:0", time_unix_s=5.0)
    assert sample(nvml, left).temperature_c == 61.0


def test_a_lost_card_stays_under_its_key_and_comes_back() -> None:
    fake = FakeNvml(FakeCard(uuid=A), FakeCard(uuid=B))
    nvml, before = opened(fake)
    fake.lose(0)
    lost, healthy = nvml.cards()
    assert lost.key == A
    assert lost.name == "Tesla T4"
    assert lost.broken is not None
    assert healthy == before[1]
    assert [problem.device for problem in nvml.problems] == ["nvml:0"]
    fake.heal()
    assert nvml.cards() == before
    assert nvml.problems == ()
    assert sample(nvml, before[0]).temperature_c == 61.0


def test_a_card_that_could_not_be_opened_at_first_can_be_later() -> None:
    fake = FakeNvml(FakeCard(uuid=A))
    fake.fail("nvmlDeviceGetHandleByIndex", FakeNvml.NVML_ERROR_UNKNOWN)
    nvml, (card,) = opened(fake)
    assert (card.uuid, card.broken) == (None, "Unknown Error")
    assert sample(nvml, card) == DeviceSample(device="cuda:0", time_unix_s=5.0)
    fake.heal()
    (card,) = nvml.cards()
    assert (card.uuid, card.broken) == (A, None)
    assert nvml.problems == ()


def test_mig_that_is_switched_on_and_off_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "SLUGGISH_S", 0.0)
    fake = FakeNvml(FakeCard(uuid=A))
    nvml, (card,) = opened(fake)
    fake.cards[0].mig, fake.cards[0].instances = 1, [part(1), part(2)]
    fake.fail("nvmlDeviceGetUtilizationRates", FakeNvml.NVML_ERROR_NOT_SUPPORTED)
    assert sample(nvml, card).utilization_percent is None
    assert [problem.field for problem in nvml.problems] == ["utilization_percent"]
    whole, first, _ = nvml.cards()
    assert (whole.key, whole.mig) == (A, True)
    assert sample(nvml, whole).utilization_percent is None
    assert nvml.problems == (), "in MIG mode nobody expects it"
    fake.cards[0].instances = [part(3)]
    _, other = nvml.cards()
    assert other.key == f"{M}3"
    assert sample(nvml, first) == DeviceSample(device="cuda:0", time_unix_s=5.0)
    fake.heal()
    fake.cards[0].mig = 0
    (whole,) = nvml.cards()
    assert whole == card
    assert sample(nvml, whole).utilization_percent == 43.0


@pytest.mark.parametrize("function", ["nvmlDeviceGetUUID", "nvmlDeviceGetMigMode", "nvmlDeviceGetMaxMigDeviceCount"])
@pytest.mark.parametrize("code", [FakeNvml.NVML_ERROR_UNKNOWN, FakeNvml.NVML_ERROR_NOT_SUPPORTED])
def test_a_question_that_fails_for_once_forgets_no_card(function: str, code: int) -> None:
    fake = FakeNvml(FakeCard(uuid=A, mig=1, instances=[part(1)]))
    nvml, before = opened(fake)
    fake.fail(function, code)
    listed = nvml.cards()
    assert listed[0] == before[0]
    if function != "nvmlDeviceGetUUID":  # instances differ in nothing else
        assert listed == before
    fake.heal()
    assert nvml.cards() == before
    assert sample(nvml, before[1]).memory_used_bytes == MIB


def test_what_was_lacking_is_asked_again_after_a_listing() -> None:
    fake = FakeNvml(FakeCard(uuid=A))
    nvml, (card,) = opened(fake)
    fake.fail("nvmlDeviceGetPowerUsage", FakeNvml.NVML_ERROR_NOT_SUPPORTED)
    assert sample(nvml, card).power_w is None
    fake.heal()
    assert sample(nvml, card).power_w is None
    nvml.cards()
    assert sample(nvml, card).power_w == 35.5
    assert nvml.problems == ()


@pytest.mark.parametrize("code", [FakeNvml.NVML_ERROR_UNINITIALIZED, FakeNvml.NVML_ERROR_DRIVER_NOT_LOADED])
def test_a_driver_that_is_unloaded_is_one_problem_until_it_is_back(code: int) -> None:
    fake = FakeNvml(FakeCard(uuid=A), FakeCard(uuid=B))
    nvml, before = opened(fake)
    for name in (
        "nvmlDeviceGetMemoryInfo_v2",
        "nvmlDeviceGetCount",
        "nvmlSystemGetDriverVersion",
        "nvmlDeviceGetHandleByIndex",
    ):
        fake.fail(name, code)
    fake.fail("nvmlInit", FakeNvml.NVML_ERROR_DRIVER_NOT_LOADED)
    fake.calls.clear()
    for card in (*before, *before):
        assert sample(nvml, card) == DeviceSample(device="cuda:0", time_unix_s=5.0)
    assert dict(fake.calls) == {"nvmlDeviceGetMemoryInfo_v2": 1, "nvmlDeviceGetCount": 1}, (
        "NVML said it twice: no card is asked any more"
    )
    assert not nvml.started
    assert [(problem.device, problem.field) for problem in nvml.problems] == [(None, "nvml")]
    assert [card.key for card in nvml.cards()] == [A, B], "they are still there, and broken"
    assert all(card.broken for card in nvml.cards())
    assert "unloaded" in nvml.read_details(before[0], device="cuda:0", time_unix_s=5.0).missing["serial"]
    fake.heal()
    assert nvml.cards() == before
    assert nvml.started
    assert nvml.problems == ()
    assert fake.initialised == 1
    assert sample(nvml, before[1]).temperature_c == 61.0


def test_a_session_that_answers_nothing_any_more_is_restarted() -> None:
    fake = FakeNvml(FakeCard(uuid=A))
    nvml, before = opened(fake)
    fake.fail("nvmlDeviceGetCount", FakeNvml.NVML_ERROR_UNKNOWN)
    assert nvml.cards() == before, "what does not answer at present is not gone"
    assert fake.calls["nvmlInit"] == 2
    fake.heal()
    assert nvml.cards() == before
    assert fake.initialised == 1


def test_a_card_that_the_driver_holds_and_nvml_does_not_know_needs_a_new_start() -> None:
    fake, held = FakeNvml(FakeCard(uuid=A)), {"0000:1b:00.0"}
    nvml, before = opened(fake, driver_cards=lambda: frozenset(held))
    nvml.cards()
    assert fake.calls["nvmlInit"] == 1
    held.add("0000:3b:00.0")
    nvml.cards()
    assert fake.calls["nvmlInit"] == 2
    assert nvml.cards() == before
    assert (fake.calls["nvmlInit"], fake.initialised) == (2, 1), "once for each new card"


def test_the_cards_that_linux_s_driver_holds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(door, "Path", lambda path: tmp_path / "gpus")
    assert door.driver_cards() == frozenset()
    for name in ("0000:1b:00.0", "0000:3b:00.0"):
        (tmp_path / "gpus" / name).mkdir(parents=True)
    assert door.driver_cards() == {"0000:1b:00.0", "0000:3b:00.0"}


def test_a_restart_waits_for_calls_and_gives_up_on_one_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "RESTART_PATIENCE_S", 0.05)
    fake = FakeNvml(FakeCard(uuid=A))
    nvml, (card,) = opened(fake)
    gate = fake.block("nvmlDeviceGetPowerUsage")
    thread = threading.Thread(target=sample, args=(nvml, card))
    thread.start()
    end = time.monotonic() + 10
    while not fake.calls["nvmlDeviceGetPowerUsage"]:
        assert time.monotonic() < end
        time.sleep(0.001)
    assert not nvml.restart()
    assert fake.calls["nvmlShutdown"] == 0, "shutting NVML down under a call may crash"
    gate.set()
    thread.join(10)
    assert nvml.restart()
    assert fake.calls["nvmlShutdown"] == 1
    assert sample(nvml, card) == DeviceSample(device="cuda:0", time_unix_s=5.0), (
        "handles of the time before are not used"
    )
    (again,) = nvml.cards()
    assert again == card
    assert sample(nvml, again).temperature_c == 61.0


def test_a_card_that_does_not_say_its_uuid_has_the_reason_stated() -> None:
    fake = FakeNvml(FakeCard(uuid="GPU-aaaaaaaa-0000-0000-0000-000000000001"))
    fake.fail("nvmlDeviceGetUUID", fake.NVML_ERROR_UNKNOWN)
    nvml, (card,) = opened(fake)
    assert card.uuid is None
    nvml.cards()
    assert [(problem.device, problem.field) for problem in nvml.problems] == [("nvml:0", "uuid")]
