"""Everything that needs a real card, in one command of at most ten minutes; the report is written line by line, so
nothing is lost.

    python tests/gpu/everything.py [--device cuda:0] [--out FOLDER] [--minutes 9.5] [--small] [--only TITLE …]

The tests in `tests/gpu` and the `cuda` scenarios, every kind of benchmark, the breakdown of the card's memory against
the driver's figures, the planner's peak of a training step against `torch.cuda.max_memory_allocated`, and the doctor
observing on the card. FOLDER gets `report.md` (with the figures for docs/measurements.md) and a file with the whole
output of every step.

Needs no Qt; typical PyTorch images lack only our dependencies msgspec and platformdirs. A step that fails or runs out
of time is reported, and the next one begins; the exit code is the number of such steps. Steps that measure nothing run
at once, before the others. `--only` runs the steps whose titles begin like that, for a second try. `--device vgpu:0`
tests the script itself without a card. `--small` is for the stand-in for CUDA (docs/standin.md), where a CPU computes:
small shapes, none of the steps that are about speed, and the tests are run by whoever runs this."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
PYTHON = [sys.executable, "-W", "ignore"]
COMMAND = [*PYTHON, "-m", "devexplorer.core.cli"]
TESTS = [*PYTHON, "-m", "pytest", "-q", "-p", "no:pytest-qt", "-p", "no:cacheprovider", "-p", "no:benchmark", "-rfEs"]
"""pytest-benchmark, where an image has it, warns beside xdist, and warnings are errors."""
DTYPES = ("float32", "tf32", "float16", "bfloat16", "float8_e4m3fn", "int8")
MODELS = (("resnet18", "128x3x224x224"), ("vgg16-bn", "32x3x224x224"), ("transformer", ""))
STEPS_OF_FIT = (
    ("mlp", "", 64, "adamw"),
    ("lenet", "", 64, "sgd"),
    ("resnet18", "1x3x224x224", 32, "adamw"),
    ("resnet50", "1x3x224x224", 32, "sgd"),
    ("vgg16-bn", "1x3x224x224", 16, "adamw"),
    ("transformer", "", 16, "adamw"),
    ("lstm", "1x64:int64", 16, "adamw"),
    ("transformers:gpt2", "1x512:int64", 4, "adamw"),
    ("transformers:bert", "1x128:int64", 16, "adamw"),
)
"""Model, inputs (empty: its own), batch, optimizer. Float32, the default of a training script."""
WITHIN, OR_BYTES = 0.10, 64 << 20
"""The planner's peak must be within this share of the card's, or that near to it: what cuDNN takes is a guess."""
CHECKED = ("resnet18", "transformer", "data-pitfall", "noise-pitfall", "list-pitfall")
"""For the doctor: clean ones, and the sample models with a pitfall."""


@dataclass(frozen=True)
class Step:
    """One process of the check."""

    title: str
    command: list[str]
    most_seconds: float
    summary: Callable[[str], Iterator[str]]
    """Lines for the report from what it printed."""
    may_return: tuple[int, ...] = (0,)
    alone: bool = True
    """It measures time or memory of the card: nothing else may run there."""


def whole(output: str) -> Iterator[str]:
    """All of it."""
    yield from output.strip().splitlines()


def last_line(output: str) -> Iterator[str]:
    """pytest's summary, and the names of failed tests."""
    lines = output.strip().splitlines()
    yield from (line for line in lines if line.startswith(("FAILED", "ERROR")))
    yield from lines[-1:]


