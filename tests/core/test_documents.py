"""The JSON of results: the keys of the contract for every kind, null where nothing is known, `simulated` always."""

from __future__ import annotations

import json

import msgspec
import pytest

from devexplorer.core.benchmark.documents import benchmark_document, kind, run_document, run_documents
from devexplorer.core.records.benchmark import (
    BandwidthResult,
    BandwidthRow,
    BandwidthSpec,
    BenchResult,
    Conditions,
    DeviceWall,
    MatmulResult,
    MatmulSpec,
    ModelResult,
    ModelSpec,
    ScalingResult,
    ScalingSpec,
    Spread,
    SweepCell,
    SweepResult,
    SweepSpec,
)

SPREAD = Spread(median=2.0, p20=1.5, p80=2.5)
AS_OBJECT = {"median": 2.0, "p20": 1.5, "p80": 2.5}
COMMON = {"run": 1, "stopped": False, "simulated": True, "seconds": 3.0, "iterations": 12, "torch_version": "2.13.0"}

MATMUL = MatmulResult(spec=MatmulSpec(device="vgpu:0", dtype="bfloat16", m=8, n=16, k=32), tflops=SPREAD, blocks=4, **COMMON)
SWEEP = SweepResult(
    spec=SweepSpec(device="vgpu:0", shapes=((10, 10, 10), (99, 99, 99))),
    cells=(SweepCell(10, 10, 10, SPREAD, 6, verified=True, seconds=0.2), SweepCell(99, 99, 99, reason="it does not fit")),
    **COMMON,
)
BANDWIDTH = BandwidthResult(
    spec=BandwidthSpec(sources=("cpu",), destinations=("vgpu:0",)),
    rows=(
        BandwidthRow(
            source="cpu", destination="vgpu:0", bytes=4096, pinned=True, gb_per_s=SPREAD, seconds=SPREAD, iterations=5, verified=True,
            simulated=True, measured_seconds=0.25,
        ),
        BandwidthRow(source="cpu", destination="cpu", bytes=4096, reason="no"),
    ),
    **COMMON,
)  # fmt: skip
SCALING = ScalingResult(
    spec=ScalingSpec(devices=("vgpu:0", "vgpu:1"), size=100, iterations=7),
    parallel_seconds=1.0,
    sequential_seconds=1.5,
    walls=(DeviceWall("vgpu:0", 0.9), DeviceWall("vgpu:1", 1.0)),
    **COMMON,
)
MODEL = ModelResult(spec=ModelSpec(target="mlp", device="vgpu:0"), samples_per_s=SPREAD, step_seconds=SPREAD, **COMMON)
ALL: tuple[BenchResult, ...] = (MATMUL, SWEEP, BANDWIDTH, SCALING, MODEL)


@pytest.mark.parametrize("result", ALL, ids=kind)
def test_every_run_says_whether_it_is_simulated_how_it_ended_and_that_conditions_are_not_known(result: BenchResult) -> None:
    for run in run_documents(result):
        assert isinstance(run["simulated"], bool)
        assert (run["stopped"], run["failure"], run["conditions"], run["torch"]) == (False, None, None, "2.13.0")
        assert run["device"] == "vgpu:0"
        assert json.loads(msgspec.json.encode(run)) == run, "plain values only"


def test_a_matmul_run() -> None:
    run = run_document(MATMUL)
    wanted = {
        "device": "vgpu:0", "dtype": "bfloat16", "shape": [8, 16, 32], "mode": "live", "tflops": AS_OBJECT, "iterations": 12,
        "seconds": 3.0, "simulated": True, "noise": None, "parts_tflops": None, "drift": None, "verified": None, "datasheet_tflops": None,
        "published_tflops": None,
    }  # fmt: skip
    assert {key: run[key] for key in wanted} == wanted


def test_a_sweep_is_many_matmul_runs() -> None:
    measured, refused = run_documents(SWEEP)
    assert set(measured) == set(refused)
    assert {"device", "dtype", "shape", "mode", "tflops", "iterations", "seconds", "simulated"} <= set(measured)
    assert (measured["shape"], measured["mode"], measured["tflops"]) == ([10, 10, 10], "burst", AS_OBJECT)
    assert (measured["seconds"], measured["verified"]) == (0.2, True)
    assert (refused["tflops"], refused["seconds"], refused["reason"]) == (None, None, "it does not fit")
    assert refused["verified"] is None, "nothing was compared"


def test_a_bandwidth_run_per_copy() -> None:
    measured, refused = run_documents(BANDWIDTH)
    wanted = {"source": "cpu", "destination": "vgpu:0", "bytes": 4096, "gb_per_s": AS_OBJECT, "verified": True, "pinned": True}
    assert {key: measured[key] for key in wanted} == wanted
    assert (measured["seconds"], refused["seconds"]) == (0.25, None), "as it was measured, not made from the latency"
    assert (refused["gb_per_s"], refused["verified"], refused["pinned"], refused["reason"]) == (None, None, None, "no")
    assert (measured["simulated"], refused["simulated"]) == (True, False), "each pair for itself"


def test_a_scaling_run() -> None:
    run = run_document(SCALING)
    wanted = {"parallel_seconds": 1.0, "sequential_seconds": 1.5, "speedup": 1.5, "efficiency": 0.75, "devices": ["vgpu:0", "vgpu:1"]}
    assert {key: run[key] for key in wanted} == wanted
    assert run["walls"][1] == {"device": "vgpu:1", "seconds": 1.0}
    half = run_document(msgspec.structs.replace(SCALING, sequential_seconds=None))
    assert (half["sequential_seconds"], half["speedup"], half["efficiency"]) == (None, None, None)


def test_a_model_run() -> None:
    run = run_document(MODEL)
    wanted = {"target": "mlp", "samples_per_s": AS_OBJECT, "tflops": None, "peak_memory_bytes": None, "optimizer": None}
    assert {key: run[key] for key in wanted} == wanted
    trained = msgspec.structs.replace(MODEL, spec=msgspec.structs.replace(MODEL.spec, train=True), tflops=SPREAD)
    assert (run_document(trained)["optimizer"], run_document(trained)["tflops"]) == ("sgd", AS_OBJECT)


def test_conditions_stand_beside_the_figures_and_name_what_was_published() -> None:
    known = Conditions(started_unix_s=1.0, ended_unix_s=2.0, device="vgpu:0", device_name="NVIDIA H200", power_w=SPREAD)
    run = run_document(MATMUL, known)
    assert run["conditions"]["power_w"] == AS_OBJECT
    assert run["conditions"]["temperature_c"] is None
    assert set(run["conditions"]) == set(Conditions.__struct_fields__)
    assert run["published_tflops"] == 850
    assert run_documents(SWEEP, known)[0]["published_tflops"] is None, "no float32 was published"


def test_a_document_holds_results_of_one_kind() -> None:
    document = benchmark_document([(SWEEP, None), (SWEEP, None)])
    assert document["benchmark"] == "sweep"
    assert len(document["runs"]) == 4
    with pytest.raises(ValueError, match="one kind"):
        benchmark_document([(SWEEP, None), (MODEL, None)])
    with pytest.raises(ValueError, match="one kind"):
        benchmark_document([])
