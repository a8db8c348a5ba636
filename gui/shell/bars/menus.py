"""Menus that are made from the state: moves to each device, the context menu, the command palette's lines. Main thread
only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from PySide6.QtCore import Qt
from PySide6.QtGui import QAction
from PySide6.QtWidgets import QMenu, QWidget

from devexplorer.core.session import State
from devexplorer.gui.actions import SELECTION_MENUS, ActionSpec, Controller, WindowContext, fill_menu
from devexplorer.gui.benchmark.tab import TAB as BENCHMARK
from devexplorer.gui.learn.tab import TAB as LEARN

if TYPE_CHECKING:
    from devexplorer.gui.actions.palette import Choice

CASTS = (
    "float64",
    "float32",
    "float16",
    "bfloat16",
    "float8_e4m3fn",
    "float8_e5m2",
    "int64",
    "int32",
    "int16",
    "int8",
    "bool",
)


def move_order(state: State) -> list[tuple[str, str]]:
    """Devices that can be moved to, each with its key: Ctrl+0 is the CPU, Ctrl+1 … Ctrl+9 the others in the order of
    their cards."""
    others = [name for name in state.usable_devices if name != "cpu"]
    order = [(name, f"Ctrl+{number}" if number <= 9 else "") for number, name in enumerate(others, start=1)]
    return [*order, *([("cpu", "Ctrl+0")] if "cpu" in state.usable_devices else [])]


def second_device(state: State) -> str | None:
    """The second accelerator where there is one, as in "move it to cuda:1"; None: there is none at all."""
    others = [name for name in state.usable_devices if name != "cpu"]
    return others[min(1, len(others) - 1)] if others else None


def fill_move_menu(
    menu: QMenu, state: State, chosen: Callable[[str], None], *, keys: bool = False
) -> Sequence[QAction]:
    """One line per device; what cannot be used is shown disabled with its reason."""
    menu.clear()
    for name, key in move_order(state):
        info = state.devices[name].info
        text = f"{name}  {info.name}{', simulated' if info.simulated else ''}"
        action = menu.addAction(f"{text}\t{key}" if keys and key else text)
        action.triggered.connect(lambda _checked=False, name=name: chosen(name))
        action.setData(name)
    for name, device in state.devices.items():
        if not device.info.usable:
            action = menu.addAction(f"{name}  {device.info.name}")
            action.setEnabled(False)
            action.setToolTip(device.info.reason or "")
    return menu.actions()


def context_menu(
    parent: QWidget,
    controller: Controller,
    specs: Sequence[ActionSpec],
    actions: dict[str, QAction],
    copies: Callable[[QMenu], None],
) -> QMenu:
    """What can be done with the selection; what cannot be done says why in its tooltip. `copies` adds where else it can
    be copied to."""
    menu = QMenu(parent, toolTipsVisible=True)
    menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
    reason, copy_reason = controller.why_no_move(), controller.why_no_selection()
    for title, copy, why in (("Move to", False, reason), ("Copy to", True, copy_reason)):
        submenu = menu.addMenu(title)
        fill_move_menu(submenu, controller.state, partial(controller.move, copy=copy), keys=not copy)
        if copy:
            copies(submenu)
        submenu.setEnabled(why is None)
        submenu.menuAction().setToolTip(why or "")
    casts = menu.addMenu("dtype")
    for dtype in CASTS:
        casts.addAction(dtype, partial(controller.cast, dtype))
    casts.setEnabled(copy_reason is None)
    menu.addSeparator()
    for action_id in ("forward", "backward", "train_step", "check", "rebuild", "add"):
        menu.addAction(actions[action_id])
    menu.addSeparator()
    fill_selection_menus(menu, specs, actions)
    menu.addSeparator()
    menu.addAction(actions["save"])
    menu.addAction(actions["remove"])
    return menu


def fill_selection_menus(menu: QMenu, specs: Sequence[ActionSpec], actions: dict[str, QAction]) -> None:
    """What can be done with the selection, by topic."""
    for title in SELECTION_MENUS:
        submenu = menu.addMenu(title)
        submenu.setToolTipsVisible(True)
        fill_menu(submenu, title, specs, actions)


def palette_choices(
    specs: Sequence[ActionSpec], controller: Controller, recent: Sequence[tuple[str, str, Callable[[], object]]] = ()
) -> list[Choice]:
    """Everything that can be done: the action table, a move to each device, each sample model, each recent file."""
    from devexplorer.gui.actions.palette import Choice  # when the palette is opened

    state, choices = controller.state, []
    for spec in specs:
        reason = spec.why_not()
        choices.append(Choice(spec.text.rstrip("…"), reason or spec.key, reason is None, spec.run, spec.tooltip))
    why = controller.why_no_move()
    for name, key in move_order(state):
        choices.append(Choice(f"Move to {name}", why or key, why is None, partial(controller.move, name)))
    recipes = state.engine.recipes if state.engine is not None else {}
    why = controller.why_no_engine()
    for name, description in recipes.items():
        choices.append(Choice(f"Build {name}", why or description, why is None, partial(controller.build, name)))
    choices += [Choice(text, folder, True, run) for text, folder, run in recent]
    return choices


def measuring_choices(context: WindowContext) -> list[Choice]:
    """Each kind of benchmark: its form."""
    from devexplorer.core.benchmark.kinds import KINDS  # all of these when the palette is opened
    from devexplorer.gui.actions.palette import Choice
    from devexplorer.gui.benchmark.page import PAGES

    def show(kind: str) -> None:
        page = BENCHMARK.show(context)
        page.show_page(kind)
        page.rail.choices[kind].setFocus(Qt.FocusReason.TabFocusReason)

    return [Choice(f"Benchmark: {kind}", "", True, partial(show, kind), KINDS[kind].meaning) for kind in PAGES]


def reading_choices(context: WindowContext) -> list[Choice]:
    """What can be looked up: each exercise, each term of the glossary."""
    from devexplorer.core.learn.course import EXERCISES  # all of these when the palette is opened
    from devexplorer.gui.actions.palette import Choice
    from devexplorer.gui.learn.glossary import WORDS, GlossaryDialog

    def learn(exercise_id: str) -> None:
        LEARN.show(context).choose(exercise_id)

    def explain(word: str) -> None:
        context.open_dialog(GlossaryDialog(context.window, word))

    exercises = [
        Choice(f"Exercise: {item.title}", item.topic, True, partial(learn, item.id), item.why) for item in EXERCISES
    ]
    return exercises + [
        Choice(f"Glossary: {word}", "", True, partial(explain, word), meaning) for word, meaning in WORDS
    ]
