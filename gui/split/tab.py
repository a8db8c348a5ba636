"""The tab Split, and the actions of the menu Split. Main thread only."""

from __future__ import annotations

from functools import partial

from devexplorer.core.session import Change
from devexplorer.core.split.records import InsertHops, Join
from devexplorer.gui.actions import SPLIT, ActionSpec, TabSpec, WindowContext, follow_selection, lazy_page

TAB = TabSpec(
    "split",
    lazy_page("devexplorer.gui.split.page:SplitPanel", follow_selection),
    "explore",
    Change.LABORATORY | Change.OBJECTS | Change.ANSWER | Change.DEVICES | Change.ENGINE,
    tooltip="Divide a model over several devices, with the time and memory of each",
    order=20,
    also_in=("learn",),
)


def actions(context: WindowContext) -> list[ActionSpec]:
    """The actions, in the order of the menu."""
    selection, send = context.selection, context.controller.send

    def why_no_hops() -> str | None:
        if (reason := selection.why_no_model()) is not None:
            return reason
        return "Its parts fetch what they are given already." if selection.model_has("hops") else None

    def why_no_join() -> str | None:
        if (reason := selection.why_no_model()) is not None:
            return reason
        hooked = selection.model_has("hops") or selection.model_has("dispatched")
        return None if hooked else "The model has no hops: moving it to a device joins its parts."

    def join() -> None:
        model = selection.the_model()
        held = context.state.objects[model].bytes_by_device
        send(Join(target=model, device=max(held, key=lambda device: held[device], default="cpu")))

    return [
        ActionSpec("split", "Split over devices…", "Plan which part of the model goes where",
                   partial(TAB.show, context), selection.why_no_model, menu=SPLIT),
        ActionSpec("insert_hops", "Insert hops", "Each part fetches its inputs to its own device",
                   lambda: send(InsertHops(target=selection.the_model())), why_no_hops, menu=SPLIT),
        ActionSpec("join", "Join on one device", "Remove the hops and move everything to one device", join, why_no_join,
                   menu=SPLIT),
    ]  # fmt: skip
