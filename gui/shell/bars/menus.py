"""Menus that are made from the state: moves to each device, the context menu, the command palette's lines. Main thread
only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from PySide6.QtCore import Qt
from PySide6.QtGui import QAction
from PySide6.QtWidgets import QMenu, QWidget

from devexplorer.core.feature import named
from devexplorer.core.session import State
from devexplorer.gui.actions import SELECTION_MENUS, ActionSpec, Controller, WindowContext, fill_menu
from devexplorer.gui.benchmark.tab import TAB as BENCHMARK
from devexplorer.gui.devices.tab import DETAILS, PROCESSES
from devexplorer.gui.plots.legend import Legend
from devexplorer.gui.widgets import popup_menu

if TYPE_CHECKING:
    from devexplorer.gui.actions.palette import PaletteChoice

_FLOATS = ("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
_CASTS = (*_FLOATS, "int64", "int32", "int16", "int8", "bool")


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


def fill_move_menu(menu: QMenu, controller: Controller, *, copy: bool) -> None:
    """One line per device, to move or to copy there; what cannot be used is shown disabled with its reason."""
    menu.clear()
    state = controller.state
    for name, key in move_order(state):
        info = state.devices[name].info
        text = f"{name}  {info.name}{', simulated' if info.simulated else ''}"
        words = text if copy or not key else f"{text}\t{key}"
        action = menu.addAction(words, partial(controller.move, name, copy=copy))
        action.setData(name)
    for name, device in state.devices.items():
        if not device.info.usable:
            action = menu.addAction(f"{name}  {device.info.name}")
            action.setEnabled(False)
            action.setToolTip(device.info.reason or "")


def fill_cast_menu(menu: QMenu, controller: Controller) -> None:
    """The dtypes that the selection can have: parameters of models only floating ones."""
    menu.clear()
    for dtype in _FLOATS if controller.selects_model else _CASTS:
        menu.addAction(dtype, partial(controller.cast, dtype))


def context_menu(
    parent: QWidget,
    controller: Controller,
    specs: Sequence[ActionSpec],
    actions: dict[str, QAction],
    copies: Callable[[QMenu], None],
) -> QMenu:
    """What can be done with the selection; what cannot be done says why in its tooltip. `copies` adds where else it can
    be copied to."""
    menu = popup_menu(parent)
    reason, copy_reason = controller.why_no_move(), controller.why_no_selection()
    for title, copy, why in (("Move to", False, reason), ("Copy to", True, copy_reason)):
        submenu = menu.addMenu(title)
        fill_move_menu(submenu, controller, copy=copy)
        if copy:
            copies(submenu)
        submenu.setEnabled(why is None)
        submenu.menuAction().setToolTip(why or "")
    casts = menu.addMenu("dtype")
    fill_cast_menu(casts, controller)
    casts.setEnabled(copy_reason is None)
    menu.addSeparator()
    for action_id in ("forward", "backward", "train_step", "check", "rebuild", "add"):
        if action_id in actions:  # those of a feature may be missing
            menu.addAction(actions[action_id])
    menu.addSeparator()
    for title in SELECTION_MENUS:
        if not any(spec.menu == title for spec in specs):
            continue
        submenu = menu.addMenu(title)
        submenu.setToolTipsVisible(True)
        fill_menu(submenu, title, specs, actions)
    menu.addSeparator()
    for action_id in ("unfold", "save", "remove"):
        if action_id in actions:
            menu.addAction(actions[action_id])
    return menu


def device_menu(context: WindowContext, device: str, legends: Sequence[Legend]) -> QMenu:
    """What can be done with a device; `legends` are those of the plots."""
    menu = popup_menu(context.window)

    def benchmark() -> None:
        page = BENCHMARK.show(context)
        page.show_page("matmul")
        page.matmul.devices.choose([device])
        page.prepare()

    def hide(hidden: bool) -> None:
        for legend in legends:
            legend.show_and_hide(*(((), (device,)) if hidden else ((device,), ())))

    menu.addAction("Details", partial(DETAILS.open, context))
    menu.addAction("Processes", partial(PROCESSES.open, context))
    info = context.state.devices[device].info
    measure = menu.addAction("Benchmark…", benchmark)
    measure.setEnabled(info.usable)
    measure.setToolTip(info.reason or "")
    for fill in named("device_menu"):
        fill(menu, context, device)
    menu.addSeparator()
    hidden = menu.addAction("Hide in the plots")
    hidden.setCheckable(True)
    hidden.setChecked(not any(legend.shows(device) for legend in legends))
    hidden.triggered.connect(hide)
    return menu


def palette_choices(specs: Sequence[ActionSpec], controller: Controller) -> list[PaletteChoice]:
    """Everything that can be done: the action table, a move to each device, each sample model."""
    from devexplorer.gui.actions.palette import PaletteChoice  # when the palette is opened

    state, choices = controller.state, []
    for spec in specs:
        reason = spec.why_not()
        choices.append(PaletteChoice(spec.text.rstrip("…"), reason or spec.key, reason is None, spec.run, spec.tooltip))
    why = controller.why_no_move()
    for name, key in move_order(state):
        choices.append(PaletteChoice(f"Move to {name}", why or key, why is None, partial(controller.move, name)))
    recipes = state.engine.recipes if state.engine is not None else {}
    why = controller.why_no_engine()
    for name, description in recipes.items():
        choices.append(PaletteChoice(f"Build {name}", why or description, why is None, partial(controller.build, name)))
    return choices


def measuring_choices(context: WindowContext) -> list[PaletteChoice]:
    """Each kind of benchmark: its form."""
    from devexplorer.core.feature import offered_kinds  # all of these when the palette is opened
    from devexplorer.gui.actions.palette import PaletteChoice

    def show(kind: str) -> None:
        page = BENCHMARK.show(context)
        page.show_page(kind)
        page.rail.choices[kind].setFocus(Qt.FocusReason.TabFocusReason)

    return [
        PaletteChoice(f"Benchmark: {name}", "", True, partial(show, name), kind.meaning)
        for name, kind in offered_kinds().items()
    ]


def reading_choices(context: WindowContext) -> list[PaletteChoice]:
    """What can be looked up: what features have, and each term of the glossary."""
    from devexplorer.gui.actions.palette import PaletteChoice
    from devexplorer.gui.forms.glossary import WORDS, GlossaryDialog

    def explain(word: str) -> None:
        context.open_dialog(GlossaryDialog(context.window, word))

    return [choice for choices in named("choices") for choice in choices(context)] + [
        PaletteChoice(f"Glossary: {word}", "", True, partial(explain, word), meaning) for word, meaning in WORDS
    ]
