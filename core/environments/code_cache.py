"""Our own code as a folder that any Python of this user can run: the layout of an installation, without the window.
Any thread; reads about 3 MB.
"""

from __future__ import annotations

import hashlib
import os
from functools import partial
from pathlib import Path

import devexplorer
from devexplorer import core, resources
from devexplorer.core.environments import cache_folder

KIND = "code"
BOOTSTRAP = "devexplorer/core/environments/bootstrap.py"
"""Within the folder."""


def name() -> str:
    """`VERSION-HASH`: other code has another name."""
    return _name(_files())


def folder() -> Path:
    """The folder with our code, made if it is not there. Raises `Unavailable`."""
    files = _files()
    return cache_folder.kept(KIND, _name(files), partial(_fill, files))


def packed() -> tuple[str, bytes]:
    """The name, and a `tar.gz` of what the folder holds, the same bytes for the same code."""
    files = _files()
    return _name(files), cache_folder.packed(files)


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
