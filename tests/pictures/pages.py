"""Makes the README's pictures of pages: the real window with a real engine, one page after the other.

    python tests/pictures/pages.py docs/pictures [name …]

Needs no display and no GPU. A few minutes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable, Iterable, Iterator
from contextlib import chdir, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
sys.path.insert(0, str(Path(__file__).parents[1]))

from PySide6.QtCore import QItemSelectionModel, QPoint, QRect, Qt
from PySide6.QtGui import QColor, QCursor, QPainter, QPixmap
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QDialog, QPushButton, QWidget

from devexplorer.core.machines.greeting import Greeting
from devexplorer.core.machines.host.finding import reach, serve_command
from devexplorer.core.machines.host.wire import SocketStream
from devexplorer.core.machines.ssh.records import Report
from devexplorer.core.observe.running import running
from devexplorer.core.records import BuildModel, Check, Command, Forward, MatmulSpec, Move, StartBenchmark
from devexplorer.core.session.session import Session
from devexplorer.core.session.settings import KnownMachine, SettingsFile
from devexplorer.core.split.records import InsertHops
from devexplorer.core.sweep.kind import SweepSpec
from devexplorer.gui.environments.python_choice import open_dialog
from devexplorer.gui.files.open_model import OpenModelDialog
from devexplorer.gui.machines.actions import connect
from devexplorer.gui.machines.room import room_of
from devexplorer.gui.observe.scripts import scripts_of
from devexplorer.gui.shell.app import App
from devexplorer.gui.widgets import current_theme

SIZE_PX, DIALOG_PX = (1440, 1000), 72
NETS = """from torch import nn

class Block(nn.Module):
    def __init__(self, channels): ...

class UNet(nn.Module):
    def __init__(self): ...
"""
TWO, EIGHT = "2x Tesla T4", "4x NVIDIA A100-SXM4-80GB, 2x Tesla T4"
LEFT = Qt.MouseButton.LeftButton


class Stage:
    """A window with its engine."""

    def __init__(self, qt: QApplication, folder: Path, virtual: str, theme: str) -> None:
        self._qt, self.folder = qt, folder
        self.at_end: list[Callable[[], None]] = []
        self.dialog: QWidget | None = None
        """In the picture in place of the window."""
        self.app = App(qt, SettingsFile(folder), theme, folder / "history.sqlite3")
        self.window = self.app.window
        self.window.resize(*SIZE_PX)
        QCursor.setPos(*SIZE_PX)  # on no button
        self.app.show()
        self.app.connect(Session(virtual_spec=virtual))
        self._sent, self._send = 0, self.app.controller._send
        self.app.controller._send = self._count
        self.wait(lambda: "vgpu:0" in self.app.state.usable_devices)

    def _count(self, command: Command) -> int:
        self._sent += 1
        return self._send(command)

    def wait(self, until: Callable[[], object], seconds: float = 300.0) -> None:
        end = time.monotonic() + seconds
        while not until():
            if time.monotonic() > end:
                raise SystemExit(f"did not happen: {self.app.state.answer}")
            self._qt.processEvents()
            time.sleep(0.01)

    def rest(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        self.wait(lambda: time.monotonic() > end)

    def do(self, *commands: Command) -> None:
        """Send, and wait until all have ended."""
        for command in commands:
            ended = self._ended()
            self.window.controller.send(command)
            self.wait(ended)

    def _ended(self) -> Callable[[], bool]:
        """Whether all that is sent from now on has ended: it begins later, on a busy machine much later."""
        done, sent = self.app.state.done_count, self._sent

        def ended() -> bool:
            state = self.app.state
            return state.done_count - done >= self._sent - sent and not state.jobs and not state.active_runs

        return ended

    def click(self, page: QWidget, text: str) -> None:
        def buttons() -> list[QPushButton]:
            every = page.findChildren(QPushButton)
            return [b for b in every if b.isVisible() and b.isEnabled() and b.text().startswith(text)]

        self.wait(buttons)
        ended = self._ended()
        QTest.mouseClick(buttons()[0], LEFT)
        self.rest(0.5)
        self.wait(ended)

    def measured(self, *specs: MatmulSpec | SweepSpec) -> None:
        for spec in specs:
            self.do(StartBenchmark(spec=spec))


def memory(stage: Stage) -> None:
    stage.do(BuildModel(recipe="vgg16-bn"), Move(targets=("vgg16-bn",), device="vgpu:0"))
    stage.window.bottom_dock.show_page("memory")
    stage.window.context.select_device("vgpu:0")


def benchmark(stage: Stage) -> None:
    """The step of a model's memory, and a product that is being measured."""
    stage.window.axis.set_span(30.0)
    stage.do(BuildModel(recipe="vgg16-bn"), Move(targets=("vgg16-bn",), device="vgpu:1"))
    stage.window.bottom_dock.show_page("benchmark")
    spec = MatmulSpec(device="vgpu:0", dtype="float32", m=1024, n=1024, k=1024, seconds=10.0)
    stage.window.controller.send(StartBenchmark(spec=spec))
    stage.rest(3.0)


