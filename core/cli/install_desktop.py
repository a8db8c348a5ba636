"""`devexplorer install-desktop`: makes DevExplorer known to a freedesktop desktop, for this user: the entry in its
menu, the icon, the types of its files, AppStream metadata. Main thread; neither torch nor Qt.

What is written lies in `resources/desktop`; only the entry depends on where this installation is.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from importlib.resources import files
from pathlib import Path

from devexplorer.core.base import BadInput, Unavailable, replacing
from devexplorer.core.cli.terminal import print_document

WRITTEN = {
    "desktop/devexplorer.desktop": "applications/devexplorer.desktop",
    "icons/app.svg": "icons/hicolor/scalable/apps/devexplorer.svg",
    "desktop/devexplorer.xml": "mime/packages/devexplorer.xml",
    "desktop/devexplorer.metainfo.xml": "metainfo/devexplorer.metainfo.xml",
}
"""File of `resources` -> where it goes in the data folder."""
CACHES = (("update-desktop-database", "applications"), ("update-mime-database", "mime"))
"""What has to hear of it, and the folder that it reads. A desktop without one of them reads the files itself."""
TOOL_S = 60.0
RESERVED, _BEFORE = r'["`$\\]', r"\\\g<0>"
"""What is escaped within the quotes of a command."""


def install_desktop(arguments: argparse.Namespace) -> int:
    """Write the files, or take them away; print the path of each."""
    if sys.platform in ("win32", "darwin"):
        raise Unavailable(
            "install-desktop writes files for freedesktop desktops (GNOME, KDE, Xfce, …), which this system is not;"
            f" start the window with {program()[0]}"
        )
    folder = data_folder()
    done = remove(folder) if arguments.remove else write(folder)
    problems = update_caches(folder) if done else []
    word = "removed" if arguments.remove else "written"
    if arguments.json:
        print_document(data_folder=str(folder), **{word: done}, problems=problems)
        return 0
    for path in done:
        print(f"{word} {path}")
    if not done:
        print(f"nothing of DevExplorer is installed in {folder}")
    for problem in problems:
        print(problem)
    return 0


def data_folder() -> Path:
    """Where the desktop looks for what a user installed; a relative XDG_DATA_HOME counts as none, as the specification
    says."""
    for text in (os.environ.get("XDG_DATA_HOME", ""), os.path.expanduser("~/.local/share")):
        if os.path.isabs(text):
            return Path(text)
    raise BadInput("there is no home folder; set XDG_DATA_HOME to an absolute path")


def program() -> list[str]:
    """What starts this installation: its script, or else the module in this Python."""
    script = shutil.which("devexplorer", path=sysconfig.get_path("scripts"))
    return [script] if script is not None else [sys.executable, "-m", "devexplorer.gui.shell.main"]


def write(folder: Path) -> list[str]:
    """Write each file, the old one staying until the new one is whole."""
    here = files("devexplorer.resources")
    paths = {folder / place: (here / name).read_text(encoding="utf-8") for name, place in WRITTEN.items()}
    try:
        for path in paths:  # all folders before the first file: where one cannot be made, nothing is written
            path.parent.mkdir(parents=True, exist_ok=True)
        for path, text in paths.items():
            with replacing(path) as temporary:
                temporary.write_text(_filled(text), encoding="utf-8", errors="surrogateescape")
    except OSError as error:
        raise _refused(error, path, "written") from None
    return [str(path) for path in paths]


def remove(folder: Path) -> list[str]:
    """Take away what `write` wrote, as far as it is there."""
    removed = []
    for path in (folder / place for place in WRITTEN.values()):
        try:
            path.unlink()
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise _refused(error, path, "removed") from None
        removed.append(str(path))
    return removed


def update_caches(folder: Path) -> list[str]:
    """Tell the desktop's databases; a line for each that failed."""
    problems = []
    for tool, place in CACHES:
        found = shutil.which(tool)
        if found is not None and os.path.isdir(folder / place):
            try:
                subprocess.run([found, folder / place], check=True, capture_output=True, timeout=TOOL_S)
            except (OSError, subprocess.SubprocessError) as error:
                problems.append(f"{tool} failed, so that the desktop may notice later: {error}")
    return problems


def _filled(text: str) -> str:
    """The entry with the program in it: quoted as a command, then escaped as a value (Desktop Entry Specification)."""
    words = program()
    command = " ".join(f'"{re.sub(RESERVED, _BEFORE, word)}"' for word in words).replace("%", "%%")
    return text.replace("@EXEC@", _value(command)).replace("@PROGRAM@", _value(words[0]))


def _value(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace("\t", r"\t")


def _refused(error: OSError, path: Path, done: str) -> BadInput:
    reason = (error.strerror or str(error)).lower()
    return BadInput(f"{path} could not be {done}: {reason}; set XDG_DATA_HOME to a folder that can be written")
