"""Access to NVML: the values of a healthy card; every failure becomes None and one problem."""

from __future__ import annotations

import importlib
import inspect

import psutil
import pytest
from fakes.nvml import MIB, FakeCard, FakeNvml, opened
from fakes.nvml_library import NvmlLibrary

from devexplorer.core.devices.nvml.library import Card, Nvml
from devexplorer.core.records import DeviceSample

A = "GPU-aaaaaaaa-0000-0000-0000-000000000001"
B = "GPU-bbbbbbbb-0000-0000-0000-000000000002"


def slow_fields(**fields: object) -> DeviceSample:
    return DeviceSample(device="nvml:0", time_unix_s=0.0, **fields)  # type: ignore[arg-type]


def read(nvml: Nvml, card: Card) -> DeviceSample:
    return nvml.read(card, device="cuda:0", time_unix_s=5.0, slow=nvml.read_slow(card))


def clocks(nvml: Nvml, card: Card) -> tuple[int | None, ...]:
    sample = read(nvml, card)
    return sample.sm_clock_mhz, sample.graphics_clock_mhz, sample.memory_clock_mhz, sample.video_clock_mhz


def test_a_healthy_card_answers_everything() -> None:
    fake = FakeNvml(FakeCard(uuid=A, compute=[(11, 5 * MIB)]))
    nvml, (card,) = opened(fake)
    assert card == Card(
        index=0,
        uuid=A,
        name="Tesla T4",
        bus_id="00000000:00:04.0",
        memory_total_bytes=15360 * MIB,
        memory_used_bytes=1024 * MIB,
        compute_capability="7.5",
        driver_version="550.54.15",
        cuda_version="12.4",
        ecc=True,
        compute_mode="Default",
        mig=False,
    )
    assert nvml.read(
        card, device="cuda:0", time_unix_s=5.0, slow=slow_fields(fan_percent=30.0, throttle_reasons=())
    ) == DeviceSample(
        device="cuda:0",
        time_unix_s=5.0,
        memory_used_bytes=1024 * MIB,
        memory_free_bytes=(15360 - 1024 - 256) * MIB,
        memory_reserved_bytes=256 * MIB,
        memory_total_bytes=15360 * MIB,
        utilization_percent=43.0,
        memory_utilization_percent=12.0,
        temperature_c=61.0,
        power_w=35.5,
        sm_clock_mhz=1590,
        memory_clock_mhz=5001,
        fan_percent=30.0,
        throttle_reasons=(),
    )
    assert nvml.problems == ()


def test_what_changes_little_within_a_few_ticks_is_asked_at_every_third() -> None:
    fake, now = FakeNvml(FakeCard(uuid=A)), [100.0]
    nvml, (card,) = opened(fake, clock=lambda: now[0])
    told = []
    for temperature in (61, 62, 63, 64):
        fake.cards[0].temperature = fake.cards[0].utilization = fake.cards[0].clock = temperature
        sample = read(nvml, card)
        told.append((sample.sm_clock_mhz, sample.temperature_c, sample.utilization_percent, sample.memory_clock_mhz))
        now[0] += 0.1
    assert told == [(61, 61, 61, 5001), (62, 61, 61, 5001), (63, 61, 61, 5001), (64, 64, 64, 5001)]


@pytest.mark.parametrize(
    ("capability", "told"),
    [
        ((9, 0), [35.5, 35.5, 35.5, 65.5]),
        ((8, 6), [35.5, 35.5, 35.5, 65.5]),
        ((8, 0), [35.5, 45.5, 55.5, 65.5]),
        ((7, 5), [35.5, 45.5, 55.5, 65.5]),
    ],
)
def test_power_that_is_an_average_of_a_second_is_asked_at_every_third(
    capability: tuple[int, int], told: list[float]
) -> None:
    fake, now = FakeNvml(FakeCard(uuid=A, capability=capability)), [100.0]
    nvml, (card,) = opened(fake, clock=lambda: now[0])
    power = []
    for _ in range(4):
        power.append(read(nvml, card).power_w)
        fake.cards[0].power_mw += 10_000
        now[0] += 0.1
    assert power == told


