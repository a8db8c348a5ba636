"""Folders that are made once and kept: our code, and packages for other environments, below the user's cache. Any
thread; writes files.

A folder is filled under another name and renamed, so that it is there whole or not at all, also when two windows make
it at once. It has a list of its files, because some systems remove old files from caches.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import msgspec

from devexplorer.core.base import Unavailable

LIST = ".files.json"
"""The sizes of all files when the folder was made."""
KEPT = 3
"""Of each kind, those that were used last."""
IN_USE_S = 86_400.0
"""What was used since then may be used still."""


def kept(kind: str, name: str, fill: Callable[[Path], None]) -> Path:
    """The folder `name` of a kind; where it is not there, or not whole any more, `fill` fills it first.

    Raises `Unavailable` with the reason when it can be written nowhere, and what `fill` raises besides `OSError`.
    """
    problems = []
    for base in bases():
        if _is_ours(base) and _is_whole(base / kind / name):
            _note_use(base / kind / name)
            return base / kind / name
    for base in bases():
        try:
            folder = _make(base, kind, name, fill)
        except OSError as error:
            reason = "no space is left" if error.errno in (errno.ENOSPC, errno.EDQUOT) else error.strerror or str(error)
            problems.append(f"{base} ({reason.lower()})")
            continue
        _tidy(folder)
        return folder
    raise Unavailable(f"nothing can be kept in {' or in '.join(problems)}")


def bases(environ: Mapping[str, str] | None = None) -> tuple[Path, ...]:
    """Where to keep things: the cache of the user, and a folder of ours among the temporary ones for a home that is
    read-only or full."""
    environ = os.environ if environ is None else environ
    cache = environ.get("XDG_CACHE_HOME", "")
    home = Path(cache) if os.path.isabs(cache) else Path("~/.cache").expanduser()
    return home / "devexplorer", Path(tempfile.gettempdir()) / f"devexplorer-{_user()}"


def _make(base: Path, kind: str, name: str, fill: Callable[[Path], None]) -> Path:
    base.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not _is_ours(base):
        raise PermissionError(errno.EPERM, "it belongs to another user, or others may write to it")
    place = base / kind
    place.mkdir(exist_ok=True)
    new = Path(tempfile.mkdtemp(prefix=".new-", dir=place))
    try:
        fill(new)
        files = {str(path.relative_to(new)): path.stat().st_size for path in new.rglob("*") if path.is_file()}
        (new / LIST).write_bytes(msgspec.json.encode(files))
        target = place / name
        for _ in range(2):
            try:
                new.rename(target)
                return target
            except OSError:  # another window was first, or what is there is not whole
                if not target.is_dir():
                    raise
                aside = Path(tempfile.mkdtemp(prefix=".old-", dir=place))
                target.rename(aside)
                shutil.rmtree(aside, ignore_errors=True)
        return target
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _is_ours(folder: Path) -> bool:
    """Whether nobody else has made it or may write to it: code is run from there."""
    try:
        about = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(about.st_mode) and about.st_uid == _user() and not about.st_mode & 0o002


def _is_whole(folder: Path) -> bool:
    try:
        files = msgspec.json.decode((folder / LIST).read_bytes(), type=dict[str, int])
        return all((folder / path).stat().st_size == size for path, size in files.items())
    except (OSError, msgspec.MsgspecError):
        return False


def _note_use(folder: Path) -> None:
    try:
        os.utime(folder)
    except OSError:  # a home that is read-only
        pass


def _tidy(newest: Path) -> None:
    """Remove what lies beside it and has not been used for long, and what was never finished."""
    unused = [folder for age, folder in sorted(_ages(newest.parent)) if age > IN_USE_S]
    whole = [folder for folder in unused if not folder.name.startswith(".")]
    for folder in unused:
        if folder not in whole[: KEPT - 1]:
            shutil.rmtree(folder, ignore_errors=True)


def _ages(place: Path) -> Iterator[tuple[float, Path]]:
    now = time.time()
    for folder in place.iterdir():
        try:
            yield now - folder.stat().st_mtime, folder
        except OSError:  # removed by another window
            pass


def _user() -> int:
    return os.getuid() if hasattr(os, "getuid") else 0
