"""Planner reports for tests of the window: made-up figures for every profile."""

from __future__ import annotations

from msgspec.structs import replace

from devexplorer.core.devices.profiles import load_profiles
from devexplorer.core.planner.records import (
    BatchPoint,
    CacheLayers,
    Fit,
    FitBytes,
    FitCard,
    FitReport,
    FitSpec,
    Help,
    ServingFit,
    StepPart,
)

GIB = 1 << 30
BYTES = FitBytes(
    parameters=3 * GIB,
    gradients=3 * GIB,
    optimizer=6 * GIB,
    activations=5 * GIB,
    buffers=GIB // 64,
    library_workspace=GIB // 32,
    context=GIB // 2,
)

REST = FitBytes(
    parameters=3 * GIB, gradients=4 * GIB, optimizer=6 * GIB, buffers=GIB // 64, library_workspace=GIB // 64,
    context=GIB // 2,
)  # fmt: skip

PARTS = (
    StepPart(operations="matrix products", seconds=0.2, compute_bound_seconds=0.19, flop=4 * 10**11, nbytes=4 * 10**9,
             kernels=96),
    StepPart(operations="normalisation", seconds=0.06, compute_bound_seconds=0.0, flop=0, nbytes=12 * 10**9,
             kernels=50),
    StepPart(operations="attention", seconds=0.04, compute_bound_seconds=0.0, flop=2 * 10**10, nbytes=9 * 10**9,
             kernels=24),
)  # fmt: skip
"""Of a step, what takes longest first."""


def fit(gpu: str, capacity: int, found: FitBytes = BYTES, **more: object) -> Fit:
    """The answer for one card; it fits if there is enough memory."""
    fits = found.total <= capacity
    card = FitCard(gpu=gpu, capacity_bytes=capacity, bytes=found, reserved_bytes=18 * GIB, fits=fits, rest=REST)
    told: dict[str, object] = {
        "gpu": gpu,
        "fits": fits,
        "cards": (card,),
        "largest_batch": 8 * capacity // found.total if fits else 0,
        "step_seconds": 0.31 if fits else None,
        "step_seconds_low": 0.25 if fits else None,
        "step_seconds_high": 0.39 if fits else None,
        "samples_per_s": 25.8 if fits else None,
        "samples_per_s_low": 20.5 if fits else None,
        "samples_per_s_high": 32.0 if fits else None,
        "bound": "compute" if fits else None,
        "board_power_w": 70.0,
        "parts": PARTS if fits else (),
        "reason": "" if fits else "needs 17.6 GiB, and the card has less; the largest part is optimizer state, 6.0 GiB",
    }
    return Fit(**{**told, **more})  # type: ignore[arg-type]


def report(spec: FitSpec | None = None, helps: tuple[Help, ...] = ()) -> FitReport:
    """Every card, or those that the specification names."""
    spec = spec or FitSpec(source="transformers:gpt2", batch=8, train=True, options=False)
    profiles = load_profiles()
    fits = tuple(fit(name, profiles[name].usable_bytes) for name in spec.gpus or profiles)
    return FitReport(
        spec=spec,
        fits=fits,
        helps=helps,
        parameters=805_306_368,
        inputs="8x1024:int64",
        flop_per_step=40_000_000_000_000,
        assumptions=("cuBLAS keeps a workspace of 8.1 MiB", "a CUDA context takes 400 MiB"),
    )


def points(*batches: int) -> tuple[BatchPoint, ...]:
    """Time and memory over these batches, on a card of 80 GiB."""
    found = []
    for batch in batches:
        point = BatchPoint(batch=batch, total_bytes=(batch + 2) * GIB, capacity_bytes=80 * GIB, fits=batch <= 78)
        if point.fits:
            low, high = 0.008 * batch, 0.0125 * batch
            point = replace(point, step_seconds=0.01 * batch, step_seconds_low=low, step_seconds_high=high)
        found.append(point)
    return tuple(found)


HELPS = (
    Help(
        key="checkpointing",
        title="Checkpointing of the 12 blocks",
        words="Activations would take 0.9 GiB instead of 5.0; each step takes about a third longer.",
        gpu="Tesla T4",
        total_bytes=13 * GIB,
        saved_bytes=4 * GIB,
        fits=True,
        largest_batch=11,
        step_seconds=0.41,
        step_seconds_low=0.33,
        step_seconds_high=0.52,
    ),
    Help(
        key="adam8bit",
        title="An optimizer with states of 8 bits",
        words="The optimizer's state would take 1.5 GiB instead of 6.0.",
        gpu="Tesla T4",
        total_bytes=13 * GIB,
        saved_bytes=4 * GIB,
        fits=True,
    ),
)

SERVING = ServingFit(
    kv_cache_bytes=4 * GIB,
    kv_bytes_per_token=131_072,
    cache=(
        CacheLayers(kind="sliding", layers=21, tokens=1024, bytes=GIB),
        CacheLayers(kind="full", layers=21, tokens=2560, bytes=3 * GIB),
    ),
    largest_context=8192,
    context_limit="positions",
    prefill_seconds=0.25,
    prefill_seconds_low=0.2,
    prefill_seconds_high=0.3,
    decode_step_seconds=0.02,
    decode_tokens_per_s=800.0,
    decode_tokens_per_s_low=700.0,
    decode_tokens_per_s_high=900.0,
    decode_bound="bandwidth",
    decode_tokens_per_s_per_user=50.0,
    decode_tokens_per_s_per_card=800.0,
)
"""16 sequences on one card, of a model whose layers are half with a sliding window."""


def helped(helps: tuple[Help, ...] = HELPS) -> FitReport:
    """Of one card, with what would help."""
    return report(FitSpec(source="transformers:gpt2", batch=8, train=True, gpus=("Tesla T4",)), helps)
