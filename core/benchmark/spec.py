"""Shapes, specifications, lists and ranges of sizes as people write them, checked before anything is allocated. No
torch, no thread."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from functools import partial

from devexplorer.core.base import BadInput, DoesNotFit, Findings, bytes_text, item_bytes, parse_seconds, product_dtype
from devexplorer.core.devices.backend import DeviceRegistry
from devexplorer.core.records import DeviceInfo, MatmulSpec
from devexplorer.core.virtual.device.machine import VirtualMachine

LARGEST_SIDE = 1_000_000
"""Larger sides are typing errors: one such square matrix in int8 has 1 TB."""
LARGEST_BATCH = 100_000
PRODUCTS = (
    "float64",
    "float32",
    "tf32",
    "float16",
    "bfloat16",
    "float8_e4m3fn",
    "float8_e5m2",
    "int64",
    "int32",
    "int16",
    "int8",
)
"""Dtypes whose product is 2·M·N·K operations and can be verified: no complex numbers (four times as many), no uint8 (it
overflows)."""
MODES = ("live", "burst", "sustained")
FLUSH_BYTES = 256 << 20
"""Bytes that are overwritten to empty a cache: more than any card's L2 holds (126 MB on a B200), the size that triton's
do_bench takes."""
FLOAT8_MULTIPLE = 16
"""N and K of float8 products: "divisible by 16" in the checks of `torch._scaled_mm`."""
BY_COLUMNS = ("float8_e4m3fn", "float8_e5m2", "int8")
"""Dtypes whose B is stored transposed. Float8 kernels take no other; an H200 multiplies int8 at 126 TOP/s by rows, 954
by columns (docs/measurements.md), and a CPU is faster, too."""
INT8_MULTIPLE = 8
"""N and K of int8 products on CUDA, which also need more than 16 rows: the checks of `torch._int_mm`
(ATen/native/cuda/Blas.cpp)."""


def parse_shape(text: str) -> tuple[int, int, int]:
    """Return (M, N, K) for `N` or `MxNxK` (also `M×N×K`, `M*N*K`, `M,N,K`).

    >>> parse_shape("1024"), parse_shape("64x128x32")
    ((1024, 1024, 1024), (64, 128, 32))
    """
    parts = [part.strip() for part in re.split(r"[x×X*,]", text.strip())]
    if len(parts) not in (1, 3) or not all(re.fullmatch(r"[+-]?\d{1,18}", part, re.ASCII) for part in parts):
        raise BadInput(f"size '{text}' is not a size; write one whole number (1024) or MxNxK (64x128x32)")
    sides = [int(part) for part in parts]
    if min(sides) < 1:
        raise BadInput(f"size '{text}' has a side of {min(sides)}; every side must be at least 1")
    if max(sides) > LARGEST_SIDE:
        raise BadInput(f"size '{text}' has a side of {max(sides)}; the largest side is {LARGEST_SIDE}")
    m, n, k = sides * 3 if len(sides) == 1 else sides
    return m, n, k


def check_product(dtype: str) -> str:
    """Return the dtype when a matmul benchmark can measure it, else raise `BadInput` with those it can."""
    if dtype not in PRODUCTS:
        raise BadInput(f"the matmul benchmark does not measure {dtype}; it measures {', '.join(PRODUCTS)}")
    return dtype


def check_chip(dtype: str, info: DeviceInfo) -> None:
    """Raise `BadInput` for a dtype that the chip has no unit for, or that torch would quietly compute in another
    one."""
    narrow = dtype == "int8" or dtype.startswith("float8")
    if info.kind == "virtual" and (narrow or dtype == "tf32") and dtype not in info.datasheet_tflops:
        raise BadInput(f"{info.name} has no {dtype} unit; it has {', '.join(info.datasheet_tflops)}")
    capability = tuple(int(part) for part in (info.compute_capability or "").split(".") if part.isdigit())
    if dtype == "tf32" and (info.kind not in ("cuda", "virtual") or (len(capability) == 2 and capability < (8, 0))):
        raise BadInput(
            f"tf32 is a mode of CUDA's tensor cores since Ampere (compute capability 8.0); {info.id} has none, take"
            " float32"
        )
    if dtype.startswith("float8") and info.kind == "cuda" and len(capability) == 2 and capability < (8, 9):
        raise BadInput(
            f"{dtype} needs the tensor cores of Ada or Hopper (compute capability 8.9 or newer); {info.name} has "
            f"{info.compute_capability}, take float16 or bfloat16"
        )
    if dtype == "float64" and info.kind == "mps":
        raise BadInput("Metal has no float64; take float32")


def shape_problem(spec: MatmulSpec, kind: str) -> str | None:
    """Why the kernel of this dtype does not take these operands on this kind of device; None when it does."""
    shape = f"{spec.m}x{spec.n}x{spec.k}"
    float8, int8 = spec.dtype.startswith("float8"), spec.dtype == "int8"
    by_chip = int8 and kind in ("cuda", "virtual")
    if float8:
        multiple = FLOAT8_MULTIPLE
    elif by_chip:
        multiple = INT8_MULTIPLE
    else:
        multiple = 1
    n, k = (-(-side // multiple) * multiple for side in (spec.n, spec.k))
    if (n, k) != (spec.n, spec.k):
        name = "float8" if float8 else "int8"
        return f"{name} products need N and K that are multiples of {multiple}, not {shape}; take {spec.m}x{n}x{k}"
    if float8 and spec.transpose_a:
        return "float8 products read A by rows: it cannot be transposed"
    if by_chip and spec.m <= 16:
        return f"int8 products need more than 16 rows, not {shape}; take an M of 32"
    if spec.batch > 1 and (float8 or int8):
        return f"torch has no batched {spec.dtype} product; take a batch of 1"
    return None


def check_matmul(spec: MatmulSpec, info: DeviceInfo) -> None:
    """Raise `BadInput` with everything that is wrong, but for whether it fits (`check_fits`)."""
    findings = Findings()
    if not all(1 <= side <= LARGEST_SIDE for side in spec.shape):
        findings.add(
            f"a product of {spec.m}x{spec.n}x{spec.k} cannot be measured; every side is from 1 to {LARGEST_SIDE}"
        )
    if not 1 <= spec.batch <= LARGEST_BATCH:
        findings.add(f"a batch of {spec.batch} cannot be measured; it is from 1 to {LARGEST_BATCH}")
    if spec.mode not in MODES:
        findings.add(f"there is no mode '{spec.mode}'; there is {', '.join(MODES)}")
    if spec.seconds is not None:
        findings.checked(partial(parse_seconds, spec.seconds))
    if spec.iterations is not None and spec.iterations < 1:
        findings.add(f"{spec.iterations} iterations cannot be measured; at least 1 is needed")
    if not 0.001 <= spec.block_seconds <= 60:
        findings.add(f"a block of {spec.block_seconds} s is not possible; it lasts from 0.001 to 60 s")
    findings.checked(lambda: check_chip(check_product(spec.dtype), info))
    problem = shape_problem(spec, info.kind)
    if problem is not None:
        findings.add(problem)
    findings.demand_none()


def flush_bytes(spec: MatmulSpec, kind: str) -> int:
    """What the run overwrites between iterations to empty the cache; 0: nothing.

    Burst always does so on an accelerator. On the CPU only where it is asked for (there is no cold L2 to speak of
    between two calls of one program, and each iteration would have to be timed alone). A virtual GPU has no cache: each
    byte comes from memory each time.
    """
    if kind == "virtual":
        return 0
    return FLUSH_BYTES if spec.flush_cache or (spec.mode == "burst" and kind != "cpu") else 0


def operand_bytes(m: int, n: int, k: int, dtype: str) -> tuple[int, int, int]:
    """Bytes of A (M×K), B (K×N) and the output (M×N; int32 for int8, bfloat16 for float8)."""
    size = item_bytes(dtype)
    return m * k * size, k * n * size, m * n * item_bytes(product_dtype(dtype))


def check_fits(spec: MatmulSpec, free_bytes: int | None, kind: str | None = None) -> None:
    """Raise `DoesNotFit` when a run needs more than `free_bytes` (None: unknown, so nothing is refused).

    `kind` of the device counts what a flush of its cache needs too.
    """
    operands = spec.batch * sum(operand_bytes(*spec.shape, spec.dtype))
    flush = 0 if kind is None else flush_bytes(spec, kind)
    needed = operands + flush
    if free_bytes is not None and needed > free_bytes:
        shape = f"{spec.m}x{spec.n}x{spec.k}" + (f", {spec.batch} at once," if spec.batch > 1 else "")
        flushed = f" ({bytes_text(flush)} of it to flush the cache)" if flush else ""
        raise DoesNotFit(
            f"a {spec.dtype} product of {shape} needs {bytes_text(needed)} on {spec.device}{flushed}, and"
            f" {bytes_text(free_bytes)} are free; take a smaller size",
            device=spec.device,
            needed_bytes=needed,
            free_bytes=free_bytes,
        )


class Checks(Findings):
    """Ask what a specification needs, then `demand_none`."""

    def __init__(self, registry: DeviceRegistry) -> None:
        super().__init__()
        self._registry = registry

    def devices(self, names: Sequence[str]) -> tuple[str, ...]:
        """Canonical ids of those that exist, in their order."""
        # a default for a lambda
        chosen = [self.checked(lambda name=name: self._registry.choose(name)) for name in names]  # type: ignore[misc]
        return tuple(device for device in chosen if device is not None)

    def one_clock(self, devices: Sequence[str]) -> None:
        """Refuse a mix of real and virtual accelerators."""
        self.add(*mixed_clocks({device: self._registry.info(device).simulated for device in devices}))

    def fits(self, device: str, nbytes: int, what: str, *, values: bool = False) -> None:
        """Note a `DoesNotFit` when new tensors of so many bytes do not fit; `what` begins its message ("copies of 1 GiB
        need")."""
        free = free_bytes(self._registry, device, values=values)
        if free is not None and nbytes > free:
            message = f"{what} {bytes_text(nbytes)} on {device}, and {bytes_text(free)} are free; take less"
            self._errors.append(DoesNotFit(message, device=device, needed_bytes=nbytes, free_bytes=free))


def mixed_clocks(simulated: Mapping[str, bool]) -> list[str]:
    """What is wrong with measuring these devices in one run (device -> whether it is simulated): seconds and simulated
    seconds cannot be compared."""
    virtual = [device for device, is_simulated in simulated.items() if is_simulated]
    real = [device for device in simulated if device not in virtual]
    if not virtual or not real:
        return []
    are = "is" if len(real) == 1 else "are"
    clocks = "their clocks cannot be compared"
    return [f"{', '.join(real)} {are} real and {', '.join(virtual)} simulated: {clocks}; choose devices of one kind"]


def free_bytes(registry: DeviceRegistry, device: str, *, values: bool = False) -> int | None:
    """What new tensors can take; None where that is unknown.

    Without `values` a virtual GPU's tensors take nothing of the host's memory.
    """
    backend = registry.backend(device)
    if isinstance(backend, VirtualMachine) and not values:
        return backend.device_free_bytes(device)
    return backend.free_bytes(device)


MOST_SHAPES = 10_000
"""More than a night's worth; a larger sweep is a typing error."""
MOST_BYTES = 1 << 40
BYTES_FACTOR = 4
"""Between the sizes of a range of bytes, where nothing else is said."""

_UNITS = {"": 1, "b": 1, "k": 1 << 10, "kib": 1 << 10, "m": 1 << 20, "mib": 1 << 20, "g": 1 << 30, "gib": 1 << 30}
Shape = tuple[int, int, int]


def parse_shapes(text: str) -> tuple[Shape, ...]:
    """Shapes (M, N, K) of a sweep, each once: sides, MxNxK, and ranges FROM:TO:STEP in place of any side, separated by
    commas.

    A range alone gives squares; ranges within MxNxK give every combination. Raises `BadInput` with everything that is
    wrong.

    >>> parse_shapes("64:128:64, 32x64:128:64x16")
    ((64, 64, 64), (128, 128, 128), (32, 64, 16), (32, 128, 16))
    """
    shapes: dict[Shape, None] = {}
    findings = Findings()
    for item in (part.strip() for part in text.split(",")):
        ranges = findings.checked(partial(_ranges, item), [])
        if len(shapes) + math.prod(map(len, ranges)) > MOST_SHAPES:
            findings.add(f"'{item}' makes more than {MOST_SHAPES:,} shapes; take a larger step")
        elif ranges:
            squares = len(ranges) == 1
            shapes |= dict.fromkeys([(n, n, n) for n in ranges[0]] if squares else itertools.product(*ranges))  # type: ignore[arg-type]
    findings.demand_none()
    return tuple(shapes)


def _ranges(item: str) -> list[range]:
    """The sides of `1024` or `64x128:256:64x32`."""
    sides = re.split(r"[x×X*]", item)
    if len(sides) not in (1, 3):
        raise BadInput(f"size '{item}' is not a size; write 1024, 64x128x32 or a range like 256:4096:256")
    return [_sides(side.strip()) for side in sides]


def _sides(text: str) -> range:
    """One side, or a range of them with both ends."""
    parts = [part.strip() for part in text.split(":")]
    if len(parts) not in (1, 3) or not all(re.fullmatch(r"[+-]?\d{1,18}", part, re.ASCII) for part in parts):
        raise BadInput(f"size '{text}' is not a size; write a whole number (1024) or a range like 256:4096:256")
    first, last, step = (int(part) for part in (parts if len(parts) == 3 else (parts[0], parts[0], "1")))
    if first < 1:
        raise BadInput(f"size '{text}' has a side of {first}; every side must be at least 1")
    if max(first, last) > LARGEST_SIDE:
        raise BadInput(f"size '{text}' has a side of {max(first, last)}; the largest side is {LARGEST_SIDE}")
    if last < first or step < 1:
        raise BadInput(
            f"the range '{text}' has nothing in it; write FROM:TO:STEP with FROM below TO, like 256:4096:256"
        )
    return range(first, last + 1, step)


def parse_byte_sizes(text: str, factor: int = BYTES_FACTOR) -> tuple[int, ...]:
    """Sizes of copies, in bytes, each once: `4K, 1M, 1GiB` (binary units), and ranges FROM:TO, each `factor` times the
    one before.

    >>> parse_byte_sizes("4K:64K, 1M")
    (4096, 16384, 65536, 1048576)
    """
    findings = Findings()
    sizes = [findings.checked(partial(_byte_range, part.strip(), factor), []) for part in text.split(",")]
    findings.demand_none()
    return tuple(dict.fromkeys(itertools.chain.from_iterable(sizes)))


def _byte_range(item: str, factor: int) -> list[int]:
    """`4K`, or both ends of `4K:64K` and what lies between them."""
    first, *last = (_bytes(end.strip()) for end in item.split(":", 1))
    if last and last[0] < first:
        raise BadInput(f"the range '{item}' has nothing in it; write FROM:TO with FROM below TO, like 4K:1G")
    sizes = []
    while last and first < last[0]:
        sizes.append(first)
        first *= factor
    return [*sizes, *(last or [first])]


def _bytes(text: str) -> int:
    match = re.fullmatch(r"(\d{1,18})\s*([a-z]*)", text.casefold(), re.ASCII)
    if match is None or match[2] not in _UNITS:
        raise BadInput(f"'{text}' is not a number of bytes; write for example 4096, 4K, 16M or 1G (binary units)")
    size = int(match[1]) * _UNITS[match[2]]
    if not 1 <= size <= MOST_BYTES:
        raise BadInput(f"a copy of {text} cannot be measured; its size is from 1 byte to {MOST_BYTES >> 30} GiB")
    return size
