"""Makes another Python ready to run our code: asks it what it has, puts our code and what it lacks into the cache. Any
thread; takes a tenth of a second when all is there, else seconds.
"""

from __future__ import annotations

from devexplorer.core.base import NO_PROGRESS, ProgressMonitor, module_prefix
from devexplorer.core.environments import code_cache, packages
from devexplorer.core.environments.environment import is_own, probe, refusal, refused

LIMIT_S = 15.0
"""For Python to start and say what it has, without torch."""


def prepare(python: str, progress: ProgressMonitor = NO_PROGRESS, *, limit_s: float = LIMIT_S) -> list[str]:
    """The command that runs one of our modules there, when the module's name and its arguments follow. What it reports
    is only what takes long: nothing where all is there.

    Raises `BadInput` for a Python that cannot be used, `Unavailable` when nothing can be kept or fetched, `Cancelled`.
    """
    if is_own(python):
        return module_prefix()
    about = probe(python, limit_s, with_torch=False, stop=progress.cancelled)
    progress.stop_if_cancelled("nothing has changed")
    if (reason := refusal(about)) is not None:
        raise refused(python, reason)
    bootstrap = code_cache.folder() / code_cache.BOOTSTRAP
    return [python, "-P", str(bootstrap), *packages.provide(python, about, progress).options()]
