"""Folders that are made once and kept below the user's cache: there whole or not at all. Any thread; writes files.

A folder is filled under another name and renamed, also when two windows make it at once. It has a list of its files,
because some systems remove old files from caches. Also sent to other machines as text: the standard library only, and
syntax of Python 3.6.
"""

import contextlib
import errno
import fcntl
import io
import json
import os
import shutil
import stat
import tarfile
import tempfile
import time
import typing
from pathlib import Path

LIST = ".files.json"
"""The sizes of all files when the folder was made."""
KEPT = 3
"""Of each kind, those that were used last."""
IN_USE_S = 86_400.0
"""What was used since then may be used still."""
FULL = (errno.ENOSPC, errno.EDQUOT)


class CannotKeepError(Exception):
    """The folder can be written nowhere; says why, for each place."""

    def __init__(self, problems: "list[str]", is_full: bool) -> None:
        super().__init__("nothing can be kept in " + " or in ".join(problems))
        self.is_full = is_full
        """Whether there would be a place with more space."""


def find(kind: str, name: str) -> "Path | None":
    """The folder `name` of a kind, if it is there and whole."""
    for base in bases():
        if _is_ours(base) and _is_whole(base / kind / name):
            _note_use(base / kind / name)
            return base / kind / name
    return None


def make(kind: str, name: str, fill: "typing.Callable[[Path], None]") -> Path:
    """Make the folder; `fill` fills it. Raises `CannotKeepError`, and what `fill` raises besides `OSError`."""
    problems, full = [], False
    for base in bases():
        try:
            folder = _make(base, kind, name, fill)
        except OSError as error:
            full = full or error.errno in FULL
            reason = "no space is left" if error.errno in FULL else error.strerror or str(error)
            problems.append(f"{base} ({reason.lower()})")
            continue
        _tidy(folder)
        return folder
    raise CannotKeepError(problems, full)


def unpack(archive: bytes, folder: Path) -> None:
    """Fill a folder with the files of a `tar.gz`, and nothing that lies outside."""
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as tar:
        for member in tar:
            content = tar.extractfile(member) if member.isfile() else None
            if content is None or ".." in member.name.split("/") or member.name.startswith("/"):
                continue
            target = folder / member.name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content.read())


def bases(environ: "typing.Mapping[str, str] | None" = None) -> "tuple[Path, ...]":
    """Where to keep things: the cache of the user, and a folder of ours among the temporary ones for a home that is
    read-only or full."""
    environ = os.environ if environ is None else environ
    cache = environ.get("XDG_CACHE_HOME", "")
    home = Path(cache) if os.path.isabs(cache) else Path("~/.cache").expanduser()
    return home / "devexplorer", Path(tempfile.gettempdir()) / f"devexplorer-{_user()}"


def _make(base: Path, kind: str, name: str, fill: "typing.Callable[[Path], None]") -> Path:
    base.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not _is_ours(base):
        raise PermissionError(errno.EPERM, "it belongs to another user, or others may write to it")
    place = base / kind
    place.mkdir(exist_ok=True)
    new = Path(tempfile.mkdtemp(prefix=".new-", dir=place))
    try:
        fill(new)
        files = {str(path.relative_to(new)): path.stat().st_size for path in new.rglob("*") if os.path.isfile(path)}
        (new / LIST).write_text(json.dumps(files), encoding="ascii")
        target = place / name
        with _locked(place):
            if not _is_whole(target):  # else another window was first, and runs with it
                if os.path.exists(target):
                    aside = Path(tempfile.mkdtemp(prefix=".old-", dir=place))
                    target.rename(aside)
                    shutil.rmtree(aside, ignore_errors=True)
                new.rename(target)
        return target
    finally:
        shutil.rmtree(new, ignore_errors=True)


@contextlib.contextmanager
def _locked(place: Path) -> "typing.Iterator[None]":
    """One process at a time, where the file system has locks; elsewhere the moment is short."""
    handle = os.open(str(place), os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
        except OSError:
            pass
        yield
    finally:
        os.close(handle)


def _is_ours(folder: Path) -> bool:
    """Whether nobody else has made it or may write to it: code is run from there."""
    try:
        about = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(about.st_mode) and about.st_uid == _user() and not about.st_mode & 0o002


def _is_whole(folder: Path) -> bool:
    try:
        files = json.loads((folder / LIST).read_text(encoding="utf-8"))
        return all((folder / path).stat().st_size == size for path, size in files.items())
    except (OSError, ValueError, AttributeError):
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


def _ages(place: Path) -> "typing.Iterator[tuple[float, Path]]":
    now = time.time()
    for folder in place.iterdir():
        try:
            yield now - folder.stat().st_mtime, folder
        except OSError:  # removed by another window
            pass


def _user() -> int:
    return os.getuid() if hasattr(os, "getuid") else 0