def throughput(output: str) -> Iterator[str]:
    """A line per run of a benchmark document."""
    for run in json.loads(output)["runs"]:
        if run.get("reason"):
            yield (
                f"{run.get('source', run.get('dtype'))} -> {run.get('destination', run.get('shape'))}: {run['reason']}"
            )
        elif "bus_gb_per_s" in run:
            bus = "no bus" if run["bus_gb_per_s"] is None else f"bus {spread(run['bus_gb_per_s'])} GB/s"
            how = f"{run['backend']}, {run['ranks']} ranks, {run['bytes']:,} B"
            verified = "verified" if run["verified"] else "NOT VERIFIED"
            yield f"{how}: algorithm {spread(run['algorithm_gb_per_s'])} GB/s, {bus}, {verified}"
        elif "gb_per_s" in run:
            rate, verified = run["gb_per_s"], "verified" if run["verified"] else "NOT VERIFIED"
            memory = {True: " pinned", False: " pageable", None: ""}[run["pinned"]]
            copy = f"{run['source']} -> {run['destination']}{memory} {run['bytes']:,} B"
            yield f"{copy}: {rate['median']:.2f} GB/s, {verified}"
        elif "samples_per_s" in run:
            rates = f"{spread(run['samples_per_s'])} samples/s, {spread(run['tflops'])} TFLOP/s"
            yield f"{run['target']}: {rates}, peak {run['peak_memory_bytes']:,} B"
        elif "speedup" in run:
            yield (
                f"parallel {run['parallel_seconds']:.3f} s, sequential {run['sequential_seconds']:.3f} s, speed-up"
                f" {run['speedup']:.2f}"
            )
        else:
            yield f"{run['dtype']} {run['shape']} {run['mode']}: {spread(run['tflops'])} TFLOP/s"


def calibration(output: str) -> Iterator[str]:
    """A line per measurement, and whether the run may be planned with."""
    runs = json.loads(output)["runs"]
    for run in runs:
        if run["value"] is None:
            yield f"{run['text']}: {run['reason']}"
            continue
        unit = {"s": "µs"}.get(run["unit"], run["unit"])
        scale = 1e6 if unit == "µs" else 1.0
        noise = "simulated" if run["noise"] is None else f"noise {100 * run['noise']:.1f} %"
        yield (
            f"{run['text']}: {scale * run['measured']['median']:.2f} {unit}, modelled {scale * run['modelled']:.2f},"
            f" factor {spread(run['value'])}, {noise}, {'verified' if run['verified'] else 'NOT VERIFIED'}"
        )
    yield runs[0]["unusable"] or "a calibration that can be planned with"


def spread(rate: dict[str, float]) -> str:
    """Median, and the middle 60 %."""
    return f"{rate['median']:.2f} ({rate['p20']:.2f} to {rate['p80']:.2f})"


def readings(output: str) -> Iterator[str]:
    """Which fields of the card's readings are known."""
    for line in output.strip().splitlines()[-2:]:
        reading = json.loads(line)
        known = {name: value for name, value in reading.items() if value is not None and name != "processes"}
        yield f"{reading['device']}: {json.dumps(known)[:600]}"


def devices(output: str) -> Iterator[str]:
    """The listed devices, and their unknown fields."""
    document = json.loads(output)
    for info in document["devices"]:
        numbers = f"CUDA ordinal {info['cuda_ordinal']}, NVML index {info['nvml_index']}"
        yield (
            f"{info['id']} {info['name']}, {numbers}, {info['memory_total_bytes']:,} B, capability"
            f" {info['compute_capability']}"
        )
        yield f"  not known: {json.dumps(info.get('details', {}).get('missing', {}))[:1500]}"
    yield from (f"problem: {problem}" for problem in document["problems"])


def findings(output: str) -> Iterator[str]:
    """What the doctor found."""
    document = json.loads(output)
    yield f"{document['target']} on {document['device']}: {len(document['problems'])} problems"
    yield from (
        f"  {problem['rule']} {problem['path']} line {problem['line']}: {problem['message']}"
        for problem in document["problems"]
    )


@dataclass(frozen=True)
class Shapes:
    """What the steps measure."""

    large: str = "8192"
    middle: str = "4096"
    sweep: str = "1024:8192:1024"
    copies: str = "1M,256M"
    models: tuple[tuple[str, str], ...] = MODELS


