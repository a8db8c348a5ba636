"""The roofline, the simulated clock, and the virtual machine."""

import itertools
import math
import re
import threading

import psutil
import pytest
from fakes.products import matmul_seconds

from devexplorer.core.base import BadInput
from devexplorer.core.devices.board_model import TOO_HOT
from devexplorer.core.devices.profiles import load_profiles, parse_virtual, resource_rows
from devexplorer.core.telemetry.device_facts import held_down
from devexplorer.core.virtual.device import cost
from devexplorer.core.virtual.device.cost import (
    HostCall,
    Kind,
    Pass,
    Product,
    Roofline,
    Work,
    cost_parameters,
    overlapped,
    padded_flop,
    power_share,
    spread,
    terms,
    transfer_seconds,
)
from devexplorer.core.virtual.device.machine import CONTEXT_BYTES, VirtualMachine

T4 = load_profiles()["Tesla T4"]
A100 = load_profiles()["NVIDIA A100-SXM4-40GB"]
MIB = 1 << 20


def seconds(profile, *works):
    return Roofline(profile).seconds(*works)


def product(m, n, k, dtype="float16", kind=Kind.PRODUCT):
    size = 2 if dtype == "float16" else 4
    return Work(kind, 2 * m * n * k, size * (m * k + k * n + m * n), dtype, Product(m, n, k))


def convolution(kind, part=Pass.FORWARD, nchw_bytes=0, dtype="float16"):
    shape = Product(100_000, 256, 2304)
    return Work(kind, 2 * shape.m * shape.n * shape.k, 1 << 20, dtype, shape, part, nchw_bytes)


def test_a_large_product_is_bound_by_compute_and_an_addition_by_memory():
    compute, memory, _ = Roofline(T4).bounds(product(4096, 4096, 4096))
    assert compute > 5 * memory
    assert 0.4 < 2 * 4096**3 / 65e12 / compute < 1, "a share of the datasheet's rate"
    addition = Work(nbytes=3 * 4096**2 * 4)
    compute, memory, _ = Roofline(T4).bounds(addition)
    assert compute == 0
    assert 0.5 < addition.nbytes / 320e9 / memory < 1, "a share of the datasheet's bandwidth"
    assert seconds(T4, addition) == pytest.approx(memory + cost_parameters()["kernel"])
    assert seconds(T4, addition, addition) == 2 * seconds(T4, addition)


def test_a_dtype_without_a_unit_runs_at_the_rate_of_float32():
    as_float32, as_bfloat16, as_tf32 = (Work(flop=10**12, dtype=dtype) for dtype in ("float32", "bfloat16", "tf32"))
    assert seconds(T4, as_bfloat16) == seconds(T4, as_float32) == seconds(T4, as_tf32)
    assert seconds(A100, as_tf32) < seconds(A100, as_float32) / 4
    p100, as_float16 = load_profiles()["Tesla P100-SXM2-16GB"], Work(flop=10**12, dtype="float16")
    assert seconds(p100, as_float16) == seconds(p100, as_float32), "cuBLAS adds up in float32 there"


def test_float64_follows_the_chip():
    def share(profile):
        roofline = Roofline(profile)
        return roofline.operation_seconds(10**15, 0) / roofline.operation_seconds(10**15, 0, "float64")

    assert share(T4) == pytest.approx(1 / 32, rel=1e-3)
    assert share(A100) == pytest.approx(1 / 2, rel=1e-3)


def test_a_product_that_fills_its_tiles_and_waves_is_faster_for_its_work():
    def rate(m, n, k):
        return 2 * m * n * k / seconds(A100, product(m, n, k))

    assert rate(4096, 4096, 4096) > 1.3 * rate(264, 264, 4096), "a few tiles leave multiprocessors idle"
    assert rate(4096, 4096, 4096) > 1.1 * rate(4096, 4096, 4097), "rows of odd length miss the fast kernels"


@pytest.mark.parametrize(
    ("shape", "least"),
    [(Product(256, 128, 1024), 1.0), (Product(1, 1, 1024), 8192.0), (Product(256 * 108, 128, 4096), 1.0)],
)
def test_padding_never_takes_less_than_the_work(shape, least):
    flop = 2 * shape.m * shape.n * shape.k
    assert padded_flop(shape, 108) >= flop * least


