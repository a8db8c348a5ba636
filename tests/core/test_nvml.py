"""The door to NVML: what a healthy card says, and that every kind of failure becomes None and one stated problem."""

from __future__ import annotations

import importlib
import inspect

import psutil
import pytest
from fakes.nvml import MIB, FakeCard, FakeNvml, NVMLLibraryMismatchError

from devexplorer.core.devices.nvml import Card, Nvml, Slow
from devexplorer.core.devices.nvml_card import ProcessFacts
from devexplorer.core.records.devices import DeviceSample, ProcessUse

A = "GPU-aaaaaaaa-0000-0000-0000-000000000001"
B = "GPU-bbbbbbbb-0000-0000-0000-000000000002"


def opened(fake: FakeNvml, *, container: bool = False) -> tuple[Nvml, tuple[Card, ...]]:
    nvml = Nvml(
        fake,
        process_facts=lambda pid: ProcessFacts(f"program-{pid}", "ada", f"program-{pid} --run"),
        hidden_processes=lambda: container,
        driver_cards=lambda: frozenset(),
    )
    assert nvml.start()
    return nvml, nvml.cards()


def read(nvml: Nvml, card: Card) -> DeviceSample:
    return nvml.read(card, device="cuda:0", time_unix_s=5.0, slow=nvml.read_slow(card))


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
        power_cap_w=70.0,
        ecc=True,
        compute_mode="Default",
        mig=False,
    )
    assert read(nvml, card) == DeviceSample(
        device="cuda:0",
        time_unix_s=5.0,
        memory_used_bytes=1024 * MIB,
        memory_total_bytes=15360 * MIB,
        utilization_percent=43.0,
        temperature_c=61.0,
        power_w=35.5,
        power_cap_w=70.0,
        sm_clock_mhz=1590,
        fan_percent=30.0,
        performance_state="P0",
        processes=(ProcessUse(11, "program-11", 5 * MIB),),
    )
    assert nvml.problems == ()


def test_a_quick_reading_takes_five_calls() -> None:
    fake = FakeNvml(FakeCard(uuid=A))
    nvml, (card,) = opened(fake)
    fake.calls.clear()
    nvml.read(card, device="cuda:0", time_unix_s=0.0, slow=Slow())
    assert fake.calls.total() == 5


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (FakeNvml.NVML_ERROR_LIBRARY_NOT_FOUND, "no NVIDIA driver is installed here"),
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


def test_nvml_that_starts_at_the_second_try_withdraws_its_problem() -> None:
    fake = FakeNvml(FakeCard(uuid=A))
    fake.fail("nvmlInit", FakeNvml.NVML_ERROR_DRIVER_NOT_LOADED)
    nvml = Nvml(fake)
    nvml.start()
    fake.heal()
    assert nvml.start()
    assert nvml.problems == ()


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


def test_a_passing_failure_is_stated_and_withdrawn() -> None:
    fake = FakeNvml(FakeCard(uuid=A))
    nvml, (card,) = opened(fake)
    fake.fail("nvmlDeviceGetClockInfo", FakeNvml.NVML_ERROR_UNKNOWN)
    assert read(nvml, card).sm_clock_mhz is None
    assert read(nvml, card).sm_clock_mhz is None
    assert [problem.field for problem in nvml.problems] == ["sm_clock_mhz"]
    fake.heal()
    assert read(nvml, card).sm_clock_mhz == 1590
    assert nvml.problems == ()


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


def test_old_process_getters_fall_back_to_the_second_version() -> None:
    fake = FakeNvml(FakeCard(uuid=A, compute=[(7, MIB)]))
    fake.fail("nvmlDeviceGetComputeRunningProcesses", NVMLLibraryMismatchError("Unversioned function called"))
    nvml, (card,) = opened(fake)
    assert nvml.read_slow(card).processes == (ProcessUse(7, "program-7", MIB),)
    assert nvml.problems == ()


def test_processes_that_no_getter_tells_are_none_not_empty() -> None:
    fake = FakeNvml(FakeCard(uuid=A))
    for kind in ("Compute", "Graphics"):
        fake.fail(f"nvmlDeviceGet{kind}RunningProcesses", NVMLLibraryMismatchError())
        fake.fail(f"nvmlDeviceGet{kind}RunningProcesses_v2", FakeNvml.NVML_ERROR_FUNCTION_NOT_FOUND)
    nvml, (card,) = opened(fake)
    assert nvml.read_slow(card).processes is None
    (problem,) = nvml.problems
    assert problem.field == "processes"
    assert "too old" in problem.reason


