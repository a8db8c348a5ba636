"""`bench bandwidth|scaling|model|sweep` as a user runs them, on the CPU and on virtual GPUs: documents, tables, errors,
Ctrl-C."""

from __future__ import annotations

import math
import signal

import pytest
from fakes.command_line import NONE, T4S, Document, Json, Refusal, has, strictly

from devexplorer.core.benchmark.kind import run_documents
from devexplorer.core.cli import bench as bench_run
from devexplorer.core.cli.run import main
from devexplorer.core.devices.profiles import load_profiles
from devexplorer.core.history.store import Store
from devexplorer.core.records import BenchEnded
from devexplorer.core.virtual.device.cost import cost_parameters, power_share

pytestmark = pytest.mark.usefixtures("no_virtual_gpus_left")

OPTIONAL_SPREAD = (dict, NONE)


def check_spread(spread: Json) -> None:
    has(spread, median=float, p20=float, p80=float)
    assert 0 < spread["p20"] <= spread["median"] <= spread["p80"]


def check_ended(run: Json) -> None:
    has(run, simulated=bool, stopped=bool, failure=(str, NONE), conditions=dict, torch=str)
    assert run["conditions"]["simulated"] == run["device"].startswith("vgpu")


# --- bandwidth


def test_pinned_only_and_pageable_only_exclude_each_other(refusal: Refusal) -> None:
    assert "omit both to measure both" in refusal("bench", "bandwidth", "--pinned", "--pageable")


def test_bandwidth_between_the_cpu_and_virtual_gpus(document: Document) -> None:
    argv = [
        "bench",
        "bandwidth",
        "--virtual",
        T4S,
        "--device",
        "cpu",
        "vgpu:0",
        "vgpu:1",
        "--bytes",
        "4K,1M",
        "--seconds",
        "0.02",
        "--pinned",
    ]
    content = document(*argv)
    assert content["benchmark"] == "bandwidth"
    runs = content["runs"]
    pairs = {(run["source"], run["destination"], run["bytes"]) for run in runs}
    assert pairs == {
        (a, b, size)
        for a in ("cpu", "vgpu:0", "vgpu:1")
        for b in ("cpu", "vgpu:0", "vgpu:1")
        for size in (4096, 1 << 20)
    }
    for run in runs:
        has(run, source=str, destination=str, bytes=int, gb_per_s=OPTIONAL_SPREAD, verified=bool, simulated=bool)
        check_spread(run["gb_per_s"])
        assert run["verified"] is True
        assert run["simulated"] == ("vgpu" in run["source"] + run["destination"])


def test_bandwidth_from_one_device_to_another_both_ways(document: Document) -> None:
    argv = [
        "bench",
        "bandwidth",
        "--virtual",
        T4S,
        "--from",
        "vgpu:0",
        "--to",
        "vgpu:1",
        "--bytes",
        "16M",
        "--seconds",
        "0.02",
    ]
    runs = document(*argv, "--both-ways")["runs"]
    assert [(run["source"], run["destination"], run["both_ways"]) for run in runs] == [
        ("vgpu:0", "vgpu:1", way) for way in (False, True)
    ]
    for run in runs:
        check_ended(run)


def test_bandwidth_in_words(capfd: pytest.CaptureFixture[str]) -> None:
    argv = [
        "bench",
        "bandwidth",
        "--virtual",
        "t4",
        "--from",
        "cpu",
        "--to",
        "vgpu:0",
        "--bytes",
        "1M",
        "--seconds",
        "0.02",
    ]
    assert main(argv) == 0
    head, pinned, pageable = capfd.readouterr().out.splitlines()
    assert "GB/s" in head
    assert all(word in pinned for word in ("cpu", "vgpu:0", "1 MiB", "pinned", "yes", "simulated"))
    assert "pageable" in pageable
    assert "not modelled" in pageable, "the reason stands where the figures would be"


# --- scaling


def test_scaling_of_two_virtual_gpus(document: Document) -> None:
    argv = [
        "bench",
        "scaling",
        "--device",
        "vgpu:0",
        "--device",
        "vgpu:1",
        "--virtual",
        T4S,
        "--size",
        "1000",
        "--iterations",
        "1000",
    ]
    content = document(*argv)
    assert content["benchmark"] == "scaling"
    (run,) = content["runs"]
    has(
        run,
        parallel_seconds=float,
        sequential_seconds=float,
        speedup=float,
        devices=list,
        walls=list,
        dtype=str,
        shape=list,
        iterations=int,
    )
    check_ended(run)
    assert (run["devices"], run["shape"], run["iterations"], run["simulated"]) == (
        ["vgpu:0", "vgpu:1"],
        [1000] * 3,
        1000,
        True,
    )
    assert run["speedup"] == pytest.approx(2.0, rel=0.01)
    assert run["sequential_seconds"] == pytest.approx(run["speedup"] * run["parallel_seconds"])
    slowed = power_share(load_profiles()["Tesla T4"]) ** -math.log(cost_parameters()["power"])
    burst = run["parallel_seconds"] / slowed
    assert burst == pytest.approx(0.34, rel=0.12), "two T4 took that long in the tutorial, before 70 W held them back"