def sweep(stage: Stage) -> None:
    page = stage.window.bottom_dock.show_page("benchmark")
    page.show_page("sweep")  # type: ignore[attr-defined]
    sizes = (256, 512, 1024, 2048, 4096)
    shapes = tuple((m, n, 1024) for m in sizes for n in sizes)
    stage.measured(SweepSpec(device="vgpu:0", dtype="float16", shapes=shapes, shape_seconds=0.05))


def history(stage: Stage) -> None:
    """Three runs of the same on the CPU are compared; those of virtual GPUs are listed with them."""
    products = [MatmulSpec(device="cpu", m=512, n=512, k=512, seconds=2.0)] * 3
    virtual = [MatmulSpec(device=f"vgpu:{n}", dtype="float16", m=2048, n=2048, k=2048, seconds=1.0) for n in (0, 1)]
    stage.measured(*virtual, *products)
    page: Any = stage.window.bottom_dock.show_page("history")
    stage.wait(lambda: len(page.model.runs) == len(products) + len(virtual))
    for row, run in enumerate(page.model.runs):
        if run.result.spec.device == "cpu":
            flags = QItemSelectionModel.SelectionFlag.Select | QItemSelectionModel.SelectionFlag.Rows
            page.table.selectionModel().select(page.model.index(row, 0), flags)
    stage.click(page, "Compare")
    stage.wait(lambda: page.comparing is not None and page.comparing.comparison is not None)


def topology(stage: Stage) -> None:
    stage.window.bottom_dock.show_page("topology")


def values(stage: Stage) -> None:
    stage.do(BuildModel(recipe="mlp"), Move(targets=("mlp",), device="vgpu:1"))
    page = stage.window.bottom_dock.show_page("values")
    stage.window.objects.select_near("mlp", "0.weight")
    stage.rest(0.5)
    stage.wait(lambda: page.facts.facts)


def split(stage: Stage) -> None:
    stage.do(BuildModel(recipe="resnet18"))
    stage.window.objects.select("resnet18")
    page = stage.window.bottom_dock.show_page("split")
    stage.rest(0.5)
    for button in ("Plan", "Spread evenly", "Apply"):
        stage.click(page, button)
    stage.do(InsertHops(target="resnet18"), Forward(target="resnet18"))


def doctor(stage: Stage) -> None:
    stage.do(BuildModel(recipe="list-pitfall"))
    stage.window.objects.select("list-pitfall")
    stage.window.bottom_dock.show_page("doctor")
    stage.do(Check(target="list-pitfall", device="vgpu:0"))


def fit(stage: Stage) -> None:
    stage.do(BuildModel(recipe="resnet50"))
    stage.window.objects.select("resnet50")
    page = stage.window.bottom_dock.show_page("fit")
    stage.rest(0.5)
    stage.click(page, "Check fit")


def learn(stage: Stage) -> None:
    stage.window.workbench.show_layout("learn")
    stage.do(BuildModel(recipe="mlp"))


def open_model(stage: Stage) -> None:
    """A file with two classes."""
    path = stage.folder / "unet.py"
    path.write_text(NETS)
    stage.window.actions_by_id["open_model"].trigger()
    dialog = next(one for one in QApplication.topLevelWidgets() if isinstance(one, OpenModelDialog) and one.isVisible())
    dialog.show_file(path)
    stage.wait(lambda: dialog.table.rows)
    dialog.factory.setText("UNet")
    dialog.inputs.setText("1x3x64x64")
    dialog.name.setText("unet")
    dialog.device.setCurrentText("vgpu:0")
    dialog.dtype.setCurrentText("bfloat16")