def test_an_empty_process_list_means_nothing_in_a_container() -> None:
    fake = FakeNvml(FakeCard(uuid=A))
    nvml, (card,) = opened(fake, container=True)
    assert nvml.read_slow(card).processes is None
    assert "not visible from here" in nvml.problems[0].reason
    nvml, (card,) = opened(fake)
    assert nvml.read_slow(card).processes == ()


def test_in_a_container_numbers_get_no_names() -> None:
    nvml, (card,) = opened(FakeNvml(FakeCard(uuid=A, compute=[(7, MIB)])), container=True)
    assert nvml.read_slow(card).processes == (ProcessUse(7, None, MIB),)


def test_a_process_in_both_lists_counts_once_and_impossible_ones_not_at_all() -> None:
    compute = [(7, None), (0, MIB), (2**31, MIB), (9, 2**60)]
    nvml, (card,) = opened(FakeNvml(FakeCard(uuid=A, compute=compute, graphics=[(7, MIB), (8, None)])))
    found = nvml.read_slow(card).processes
    assert found is not None
    assert [(process.pid, process.memory_bytes) for process in found] == [(7, MIB), (8, None), (9, None)]


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
    fake = FakeNvml(FakeCard(uuid=A, name="NVIDIA GB10"))
    for function in ("nvmlDeviceGetMemoryInfo", "nvmlDeviceGetMemoryInfo_v2"):
        fake.fail(function, FakeNvml.NVML_ERROR_NOT_SUPPORTED)
    nvml, (card,) = opened(fake)
    assert card.memory_shared
    assert card.memory_total_bytes == psutil.virtual_memory().total
    sample = read(nvml, card)
    assert sample.memory_total_bytes == card.memory_total_bytes
    assert sample.memory_used_bytes is not None
    assert nvml.problems == ()


def test_memory_that_may_not_be_asked_for_is_not_taken_for_unified() -> None:
    fake = FakeNvml(FakeCard(uuid=A))
    for function in ("nvmlDeviceGetMemoryInfo", "nvmlDeviceGetMemoryInfo_v2"):
        fake.fail(function, FakeNvml.NVML_ERROR_NO_PERMISSION)
    _, (card,) = opened(fake)
    assert not card.memory_shared
    assert card.memory_total_bytes is None


def test_a_name_that_is_no_utf8_is_shown_as_far_as_it_is() -> None:
    fake = FakeNvml(FakeCard(uuid=A))
    fake.fail("nvmlDeviceGetName", UnicodeDecodeError("utf-8", b"Tesla \xff\xfe T4", 6, 7, "invalid start byte"))
    _, (card,) = opened(fake)
    assert card.name == "Tesla �� T4"


def test_mig_instances_follow_their_card() -> None:
    instances = [FakeCard(uuid="MIG-cccccccc-0000-0000-0000-000000000003", total=9 * MIB, used=MIB)]
    fake = FakeNvml(FakeCard(uuid=A, mig=1, instances=instances), FakeCard(uuid=B))
    nvml, (card, instance, other) = opened(fake)
    assert (card.mig, card.mig_instance) == (True, None)
    assert (instance.index, instance.mig_instance, instance.memory_total_bytes) == (0, 0, 9 * MIB)
    assert other.index == 1
    assert nvml.read(instance, device="cuda:0", time_unix_s=0.0).memory_used_bytes == MIB


def test_features_that_a_card_simply_lacks_are_no_problems() -> None:
    fake = FakeNvml(FakeCard(uuid=A))
    for function in ("nvmlDeviceGetFanSpeed", "nvmlDeviceGetMigMode", "nvmlDeviceGetEccMode"):
        fake.fail(function, FakeNvml.NVML_ERROR_NOT_SUPPORTED)
    nvml, (card,) = opened(fake)
    assert (card.ecc, card.mig, nvml.read_slow(card).fan_percent) == (None, None, None)
    assert nvml.problems == ()


def test_after_close_nothing_is_asked() -> None:
    fake = FakeNvml(FakeCard(uuid=A))
    nvml, (card,) = opened(fake)
    nvml.close()
    nvml.close()
    assert fake.initialised == 0
    assert read(nvml, card) == DeviceSample(device="cuda:0", time_unix_s=5.0)


def test_a_shutdown_that_fails_is_nobody_s_business() -> None:
    fake = FakeNvml(FakeCard(uuid=A))
    nvml, _ = opened(fake)
    fake.fail("nvmlShutdown", FakeNvml.NVML_ERROR_UNKNOWN)
    nvml.close()
    assert not nvml.started


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


def test_the_real_library_or_its_absence_is_reported_without_an_exception() -> None:
    nvml = Nvml()
    started = nvml.start()
    assert started == (not any(problem.field == "nvml" for problem in nvml.problems))
    nvml.close()
