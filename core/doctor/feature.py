"""The placement doctor: which line puts a tensor on the wrong device, and a patch that was tried. Data; any thread."""

from __future__ import annotations

import os

from devexplorer.core.feature import CommandSpec, Feature
from devexplorer.core.records import ApplyPatch, Check

FEATURE = Feature(
    commands=(
        CommandSpec(
            ApplyPatch,
            lambda c: f"changing {os.path.basename(c.file)}",
            lambda c: f"{os.path.basename(c.file)} was not changed",
            "doctor.check:apply_patch",
            in_script=False,
        ),
        CommandSpec(
            Check,
            "checking {c.target}",
            "The model was not checked",
            "doctor.check:check",
            verb="checking",
            looks=True,
        ),
    ),
    tab="gui.doctor.tab:TAB",
    actions="gui.doctor.tab:actions",
    offers="core.doctor.offers:offers",
    explains="core.doctor.check:explain",
)
