"""Something on every page of a `QuietWindow`: models, and of the features that there are values, a split with its
hops, a diagnosis, a plan, runs of every benchmark, alerts."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from devexplorer.core.feature import features
from devexplorer.core.records import BenchResult, DeviceSample, Hop, ObjectChanged, UndoState
from devexplorer.gui.shell.layouts import LAYOUTS
from devexplorer.gui.shell.main_window import TABS
from fakes import bench_runs, stored_runs
from fakes.look_records import mlp, model, module_row, tensor_row
from fakes.quiet_window import QuietWindow

MIB = 1 << 20
LAYERS = 12
WARNING = "accelerate's planner would have parted tied blocks; they were put together."


def fill(quiet: QuietWindow) -> None:
    """The window has at least two virtual GPUs. Select `net` for its split, `mlp` for its diagnosis and its values."""
    cards = sorted(name for name in quiet.state.devices if name != "cpu")
    places = [cards[at * len(cards) // LAYERS] for at in range(LAYERS)]
    rows = [module_row("", 0, "Net", tuple(cards), LAYERS)]
    for at, place in enumerate(places):
        rows += [module_row(f"layers.{at}", 1, "Linear", (place,)), tensor_row(f"layers.{at}.weight", 2, place)]
    net = replace(model("net", *rows), hops=True, bytes_by_device=dict.fromkeys(cards, MIB))
    quiet.tell(
        ObjectChanged(snapshot=net),
        ObjectChanged(snapshot=mlp(gradients=True)),
        UndoState(title="the move of net to vgpu:1", kept_bytes=MIB),
        *(
            DeviceSample(device=card, time_unix_s=quiet.now + second, temperature_c=99.0, simulated=True)
            for card in cards
            for second in range(9)
        ),
    )
    if "parameters" in features():
        _values(quiet)
    if "split" in features():
        _split(quiet, cards, places)
    if "planner" in features():
        from devexplorer.core.planner.records import FitPlanned
        from fakes import fits

        quiet.tell(FitPlanned(request=1, target="", report=fits.report(helps=fits.HELPS)))
    if "doctor" in features():
        from fakes import diagnoses

        diagnoses.tell(quiet.state, diagnoses.some())
    results: list[BenchResult] = [stored_runs.matmul(info=stored_runs.T4)]
    for feature, make in (
        ("sweep", stored_runs.sweep),
        ("bandwidth", stored_runs.bandwidth),
        ("scaling", stored_runs.scaling),
        ("model_steps", stored_runs.model_run),
    ):
        if feature in features():
            results.append(make(stored_runs.T4))
    for run, result in enumerate(results):
        bench_runs.begin(quiet.state, run, result.spec, simulated=True)
        bench_runs.finish(quiet.state, run, replace(result, run=run))
    quiet.now += 10
    quiet.tell()
    assert quiet.state.troubles() or "alerts" not in features()


def _values(quiet: QuietWindow) -> None:
    from devexplorer.core.parameters.records import Values, ValuesDescribed

    values = Values(
        target="mlp:hidden.weight", shape=(512, 1024), dtype="float32", device="cpu", elements=1 << 19,
        simulated=False, mean=0.0, std=0.1, minimum=-1.0, maximum=1.0, counts=tuple(range(64)), low=-1.0, high=1.0,
        first="0.10  0.20\n0.30  0.40", norm=3.0, seconds=0.1,
    )  # fmt: skip
    quiet.tell(ValuesDescribed(values=replace(values, gradient=values)))


def _split(quiet: QuietWindow, cards: list[str], places: list[str]) -> None:
    from devexplorer.core.split.records import Hopped, SplitBlock, SplitPlan, SplitPlanned, SplitShare

    blocks = [
        SplitBlock(path=f"layers.{at}", type="Linear", bytes=MIB, device=place, now=(place,))
        for at, place in enumerate(places)
    ]
    shares = [SplitShare(device=card, budget_bytes=7 * MIB, used_bytes=places.count(card) * MIB) for card in cards]
    plan = SplitPlan(target="net", blocks=tuple(blocks), shares=tuple(shares), hops=len(cards), warnings=(WARNING,))
    hops = [
        Hop(before=f"layers.{at}", after=f"layers.{at + 1}", source=places[at], destination=places[at + 1], bytes=1024,
            seconds=6e-6, simulated=True)
        for at in range(LAYERS - 1) if places[at] != places[at + 1]
    ]  # fmt: skip
    quiet.tell(SplitPlanned(plan=plan), Hopped(target="net", hops=tuple(hops)))


def every_page(quiet: QuietWindow) -> Iterator[tuple[str, str]]:
    """Bring every page of every layout to the front, and each page in it: its tab, and words for all of it."""
    for layout in LAYOUTS:
        quiet.window.workbench.show_layout(layout.name)
        if quiet.window.workbench.shows("exercise"):
            quiet.window.bottom_dock.page("learn")  # it is made after the first paint, on a busy machine much later
        for tab in TABS:
            if tab.is_in(layout.name):
                page = quiet.window.bottom_dock.show_page(tab.name)
                for inner in page.rail.choices if hasattr(page, "rail") else ("",):
                    if inner:
                        page.show_page(inner)  # type: ignore[attr-defined]
                    quiet.settle()
                    yield tab.name, f"{layout.name}, {tab.name} {inner}".strip()
