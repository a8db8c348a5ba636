"""After every change of layout and size the texts of an axis are at its grid lines: a picture of before, which Qt had
kept, left them where they had been."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from fakes.look_records import CPU, VGPU
from fakes.quiet_window import QuietWindow
from PySide6.QtGui import QImage
from PySide6.QtWidgets import QApplication

from devexplorer.core.records import DeviceSample
from devexplorer.core.session.state import Change
from devexplorer.gui.plots.timeline_plot import TimelinePlot
from devexplorer.gui.shell.layouts import LAYOUTS

SIZES = ((1000, 650), (1440, 900), (1000, 650))


@pytest.fixture
def quiet(qapp: QApplication, tmp_path: Path) -> Iterator[QuietWindow]:
    quiet = QuietWindow(qapp, tmp_path, VGPU)
    beat(quiet, 50)
    yield quiet
    quiet.close()


def beat(quiet: QuietWindow, readings: int) -> None:
    """A beat that finds so many readings, without an event loop behind it."""
    for _ in range(readings):
        quiet.now += 0.1
        for device in (CPU, VGPU):
            quiet.state.apply(
                DeviceSample(
                    device=device.id,
                    time_unix_s=quiet.now,
                    memory_used_bytes=3 << 30,
                    utilization_percent=50.0,
                    simulated=device.simulated,
                )
            )
    quiet.window.refresh(~Change.NOTHING, quiet.now)


def painted(plot: TimelinePlot) -> npt.NDArray[np.uint8]:
    image = plot.canvas.grab().toImage().convertToFormat(QImage.Format.Format_RGB32)
    return np.array(image.constBits(), np.uint8).reshape(image.height(), image.width(), 4).copy()


def test_in_every_layout_and_size(quiet: QuietWindow) -> None:
    stale: list[str] = []
    for size in SIZES:
        quiet.window.resize(*size)
        for layout in LAYOUTS:
            quiet.window.workbench.show_layout(layout.name)
            beat(quiet, 2)
            quiet.window.grab()  # painted while the plots are still getting their size
            quiet.settle()
            for plot in quiet.window.findChildren(TimelinePlot):
                if plot.isVisible() and not plot.is_empty:
                    kept = painted(plot)
                    plot.canvas.keep_pictures(False)
                    plot.canvas.keep_pictures(True)
                    plot.canvas.left.picture = plot.canvas.bottom.picture = None
                    anew = painted(plot)
                    if not np.array_equal(kept, anew):
                        stale.append(f"{plot.title} in {layout.name} at {size}")
    assert stale == []
