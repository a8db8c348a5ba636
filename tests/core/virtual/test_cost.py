"""The roofline, the simulated clock, and the virtual machine."""

import threading

import psutil
import pytest
from fakes.products import matmul_seconds

from devexplorer.core.base import BadInput
from devexplorer.core.devices.profiles import load_profiles, parse_virtual
from devexplorer.core.virtual.device import cost
from devexplorer.core.virtual.device.cost import Roofline, transfer_seconds
from devexplorer.core.virtual.device.machine import CONTEXT_BYTES, VirtualMachine

T4 = load_profiles()["Tesla T4"]
A100 = load_profiles()["NVIDIA A100-SXM4-40GB"]
MIB = 1 << 20


def operation_seconds(profile, flop, nbytes, dtype="float32"):
    return Roofline(profile).operation_seconds(flop, nbytes, dtype)


def test_a_large_product_is_bound_by_compute_and_an_addition_by_memory():
    product = operation_seconds(T4, 2 * 4096**3, 3 * 4096**2 * 2, "float16")
    assert product == pytest.approx(
        2 * 4096**3 / (65e12 * cost.compute_efficiency("7.5", "float16")) + cost.LAUNCH_SECONDS
    )
    addition = operation_seconds(T4, 0, 3 * 4096**2 * 4)
    assert addition == pytest.approx(3 * 4096**2 * 4 / (320e9 * cost.MEMORY_EFFICIENCY) + cost.LAUNCH_SECONDS)


def test_a_dtype_without_a_unit_runs_at_the_rate_of_float32():
    assert operation_seconds(T4, 10**12, 0, "bfloat16") == operation_seconds(T4, 10**12, 0, "float32")
    assert operation_seconds(T4, 10**12, 0, "tf32") == operation_seconds(T4, 10**12, 0, "float32")
    assert operation_seconds(A100, 10**12, 0, "tf32") < operation_seconds(A100, 10**12, 0, "float32") / 5


def test_float64_follows_the_chip():
    def share(profile):
        return operation_seconds(profile, 10**15, 0, "float32") / operation_seconds(profile, 10**15, 0, "float64")

    assert share(T4) == pytest.approx(1 / 32, rel=1e-3)
    assert share(A100) == pytest.approx(1 / 2, rel=1e-3)


def test_a_copy_goes_over_the_slower_link():
    between = transfer_seconds(T4, A100, 10**9)
    assert between == pytest.approx(1e9 / (15.75e9 * cost.LINK_EFFICIENCY) + cost.COPY_SECONDS)
    assert transfer_seconds(A100, A100, 10**9) < between / 10
    assert transfer_seconds(None, A100, 10**9) == transfer_seconds(A100, None, 10**9)
    assert transfer_seconds(None, None, 10**9) == 0


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def machine():
    made = VirtualMachine(Clock(), host_free=lambda: 1 << 50)
    made.add(parse_virtual("Tesla T4, A10"))
    return made


def test_devices_say_what_they_are_and_that_they_are_simulated(machine):
    t4, a10 = machine.devices()
    assert (t4.id, t4.kind, t4.name, t4.uuid, t4.simulated, t4.usable) == (
        "vgpu:0",
        "virtual",
        "Tesla T4",
        "VGPU-0-tesla-t4",
        True,
        True,
    )
    assert t4.memory_total_bytes == 15360 * MIB
    assert t4.memory_used_bytes == 0
    assert t4.datasheet_tflops["float16"] == 65.0
    assert (a10.id, a10.compute_capability) == ("vgpu:1", "8.6")
    assert machine.problems() == ()


def test_devices_are_numbered_on_and_limited(machine):
    assert [gpu.id for gpu in machine.add(parse_virtual("2x L4"))] == ["vgpu:2", "vgpu:3"]
    with pytest.raises(BadInput, match="64 is the most"):
        machine.add(parse_virtual("64x T4"))
    assert len(machine.gpus) == 4
    with pytest.raises(KeyError):
        machine.gpu("vgpu:4")
    with pytest.raises(KeyError):
        machine.gpu("cuda:0")


