"""`torch.accelerator`, `torch.vgpu`, generators, streams and events on virtual GPUs."""

from __future__ import annotations

import copy
import io
import threading

import pytest
import torch
from fakes.products import matmul_seconds
from torch import nn

from devexplorer.core.devices.profiles import parse_virtual
from devexplorer.core.virtual.device.cost import cost_parameters

pytestmark = pytest.mark.usefixtures("virtual")
MIB = 1 << 20


# --- torch.accelerator
# ----------------------------------------------------------------------------------------------------


def test_the_accelerator_answers_for_virtual_gpus(virtual):
    x = torch.ones(1000, device="vgpu:1")
    assert torch.accelerator.current_accelerator() == torch.device("vgpu")
    assert torch.accelerator.is_available()
    assert torch.accelerator.device_count() == 2
    torch.accelerator.synchronize()
    torch.accelerator.synchronize("vgpu:1")
    assert torch.accelerator.memory_allocated(1) == torch.accelerator.max_memory_allocated("vgpu:1") == 4096
    assert torch.accelerator.memory_reserved(1) == torch.accelerator.max_memory_reserved(1) == 2 * MIB
    assert torch.accelerator.memory_allocated() == 0
    if hasattr(torch.accelerator, "get_memory_info"):
        free, total = torch.accelerator.get_memory_info(1)
        assert total - free == virtual.gpu("vgpu:1").used_bytes
    del x
    assert torch.accelerator.max_memory_allocated(1) == 4096
    torch.accelerator.reset_peak_memory_stats(1)
    assert torch.accelerator.max_memory_allocated(1) == 0
    torch.accelerator.empty_cache()
    assert torch.accelerator.memory_reserved(1) == 0
    assert torch.accelerator.max_memory_reserved(1) == 2 * MIB
    with pytest.raises(RuntimeError, match="no vgpu:7 here"):
        torch.accelerator.synchronize(7)


def test_memory_statistics_count_what_came_and_went():
    before = torch.vgpu.memory_stats(1)
    kept, gone = torch.ones(1000, device="vgpu:1"), torch.ones(MIB, device="vgpu:1")
    del gone
    stats = torch.accelerator.memory_stats(1)
    assert stats == torch.vgpu.memory_stats("vgpu:1")
    assert stats["allocated_bytes.all.current"] == 4096
    assert stats["allocated_bytes.all.freed"] == 4 * MIB
    assert stats["allocated_bytes.all.peak"] == stats["allocated_bytes.all.allocated"] == 4 * MIB + 4096
    assert (stats["allocation.all.current"], stats["allocation.all.allocated"], stats["segment.all.current"]) == (
        1,
        2,
        2,
    )
    assert (stats["num_ooms"], stats["num_alloc_retries"], stats["num_device_alloc"]) == (0, 0, 2)
    assert before["allocated_bytes.all.current"] == 0
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(1 << 40, device="vgpu:1")
    stats = torch.accelerator.memory_stats(1)
    assert (stats["num_ooms"], stats["num_alloc_retries"]) == (1, 1)
    torch.accelerator.reset_accumulated_memory_stats(1)
    assert torch.accelerator.memory_stats(1)["allocated_bytes.all.allocated"] == 0
    assert torch.accelerator.memory_stats(1)["allocated_bytes.all.current"] == kept.untyped_storage().nbytes() + 96


def made() -> dict[str, torch.device]:
    layer = nn.Linear(1, 1)
    return {
        "to": torch.ones(2).to("vgpu").device,
        "method": torch.ones(2).vgpu().device,
        "factory": torch.zeros(2, device="vgpu").device,
        "tensor": torch.tensor([1.0], device="vgpu").device,
        "named": torch.full((2,), 1, device=torch.device("vgpu")).device,
        "module": layer.to("vgpu").weight.device,
        "loaded": torch.load(saved(), map_location="vgpu").device,
        "generator": torch.Generator(device="vgpu").device,
    }