SMALL = Shapes("128", "64", "32:64:32", "64K,1M", (("mlp", ""), ("lenet", "")))


def steps(device: str, shapes: Shapes, only_shown: bool) -> Iterator[Step]:
    """All steps, the most important first. `only_shown`: without those that the stand-in for CUDA cannot show."""
    here = [*PYTHON, str(Path(__file__))]
    cuda = device.startswith("cuda")
    virtual = [] if cuda else ["--virtual", "Tesla T4"]
    bench = [*COMMAND, "bench"]
    ending = [*virtual, "--no-store", "--json"]
    yield Step("devices", [*COMMAND, "devices", *virtual, "--details", "--json"], 60, devices, alone=False)
    which = ["-m", "gpu"] if cuda else ["-k", "behaviour_08 and vgpu"]
    if not only_shown:
        yield Step("scenarios", [*TESTS, "-n", "4", "tests/scenarios", *which], 150, last_line, alone=False)
    if cuda and not only_shown:
        yield Step("nvidia-smi", ["nvidia-smi"], 30, whole, alone=False)
        yield Step("tests/gpu", [*TESTS, "tests/gpu"], 150, last_line)
    yield Step("memory of the card", [*here, "--part", "memory", "--device", device], 60, whole)
    if not only_shown:
        yield Step("fit against the card", [*here, "--part", "fit", "--device", device], 240, whole)
    for dtype in DTYPES:
        matmul = [
            *bench,
            "matmul",
            "--device",
            device,
            "--dtype",
            dtype,
            "--size",
            shapes.large,
            "--mode",
            "burst",
            "--seconds",
            "2",
        ]
        yield Step(f"matmul {dtype}", [*matmul, *ending], 40, throughput, may_return=(0, 2))
    live = [
        *bench,
        "matmul",
        "--device",
        device,
        "--dtype",
        "bfloat16",
        "--size",
        shapes.middle,
        "--mode",
        "live",
        "--seconds",
        "3",
    ]
    yield Step("matmul live", [*live, *ending], 40, throughput)
    sustained = [
        *bench,
        "matmul",
        "--device",
        device,
        "--dtype",
        "bfloat16",
        "--size",
        shapes.large,
        "--mode",
        "sustained",
        "--seconds",
        "20",
    ]
    yield Step("matmul sustained", [*sustained, *ending], 60, throughput)
    yield Step(
        "bandwidth", [*bench, "bandwidth", "--device", "cpu", device, "--bytes", shapes.copies, *ending], 60, throughput
    )
    sweep = [
        *bench,
        "sweep",
        "--device",
        device,
        "--dtype",
        "bfloat16",
        "--sizes",
        shapes.sweep,
        "--seconds",
        "0.2",
    ]
    yield Step("sweep", [*sweep, *ending], 90, throughput)
    yield Step(
        "scaling",
        [*bench, "scaling", "--device", device, "--size", shapes.middle, "--iterations", "200", *ending],
        60,
        throughput,
        (0, 2),
    )
    all_cards = [*bench, "allreduce", "--size", "4K,1M,256M", *ending]  # a world of one rank where there is one card
    if not only_shown:
        yield Step("calibration", [*bench, "calibrate", "--device", device, *ending], 60, calibration)
        yield Step("all-reduce between all cards", all_cards, 60, throughput, (0,) if cuda else (0, 2))
    for model, inputs in shapes.models:
        shape = ["--input", inputs] if inputs and cuda else []
        train = [*bench, "model", model, "--device", device, *shape, "--train", "--seconds", "3"]
        yield Step(f"model {model}", [*train, *ending], 60, throughput)
    for target in CHECKED:
        doctor = [*COMMAND, "doctor", target, "--device", device, *virtual, "--train", "--json"]
        yield Step(f"doctor {target}", doctor, 60, findings, may_return=(0, 1), alone=False)
    yield Step("watch", [*COMMAND, "watch", "--count", "2", "--interval", "1", "--json", *virtual], 30, readings)
    if cuda and not only_shown:
        against = [*PYTHON, "tests/benchmarks/matmul_cuda.py", "--device", device, "--rounds", "3"]
        yield Step("burst against triton's do_bench", against, 120, whole)
    yield Step("env", [*COMMAND, "env"], 30, whole, alone=False)