class HostHere:
    """A way to a host on this machine with virtual GPUs of its own, in place of ssh to a server."""

    failure = None

    def __init__(self, folder: Path, virtual: str, host: str) -> None:
        self.host, self._virtual = host, virtual
        own = str(folder / host)
        self.environ = {**os.environ, "XDG_RUNTIME_DIR": own, "TMPDIR": own}  # `stop` ends no other host
        (folder / host).mkdir(mode=0o700)

    def open(self) -> SocketStream:
        return SocketStream(reach(self.environ, lambda: serve_command(["--virtual", self._virtual])))

    def cancel(self) -> None:
        pass

    def reports(self) -> list[Report]:
        return []

    def answer(self, number: int, text: str | None) -> None:
        pass

    def stop(self) -> None:
        subprocess.run([sys.executable, "-m", "devexplorer.core.cli", "host", "stop"], env=self.environ, check=True)


def machines(stage: Stage) -> None:
    """Two servers are connected; the second one is shown and moves a model."""
    room, servers = room_of(stage.window.context), {"gpu1": "2x Tesla T4", "gpu2": "4x NVIDIA A100-SXM4-80GB"}
    ways = {name: HostHere(stage.folder, virtual, name) for name, virtual in servers.items()}
    room.make_way = lambda host, python: ways[host]
    stage.at_end = [way.stop for way in ways.values()]
    for name in servers:
        room.connect_to(name)
        stage.wait(lambda name=name: room.shown.name == name and len(stage.app.state.usable_devices) > 2)
    stage.do(BuildModel(recipe="resnet18"), Move(targets=("resnet18",), device="vgpu:2"))
    stage.window.bottom_dock.show_page("machines")
    spec = MatmulSpec(device="vgpu:1", dtype="float16", m=4096, n=4096, k=4096, seconds=20.0)
    stage.window.controller.send(StartBenchmark(spec=spec))


def connect_dialog(stage: Stage) -> None:
    """The machines of `~/.ssh/config` and one that was connected before."""
    ssh = stage.folder / ".ssh"
    ssh.mkdir(mode=0o700)
    (ssh / "config").write_text("Host gpu1 gpu2 login.cluster\n")
    stage.window.context.save_settings(machines=(KnownMachine("ada@forge", "~/work/.venv"),))
    with _at_home(stage.folder):
        dialog = connect(stage.window.context)
        stage.wait(lambda: len(dialog.table.rows) == 4)
    dialog.table.select_key("gpu1")
    stage.dialog = dialog


def python_dialog(stage: Stage) -> None:
    """A project's environment, which has the torch of this one, and two that concern it less."""
    project = stage.folder / "net"
    for name, torch in ((".venv", True), ("venv", False)):
        venv.create(project / name, with_pip=False)
        if torch:
            spec = find_spec("torch")
            assert spec is not None and spec.origin is not None  # noqa: PT018 - for the type checker
            site = next((project / name / "lib").glob("python3*")) / "site-packages"
            (site / "torch.pth").write_text(f"{Path(spec.origin).parents[1]}\n")
    with _at_home(stage.folder, PATH="/usr/bin", PYENV_ROOT=str(stage.folder)), chdir(project):
        dialog = open_dialog(stage.window.context)
        stage.wait(lambda: len(dialog.table.rows) > 2 and not dialog._waiting)
        stage.rest(8.0)  # the last one is asked
    dialog.table.select_key(str(project / ".venv/bin/python"))
    stage.dialog = dialog


@contextmanager
def _at_home(home: Path, **variables: str) -> Iterator[None]:
    """What stands in the home folder of whoever makes the pictures is not in them."""
    kept = dict(os.environ)
    os.environ.update(HOME=str(home), **variables)
    os.environ.pop("VIRTUAL_ENV", None)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(kept)


def fleet(stage: Stage) -> None:
    """A simulated fleet after a check that found its slow cards."""
    from devexplorer.core.devices.profiles import parse_virtual
    from devexplorer.core.fleet.check.plan import CheckPlan
    from devexplorer.core.fleet.simulated import SimulatedFleet, parse_defect
    from devexplorer.gui.fleet.model import CHECK
    from devexplorer.gui.fleet.room import room_of as fleet_of

    page = stage.window.bottom_dock.show_page("fleet")
    defects = (parse_defect("slow:3/5:10%"), parse_defect("hot:9/2:20%"))
    room = fleet_of(stage.window.context)
    room.open_simulation(SimulatedFleet(16, parse_virtual("8x NVIDIA H100 80GB HBM3"), defects, hurries=True))
    stage.wait(lambda: room.fleet.table.machines and room.fleet.table.settled)
    room.begin_check(CheckPlan())
    stage.wait(lambda: room.fleet.report is not None, 120.0)
    page.model.order_by(CHECK)  # type: ignore[attr-defined]
    page.grid.choose(("node3", "vgpu:5"))  # type: ignore[attr-defined]
    stage.window.actions_by_id["enlarge"].trigger()