def saved() -> io.BytesIO:
    file = io.BytesIO()
    torch.save(torch.ones(2), file)
    file.seek(0)
    return file


@pytest.mark.parametrize(
    "choose",
    [lambda index: torch.accelerator.device_index(index), lambda index: torch.vgpu.device(index)],
    ids=["accelerator", "vgpu"],
)
def test_vgpu_without_a_number_is_the_current_device(choose):
    assert set(made().values()) == {torch.device("vgpu", 0)}
    with choose(1):
        assert torch.accelerator.current_device_index() == torch.vgpu.current_device() == 1
        assert made() == dict.fromkeys(made(), torch.device("vgpu", 1))
        with torch.device("vgpu"):
            assert {torch.zeros(2).device, torch.tensor([1.0]).device, torch.arange(3).device} == {
                torch.device("vgpu", 1)
            }
        with choose(0):
            assert torch.ones(2).to("vgpu").device == torch.device("vgpu", 0)
        assert torch.ones(2).to("vgpu").device == torch.device("vgpu", 1)
        assert torch.ones(2).to("vgpu:0").device == torch.device("vgpu", 0)
    assert set(made().values()) == {torch.device("vgpu", 0)}
    assert torch.overrides._len_torch_function_stack() == 0, "no mode is left on"


def test_the_current_device_is_the_threads_own():
    torch.vgpu.set_device(1)
    try:
        found: list[int] = []
        thread = threading.Thread(target=lambda: found.append(torch.vgpu.current_device()))
        thread.start()
        thread.join()
        assert (found, torch.vgpu.current_device()) == ([0], 1)
    finally:
        torch.vgpu.set_device(0)


def test_a_device_that_is_dropped_is_not_current_any_more(virtual):
    torch.vgpu.set_device(1)
    virtual.reset()
    with pytest.raises(RuntimeError, match="there is none yet"):
        torch.accelerator.current_device_index()
    virtual.add(parse_virtual("2x T4"))
    assert torch.accelerator.current_device_index() == 0
    assert torch.ones(2).to("vgpu").device == torch.device("vgpu", 0)
    torch.vgpu.set_device(0)


def test_what_a_card_can_do_is_said():
    assert torch.vgpu.get_device_properties(1).name == "Tesla T4"
    assert torch.vgpu.get_device_properties(1).major == 7
    if hasattr(torch.accelerator, "get_device_capability"):
        assert torch.float16 in torch.accelerator.get_device_capability(0)["supported_dtypes"]


# --- generators
# ----------------------------------------------------------------------------------------------------


def test_a_generators_state_can_be_kept_copied_and_set():
    generator = torch.Generator("vgpu:1")
    assert (generator.device, generator.manual_seed(5).initial_seed()) == (torch.device("vgpu", 1), 5)
    state = generator.get_state()
    others = [copy.deepcopy(generator), generator.clone_state()]
    expected = torch.rand(3, generator=generator, device="vgpu:1").tolist()
    for other in others:
        assert (other.device, torch.rand(3, generator=other, device="vgpu:1").tolist()) == (generator.device, expected)
    generator.set_state(state)
    assert torch.rand(3, generator=generator, device="vgpu:1").tolist() == expected


def test_generators_of_other_devices_are_torchs_own():
    class Own(torch.Generator):
        pass

    assert type(torch.Generator()) is type(torch.default_generator)
    assert torch.Generator("cpu").device == torch.device("cpu")
    assert isinstance(torch.default_generator, torch.Generator)
    assert isinstance(torch.Generator("vgpu"), torch.Generator)
    assert not isinstance(torch.Generator("vgpu"), Own)
    assert type(Own()) is Own
    with pytest.raises(RuntimeError, match="no vgpu:9 here"):
        torch.Generator("vgpu:9")


def test_global_random_state_can_be_forked():
    torch.manual_seed(1)
    before = torch.get_rng_state()
    with torch.random.fork_rng(devices=[0, 1], device_type="vgpu"):
        torch.rand(3, device="vgpu:1")
    assert torch.equal(torch.get_rng_state(), before)