def check(device: str, out: Path, minutes: float, small: bool, only: list[str]) -> int:
    """Run as many steps as time allows and write the report. Returns the number of failed steps."""
    end, failed = time.monotonic() + 60 * minutes, 0
    out.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
    environment["PYTHONPATH"] = os.pathsep.join(
        [str(REPOSITORY / ".ci" / "types"), os.environ.get("PYTHONPATH", "")]
    ).rstrip(os.pathsep)
    every = steps(device, SMALL if small else Shapes(), small)
    chosen = [step for step in every if not only or step.title.startswith(tuple(only))]
    together = [step for step in chosen if not step.alone]
    with (out / "report.md").open("w", encoding="utf-8") as report, ThreadPoolExecutor(8) as pool:

        def say(line: str) -> None:
            print(line, flush=True)
            report.write(line + "\n")
            report.flush()

        say(f"# Everything that wants a card: {device}, {time.strftime('%Y-%m-%d %H:%M')}")
        first = {step.title: pool.submit(ran, step, end, environment) for step in together}
        for number, step in enumerate([*together, *(step for step in chosen if step.alone)], 1):
            done = first[step.title].result() if step.title in first else ran(step, end, environment)
            name = f"{number:02d}-{step.title.replace(' ', '-').replace('/', '-')}.txt"
            (out / name).write_text(f"{done.output}\n{done.errors}", encoding="utf-8")
            say(f"\n## {step.title}: {done.state}, {done.seconds:.1f} s")
            state = done.state
            try:
                lines = list(step.summary(done.output)) if done.output.strip() else []
            except (ValueError, KeyError, TypeError, IndexError) as error:
                lines, state = [f"its output could not be read: {error!r}"], "unreadable"
            for line in lines[:60]:
                say(f"    {line}")
            if state != "ok":
                failed += 1
                for line in [*done.output.strip().splitlines()[-15:], *done.errors.strip().splitlines()[-15:]]:
                    say(f"    | {line}")
        say(f"\n{failed} steps did not work.")
    return failed


@dataclass(frozen=True)
class Ran:
    """How a step ended. `state`: `ok`, or what went wrong."""

    state: str
    output: str
    errors: str
    seconds: float