TRAIN = """import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    def __len__(self):
        return 10_000_000

    def __getitem__(self, index):
        time.sleep(0.0005 if index < 12_000 else 0.0001)
        return torch.randn(3, 32, 32), index % 10


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 32, 3, 2, 1), nn.ReLU(), nn.Conv2d(32, 64, 3, 2, 1), nn.ReLU())
        self.head = nn.Linear(64 * 8 * 8, 10)

    def forward(self, x):
        return self.head(self.features(x).flatten(1))


torch.set_num_threads(1)
model = Net().cuda()
optimizer = torch.optim.AdamW(model.parameters())
for images, labels in DataLoader(Images(), batch_size=16):
    loss = nn.functional.cross_entropy(model(images.cuda()), labels.cuda())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def run(stage: Stage) -> None:
    """A script that runs on virtual GPUs, for a minute: its data come slowly at first."""
    (stage.folder / "train.py").write_text(TRAIN)
    command = [sys.executable, "-m", "devexplorer.core.cli", "run", "--virtual", TWO, "train.py"]
    script = subprocess.Popen(command, cwd=stage.folder, stderr=subprocess.DEVNULL)
    stage.at_end = [script.kill, lambda: bool(script.wait())]
    found: list[Greeting] = []
    stage.wait(lambda: found.extend(one for one in running() if one.pid == script.pid) or found)
    scripts_of(stage.window.context).show(found[0], "this machine")
    stage.wait(lambda: len(stage.app.state.objects) == 1)
    stage.rest(75.0)


PICTURES: dict[str, tuple[Callable[[Stage], None], str]] = {
    "telemetry-memory": (memory, TWO),
    "sweep": (sweep, TWO),
    "tour-4-benchmark": (benchmark, TWO),
    "history": (history, TWO),
    "topology": (topology, EIGHT),
    "laboratory-values": (values, TWO),
    "laboratory-split": (split, TWO),
    "doctor": (doctor, TWO),
    "fit": (fit, TWO),
    "laboratory-learn": (learn, TWO),
    "laboratory-open": (open_model, TWO),
    "machines": (machines, TWO),
    "machines-connect": (connect_dialog, TWO),
    "machines-python": (python_dialog, TWO),
    "fleet": (fleet, TWO),
    "run": (run, TWO),
}
LIGHT = {"laboratory-open", "machines-python"}


def picture(window: QWidget) -> QPixmap:
    """The window, with a dialog of it over its upper part."""
    result = window.grab()
    for dialog in window.findChildren(QDialog):
        if dialog.isVisible():
            painter = QPainter(result)
            box = QRect(QPoint(), dialog.size())
            box.moveCenter(window.rect().center())
            box.moveTop(DIALOG_PX)
            painter.drawPixmap(box, dialog.grab())
            painter.setPen(QColor(current_theme().border_strong))
            painter.drawRect(box.adjusted(-1, -1, 0, 0))
            painter.end()
            dialog.close()
    return result


def main(target: Path, wanted: Iterable[str]) -> None:
    target.mkdir(parents=True, exist_ok=True)
    qt = QApplication(sys.argv[:1])
    for name in wanted or PICTURES:
        perform, virtual = PICTURES[name]
        with tempfile.TemporaryDirectory(prefix="devexplorer-") as folder:
            stage = Stage(qt, Path(folder), virtual, "light" if name in LIGHT else "dark")
            perform(stage)
            QTest.mouseMove(stage.window, QPoint(SIZE_PX[0] // 2, SIZE_PX[1] - 4))  # where nothing lights up
            stage.rest(3.0)
            shown = picture(stage.window) if stage.dialog is None else stage.dialog.grab()
            shown.save(str(target / f"{name}.png"))
            if stage.dialog is not None:
                stage.dialog.close()
            stage.app.stop()
            for end in stage.at_end:
                end()
            stage.window.hide()
        print(target / f"{name}.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