# --- streams and events
# ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("event", [lambda: torch.Event("vgpu:1", enable_timing=True),
                                   lambda: torch.vgpu.Event(enable_timing=True)],
                         ids=["torch", "vgpu"])  # fmt: skip
def test_events_measure_the_simulated_clock(event, virtual):
    stream = torch.Stream("vgpu:1")
    begin, end = event(), event()
    x = torch.ones(1024, 1024, device="vgpu:1")
    begin.record(stream)
    x @ x
    end.record(stream)
    seconds = matmul_seconds(virtual, "vgpu:1", 1024, 1024, 1024, "float32")
    assert begin.elapsed_time(end) == pytest.approx(1000 * seconds, rel=1e-6)
    assert seconds > cost_parameters()["kernel"]
    assert begin.device == torch.device("vgpu", 1)
    assert end.query()
    end.synchronize()
    end.wait(stream)


def test_what_events_refuse_is_said_in_torchs_words():
    plain, timed, elsewhere = (
        torch.Event("vgpu:0"),
        torch.Event("vgpu:0", enable_timing=True),
        torch.Event("vgpu:1", enable_timing=True),
    )
    with pytest.raises(ValueError, match="enable_timing=True"):
        plain.elapsed_time(timed)
    with pytest.raises(ValueError, match="must be recorded"):
        timed.elapsed_time(elsewhere)
    timed.record()
    elsewhere.record(torch.Stream("vgpu:1"))
    with pytest.raises(ValueError, match="not comparable"):
        timed.elapsed_time(elsewhere)
    with pytest.raises(RuntimeError, match="make another one"):
        timed.record(torch.Stream("vgpu:1"))


def test_streams_can_be_chosen_and_waited_for():
    first, second = torch.Stream("vgpu:1"), torch.vgpu.Stream(1, priority=-1)
    assert first != second
    assert first.device == second.device == torch.device("vgpu", 1)
    assert torch.vgpu.current_stream(1) == torch.vgpu.default_stream(1)
    with first:
        assert torch.accelerator.current_stream() == torch.vgpu.current_stream(1) == first
        assert torch.vgpu.current_device() == 1
        with torch.vgpu.stream(second):
            assert torch.vgpu.current_stream() == second
            event = second.record_event()
        assert torch.vgpu.current_stream() == first
        first.wait_event(event)
        first.wait_stream(second)
        first.synchronize()
        assert first.query()
    assert (torch.vgpu.current_device(), torch.vgpu.current_stream(1).stream_id) == (0, 0)
    x = torch.ones(3, device="vgpu:1")
    x.record_stream(first)
    torch.accelerator.set_stream(first)
    assert torch.vgpu.current_stream() == first
    torch.accelerator.set_stream(torch.vgpu.default_stream(0))
    torch.accelerator.set_stream(torch.vgpu.default_stream(1))
    torch.vgpu.set_device(0)
    assert isinstance(first, torch.Stream)
    assert isinstance(event, torch.Event)
    assert not isinstance(x, torch.Stream)


@pytest.mark.parametrize("norm", ["layer", "group"])
def test_a_norm_takes_its_weight_in_the_dtype_of_its_input_as_on_cuda(norm):
    def run(dtype, weights):
        values = torch.zeros(3, 4, 5, device="vgpu:0", dtype=dtype)
        size = 5 if norm == "layer" else 4
        weight, bias = (torch.ones(size, device="vgpu:0", dtype=weights) for _ in range(2))
        if norm == "layer":
            return nn.functional.layer_norm(values, (5,), weight, bias)
        return nn.functional.group_norm(values, 2, weight, bias)

    assert run(torch.float16, torch.float16).dtype == torch.float16
    for given, weights, words in (
        (torch.float16, torch.float32, "expected scalar type Half but found Float"),
        (torch.float32, torch.bfloat16, "expected scalar type Float but found BFloat16"),
    ):
        with pytest.raises(RuntimeError, match=words):
            run(given, weights)