def test_scaling_in_words(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "scaling", "--virtual", T4S, "--size", "1000", "--iterations", "100"]) == 0
    _, first, second, summary = capfd.readouterr().out.splitlines()
    assert first.startswith("vgpu:0")
    assert second.startswith("vgpu:1")
    assert all(word in summary for word in ("at once", "one after the other", "2.00 times as fast", "simulated"))


# --- model


@pytest.mark.parametrize("options", [(), ("--train",), ("--train", "--optimizer", "adamw")])
@pytest.mark.parametrize("device", ["cpu", "vgpu:0"])
def test_model_steps(document: Document, device: str, options: tuple[str, ...]) -> None:
    argv = ["bench", "model", "mlp", "--virtual", "t4", "--device", device, "--seconds", "0.1", "--batch-size", "4"]
    content = document(*argv, *options)
    assert content["benchmark"] == "model"
    (run,) = content["runs"]
    has(
        run,
        target=str,
        device=str,
        samples_per_s=dict,
        tflops=OPTIONAL_SPREAD,
        peak_memory_bytes=(int, NONE),
        iterations=int,
    )
    check_spread(run["samples_per_s"])
    check_ended(run)
    assert (run["target"], run["device"], run["batch"], run["train"]) == ("mlp", device, 4, bool(options))
    assert run["optimizer"] == {0: None, 1: "sgd", 3: "adamw"}[len(options)]
    assert run["simulated"] == (device == "vgpu:0")
    assert (run["peak_memory_bytes"] is None) == (device == "cpu"), "nobody counts what is allocated on the CPU"


def test_model_in_words(capfd: pytest.CaptureFixture[str]) -> None:
    assert (
        main(["bench", "model", "LeNet", "--virtual", "t4", "--device", "vgpu:0", "--train", "--seconds", "0.1"]) == 0
    )
    head, row = capfd.readouterr().out.splitlines()
    assert "samples/s" in head
    assert all(word in row for word in ("vgpu:0", "lenet", "training with sgd, batch 8", "simulated"))


# --- sweep


@pytest.mark.parametrize("device", ["cpu", "vgpu:0"])
def test_a_sweep_is_many_matmul_runs(document: Document, device: str) -> None:
    argv = ["bench", "sweep", "--virtual", "t4", "--device", device, "--sizes", "16:48:16,8x16x32", "--seconds", "0.02"]
    content = document(*argv)
    assert content["benchmark"] == "sweep"
    assert [run["shape"] for run in content["runs"]] == [[16] * 3, [32] * 3, [48] * 3, [8, 16, 32]]
    for run in content["runs"]:
        has(
            run, device=str, dtype=str, shape=list, mode=str, tflops=dict, iterations=int, seconds=float, simulated=bool
        )
        check_spread(run["tflops"])
        check_ended(run)


def test_a_shape_that_does_not_fit_has_its_reason_and_costs_no_other(document: Document) -> None:
    argv = ["bench", "sweep", "--virtual", "t4", "--device", "vgpu:0", "--sizes", "64,200000", "--seconds", "0.02"]
    small, large = document(*argv)["runs"]
    check_spread(small["tflops"])
    assert large["tflops"] is None
    assert "GiB" in large["reason"]


def test_a_search_begins_with_what_it_is_given(document: Document) -> None:
    argv = [
        "bench",
        "sweep",
        "--virtual",
        "t4",
        "--device",
        "vgpu:0",
        "--dtype",
        "fp16",
        "--sizes",
        "512",
        "--search",
        "1",
    ]
    shapes = [run["shape"] for run in document(*argv)["runs"]]
    assert shapes[0] == [512] * 3
    assert len(shapes) > 1


def test_a_sweep_in_words(capfd: pytest.CaptureFixture[str]) -> None:
    assert (
        main(["bench", "sweep", "--virtual", "t4", "--device", "vgpu:0", "--sizes", "64,2048", "--seconds", "0.02"])
        == 0
    )
    lines = capfd.readouterr().out.splitlines()
    assert len(lines) == 4
    assert lines[-1].startswith("fastest: 2048×2048×2048 with")
    assert "simulated" in lines[-1]
    assert "% of datasheet" in lines[-1]


