"""Our code and packages on a machine where there are none: copied once, never into the Python there, and what comes in
between."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from fakes.ssh import RUNS_HERE, fake_ssh

from devexplorer.core.base import Cancelled, Unavailable
from devexplorer.core.environments import code_cache, packages
from devexplorer.core.machines.ssh import connection as connection_module
from devexplorer.core.machines.ssh.connection import Connection
from devexplorer.core.machines.ssh.putting import choose, prepare
from devexplorer.core.machines.ssh.records import ConnectionFailed, ConnectProgress, Report


@pytest.fixture
def environ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Of a host whose caches are not this machine's."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "here"))
    cache = {"XDG_CACHE_HOME": str(tmp_path / "there"), "TMPDIR": str(tmp_path)}
    return fake_ssh(tmp_path, **cache)


def python_that_lacks(home: Path, *lacking: str, torch: str = "2.9.0") -> str:
    """An environment with a torch, by its files, and what we need but this."""
    venv = home / "project" / ".venv"
    site = venv / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    there = {name: version for name, version in packages.NEEDED.items() if name not in lacking}
    for name, version in {**there, **({"torch": torch} if torch else {})}.items():
        folder = site / f"{name.replace('-', '_')}-{version}.dist-info"
        folder.mkdir(parents=True)
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (venv / "bin").mkdir()
    (venv / "bin" / "python").symlink_to(Path(sys.executable).resolve())
    (venv / "pyvenv.cfg").write_text(
        f"home = {Path(sys.executable).resolve().parent}\ninclude-system-site-packages = false\n"
        f"version = {sys.version.split()[0]}\n"
    )
    return str(venv / "bin" / "python")


def test_code_and_packages_are_copied_once(environ: dict[str, str], tmp_path: Path) -> None:
    python = python_that_lacks(tmp_path / "home", "platformdirs", "mdurl")

    def prepared() -> tuple[list[str], list[ConnectProgress]]:
        reports: list[Report] = []
        with closing(Connection("gpu1", reports.append, environ=environ)) as connection:
            connection.open()
            assert choose(connection, "~/project") == python
            return prepare(connection, "~/project"), [about for about in reports if isinstance(about, ConnectProgress)]

    command, progress = prepared()
    there = tmp_path / "there" / "devexplorer"
    bootstrap = there / "code" / code_cache.name() / code_cache.BOOTSTRAP
    assert command[:3] == [python, "-P", str(bootstrap)]
    assert len(command) == 4
    option, _, folder = command[3].partition("=")
    assert option == "--after"
    assert Path(folder).parent == there / "packages"
    assert (Path(folder) / "platformdirs" / "__init__.py").exists()
    steps = [about.step for about in progress]
    assert list(dict.fromkeys(steps)) == ["connecting", "python", "code", "packages"]
    assert {about.done for about in progress if about.step in ("code", "packages")} >= {1.0}

    before = {path: path.stat().st_mtime_ns for path in there.rglob("*") if path.is_file()}
    again, progress = prepared()
    assert again == command
    assert not [about for about in progress if about.done is not None], "nothing is sent again"
    assert {path: path.stat().st_mtime_ns for path in there.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    ("torch", "words"),
    [("", "cannot be used: torch is not installed there"), ("2.3.1", "its torch is 2.3.1; the engine needs 2.4")],
)
def test_a_python_that_cannot_serve(torch: str, words: str, environ: dict[str, str], tmp_path: Path) -> None:
    python = python_that_lacks(tmp_path / "home", torch=torch)
    with closing(Connection("gpu1", lambda _: None, environ=environ)) as connection:
        connection.open()
        with pytest.raises(ConnectionFailed, match=words) as failed:
            prepare(connection, python)
        assert failed.value.failure.kind == "python refused"


def test_no_torch_anywhere(environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(Connection("gpu1", lambda _: None, environ=environ)) as connection:
        connection.open()
        monkeypatch.setattr(connection, "find", lambda folder: ())
        with pytest.raises(ConnectionFailed, match=r"No Python with torch .* was found on gpu1") as failed:
            choose(connection)
        assert failed.value.failure.kind == "no torch"


def failing(environ: dict[str, str], python: str, report: Callable[[Report], None] = lambda _: None) -> str:
    with closing(Connection("gpu1", report, environ=environ)) as connection:
        connection.open()
        with pytest.raises(ConnectionFailed) as failed:
            prepare(connection, python)
        return failed.value.failure.kind


def test_nothing_can_be_written_there(environ: dict[str, str], tmp_path: Path) -> None:
    python = python_that_lacks(tmp_path / "home")
    (tmp_path / "there").touch()
    for path in ("devexplorer-0", "devexplorer-1000"):
        (tmp_path / path).touch()
    assert failing(environ, python) == "read-only"


def test_no_space_is_left_there(environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = "\ndef unpack(archive, folder): raise OSError(28, 'No space left on device')\n"
    source = connection_module.stage_2().replace(b"\nserve()\n", f"\nSOURCES['whole_folders'] += {full!r}\n".encode())
    monkeypatch.setattr(connection_module, "stage_2", lambda: source + b"serve()\n")
    assert failing(environ, python_that_lacks(tmp_path / "home")) == "no space"
    assert not [path for path in (tmp_path / "there").rglob("*") if path.is_file()], "nothing is left behind"


def test_the_connection_is_lost_while_code_is_copied(environ: dict[str, str], tmp_path: Path) -> None:
    python = python_that_lacks(tmp_path / "home")
    fake_ssh(
        tmp_path, f"dd bs=65536 count=9 2>/dev/null | {RUNS_HERE}; echo 'client_loop: send disconnect' >&2; exit 255"
    )
    assert failing(environ, python) == "lost"
    assert not list((tmp_path / "there").rglob("*.py"))


def test_cancelled_while_it_copies(environ: dict[str, str], tmp_path: Path) -> None:
    def report(about: Report) -> None:
        if isinstance(about, ConnectProgress) and about.step == "packages":
            connection.cancel()

    python = python_that_lacks(tmp_path / "home", "mdurl")
    with closing(Connection("gpu1", report, environ=environ)) as connection:
        connection.open()
        with pytest.raises(Cancelled):
            prepare(connection, python)


@pytest.mark.parametrize("with_pip", [True, False])
def test_what_cannot_be_had_here_is_fetched_by_that_python_s_pip(
    with_pip: bool, environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unavailable(*_: object) -> Path:
        raise Unavailable("mdurl could not be fetched: there is no network")

    monkeypatch.setattr(packages, "folder", unavailable)
    python = python_that_lacks(tmp_path / "home", "mdurl")
    if with_pip:
        site = next(Path(python).parents[1].glob("lib/*/site-packages"))
        (site / "pip-25.0.dist-info").mkdir()
        (site / "pip-25.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: pip\nVersion: 25.0\n")
        (site / "pip.py").write_text(
            "import pathlib, sys; target = pathlib.Path(sys.argv[sys.argv.index('--target') + 1])\n"
            "(target / 'mdurl.py').write_text(' '.join(sys.argv[-1:]))\n"
        )
        with closing(Connection("gpu1", lambda _: None, environ=environ)) as connection:
            connection.open()
            command = prepare(connection, python)
        assert (Path(command[3].partition("=")[2]) / "mdurl.py").read_text() == "mdurl>=0.1"
    else:
        assert failing(environ, python) == "packages"