def test_convolutions_are_rearranged_for_matrix_units_unless_they_are_channels_last():
    nbytes = 1 << 28
    planes, pixels = convolution(Kind.CONVOLUTION_1X1, nchw_bytes=nbytes), convolution(Kind.CONVOLUTION_1X1)
    assert seconds(A100, planes) - seconds(A100, pixels) > nbytes / 1555e9
    vector = convolution(Kind.CONVOLUTION_1X1, nchw_bytes=nbytes, dtype="float32")
    assert Roofline(A100).bounds(vector)[2] == 0


def test_winograd_beats_the_rate_of_float32_and_depthwise_convolutions_do_not_use_matrix_units():
    assert seconds(T4, convolution(Kind.CONVOLUTION_3X3, dtype="float32")) < seconds(
        T4, convolution(Kind.CONVOLUTION, dtype="float32")
    )
    wide = convolution(Kind.DEPTHWISE_CONVOLUTION)
    assert seconds(A100, wide) == pytest.approx(seconds(A100, wide._replace(dtype="float32")))


def test_a_card_that_promises_more_than_its_power_limit_allows_is_held_back():
    l4, ada = load_profiles()["NVIDIA L4"], load_profiles()["NVIDIA RTX 6000 Ada Generation"]
    assert power_share(ada) == 1
    assert power_share(l4) == pytest.approx(364.2 / 300 * 72 / 121)


def test_host_and_device_overlap():
    assert overlapped(1.0, 0.0) == overlapped(0.0, 1.0) == 1.0
    assert overlapped(1.0, 1.0) == pytest.approx(2**0.25)
    assert overlapped(3.0, 0.5) == pytest.approx(3.0, rel=1e-3)


def test_a_step_that_the_host_bounds_is_less_certain():
    assert 1.2 < spread(1.0, 0.0) < spread(1.0, 0.2) < spread(1.0, 1.0) < 1.6


def test_every_parameter_has_a_prior_a_source_and_an_uncertainty():
    rows = resource_rows("cost_model.csv")
    assert len({row["parameter"] for row in rows}) == len(rows)
    for row in rows:
        assert row["source"], row
        assert float(row["value"]) > 0
        assert float(row["uncertainty"]) > 1
        assert float(row["prior"]) > 0
    assert set(HostCall) <= set(cost_parameters())


def test_every_kind_of_kernel_on_every_card_uses_parameters_that_exist():
    known = set(cost_parameters())
    optional = re.compile(r"(bandwidth|vector|tf32|half) [\d.]+|.* gfx9")
    for card in load_profiles().values():
        for kind, dtype in itertools.product(Kind, ("float32", "tf32", "float16", "int8", "float64")):
            for part in Pass:
                work = Work(kind, 10**9, 10**6, dtype, Product(512, 512, 512), part, 10**5)
                for term in terms(work, card):
                    unknown = {name for name in term.parameters if name not in known} if term else set()
                    assert all(optional.fullmatch(name) for name in unknown), (card.name, work, unknown)


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
    assert machine.free_bytes("vgpu:0") == 15102 * MIB - CONTEXT_BYTES
    machine.gpu("vgpu:0").memory.allocate(MIB)
    sample = machine.device_sample("vgpu:0", 5.0)
    assert sample.memory_used_bytes == CONTEXT_BYTES + 2 * MIB
    assert machine.allocator_sample("vgpu:0", 5.0).context_bytes == CONTEXT_BYTES
    assert machine.free_bytes("vgpu:0") == 15102 * MIB - CONTEXT_BYTES - MIB
    assert machine.device_sample("vgpu:1", 5.0).memory_used_bytes == 0


def test_what_the_driver_keeps_is_neither_used_nor_free(machine):
    machine.gpu("vgpu:0").memory.allocate(MIB)
    sample = machine.device_sample("vgpu:0", 5.0)
    assert sample.memory_total_bytes == 15360 * MIB
    assert sample.memory_reserved_bytes == (15360 - 15102) * MIB
    assert sample.memory_free_bytes == 15102 * MIB - CONTEXT_BYTES - 2 * MIB


def test_values_are_in_the_hosts_memory_which_can_be_the_shorter_one():
    machine = VirtualMachine(host_free=lambda: 2 << 30)
    machine.add([T4])
    device = 15102 * MIB - CONTEXT_BYTES
    assert (machine.free_bytes("vgpu:0"), machine.device_free_bytes("vgpu:0")) == (2 << 30, device)
    assert machine.shortage("vgpu:0", 2 << 30) is None
    assert (
        machine.shortage("vgpu:0", 3 << 30)
        == "2.00 GiB are free on this machine, whose memory holds the values of vgpu:0"
    )
    assert machine.shortage("vgpu:0", device + 1) == "14.36 GiB are free on vgpu:0"


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


