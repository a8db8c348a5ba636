"""Sizes and durations as users write them, and invalid specifications."""

import pytest

from devexplorer.core.base import BadInput, DoesNotFit
from devexplorer.core.benchmark.spec import (
    check_fits,
    check_matmul,
    flush_bytes,
    operand_bytes,
    parse_seconds,
    parse_shape,
)
from devexplorer.core.records import DeviceInfo, MatmulSpec


@pytest.mark.parametrize(
    ("text", "shape"),
    [("1024", (1024,) * 3), ("64x128x32", (64, 128, 32)), (" 2 × 3 × 4 ", (2, 3, 4)), ("5*6*7", (5, 6, 7))],
)
def test_sizes(text: str, shape: tuple[int, int, int]) -> None:
    assert parse_shape(text) == shape


@pytest.mark.parametrize(
    "text", ["", "0", "-5", "abc", "1x2", "1x2x3x4", "3.5", "64x0x2", "9999999", "1e3", "nan", "1x2x"]
)
def test_wrong_sizes_are_named_in_one_line(text: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse_shape(text)
    assert repr(text)[1:-1] in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "soon"])
def test_wrong_durations(text: str) -> None:
    with pytest.raises(BadInput, match="seconds"):
        parse_seconds(text)


def test_operands_in_bytes() -> None:
    assert operand_bytes(2, 3, 4, "float32") == (32, 48, 24)
    assert operand_bytes(2, 3, 4, "int8") == (8, 12, 24)


def test_too_large_is_refused_with_the_bytes_it_needs() -> None:
    spec = MatmulSpec(device="vgpu:0", m=1024, n=1024, k=1024)
    check_fits(spec, None)
    check_fits(spec, 3 * 4 * 1024 * 1024)
    with pytest.raises(DoesNotFit, match=r"needs 12\.00 MiB") as caught:
        check_fits(spec, 1000)
    assert (caught.value.needed_bytes, caught.value.free_bytes) == (3 * 4 * 1024 * 1024, 1000)


# --- invalid specifications

CPU = DeviceInfo(id="cpu", kind="cpu", name="a CPU")
HOPPER = DeviceInfo(id="cuda:0", kind="cuda", name="H100", compute_capability="9.0")
AMPERE = DeviceInfo(id="cuda:0", kind="cuda", name="A100", compute_capability="8.0")
TURING = DeviceInfo(id="cuda:0", kind="cuda", name="T4", compute_capability="7.5")
VIRTUAL_T4 = DeviceInfo(
    id="vgpu:0",
    kind="virtual",
    name="Tesla T4",
    compute_capability="7.5",
    datasheet_tflops={"float32": 8.1, "float16": 65, "int8": 130},
)
METAL = DeviceInfo(id="mps", kind="mps", name="M4")


def spec(**given: object) -> MatmulSpec:
    return MatmulSpec(**{"device": "cuda:0", "m": 64, "n": 64, "k": 64, **given})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("info", "given", "words"),
    [
        (CPU, {"m": 0}, "every side is from 1"),
        (CPU, {"iterations": 0}, "0 iterations cannot be measured; at least 1"),
        (CPU, {"seconds": 0.0}, "not a duration"),
        (CPU, {"batch": 0}, "a batch of 0"),
        (CPU, {"mode": "brust"}, "there is live, burst, sustained"),
        (CPU, {"block_seconds": 0.0}, "from 0.001 to 60"),
        (CPU, {"dtype": "complex64"}, "does not measure complex64; it measures float64"),
        (CPU, {"dtype": "tf32"}, "take float32"),
        (METAL, {"dtype": "float64"}, "no float64; take float32"),
        (TURING, {"dtype": "tf32"}, r"since Ampere \(compute capability 8.0\)"),
        (TURING, {"dtype": "float8_e4m3fn"}, "T4 has 7.5"),
        (AMPERE, {"dtype": "float8_e5m2"}, "8.9 or newer"),
        (VIRTUAL_T4, {"dtype": "float8_e5m2"}, "Tesla T4 has no float8_e5m2 unit; it has float32, float16, int8"),
        (VIRTUAL_T4, {"dtype": "tf32"}, "has no tf32 unit"),
        (
            HOPPER,
            {"dtype": "float8_e4m3fn", "n": 1000, "k": 1000},
            "multiples of 16, not 64x1000x1000; take 64x1008x1008",
        ),
        (HOPPER, {"dtype": "float8_e4m3fn", "transpose_a": True}, "cannot be transposed"),
        (HOPPER, {"dtype": "float8_e4m3fn", "batch": 2}, "no batched float8_e4m3fn product; take a batch of 1"),
        (VIRTUAL_T4, {"dtype": "int8", "k": 12}, "multiples of 8, not 64x64x12; take 64x64x16"),
        (HOPPER, {"dtype": "int8", "m": 16}, "more than 16 rows"),
    ],
)
def test_each_mistake_is_one_clear_line(info: DeviceInfo, given: dict[str, object], words: str) -> None:
    with pytest.raises(BadInput, match=words) as caught:
        check_matmul(spec(**given), info)
    assert len(caught.value.findings) == 1
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("info", "given"),
    [
        (HOPPER, {"dtype": "float8_e4m3fn", "m": 7}),
        (HOPPER, {"dtype": "tf32", "mode": "burst", "batch": 8, "transpose_a": True}),
        (CPU, {"dtype": "int8", "m": 3, "n": 5, "k": 7}),
        (CPU, {"mode": "sustained", "seconds": None}),
        (VIRTUAL_T4, {"dtype": "float64"}),
    ],
)
def test_what_can_be_measured_passes(info: DeviceInfo, given: dict[str, object]) -> None:
    check_matmul(spec(**given), info)


def test_several_mistakes_are_said_at_once() -> None:
    with pytest.raises(BadInput) as caught:
        check_matmul(spec(m=0, iterations=0, batch=-1), CPU)
    assert len(caught.value.findings) == 3
    with pytest.raises(BadInput) as caught:
        check_matmul(spec(dtype="float8_e4m3fn", n=30), TURING)
    assert len(caught.value.findings) == 2


def test_a_batch_and_the_buffer_that_flushes_the_cache_need_room_too() -> None:
    burst = spec(m=1024, n=1024, k=1024, batch=2, mode="burst")
    check_fits(burst, 2 * 12 << 20)
    with pytest.raises(
        DoesNotFit, match=r"2 at once, needs 280\.00 MiB on cuda:0 \(256\.00 MiB of it to flush the cache\)"
    ):
        check_fits(burst, 2 * 12 << 20, "cuda")


@pytest.mark.parametrize(
    ("kind", "given", "flushes"),
    [
        ("cuda", {"mode": "burst"}, True),
        ("cuda", {}, False),
        ("cuda", {"flush_cache": True}, True),
        ("cpu", {"mode": "burst"}, False),
        ("cpu", {"mode": "burst", "flush_cache": True}, True),
        ("virtual", {"mode": "burst", "flush_cache": True}, False),
    ],
)
def test_burst_flushes_the_cache_of_accelerators_and_others_on_request(
    kind: str, given: dict[str, object], flushes: bool
) -> None:
    assert bool(flush_bytes(spec(**given), kind)) == flushes
