"""Takes pictures of the real window to be looked at: every layout and page, theme, size and number of devices.

    xvfb-run -a -s "-screen 0 3840x2160x24" python tests/pictures/matrix.py FOLDER [--devices 2] [--states model]
    xvfb-run -a -s "-screen 0 1366x768x24" sh -c "openbox & python tests/pictures/matrix.py FOLDER --maximized"

`QT_SCALE_FACTOR` is the factor; sizes are those of the screen's pixels. Needs no GPU. Minutes.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

os.environ.setdefault("QT_QPA_PLATFORM", "xcb" if os.environ.get("DISPLAY") else "offscreen")

from pages import Stage
from PySide6.QtWidgets import QApplication, QWidget

from devexplorer.core.allreduce.kind import AllReduceSpec
from devexplorer.core.bandwidth.kind import BandwidthSpec
from devexplorer.core.experiments.records import Ask, Crossover, Replicate, TimeWork
from devexplorer.core.model_steps.kind import ModelSpec
from devexplorer.core.planner.calibrate.kind import CalibrateSpec
from devexplorer.core.records import BuildModel, Check, Forward, MatmulSpec, Move, StartBenchmark
from devexplorer.core.scaling.kind import ScalingSpec
from devexplorer.core.sweep.kind import SweepSpec
from devexplorer.gui.shell.layouts import LAYOUTS
from devexplorer.gui.shell.main_window import TABS
from devexplorer.gui.widgets import theme as themes

SIZES = ((1000, 650), (1280, 800), (1366, 768), (1440, 900), (1920, 1080), (2560, 1440), (3840, 2160))
LEAST_PX = (1000, 650)
LATE_S = 2.0
"""Readings that are older have piled up."""
VIRTUAL = {
    1: "1x Tesla T4",
    2: "2x Tesla T4",
    8: "4x NVIDIA A100-SXM4-80GB, 4x Tesla T4",
    16: "8x NVIDIA A100-SXM4-80GB, 8x Tesla T4",
}


SELECTED = {"values": ("resnet18", "fc.weight"), "split": ("resnet18", ""), "doctor": ("list-pitfall", "")}
"""What is selected before the picture of a page, where it is there."""


def empty(stage: Stage) -> None:
    pass


def model(stage: Stage) -> None:
    """Models on several devices; one is selected."""
    last = [name for name in stage.app.state.usable_devices if name != "cpu"][-1]
    stage.do(
        BuildModel(recipe="vgg16-bn"),
        Move(targets=("vgg16-bn",), device="vgpu:0"),
        BuildModel(recipe="resnet18"),
        Move(targets=("resnet18:layer3", "resnet18:layer4", "resnet18:fc"), device=last),
        BuildModel(recipe="mlp"),
        Move(targets=("mlp",), device=last),
        Forward(target="mlp"),
    )
    stage.window.objects.select("resnet18")


def running(stage: Stage) -> None:
    spec = MatmulSpec(device="vgpu:0", dtype="float16", m=4096, n=4096, k=4096, seconds=600.0)
    stage.window.controller.send(StartBenchmark(spec=spec))
    stage.wait(lambda: stage.app.state.active_runs)  # else what comes next would run into it


def finished(stage: Stage) -> None:
    stage.window.controller.stop_benchmark()
    stage.wait(lambda: not stage.app.state.active_runs)
    sizes = (256, 1024, 4096)
    shapes = tuple((m, n, 1024) for m in sizes for n in sizes)
    stage.window.bottom_dock.show_page("benchmark").show_page("sweep")  # type: ignore[attr-defined]
    stage.measured(SweepSpec(device="vgpu:0", dtype="float16", shapes=shapes, shape_seconds=0.05))
    stage.window.context.select_device("vgpu:0")
    stage.do(BuildModel(recipe="list-pitfall"), Check(target="list-pitfall", device="vgpu:0"))
    fit = stage.window.bottom_dock.show_page("fit")
    stage.window.objects.select("resnet18")
    stage.rest(0.5)
    stage.click(fit, "Check fit")


def everything(stage: Stage) -> None:
    """Every page has something to show."""
    cards = tuple(name for name in stage.app.state.usable_devices if name != "cpu")
    pairs = BandwidthSpec(sources=("cpu", *cards), destinations=("cpu", *cards), sizes=(1 << 16, 1 << 24), seconds=0.01)
    stage.measured(
        MatmulSpec(device="vgpu:0", dtype="float16", m=4096, n=4096, k=4096, seconds=1.0),
        pairs,
        ModelSpec(target="resnet18", device="vgpu:0", seconds=1.0),
        CalibrateSpec(device="vgpu:0", seconds=1.0),
    )
    experiments = [Ask(target="resnet18", question="device"), TimeWork(device="vgpu:0"), Crossover(device="vgpu:0")]
    if len(cards) > 1:
        stage.measured(ScalingSpec(devices=cards, iterations=20), AllReduceSpec(devices=cards, seconds=0.01))
        experiments.append(Replicate(target="mlp", devices=cards))
    stage.do(*experiments)
    split = stage.window.bottom_dock.show_page("split")
    stage.window.objects.select("resnet18")
    stage.rest(0.5)
    if len(cards) > 1:
        stage.click(split, "Plan")
    values = stage.window.bottom_dock.show_page("values")
    stage.window.objects.select_near("resnet18", "fc.weight")
    stage.rest(0.5)
    stage.wait(lambda: values.facts.facts)


STATES: dict[str, Callable[[Stage], None]] = {
    "empty": empty,
    "model": model,
    "running": running,
    "finished": finished,
    "everything": everything,
}
"""One after the other in the same window: each builds on those before it."""


def is_up_to_date(stage: Stage) -> bool:
    """Whether the newest readings are shown: pictures take so long on a busy machine that the window falls behind."""
    newest = (stage.app.state.devices[name].history.latest_unix_s for name in stage.app.state.usable_devices)
    return min(newest) > time.time() - LATE_S


def pages(stage: Stage, *, every: bool) -> Iterator[tuple[str, QWidget]]:
    """Bring each layout to the front, or `every` page of each; its name, and the window that shows it."""
    for layout in LAYOUTS:
        stage.window.workbench.show_layout(layout.name)
        if not every:
            yield layout.name, stage.window
            continue
        for tab in TABS:
            of_layout = tab.layout == "" and layout is LAYOUTS[0]
            if of_layout or (tab.is_in(layout.name) and tab.name != tab.layout):
                page = stage.window.bottom_dock.show_page(tab.name)
                if tab.name in SELECTED:
                    stage.window.objects.select_near(*SELECTED[tab.name])
                rail = getattr(page, "rail", None)
                for inner in rail.choices if rail is not None else ("",):
                    if inner:
                        page.show_page(inner)  # type: ignore[attr-defined]
                    yield f"{layout.name}-{tab.name}-{inner}".strip("-"), page.window()
        stage.window.bottom_dock.apart.hide()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--devices", type=int, default=2, choices=VIRTUAL)
    parser.add_argument("--states", default=",".join(STATES))
    parser.add_argument("--sizes", default=",".join(f"{width}x{height}" for width, height in SIZES))
    parser.add_argument("--themes", default="dark,light")
    parser.add_argument("--maximized", action="store_true", help="the whole screen under a window manager, not sizes")
    parser.add_argument("--pages", action="store_true", help="every page instead of every layout")
    chosen = parser.parse_args()
    chosen.folder.mkdir(parents=True, exist_ok=True)
    qt = QApplication(sys.argv[:1])
    with tempfile.TemporaryDirectory() as folder:
        states = chosen.states.split(",")
        stage = Stage(qt, Path(folder), VIRTUAL[chosen.devices], "dark")
        factor = stage.window.devicePixelRatio()
        sizes = [tuple(int(part) for part in size.split("x")) for size in chosen.sizes.split(",")]
        if chosen.maximized:
            stage.window.showMaximized()
            sizes = [(qt.primaryScreen().size() * factor).toTuple()]
        logical = {size: (round(size[0] / factor), round(size[1] / factor)) for size in sizes}
        for state, prepare in STATES.items():
            prepare(stage)
            if state not in states:
                continue
            stage.rest(12.0)
            for theme in chosen.themes.split(","):
                themes.apply(qt, themes.THEMES[theme])
                for size, (width, height) in logical.items():
                    if width < LEAST_PX[0] or height < LEAST_PX[1]:
                        continue
                    if not chosen.maximized:
                        stage.window.resize(width, height)
                    stage.rest(0.5)
                    for page, window in pages(stage, every=chosen.pages):
                        stage.rest(0.6)
                        stage.wait(lambda: is_up_to_date(stage))
                        name = f"{state}-{page}-{theme}-{size[0]}x{size[1]}@{factor:g}-{chosen.devices}.png"
                        shown = qt.primaryScreen().grabWindow(0) if chosen.maximized else window.grab()
                        shown.save(str(chosen.folder / name))
            print(state, flush=True)
            if state == states[-1]:
                break
        stage.app.stop()
        stage.window.hide()


if __name__ == "__main__":
    main()