def test_the_same_six_calls_reach_the_driver_through_the_real_pynvml(nvml_library: NvmlLibrary) -> None:
    nvml_library.reset(["h200"] * 8)
    now = [100.0]
    nvml = Nvml(hidden_processes=lambda: False, clock=lambda: now[0])
    nvml.start()
    cards = nvml.cards()
    for card in cards:
        nvml.read(card, device=card.nvml_id, time_unix_s=0.0)  # asks for the maximum of its clocks, once
    now[0] += 1
    nvml_library.reset_calls()
    samples = [nvml.read(card, device=card.nvml_id, time_unix_s=0.0) for card in cards]
    assert nvml_library.calls() == 8 * 6
    for sample in samples:
        known = {field for field in DeviceSample.__struct_fields__ if getattr(sample, field) is not None}
        assert (
            len(known) == 2 + 4 + 2 + 1 + 1 + 2 + 1
        )  # with memory's four, both utilizations, both clocks, and `simulated`
    nvml.close()


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (FakeNvml.NVML_ERROR_LIBRARY_NOT_FOUND, "no NVIDIA driver"),
        (FakeNvml.NVML_ERROR_DRIVER_NOT_LOADED, "not loaded"),
        (FakeNvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH, "reboot or reload the driver"),
        (FakeNvml.NVML_ERROR_FUNCTION_NOT_FOUND, "a function is missing"),
        (FakeNvml.NVML_ERROR_NO_PERMISSION, "this user may not ask"),
        (FakeNvml.NVML_ERROR_UNKNOWN, "NVML did not start: Unknown Error"),
    ],
)
def test_nvml_that_does_not_start_is_one_problem_and_no_cards(code: int, words: str) -> None:
    fake = FakeNvml(FakeCard())
    fake.fail("nvmlInit", code)
    nvml = Nvml(fake)
    assert not nvml.start()
    assert not nvml.start()
    assert nvml.cards() == ()
    (problem,) = nvml.problems
    assert words in problem.reason
    assert (problem.device, problem.field) == (None, "nvml")
    nvml.close()
    assert fake.calls["nvmlShutdown"] == 0


def test_a_mismatch_is_recognised_by_its_text_too() -> None:
    fake = FakeNvml()
    fake.fail("nvmlInit", OSError("Failed to initialize NVML: Driver/library version mismatch"))
    nvml = Nvml(fake)
    nvml.start()
    assert "reboot or reload the driver" in nvml.problems[0].reason