def ran(step: Step, end: float, environment: dict[str, str]) -> Ran:
    """Run it, at most until `end` (seconds as of `time.monotonic`)."""
    began = time.monotonic()
    limit = min(end - began, step.most_seconds)
    if limit < 5:
        return Ran("NOT RUN, the time was over", "", "", 0.0)
    try:
        done = subprocess.run(
            step.command,
            env=environment,
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=limit,
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        return Ran(f"NOT DONE within {limit:.0f} s", _text(late.stdout), _text(late.stderr), limit)
    except OSError as error:
        return Ran(f"COULD NOT START ({error})", "", "", 0.0)
    state = "ok" if done.returncode in step.may_return else f"FAILED with exit code {done.returncode}"
    return Ran(state, done.stdout, done.stderr, time.monotonic() - began)


def _text(output: str | bytes | None) -> str:
    return output.decode(errors="replace") if isinstance(output, bytes) else output or ""


def fit_part(device: str) -> int:
    """The planner's peak of two training steps against the allocator of the card in the same steps, each in a
    subprocess."""
    import torch

    cuda, far = device.startswith("cuda"), 0
    card = torch.cuda.get_device_name(device) if cuda else "Tesla T4"
    hidden = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}  # virtual GPUs want a process that sees no card

    def part(side: str, environment: dict[str, str], step: dict[str, object]) -> Ran:
        command = [*PYTHON, __file__, "--part", side, "--step", json.dumps({**step, "device": device, "card": card})]
        return ran(Step(side, command, 120, whole), time.monotonic() + 120, environment)

    keys = ("model", "inputs", "batch", "optimizer")
    asked = [dict(zip(keys, step, strict=True)) for step in (STEPS_OF_FIT if cuda else STEPS_OF_FIT[:3])]
    with ThreadPoolExecutor(4) as pool:
        plans = list(pool.map(partial(part, "planned", hidden), asked))
    for step, plan in zip(asked, plans, strict=True):
        title = f"{step['model']} {step['optimizer']} batch {step['batch']}"
        figures = {}
        for side, done in (("planned", plan), ("measured", part("measured", dict(os.environ), step))):
            if done.state != "ok":
                print(f"{title}: {side} {done.state}: {done.errors.strip().splitlines()[-1:]}", flush=True)
                far += 1
                break
            figures[side] = json.loads(done.output.splitlines()[-1])
        else:
            planned, measured = figures["planned"], figures["measured"]
            whole_ratio = (planned["tensors"] + planned["workspaces"]) / measured["allocated"]
            tensors_ratio = planned["tensors"] / measured["allocated"]
            too_much = planned["tensors"] + planned["workspaces"] - measured["allocated"]
            far += abs(too_much) > max(WITHIN * measured["allocated"], OR_BYTES)
            print(
                f"{title} on {planned['card']}: planned {planned['tensors']:,} B of tensors"
                f" and {planned['workspaces']:,} B of workspaces, max_memory_allocated {measured['allocated']:,} B:"
                f" ratio {tensors_ratio:.3f}, with workspaces {whole_ratio:.3f}; a step {1e3 * planned['seconds']:.2f}"
                f" ms simulated, {1e3 * measured['seconds']:.2f} ms measured; {measured['context']}",
                flush=True,
            )
    return far


def planned_part(step: dict[str, str]) -> None:
    """The planner's prediction for this step on this card: the allocator's peak (without the context), and the
    simulated time.

    cuBLAS and cuDNN take their workspaces from the same allocator, but not always during the peak: they are reported
    separately."""
    from devexplorer.core.devices.profiles import load_profiles
    from devexplorer.core.planner.records import FitSpec
    from devexplorer.core.planner.worker.ask import plan_in_this_process

    card = step["card"] if step["card"] in load_profiles() else "NVIDIA H200"
    spec = FitSpec(
        source=step["model"],
        gpus=(card,),
        batch=int(step["batch"]),
        inputs=step["inputs"],
        train=True,
        optimizer=step["optimizer"],
        search=False,
    )
    (fit,) = list(plan_in_this_process(spec, lambda done, text: None))[-1].fits
    assert fit.bytes is not None
    workspaces = fit.bytes.library_workspace
    tensors = fit.bytes.total - fit.bytes.context - workspaces
    print(json.dumps({"tensors": tensors, "workspaces": workspaces, "seconds": fit.step_seconds, "card": card}))


def measured_part(step: dict[str, str]) -> None:
    """The same steps on the card, as a user's script does them: the second step's peak, and the median time of ten
    more."""
    import statistics

    import torch

    from devexplorer.core.devices.profiles import parse_virtual
    from devexplorer.core.models.extras import make_optimizer
    from devexplorer.core.models.run import total
    from devexplorer.core.planner.subject import subject_of
    from devexplorer.core.virtual.backend import install, swapping

    device = step["device"]
    cuda = device.startswith("cuda")
    if not cuda:
        install().add(parse_virtual("Tesla T4"))
    module = torch.cuda if cuda else torch.vgpu  # type: ignore[attr-defined]
    subject = subject_of(step["model"], "", step["inputs"]).with_values(RuntimeError("the card computes them"))
    model = subject.model.train()
    with swapping():
        model.to(device)
    generator = torch.Generator().manual_seed(0)
    inputs = [spec.tensor(torch.float32, generator).to(device) for spec in subject.inputs(int(step["batch"]))]
    optimizer = make_optimizer(step["optimizer"], model.parameters(), lr=1e-6, foreach=True)

    def once() -> None:
        optimizer.zero_grad(set_to_none=True)
        _backward(total(model(*inputs)))
        optimizer.step()

    for _ in range(2):
        once()
    module.synchronize(device)
    peak = module.max_memory_allocated(device)
    times = []
    for _ in range(10 if cuda else 1):
        began = time.perf_counter()
        once()
        module.synchronize(device)
        times.append(time.perf_counter() - began)
    context = "no context: simulated"
    if cuda:
        free, whole_card = torch.cuda.mem_get_info(device)
        context = f"reserved {torch.cuda.memory_reserved(device):,} B, in use on the card {whole_card - free:,} B"
    print(json.dumps({"allocated": peak, "seconds": statistics.median(times), "context": context}))


