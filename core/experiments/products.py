"""What the timing experiments measure: one float32 product of square matrices, made and checked as the benchmarks do.
Jobs thread."""

from __future__ import annotations

from devexplorer.core.base import BadInput
from devexplorer.core.benchmark.matmul import MeasuredProduct, product_maker
from devexplorer.core.benchmark.spec import Checks, check_matmul
from devexplorer.core.devices.backend import DeviceRegistry, torch_module
from devexplorer.core.records import MatmulSpec

DTYPE = "float32"
ITEM_BYTES = 4
LONGEST_SECONDS = 60.0
"""An experiment holds up the jobs thread: what would take longer belongs on the Benchmark page."""
ROUGH_CPU_FLOP_PER_S = 2e10
"""A slow CPU's rate, about one core's with AVX2 at a low clock: to refuse in advance what would take minutes."""


def check_size(device: str, size: int, registry: DeviceRegistry) -> MatmulSpec:
    """The product of that size on an existing device. Raises `BadInput`, or `DoesNotFit`; allocates nothing."""
    spec = MatmulSpec(device=device, dtype=DTYPE, m=size, n=size, k=size, seconds=None)
    check_matmul(spec, registry.info(device))
    checks = Checks(registry)
    checks.fits(device, 3 * size * size * ITEM_BYTES, f"a product of size {size} needs")
    checks.demand_none()
    return spec


def make_product(spec: MatmulSpec, registry: DeviceRegistry) -> MeasuredProduct:
    """Operands on the device and what multiplies them; on a virtual GPU they have memory and cost, and no values."""
    return product_maker(simulated=registry.info(spec.device).simulated)(spec)


def refuse_long(seconds: float, what: str, less: str) -> None:
    """Raise `BadInput` when an experiment would take longer than a person waits for; `less` says what to choose
    smaller."""
    if seconds > LONGEST_SECONDS:
        raise BadInput(
            f"{what} would take about {seconds / 60:.0f} min here, and nothing else could run until then; choose"
            f" {less}, or measure it on the Benchmark page"
        )


def synchronise_code(device: str) -> str:
    """The Python that waits for a device, as one statement; `device` is its variable there."""
    kind = device.partition(":")[0]
    if kind == "cpu":
        return "pass  # the CPU is done when a call returns"
    return "torch.mps.synchronize()" if kind == "mps" else f"{torch_module(kind)}.synchronize(device)"