def test_a_missing_package_is_stated(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> object:
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    nvml = Nvml()
    assert not nvml.start()
    assert "nvidia-ml-py is not installed" in nvml.problems[0].reason


def test_an_unsupported_field_is_none_stated_once_and_not_asked_again() -> None:
    fake = FakeNvml(FakeCard(uuid=A), FakeCard(uuid=B))
    fake.fail("nvmlDeviceGetPowerUsage", FakeNvml.NVML_ERROR_NOT_SUPPORTED, card=1)
    nvml, (first, second) = opened(fake)
    fake.calls.clear()
    for _ in range(5):
        sample = read(nvml, second)
        assert sample.power_w is None
        assert sample.temperature_c == 61.0
        assert read(nvml, first).power_w == 35.5
    (problem,) = nvml.problems
    assert (problem.device, problem.field) == ("nvml:1", "power_w")
    assert fake.calls["nvmlDeviceGetPowerUsage"] == 6  # five for the first card, one for the second


def test_a_lost_card_is_one_problem_and_hides_no_other() -> None:
    fake = FakeNvml(FakeCard(uuid=A), FakeCard(uuid=B))
    nvml, (first, second) = opened(fake)
    fake.lose(0)
    fake.calls.clear()
    for _ in range(3):
        sample = read(nvml, first)
        assert sample == DeviceSample(device="cuda:0", time_unix_s=5.0)
    assert fake.calls.total() == 6, "after the first answer that it is lost nothing more is asked"
    assert read(nvml, second).temperature_c == 61.0
    (problem,) = nvml.problems
    assert (problem.device, problem.field) == ("nvml:0", None)
    assert "lost" in problem.reason
    fake.heal()
    assert read(nvml, first).temperature_c == 61.0
    assert nvml.problems == ()


@pytest.mark.parametrize("function", ["nvmlDeviceGetHandleByIndex", "nvmlDeviceGetUUID", "nvmlDeviceGetEccMode"])
def test_a_card_lost_before_it_was_listed_stays_in_the_list(function: str) -> None:
    fake = FakeNvml(FakeCard(uuid=A), FakeCard(uuid=B))
    fake.fail(function, FakeNvml.NVML_ERROR_GPU_IS_LOST, card=0)
    nvml, (first, second) = opened(fake)
    assert first.index == 0
    assert first.broken is not None
    assert "lost" in first.broken
    assert second.uuid == B
    assert [problem.device for problem in nvml.problems] == ["nvml:0"]


def test_no_samples_is_no_problem() -> None:
    fake = FakeNvml(FakeCard(uuid=A))
    fake.fail("nvmlDeviceGetUtilizationRates", 0)
    nvml, (card,) = opened(fake)
    assert read(nvml, card).utilization_percent is None
    assert nvml.problems == ()


@pytest.mark.parametrize("lacks_signed", [False, True])
def test_a_temperature_below_zero(lacks_signed: bool) -> None:
    fake = FakeNvml(FakeCard(uuid=A, temperature=-5))
    if lacks_signed:
        fake.fail("nvmlDeviceGetTemperatureV", FakeNvml.NVML_ERROR_FUNCTION_NOT_FOUND)
    nvml, (card,) = opened(fake)
    assert read(nvml, card).temperature_c == -5.0
    assert nvml.problems == ()


def test_a_pynvml_without_the_newer_functions_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(FakeNvml, "nvmlDeviceGetTemperatureV")
    monkeypatch.delattr(FakeNvml, "nvmlMemory_v2")
    nvml, (card,) = opened(FakeNvml(FakeCard(uuid=A)))
    sample = read(nvml, card)
    assert sample.temperature_c == 61.0
    assert sample.memory_used_bytes == (1024 + 256) * MIB, "the first version counts reserved memory as used"


def test_unified_memory_is_the_system_s_and_labelled_shared() -> None:
    fake = FakeNvml(FakeCard(uuid=A, name="NVIDIA GB10", capability=(12, 1)))
    for function in ("nvmlDeviceGetMemoryInfo", "nvmlDeviceGetMemoryInfo_v2"):
        fake.fail(function, FakeNvml.NVML_ERROR_NOT_SUPPORTED)
    nvml, (card,) = opened(fake)
    assert card.memory_shared
    assert card.memory_total_bytes == psutil.virtual_memory().total
    sample = read(nvml, card)
    assert sample.memory_total_bytes == card.memory_total_bytes
    assert sample.memory_used_bytes is not None
    assert nvml.problems == ()


@pytest.mark.parametrize(
    ("capability", "code"),
    [
        ((12, 1), FakeNvml.NVML_ERROR_NO_PERMISSION),
        ((7, 5), FakeNvml.NVML_ERROR_NOT_SUPPORTED),
        ((9, 0), FakeNvml.NVML_ERROR_NOT_SUPPORTED),
    ],
)
def test_memory_that_a_card_does_not_tell_is_not_taken_for_the_system_s(capability: tuple[int, int], code: int) -> None:
    fake = FakeNvml(FakeCard(uuid=A, capability=capability))
    for function in ("nvmlDeviceGetMemoryInfo", "nvmlDeviceGetMemoryInfo_v2"):
        fake.fail(function, code)
    nvml, (card,) = opened(fake)
    assert not card.memory_shared
    assert card.memory_total_bytes is None
    sample = read(nvml, card)
    assert (sample.memory_used_bytes, sample.memory_total_bytes) == (None, None)
    assert [problem.field for problem in nvml.problems] == ["memory_used_bytes"]


def test_a_name_that_is_no_utf8_is_shown_as_far_as_it_is() -> None:
    fake = FakeNvml(FakeCard(uuid=A))
    fake.fail("nvmlDeviceGetName", UnicodeDecodeError("utf-8", b"Tesla \xff\xfe T4", 6, 7, "invalid start byte"))
    _, (card,) = opened(fake)
    assert card.name == "Tesla �� T4"


def test_after_close_nothing_is_asked() -> None:
    fake = FakeNvml(FakeCard(uuid=A))
    nvml, (card,) = opened(fake)
    nvml.close()
    nvml.close()
    assert fake.initialised == 0
    assert read(nvml, card) == DeviceSample(device="cuda:0", time_unix_s=5.0)


def test_a_shutdown_that_fails_is_ignored() -> None:
    fake = FakeNvml(FakeCard(uuid=A))
    nvml, _ = opened(fake)
    fake.fail("nvmlShutdown", FakeNvml.NVML_ERROR_UNKNOWN)
    nvml.close()
    assert not nvml.started


def garbage() -> FakeCard:
    """Values of uninitialised structures and of drivers that do not know them."""
    return FakeCard(
        uuid=A,
        used=2**64 - 1,
        reserved=2**63,
        utilization=2**32 - 1,
        memory_utilization=101,
        temperature=2**31 - 1,
        power_mw=2**32 - 1,
        clock=2**32 - 1,
        memory_clock=2**32 - 1,
    )


def test_answers_that_cannot_be_right_are_not_known() -> None:
    nvml, (card,) = opened(FakeNvml(garbage()))
    sample = nvml.read(card, device="cuda:0", time_unix_s=5.0)
    assert sample == DeviceSample(device="cuda:0", time_unix_s=5.0, memory_total_bytes=15360 * MIB)
    reasons = {problem.field: problem.reason for problem in nvml.problems}
    free = (15360 * MIB - (2**64 - 1) - 2**63) % 2**64
    assert reasons == {
        "memory_used_bytes": f"the driver answers {2**64 - 1} bytes of memory in use, which cannot be right",
        "memory_free_bytes": f"the driver answers {free} bytes of free memory, which cannot be right",
        "memory_reserved_bytes": f"the driver answers {2**63} bytes of reserved memory, which cannot be right",
        "utilization_percent": "the driver answers 4294967295 % utilization, which cannot be right",
        "memory_utilization_percent": "the driver answers 101 % memory utilization, which cannot be right",
        "temperature_c": "the driver answers 2147483647 °C, which cannot be right",
        "power_w": "the driver answers 4294967.295 W, which cannot be right",
        "sm_clock_mhz": "the driver answers 4294967295 MHz, which cannot be right",
    }


def test_more_memory_in_use_than_there_is_is_refused_with_both_figures() -> None:
    card = FakeCard(uuid=A, total=100 * MIB, used=101 * MIB, reserved=0)
    nvml, (listed,) = opened(FakeNvml(card))
    sample = nvml.read(listed, device="cuda:0", time_unix_s=5.0)
    assert (sample.memory_used_bytes, sample.memory_free_bytes, sample.memory_total_bytes) == (None, None, 100 * MIB)
    reasons = {problem.field: problem.reason for problem in nvml.problems}
    words = f"the driver answers {101 * MIB} bytes of memory in use of {100 * MIB}, which cannot be right"
    assert reasons["memory_used_bytes"] == words
    card.used = 50 * MIB
    assert nvml.read(listed, device="cuda:0", time_unix_s=6.0).memory_used_bytes == 50 * MIB
    assert nvml.problems == ()


def test_a_clock_far_above_the_maximum_of_its_card_is_refused_and_an_overclocked_one_is_not() -> None:
    absurd = FakeCard(clock=3315, memory_clock=9000, clocks={0: 3315, 3: 3000})
    nvml, (listed,) = opened(FakeNvml(absurd))
    assert clocks(nvml, listed) == (None, None, None, None)
    details = nvml.read_details(listed, device="cuda:0", time_unix_s=5.0)
    assert details.missing["sm_clock_mhz"] == "the driver answers 3315 MHz of 1590 at most, which cannot be right"
    assert {"graphics_clock_mhz", "memory_clock_mhz", "video_clock_mhz"} <= set(details.missing)
    absurd.clock, absurd.memory_clock, absurd.clocks = 1725, 5600, {0: 1725, 3: 1500}
    nvml, (listed,) = opened(FakeNvml(absurd))
    assert clocks(nvml, listed) == (1725, 1725, 5600, 1500)


def test_a_clock_stays_where_the_card_does_not_tell_its_maximum() -> None:
    fake = FakeNvml(FakeCard(clock=3315))
    fake.fail("nvmlDeviceGetMaxClockInfo", fake.NVML_ERROR_NOT_SUPPORTED)
    nvml, (listed,) = opened(fake)
    assert clocks(nvml, listed)[0] == 3315


def test_two_cards_with_one_uuid_are_both_there() -> None:
    nvml, cards = opened(FakeNvml(FakeCard(uuid=A, name="first"), FakeCard(uuid=A, name="second")))
    assert [(card.name, card.uuid, card.nvml_id) for card in cards] == [
        ("first", A, "nvml:0"),
        ("second", None, "nvml:1"),
    ]
    assert [problem.reason for problem in nvml.problems] == [f"the driver gives this card the UUID of nvml:0 ({A})"]
    assert read(nvml, cards[1]).temperature_c == 61.0


@pytest.mark.parametrize("total", [0, 2**64 - 1])
def test_a_card_without_a_size_has_no_memory_figures(total: int) -> None:
    nvml, (card,) = opened(FakeNvml(FakeCard(uuid=A, total=total)))
    assert card.memory_total_bytes is None
    sample = nvml.read(card, device="cuda:0", time_unix_s=5.0)
    assert (sample.memory_used_bytes, sample.memory_free_bytes, sample.memory_total_bytes) == (None, None, None)
    assert sample.temperature_c == 61.0


def test_a_half_of_an_answer_is_kept() -> None:
    nvml, (card,) = opened(FakeNvml(FakeCard(uuid=A, memory_utilization=2**32 - 1)))
    sample = nvml.read(card, device="cuda:0", time_unix_s=5.0)
    assert (sample.utilization_percent, sample.memory_utilization_percent) == (43.0, None)


def test_the_unsigned_temperature_s_largest_number_means_not_known() -> None:
    fake = FakeNvml(FakeCard(uuid=A, temperature=-1))
    fake.fail("nvmlDeviceGetTemperatureV", FakeNvml.NVML_ERROR_FUNCTION_NOT_FOUND)
    nvml, (card,) = opened(fake)
    assert nvml.read(card, device="cuda:0", time_unix_s=5.0).temperature_c is None


def test_the_stand_in_has_the_names_and_codes_of_the_real_module() -> None:
    real = importlib.import_module("pynvml")
    for name, value in vars(FakeNvml).items():
        if name.startswith(("NVML_", "nvmlMemory")):
            assert getattr(real, name) == value, name
        elif name.startswith("nvml"):
            required = [p for p in list(inspect.signature(value).parameters.values())[1:] if p.default is p.empty]
            inspect.signature(getattr(real, name)).bind(*required)  # a TypeError when the real one wants others
    assert real.NVMLError(FakeNvml.NVML_ERROR_GPU_IS_LOST).value == FakeNvml.NVML_ERROR_GPU_IS_LOST
    assert not issubclass(real.NVMLLibraryMismatchError, real.NVMLError)


def test_a_card_that_is_lost_now_repeats_nothing_of_before() -> None:
    fake = FakeNvml(FakeCard(uuid="GPU-aaaaaaaa-0000-0000-0000-000000000001"))
    nvml, (card,) = opened(fake)
    slow = nvml.read_slow(card)
    assert nvml.read(card, device="cuda:0", time_unix_s=1.0, slow=slow).performance_state is not None
    fake.lose(0)
    assert nvml.read(card, device="cuda:0", time_unix_s=2.0, slow=slow) == DeviceSample(
        device="cuda:0", time_unix_s=2.0
    )
