"""Our code, and packages for other environments: in folders that are kept below the user's cache (`whole_folders.py`),
and as archives for other machines. Any thread; writes files."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path

from devexplorer.core.base import Unavailable
from devexplorer.core.environments import whole_folders


def kept(kind: str, name: str, fill: Callable[[Path], None]) -> Path:
    """The folder `name` of a kind; where it is not there, or not whole any more, `fill` fills it first.

    Raises `Unavailable` with the reason when it can be written nowhere, and what `fill` raises besides `OSError`.
    """
    try:
        return whole_folders.find(kind, name) or whole_folders.make(kind, name, fill)
    except whole_folders.CannotKeepError as error:
        raise Unavailable(str(error)) from error


def packed(files: Mapping[str, bytes]) -> bytes:
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
    return packed({path.relative_to(folder).as_posix(): path.read_bytes() for path in paths})