def test_more_work_than_time_fills_the_time_until_the_next_reading_too(machine):
    def utilization(work):
        machine.advance("vgpu:0", work)
        machine._now.now += 1.0
        return machine.device_sample("vgpu:0", 1.0).utilization_percent

    bursts = [1.08, 1.08, 0.92, 0.92, 1.0]
    assert [utilization(work) for work in bursts] == pytest.approx([100.0] * len(bursts))
    assert [utilization(work) for work in (7.0, 0.0, 0.0)] == [100.0, 100.0, 0.0], "nobody waits for it"


def test_a_card_that_is_waited_for_is_busy_until_then(machine):
    def utilization():
        machine._now.now += 1.0
        return machine.device_sample("vgpu:0", 1.0).utilization_percent

    machine.advance("vgpu:0", 3.5)
    machine.occupy("vgpu:0", 3.5)
    assert [utilization() for _ in range(5)] == pytest.approx([100.0, 100.0, 100.0, 50.0, 0.0])
    machine.advance("vgpu:0", 60.0)
    machine.occupy("vgpu:0", 60.0)
    assert [utilization() for _ in range(4)] == [100.0] * 4
    machine.occupy("vgpu:0", 0.0)
    assert [utilization() for _ in range(2)][-1] == 0.0, "nobody waits any longer"


def test_nothing_is_invented_that_is_not_modelled(machine):
    sample = machine.device_sample("vgpu:0", 1.0)
    assert (sample.memory_clock_mhz, sample.fan_percent, sample.energy_j, sample.utilization_percent) == (None,) * 4
    assert sample.simulated
    assert machine.allocator_sample("vgpu:0", 1.0).simulated
    assert machine.gpu("vgpu:0").details(1.0).simulated


def read_after(machine, seconds, busy):
    """A reading after so much more time, of which this share was work."""
    machine.advance("vgpu:0", busy * seconds)
    machine._now.now += seconds
    return machine.device_sample("vgpu:0", machine._now.now)


@pytest.mark.parametrize(
    ("seconds", "busy", "watt", "celsius", "megahertz"),
    [
        (20.0, 0.0, 10.5, 32.0, 158),
        (20.0, 0.5, 38.5, 32 + 17 * (1 - 1 / math.e), 1582),
        (20.0, 1.0, 66.5, 32 + 34 * (1 - 1 / math.e), 1582),
        (600.0, 1.0, 66.5, 66.0, 1582),
    ],
)
def test_power_follows_utilization_and_temperature_follows_power(machine, seconds, busy, watt, celsius, megahertz):
    for _ in range(4):
        sample = read_after(machine, seconds / 4, busy)
    assert (sample.power_w, sample.power_cap_w, sample.sm_clock_mhz) == (watt, 70.0, megahertz)
    assert sample.temperature_c == pytest.approx(celsius, abs=0.05), "however often it is read"
    assert not held_down(sample.throttle_reasons)


def test_a_card_with_a_blocked_fan_lowers_its_clock_at_the_limit_and_cools_down(machine):
    gpu = machine.gpu("vgpu:0")
    limit = gpu.details(0.0).temperature_slowdown_c
    gpu.loaded_c = 92.0
    samples = [read_after(machine, 2.0, 1.0) for _ in range(100)]
    for sample in samples:
        hot = sample.temperature_c >= limit
        assert (sample.throttle_reasons, sample.sm_clock_mhz < gpu.clock_mhz(1.0)) == ((TOO_HOT,) * hot, hot)
    assert samples[0].temperature_c < limit < samples[-1].temperature_c
    cooled = read_after(machine, 200.0, 0.0)
    assert cooled.temperature_c == 32.0
    assert not held_down(cooled.throttle_reasons)


def test_a_card_without_a_known_power_limit_has_no_power():
    (gpu,), now = (machine := VirtualMachine(clock=lambda: 1.0)).add(parse_virtual("MI250X")), 1.0
    sample = machine.device_sample(gpu.id, now)
    assert (sample.power_w, sample.power_cap_w, sample.temperature_c) == (None, None, 32.0)


@pytest.mark.parametrize(("dtype", "written"), [("float16", 2), ("int8", 4)])
def test_a_product_is_paid_in_the_dtype_in_which_it_comes_out(machine, dtype, written):
    """An outer product moves next to nothing but its output: int8 products write int32."""
    size = 8192
    memory = machine.gpu("vgpu:0").roofline.operation_seconds(0, size * size * written)
    assert matmul_seconds(machine, "vgpu:0", size, size, 8, dtype) == pytest.approx(memory, rel=0.3)
