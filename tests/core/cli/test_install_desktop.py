"""`devexplorer install-desktop`: what it writes is valid and starts this program; `--remove` takes that away."""

from __future__ import annotations

import configparser
import shlex
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from fakes.command_line import Document, Refusal

from devexplorer.core.cli import install_desktop as module
from devexplorer.core.cli.install_desktop import WRITTEN
from devexplorer.core.cli.run import main
from devexplorer.core.files.kinds import WORKSPACE_START

ROOT = Path(__file__).parents[3]
ENTRY, ICON, TYPES, METADATA = WRITTEN.values()
MIME = "{http://www.freedesktop.org/standards/shared-mime-info}"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The data folder of a user, on a machine without the desktop's tools."""
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))
    monkeypatch.setattr(module, "CACHES", ())
    return tmp_path / "share"


def entry(folder: Path) -> dict[str, str]:
    """The group of the entry, its keys as they are written."""
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(folder / ENTRY, encoding="utf-8")
    return dict(parser["Desktop Entry"])


def tool(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def test_it_names_every_file_that_it_writes_and_the_entry_starts_this_program(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["install-desktop"]) == 0
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    assert sorted(capfd.readouterr().out.splitlines()) == [f"written {path}" for path in paths]
    assert paths == sorted(folder / place for place in WRITTEN.values())
    assert (folder / ICON).read_bytes() == (ROOT / "resources" / "icons" / "app.svg").read_bytes()
    written = entry(folder)
    *command, files = shlex.split(written["Exec"])
    assert files == "%F"
    assert written["TryExec"] == command[0]
    assert Path(command[0]).is_absolute()
    ended = subprocess.run([*command, "--version"], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout.startswith("devexplorer ")


@pytest.mark.parametrize(
    ("word", "command", "value"),
    [
        ("/home/ada/a b/devexplorer", '"/home/ada/a b/devexplorer"', "/home/ada/a b/devexplorer"),
        ("/opt/100%/devexplorer", '"/opt/100%%/devexplorer"', "/opt/100%/devexplorer"),
        ('/opt/$x`"/devexplorer', r'"/opt/\\$x\\`\\"/devexplorer"', '/opt/$x`"/devexplorer'),
        ("/opt/a\\b/devexplorer", r'"/opt/a\\\\b/devexplorer"', r"/opt/a\\b/devexplorer"),
    ],
)
def test_any_folder_of_the_program_is_quoted(
    folder: Path, monkeypatch: pytest.MonkeyPatch, word: str, command: str, value: str
) -> None:
    monkeypatch.setattr(module, "program", lambda: [word])
    assert main(["install-desktop"]) == 0
    assert entry(folder)["Exec"] == f"{command} %F"
    assert entry(folder)["TryExec"] == value


def test_without_its_script_this_python_starts_the_window(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.sysconfig, "get_path", lambda _name: "/nowhere")
    assert main(["install-desktop"]) == 0
    python, option, name, _files = shlex.split(entry(folder)["Exec"])
    assert (python, option) == (sys.executable, "-m")
    ended = subprocess.run([python, option, name, "--version"], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout.startswith("devexplorer ")


def test_the_types_of_files_agree_in_the_entry_the_types_and_the_metadata(folder: Path) -> None:
    assert main(["install-desktop"]) == 0
    types = ElementTree.parse(folder / TYPES).getroot()
    names = {kind.attrib["type"] for kind in types}
    assert {glob.attrib["pattern"] for glob in types.iter(f"{MIME}glob")} == {"*.devexplorer", "*.devrec"}
    assert {icon.attrib["name"] for icon in types.iter(f"{MIME}icon")} == {entry(folder)["Icon"]} == {Path(ICON).stem}
    assert set(entry(folder)["MimeType"].rstrip(";").split(";")) == names
    metadata = ElementTree.parse(folder / METADATA).getroot()
    assert {kind.text for kind in metadata.iter("mediatype")} == names
    assert metadata.findtext("launchable") == Path(ENTRY).name
    assert metadata.findtext("name") == entry(folder)["Name"]
    assert not list(metadata.iter("url")), "the project has no address of its own"


def test_remove_takes_away_exactly_what_was_written(
    folder: Path, document: Document, capfd: pytest.CaptureFixture[str]
) -> None:
    others = folder / "applications" / "other.desktop"
    others.parent.mkdir(parents=True)
    others.write_text("[Desktop Entry]\n")
    written = document("install-desktop")["written"]
    assert document("install-desktop", "--remove") == {
        "schema": 1, "data_folder": str(folder), "removed": written, "problems": [],
    }  # fmt: skip
    assert [path for path in folder.rglob("*") if path.is_file()] == [others]
    assert main(["install-desktop", "--remove"]) == 0
    assert capfd.readouterr().out == f"nothing of DevExplorer is installed in {folder}\n"


def test_a_folder_that_cannot_be_written_gets_one_line_and_nothing_is_written(folder: Path, refusal: Refusal) -> None:
    folder.mkdir()
    (folder / "mime").write_text("a file where a folder has to be")
    line = refusal("install-desktop")
    assert f"{folder / TYPES} could not be written: not a directory; set XDG_DATA_HOME" in line
    assert [path.name for path in folder.rglob("*") if path.is_file()] == ["mime"]


def test_what_cannot_be_removed_gets_one_line(folder: Path, refusal: Refusal) -> None:
    (folder / ENTRY).mkdir(parents=True)
    assert f"{folder / ENTRY} could not be removed" in refusal("install-desktop", "--remove")


def test_a_relative_data_folder_counts_as_none(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, document: Document, refusal: Refusal
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", "share")
    monkeypatch.setenv("HOME", str(tmp_path / "ada"))
    assert document("install-desktop")["data_folder"] == str(tmp_path / "ada" / ".local" / "share")
    assert not folder.exists()
    monkeypatch.setenv("HOME", "ada")
    assert "set XDG_DATA_HOME to an absolute path" in refusal("install-desktop")


@pytest.mark.parametrize("system", ["darwin", "win32"])
def test_a_desktop_of_another_kind_is_told_what_starts_the_window(
    folder: Path, monkeypatch: pytest.MonkeyPatch, refusal: Refusal, system: str
) -> None:
    program = module.program()
    monkeypatch.setattr(module, "program", lambda: program)
    monkeypatch.setattr(sys, "platform", system)
    line = refusal("install-desktop")
    assert "freedesktop" in line
    assert program[0] in line
    assert not folder.exists()


def test_a_tool_of_the_desktop_that_fails_is_said_and_the_files_stay(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, document: Document
) -> None:
    broken = tmp_path / "bin" / "update-mime-database"
    broken.parent.mkdir()
    broken.write_text("#!/bin/sh\nexit 3\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", str(broken.parent))
    monkeypatch.setattr(
        module, "CACHES", (("update-desktop-database", "applications"), ("update-mime-database", "mime"))
    )
    content = document("install-desktop")
    [problem] = content["problems"]
    assert "update-mime-database failed" in problem
    assert "exit status 3" in problem
    assert all(Path(path).is_file() for path in content["written"])


def test_neither_torch_nor_qt_is_loaded(folder: Path) -> None:
    script = (
        "import sys; from devexplorer.gui.shell.main import main; assert main(['install-desktop', '--json']) == 0;"
        " loaded = {name.partition('.')[0] for name in sys.modules}; assert not loaded & {'torch', 'PySide6', 'numpy'}"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stderr
    assert (folder / ENTRY).is_file()


# --- by the desktop's own tools, where there are some


def test_the_entry_is_valid(folder: Path) -> None:
    validate = tool("desktop-file-validate")
    assert main(["install-desktop"]) == 0
    ended = subprocess.run([validate, folder / ENTRY], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (0, "")


def test_the_metadata_is_valid_but_for_an_address(folder: Path) -> None:
    """An id that is a reversed domain would be an invented one."""
    validate = [tool("appstreamcli"), "validate", "--no-net", "--override=cid-desktopapp-is-not-rdns=info"]
    assert main(["install-desktop"]) == 0
    ended = subprocess.run([*validate, folder / METADATA], capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_the_desktop_knows_both_types_by_name_and_renamed_files_by_what_is_in_them(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool("update-mime-database")
    monkeypatch.setattr(module, "CACHES", (("update-mime-database", "mime"),))
    assert main(["install-desktop"]) == 0
    globs = (folder / "mime" / "globs2").read_text(encoding="utf-8")
    for kind in ("workspace:*.devexplorer", "recording:*.devrec"):
        assert f":application/x-devexplorer-{kind}\n" in globs
    pytest.importorskip("fakes.recordings").write(tmp_path / "run.devrec", 1)
    magic = (folder / "mime" / "magic").read_bytes()
    for first in ((tmp_path / "run.devrec").read_bytes()[:9], WORKSPACE_START):
        assert first in magic
    assert main(["install-desktop", "--remove"]) == 0
    assert "devexplorer" not in (folder / "mime" / "globs2").read_text(encoding="utf-8")
