"""Splitting a model over devices, joining it, and hops that carry activations between its parts. Data; any thread."""

from __future__ import annotations

from devexplorer.core.feature import CommandSpec, Feature
from devexplorer.core.split.records import Hopped, InsertHops, Join, PlanSplit, Split, SplitPlanned

FEATURE = Feature(
    commands=(
        CommandSpec(PlanSplit, "planning how to split {c.target}", "Planning failed", "split.commands:plan_split"),
        CommandSpec(
            Split,
            "splitting {c.target}",
            "The model was not split",
            "split.commands:split",
            undoable=True,
            replayed=True,
            verb="splitting",
        ),
        CommandSpec(
            Join,
            "joining {c.target} on {c.device}",
            "Nothing was moved",
            "split.commands:join",
            undoable=True,
            replayed=True,
        ),
        CommandSpec(
            InsertHops,
            lambda c: f"{'inserting' if c.on else 'removing'} hops in {c.target}",
            "Nothing was changed",
            "split.commands:insert_hops",
            undoable=True,
            replayed=True,
        ),
    ),
    results=(SplitPlanned, Hopped),
    state="core.split.state:SplitState",
    tab="gui.split.tab:TAB",
    actions="gui.split.tab:actions",
    ways_out="core.split.messages:ways_out",
    hops="core.split.crossings:DeviceCrossings",
)
