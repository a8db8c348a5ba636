"""Our own code as a folder that any Python of this user can run: the layout of an installation, without the window.
And what else is kept below the user's cache (`whole_folders.py`), as folders, and as archives for other machines. Any
thread; reads about 3 MB, writes files.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import tarfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import devexplorer
from devexplorer import core, resources
from devexplorer.core.base import Unavailable, module_prefix
from devexplorer.core.environments import whole_folders

KIND = "code"
BOOTSTRAP = "devexplorer/core/environments/bootstrap.py"
"""Within the folder."""
NOTE_USE_S = 3600.0


def name() -> str:
    """`VERSION-HASH`: other code has another name."""
    return _name(_files())


def folder() -> Path:
    """The folder with our code, made if it is not there. Raises `Unavailable`."""
    files = _files()
    return kept(KIND, _name(files), partial(_fill, files))


def packed() -> tuple[str, bytes]:
    """The name, and a `tar.gz` of what the folder holds, the same bytes for the same code."""
    files = _files()
    return _name(files), packed_files(files)


def _files() -> dict[str, bytes]:
    """All files by their path, in order."""
    roots = {"core": Path(core.__path__[0]), "resources": Path(resources.__path__[0])}
    found = {"devexplorer/__init__.py": Path(str(devexplorer.__file__))}
    for top, root in roots.items():
        for path in root.rglob("*"):
            inside = path.relative_to(root).parts
            # `public` is `devexplorer/__init__.py`, which a checkout has at another place
            if os.path.isfile(path) and "__pycache__" not in inside and inside[0] != "public":
                found["/".join(("devexplorer", top, *inside))] = path
    return {name: found[name].read_bytes() for name in sorted(found)}


def _name(files: dict[str, bytes]) -> str:
    digest = hashlib.sha256()
    for path, content in files.items():
        digest.update(f"{path}\0{len(content)}\0".encode() + content)
    return f"{devexplorer.__version__}-{digest.hexdigest()[:16]}"


def _fill(files: dict[str, bytes], folder: Path) -> None:
    for path, content in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)


# --- folders that are kept, and archives of them


def kept(kind: str, name: str, fill: Callable[[Path], None]) -> Path:
    """The folder `name` of a kind; where it is not there, or not whole any more, `fill` fills it first.

    Raises `Unavailable` with the reason when it can be written nowhere, and what `fill` raises besides `OSError`.
    """
    try:
        return whole_folders.find(kind, name) or whole_folders.make(kind, name, fill)
    except whole_folders.CannotKeepError as error:
        raise Unavailable(str(error)) from error


def packed_files(files: Mapping[str, bytes]) -> bytes:
    """A `tar.gz` of files by their path, the same bytes for the same files."""
    archive = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=archive, mode="wb", mtime=0) as packer,
        tarfile.open(fileobj=packer, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for path, content in files.items():
            about = tarfile.TarInfo(path)
            about.size, about.mode = len(content), 0o644
            tar.addfile(about, io.BytesIO(content))
    return archive.getvalue()


def packed_folder(folder: Path) -> bytes:
    """The same of a folder that is kept."""
    paths = sorted(path for path in folder.rglob("*") if os.path.isfile(path) and path.name != whole_folders.LIST)
    return packed_files({path.relative_to(folder).as_posix(): path.read_bytes() for path in paths})


# --- while they are in use: a process that runs for weeks loads modules at any time


def keep_in_use() -> None:
    """Note it every hour, on a thread, as long as this process runs, if it runs with such folders."""
    command = module_prefix()
    if "-m" not in command:
        threading.Thread(target=_keep, args=(command,), name="in-use", daemon=True).start()


def _keep(command: Sequence[str]) -> None:
    while True:
        note_use(command)
        time.sleep(NOTE_USE_S)


def note_use(command: Sequence[str]) -> None:
    """Of what this command (as `prepare` and `module_command` return it) runs with."""
    for word in command:
        option, equals, folder = word.partition("=")
        if option in ("--before", "--after") and equals:
            _touch(Path(folder))
        elif word.endswith(f"/{BOOTSTRAP}"):
            _touch(Path(word.removesuffix(f"/{BOOTSTRAP}")))


def _touch(folder: Path) -> None:
    with suppress(OSError):  # removed all the same, or a home that is read-only
        os.utime(folder)
