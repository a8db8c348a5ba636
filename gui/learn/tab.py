"""The tab Learn: exercises that check themselves. Main thread only."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from devexplorer.core.session import Change
from devexplorer.gui.actions import TabSpec, WindowContext, lazy_page

if TYPE_CHECKING:
    from devexplorer.gui.actions.palette import PaletteChoice
    from devexplorer.gui.learn.page import LearnPanel


def _connect(context: WindowContext, page: LearnPanel) -> None:
    page.learned_changed.connect(lambda learned: context.save_settings(learned=learned))
    page.virtual_offered.connect(context.controller.add_two_virtual)
    context.machine_shown.connect(page.resume)
    page.set_learned(context.settings.learned)


TAB: TabSpec[LearnPanel] = TabSpec(
    "learn", lazy_page("devexplorer.gui.learn.page:LearnPanel", _connect), "learn",
    Change.JOBS | Change.OBJECTS | Change.RUNS | Change.ENGINE | Change.DEVICES,
    action="Learn", tooltip="Short exercises that check themselves", key="L",
    order=160,
)  # fmt: skip


def choices(context: WindowContext) -> list[PaletteChoice]:
    """Each exercise, as a line of the palette."""
    from devexplorer.core.learn.course import EXERCISES  # all of these when the palette is opened
    from devexplorer.gui.actions.palette import PaletteChoice

    def learn(exercise_id: str) -> None:
        TAB.show(context).choose(exercise_id)

    return [
        PaletteChoice(f"Exercise: {item.title}", item.topic, True, partial(learn, item.id), item.why)
        for item in EXERCISES
    ]