# --- shared behaviour


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("bandwidth", "--bytes 4K --seconds 0.02"),
        ("scaling", "--virtual t4,t4 --size 16 --iterations 5"),
        ("model", "--seconds 0.05"),
        ("sweep", "--sizes 16 --seconds 0.02"),
    ],
)
def test_every_kind_is_kept_in_the_history(document: Document, kind: str, options: str) -> None:
    runs = document("bench", kind, *options.split(), "--tag", f"kept {kind}")["runs"]
    with Store() as store:
        (kept,) = [run for run in store.runs() if run.tags == (f"kept {kind}",)]
    assert run_documents(kept.result, kept.conditions) == runs


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ("bandwidth --from vgpu:0", "there is no device 'vgpu:0' here"),
        ("bandwidth --to cpu:1", "write 'cpu'"),
        ("bandwidth --bytes 900G", "GiB"),
        ("bandwidth --bytes 0", "from 1 byte"),
        ("bandwidth --device cpu --dtype int8", "--dtype means nothing to bench bandwidth"),
        ("scaling", 'try it with --virtual "2x Tesla T4"'),
        ("scaling --device cpu", 'try it with --virtual "2x Tesla T4"'),
        ("scaling --device cpu cuda:0", "there is no device 'cuda:0' here"),
        ("scaling --virtual t4,t4 --size 100000", "GiB"),
        ("scaling --virtual t4,t4 --dtype tf32", "Tesla T4 has no tf32 unit"),
        ("scaling --virtual t4,t4 --device cpu vgpu:0", "simulated"),
        ("model mlpp", "did you mean mlp"),
        ("model their.models:Net", "module 'their.models' could not be imported: ModuleNotFoundError"),
        ("model mlp --input 4x", "'4x' is no input; write shapes as 4x12"),
        ("model mlp --input 4x21", "mat1 and mat2 shapes cannot be multiplied"),
        ("model mlp --device cuda:7", "there is no device 'cuda:7' here"),
        ("model mlp --virtual t4 --device vgpu:0 --compile", "torch.compile"),
        ("model mlp --batch-size 99999999999", "batch"),
        ("sweep --sizes 64:32:8", "nothing in it"),
        ("sweep --dtype fp8 --virtual t4 --device vgpu:0", "Tesla T4 has no float8_e4m3fn unit"),
        ("sweep --device cuda:7", "there is no device 'cuda:7' here"),
    ],
)
def test_bad_input_gets_one_line(refusal: Refusal, argv: str, words: str) -> None:
    assert words in refusal("bench", *argv.split())


@pytest.mark.parametrize(
    "argv",
    [
        "bandwidth --virtual t4 --device cpu vgpu:0 --seconds 20",
        "sweep --sizes 16,32,48 --seconds 20",
        "model mlp --seconds 600",
    ],
)
def test_ctrl_c_keeps_what_was_measured(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, argv: str
) -> None:
    def interrupt(*_: object) -> None:
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(bench_run, "_show", interrupt)  # called when the first block was measured
    monkeypatch.setattr(signal, "default_int_handler", lambda *_: None)  # a second Ctrl-C would end it at once
    assert main(["bench", *argv.split(), "--json"]) == 130
    out, err = capfd.readouterr()
    assert "Traceback" not in err
    if out:  # of a copy or a shape that is not finished there may be nothing to keep
        assert all(run["stopped"] for run in strictly(out)["runs"])
    else:
        assert err.startswith("devexplorer: ")


def test_values_that_came_out_wrong_are_no_success(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wrong results are reported: the figures are printed and marked, and the exit code is 1."""
    import msgspec

    follow = bench_run._follow

    def wrong(*arguments: object) -> object:
        finished, reason = follow(*arguments)  # type: ignore[arg-type]
        assert finished is not None
        return finished._replace(result=msgspec.structs.replace(finished.result, verified=False)), reason

    monkeypatch.setattr(bench_run, "_follow", wrong)
    assert main(["bench", "matmul", "--size", "16", "--iterations", "5"]) == 1
    assert "wrong values" in capfd.readouterr().out


def test_a_run_that_ends_before_its_time_keeps_its_figures_and_says_why(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import msgspec

    from devexplorer.core.engine.engine import LocalEngine

    events = LocalEngine.events

    def lost(self: LocalEngine, request: int, timeout_s: float | None = None):  # type: ignore[no-untyped-def]
        for event in events(self, request, timeout_s):
            if isinstance(event, BenchEnded):
                event = msgspec.structs.replace(event, reason="the card is lost")
            yield event

    monkeypatch.setattr(LocalEngine, "events", lost)
    assert main(["bench", "matmul", "--size", "16", "--iterations", "5", "--json"]) == 2
    out, err = capfd.readouterr()
    assert strictly(out)["runs"][0]["iterations"] == 5
    assert err == "devexplorer: cpu: the card is lost\n"
