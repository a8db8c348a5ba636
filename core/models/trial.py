"""Tries code that nobody ran before in a process of its own, so that nothing it does can cost the engine. Jobs
thread."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from devexplorer.core.base.errors import Cancelled
from devexplorer.core.base.progress import NO_PROGRESS, ProgressMonitor
from devexplorer.core.isolation.parent import run_apart
from devexplorer.core.models import loading
from devexplorer.core.models.source import Source
from devexplorer.core.models.trial_process import TrialRequest, TrialResult

LIMIT_SECONDS = 60.0
PROCESS = "devexplorer.core.models.trial_process"


class TrialCancelled(Cancelled):
    """The user did not want to wait for a model."""


@dataclass(slots=True)
class Trials:
    """What was tried and worked, for as long as its files stay as they are."""

    limit_seconds: float = LIMIT_SECONDS
    _known: dict[tuple[str, str], TrialResult] = field(default_factory=dict)

    def demand(self, source: Source, folder: str, progress: ProgressMonitor = NO_PROGRESS) -> TrialResult:
        """Try a source, or remember that it worked. Raises `BadInput` with what went wrong, `TrialCancelled`."""
        key = source.text, os.path.abspath(folder or os.curdir)
        known = self._known.get(key)
        if known is not None and loading.unchanged(
            {file: (home, time_ns, size) for file, home, time_ns, size in known.files}
        ):
            return known
        self._known.pop(key, None)
        progress.report(0.0, f"trying {source.text} in a process of its own")
        result = tried(source, folder, progress, self.limit_seconds)
        if result.files:
            self._known[key] = result
        return result


def tried(
    source: Source, folder: str, progress: ProgressMonitor = NO_PROGRESS, seconds: float = LIMIT_SECONDS
) -> TrialResult:
    """Try a source in a new process. Raises `BadInput` with what went wrong, `TrialCancelled`."""
    request = TrialRequest(source.text, os.path.abspath(folder or os.curdir))
    lacking = "no model; a factory returns its model"
    try:
        return run_apart(
            PROCESS, request, TrialResult, title=f"'{source.text}'", seconds=seconds, progress=progress, lacking=lacking
        )
    except Cancelled as error:
        raise TrialCancelled("cancelled; no model was opened") from error
