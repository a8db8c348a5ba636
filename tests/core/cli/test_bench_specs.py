"""The specifications from arguments of `devexplorer bench`, without an engine."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from devexplorer.core.bandwidth.kind import BandwidthSpec
from devexplorer.core.base import BadInput
from devexplorer.core.benchmark.kind import kind_of
from devexplorer.core.cli.arguments import parse
from devexplorer.core.cli.bench_options import specs
from devexplorer.core.cli.findings import TerminalFindings
from devexplorer.core.model_steps.kind import ModelSpec
from devexplorer.core.records import BenchSpec, DeviceInfo, MatmulSpec
from devexplorer.core.scaling.kind import ScalingSpec
from devexplorer.core.sweep.kind import SweepSpec


def asked(line: str) -> list[BenchSpec]:
    """The specifications of a command line; raises for invalid arguments."""
    findings = TerminalFindings()
    found = specs(parse(["bench", *line.split()]), findings)
    findings.demand_none()
    return found


def completed(spec: BenchSpec, devices: Sequence[DeviceInfo]) -> BenchSpec:
    return kind_of(spec).on_devices(spec, devices)  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("line", "spec"),
    [
        ("matmul", MatmulSpec(device="cpu", m=1024, n=1024, k=1024, seconds=5.0)),
        ("matmul --mode burst", MatmulSpec(device="cpu", m=1024, n=1024, k=1024, mode="burst", seconds=2.0)),
        ("matmul --mode sustained", MatmulSpec(device="cpu", m=1024, n=1024, k=1024, mode="sustained", seconds=10.0)),
        ("matmul --size 8 --iterations 3", MatmulSpec(device="cpu", m=8, n=8, k=8, seconds=None, iterations=3)),
        (
            "matmul --size 8x16x32 --dtype fp16 --batch 4 --transpose b --flush-cache --seconds 1 --iterations 9",
            MatmulSpec(
                device="cpu", dtype="float16", m=8, n=16, k=32, batch=4, transpose_b=True, flush_cache=True,
                seconds=1.0, iterations=9
            ),
        ),
        ("matmul --size 8 --transpose BA", MatmulSpec(device="cpu", m=8, n=8, k=8, transpose_a=True, transpose_b=True,
                                                      seconds=5)),
        ("sweep --sizes 8:24:8", SweepSpec(device="cpu", shapes=((8, 8, 8), (16, 16, 16), (24, 24, 24)))),
        ("sweep --size 8,16 --seconds 1", SweepSpec(device="cpu", shapes=((8, 8, 8), (16, 16, 16)), shape_seconds=1.0)),
        ("sweep --search 9 --dtype bf16", SweepSpec(device="cpu", dtype="bfloat16", search_seconds=9.0)),
        ("sweep --search 9 --sizes 64", SweepSpec(device="cpu", shapes=((64, 64, 64),), search_seconds=9.0)),
        ("bandwidth", BandwidthSpec(sources=(), destinations=())),
        ("bandwidth --device cpu cuda:0", BandwidthSpec(sources=("cpu", "cuda:0"), destinations=("cpu", "cuda:0"))),
        (
            "bandwidth --from cpu --to cuda:0 cuda:1 --bytes 4K,1M --pinned --both-ways --seconds 1",
            BandwidthSpec(
                sources=("cpu",), destinations=("cuda:0", "cuda:1"), sizes=(4096, 1 << 20), pinned=(True,),
                both_ways=True, seconds=1.0
            ),
        ),
        ("bandwidth --from cpu --device cuda:0", BandwidthSpec(sources=("cpu",), destinations=("cuda:0",))),
        ("bandwidth --pageable", BandwidthSpec(sources=(), destinations=(), pinned=(False,))),
        ("scaling --device a b --device c", ScalingSpec(devices=("a", "b", "c"))),
        ("scaling --size 64 --iterations 5 --dtype tf32", ScalingSpec(devices=(), dtype="tf32", size=64, iterations=5)),
        ("model", ModelSpec(target="mlp", device="cpu")),
        (
            "model resnet18 --device cuda:1 --batch-size 32 --train --optimizer AdamW --autocast bf16 "
            "--compile --seconds 2",
            ModelSpec(
                target="resnet18", device="cuda:1", batch=32, train=True, optimizer="adamw", autocast="bfloat16",
                compiled=True,
                seconds=2.0,
            ),
        ),
    ],
)  # fmt: skip
def test_one_run(line: str, spec: BenchSpec) -> None:
    assert asked(line) == [spec]


@pytest.mark.parametrize("kind", ["matmul", "sweep", "model"])
def test_a_run_per_device(kind: str) -> None:
    assert [spec.device for spec in asked(f"{kind} --device cpu cuda:0 --device cuda:1 cpu")] == [
        "cpu",
        "cuda:0",
        "cuda:1",
    ]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("frob", "there is no benchmark 'frob'; there are matmul, sweep, bandwidth, scaling, model"),
        ("matmul --mode slow", "there is no --mode 'slow'; there are live, burst, sustained"),
        ("matmul --batch 0", "--batch '0' is not a whole number"),
        ("matmul --transpose c", "there is no --transpose 'c'; there are a, b, ab"),
        ("matmul mlp", "the target 'mlp' means nothing to bench matmul; it is for bench model"),
        ("matmul --sizes 8:16:8", "--sizes means nothing to bench matmul; it is for bench sweep"),
        ("matmul --from cpu", "--from means nothing to bench matmul"),
        ("matmul --train", "--train means nothing to bench matmul"),
        ("sweep --iterations 5", "--iterations means nothing to bench sweep; it is for bench matmul and scaling"),
        ("sweep --sizes 8:4:1", "nothing in it"),
        ("sweep --size 8 --sizes 8", "give one of them"),
        ("sweep --search 0", "--search: 0"),
        ("sweep --dtype complex64", "does not measure complex64"),
        ("bandwidth --dtype fp16", "--dtype means nothing to bench bandwidth"),
        ("bandwidth --bytes 0", "from 1 byte"),
        ("bandwidth --bytes 4KB", "binary units"),
        ("bandwidth --seconds 0", "--seconds: 0"),
        ("scaling --size 4x5x6", "square matrices; write --size 4"),
        ("scaling --seconds 5", "--seconds means nothing to bench scaling"),
        ("scaling --iterations 0", "--iterations '0'"),
        ("model --batch-size 0", "--batch-size '0'"),
        ("model --optimizer adam", "give --train as well"),
        ("model --train --optimizer lion", "there is no --optimizer 'lion'; there are sgd, momentum, adam, adamw"),
        ("model --autocast int8", "there is no --autocast 'int8'; there are float16, bfloat16"),
        ("model --autocast float31", "there is no dtype 'float31'"),
        ("model --dtype fp16", "--dtype means nothing to bench model"),
    ],
)
def test_what_is_refused_in_one_line(line: str, words: str) -> None:
    with pytest.raises(BadInput) as error:
        asked(line)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


CPU = DeviceInfo(id="cpu", kind="cpu", name="cpu")
CUDA = tuple(DeviceInfo(id=f"cuda:{n}", kind="cuda", name="card") for n in range(2))
BROKEN = DeviceInfo(id="nvml:2", kind="nvml", name="card", usable=False)
VIRTUAL = tuple(DeviceInfo(id=f"vgpu:{n}", kind="virtual", name="Tesla T4", simulated=True) for n in range(2))


@pytest.mark.parametrize(
    ("here", "devices"),
    [
        ((CPU,), ("cpu",)),
        ((CPU, CUDA[0]), ("cpu", "cuda:0")),
        ((CPU, *CUDA, BROKEN), ("cuda:0", "cuda:1")),
        ((CPU, *CUDA, *VIRTUAL), ("vgpu:0", "vgpu:1")),
    ],
)
def test_jobs_on_default_devices(here: tuple[DeviceInfo, ...], devices: tuple[str, ...]) -> None:
    (spec,) = asked("scaling")
    assert completed(spec, here) == ScalingSpec(devices=devices)


def test_copies_between_default_devices() -> None:
    (spec,) = asked("bandwidth --from cpu")
    assert completed(spec, (CPU, *CUDA, BROKEN)) == BandwidthSpec(
        sources=("cpu",), destinations=("cpu", "cuda:0", "cuda:1")
    )


def test_what_was_named_stays() -> None:
    for line in ("scaling --device b a", "bandwidth --device a", "matmul --size 8"):
        (spec,) = asked(line)
        assert completed(spec, (CPU, *CUDA)) == spec