def _backward(loss: object) -> None:
    """A separate function, so that the loss and the output are freed before the optimizer's step."""
    import torch

    assert isinstance(loss, torch.Tensor)
    loss.backward()


def memory_part(device: str) -> int:
    """The breakdown of the card's memory after known allocations, as shown in the window, against the driver's
    figures."""
    import gc

    import torch

    from devexplorer.core.devices.nvml.library import Nvml
    from devexplorer.core.devices.torch_devices import TorchBackend
    from devexplorer.core.telemetry.memory_breakdown import ContextEstimator, memory_parts

    if not device.startswith("cuda"):
        print("virtual GPUs add up to the byte in the tests; this part wants a real card")
        return 0
    backend, nvml = TorchBackend(), Nvml()
    if not nvml.start():
        print(f"no NVML: {[problem.reason for problem in nvml.problems]}")
        return 1
    info = next(info for info in backend.devices() if info.id == device)
    card = next(card for card in nvml.cards() if (card.uuid or "").lower() == (info.uuid or "").lower())
    held: list[torch.Tensor] = []
    watch, apart = ContextEstimator(), []
    for mib in (0, 64, 512, 2048):
        held.append(torch.empty(mib << 20, dtype=torch.uint8, device=device))
        torch.cuda.synchronize(device)
        gc.collect()
        for _ in range(
            2
        ):  # the context is known only if the allocator's figure is the same before and after the list of processes
            sample = nvml.read(card, device=device, time_unix_s=time.time(), slow=nvml.read_slow(card))
            watch.see_sample(sample, os.getpid())
            allocator = backend.allocator_sample(device, time.time())
            assert allocator is not None
            watch.see_allocator(allocator)
        parts = memory_parts(
            sample.memory_used_bytes, sample.memory_total_bytes, allocator, watch.bytes, sample.memory_reserved_bytes
        )
        free, total = torch.cuda.mem_get_info(device)
        driver_used = total - free
        apart.append(None if parts.used is None else parts.used - driver_used)
        print(
            f"{mib} MiB asked: {parts}; cudaMemGetInfo used {driver_used:,} B of {total:,}; parts less that:"
            f" {apart[-1]}",
            flush=True,
        )
    nvml.close()
    return int(any(difference is None or abs(difference) > 64 << 20 for difference in apart))


def main() -> int:
    """All of it, or one part in this process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--out", type=Path, default=Path("card-report"))
    parser.add_argument("--minutes", type=float, default=9.5)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--only", nargs="+", default=[], metavar="TITLE")
    parser.add_argument("--part", choices=("memory", "fit", "planned", "measured"), help=argparse.SUPPRESS)
    parser.add_argument("--step", type=json.loads, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.part in ("planned", "measured"):
        (planned_part if given.part == "planned" else measured_part)(given.step)
        return 0
    if given.part is not None:
        return (memory_part if given.part == "memory" else fit_part)(given.device)
    return check(given.device, given.out, given.minutes, given.small, given.only)


if __name__ == "__main__":
    sys.exit(main())