def test_the_context_counts_from_the_first_tensor_on(machine):
    assert machine.allocator_sample("vgpu:0", 5.0).context_bytes == 0
    assert machine.free_bytes("vgpu:0") == 15360 * MIB - CONTEXT_BYTES
    machine.gpu("vgpu:0").memory.allocate(MIB)
    sample = machine.device_sample("vgpu:0", 5.0)
    assert sample.memory_used_bytes == CONTEXT_BYTES + 2 * MIB
    assert machine.allocator_sample("vgpu:0", 5.0).context_bytes == CONTEXT_BYTES
    assert machine.free_bytes("vgpu:0") == 15360 * MIB - CONTEXT_BYTES - MIB
    assert machine.device_sample("vgpu:1", 5.0).memory_used_bytes == 0


def test_values_are_in_the_hosts_memory_which_can_be_the_shorter_one():
    machine = VirtualMachine(host_free=lambda: 2 << 30)
    machine.add([T4])
    device = 15360 * MIB - CONTEXT_BYTES
    assert (machine.free_bytes("vgpu:0"), machine.device_free_bytes("vgpu:0")) == (2 << 30, device)
    assert machine.shortage("vgpu:0", 2 << 30) is None
    assert (
        machine.shortage("vgpu:0", 3 << 30)
        == "2.00 GiB are free on this machine, whose memory holds the values of vgpu:0"
    )
    assert machine.shortage("vgpu:0", device + 1) == "14.61 GiB are free on vgpu:0"


def test_the_hosts_memory_is_asked_of_the_system():
    machine = VirtualMachine()
    machine.add(parse_virtual("MI300X"))
    assert 0 < machine.free_bytes("vgpu:0") <= psutil.virtual_memory().total


def test_each_thread_has_its_own_time_and_the_device_is_busy_with_all_of_it(machine):
    machine.advance("vgpu:0", 0.25)
    other = threading.Thread(target=machine.advance, args=("vgpu:0", 0.5))
    other.start()
    other.join()
    assert machine.clock_seconds("vgpu:0") == 0.25
    machine._now.now += 1.0
    assert machine.device_sample("vgpu:0", 1.0).utilization_percent == pytest.approx(75.0)


def test_utilization_is_busy_time_over_time_since_the_last_reading(machine):
    machine.advance("vgpu:0", 0.25)
    machine._now.now += 1.0
    assert machine.device_sample("vgpu:0", 1.0).utilization_percent == pytest.approx(25.0)
    machine._now.now += 1.0
    assert machine.device_sample("vgpu:0", 2.0).utilization_percent == 0.0
    machine.advance("vgpu:0", 7.0)
    machine._now.now += 1.0
    assert machine.device_sample("vgpu:0", 3.0).utilization_percent == 100.0


def test_nothing_is_invented_that_a_virtual_gpu_does_not_have(machine):
    sample = machine.device_sample("vgpu:0", 1.0)
    assert (sample.temperature_c, sample.power_w, sample.sm_clock_mhz, sample.utilization_percent) == (
        None,
        None,
        None,
        None,
    )
    assert sample.simulated
    assert machine.allocator_sample("vgpu:0", 1.0).simulated


def test_a_product_of_1024_in_float16_takes_a_t4_about_40_microseconds(machine):
    assert matmul_seconds(machine, "vgpu:0", 1024, 1024, 1024, "float16") == pytest.approx(42e-6, rel=0.05)


@pytest.mark.parametrize(("dtype", "written"), [("float16", 2), ("int8", 4)])
def test_a_product_is_paid_in_the_dtype_in_which_it_comes_out(machine, dtype, written):
    """An outer product moves next to nothing but its output: int8 products write int32."""
    size = 8192
    expected = machine.gpu("vgpu:0").roofline.operation_seconds(0, size * size * written, dtype)
    assert matmul_seconds(machine, "vgpu:0", size, size, 8, dtype) == pytest.approx(expected, rel=0.01)


def test_reset_drops_the_devices(machine):
    machine.reset()
    assert machine.devices() == ()
