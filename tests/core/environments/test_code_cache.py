"""Our code as a folder, and a module of it run by a Python that knows no DevExplorer."""

from __future__ import annotations

import errno
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import threading
from pathlib import Path

import pytest

import devexplorer
from devexplorer.core.base import Unavailable, module_command
from devexplorer.core.environments import code_cache

OWN_PACKAGES = os.pathsep.join(path for path in sys.path if path.endswith("site-packages"))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of this user, and temporary files elsewhere."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "my cache é"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    return tmp_path / "my cache é" / "devexplorer"


def age(folder: Path, days: float) -> None:
    time = folder.stat().st_mtime - days * 86_400
    os.utime(folder, (time, time))


def run(folder: Path, *arguments: str, before: str = "", after: str = "") -> subprocess.CompletedProcess[str]:
    """Start something by the bootstrap in a Python without `site`: nothing of ours is installed there."""
    options = [f"--before={before}"] * bool(before) + [f"--after={after}"] * bool(after)
    command = [sys.executable, "-P", "-S", str(folder / code_cache.BOOTSTRAP), *options, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")


def module(folder: Path, text: str) -> str:
    """Add a module of ours that does what a test asks for; returns its name."""
    (folder / "devexplorer" / "core" / "asked.py").write_text(text)
    return "devexplorer.core.asked"


def test_the_folder_is_an_installation_without_the_window(cache: Path) -> None:
    folder = code_cache.folder()
    assert folder == cache / "code" / code_cache.name()
    assert (folder / "devexplorer" / "__init__.py").read_text() == Path(str(devexplorer.__file__)).read_text()
    assert {path.name for path in (folder / "devexplorer").iterdir()} == {"__init__.py", "core", "resources"}
    assert {path.name for path in folder.iterdir()} == {"devexplorer", ".files.json"}
    assert not [path for path in folder.rglob("*") if "gui" in path.parts or path.suffix == ".pyc"]
    made = folder.stat().st_ino
    age(folder, 5)
    assert code_cache.folder().stat().st_ino == made  # there already, and in use from now on
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_the_packed_code_is_the_same_each_time_and_unpacks_to_the_folder(cache: Path, tmp_path: Path) -> None:
    name, data = code_cache.packed()
    assert (name, data) == code_cache.packed()
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        tar.extractall(tmp_path / "there", filter="data")
    folder = code_cache.folder()
    files = {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    del files[Path(".files.json")]
    there = tmp_path / "there"
    assert files == {path.relative_to(there): path.read_bytes() for path in there.rglob("*") if path.is_file()}
    assert name == folder.name


def test_a_folder_that_a_cleaner_has_thinned_is_made_again(cache: Path) -> None:
    folder = code_cache.folder()
    lost = folder / "devexplorer" / "core" / "base" / "errors.py"
    lost.unlink()
    assert code_cache.folder() == folder
    assert lost.exists()
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_three_are_kept_and_those_that_may_be_in_use(cache: Path) -> None:
    for number, days in enumerate((9, 0.5, 2, 3, 4)):
        age(code_cache.kept("code", str(number), lambda folder: None), days)
    (cache / "code" / ".new-left").mkdir()
    age(cache / "code" / ".new-left", 2)
    code_cache.kept("code", "newest", lambda folder: None)
    assert {path.name for path in (cache / "code").iterdir()} == {"newest", "1", "2", "3"}


def test_two_windows_at_once_both_have_it(cache: Path) -> None:
    def fill(folder: Path) -> None:
        if not (cache / "code" / "same").exists():
            code_cache.kept("code", "same", lambda folder: (folder / "file").touch() or None)
        (folder / "file").touch()

    folder = code_cache.kept("code", "same", fill)
    assert (folder / "file").exists()
    assert [path.name for path in folder.parent.iterdir()] == ["same"]


@pytest.mark.parametrize("damaged", [False, True])
def test_many_windows_at_once_all_have_one_folder_that_stays(cache: Path, damaged: bool) -> None:
    count = 8
    if damaged:
        (code_cache.kept("code", "same", lambda folder: (folder / "file").write_text("former")) / "file").unlink()
    ready, found = threading.Barrier(count), []

    def fill(folder: Path) -> None:
        (folder / "file").write_text("whole")
        ready.wait()

    def window() -> None:
        folder = code_cache.kept("code", "same", fill)
        found.append((folder / "file").stat().st_ino)

    windows = [threading.Thread(target=window) for _ in range(count)]
    for thread in windows:
        thread.start()
    for thread in windows:
        thread.join()
    assert len(found) == count
    assert len(set(found)) == 1
    assert [path.name for path in (cache / "code").iterdir()] == ["same"]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EACCES])
def test_a_full_or_read_only_home_leaves_the_temporary_folder(cache: Path, tmp_path: Path, code: int) -> None:
    def fill(folder: Path) -> None:
        if folder.is_relative_to(cache):
            raise OSError(code, os.strerror(code))

    folder = code_cache.kept("code", "x", fill)
    assert folder == tmp_path / "tmp" / f"devexplorer-{os.getuid()}" / "code" / "x"
    assert folder.parents[1].stat().st_mode & 0o777 == 0o700
    assert code_cache.kept("code", "x", pytest.fail) == folder
    assert list((cache / "code").iterdir()) == []


def test_no_place_at_all_is_told_in_one_line(cache: Path) -> None:
    def fill(folder: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(Unavailable, match=r"nothing can be kept in .* é/devexplorer \(no space is left\) or in .*"):
        code_cache.kept("code", "x", fill)


def test_a_folder_that_others_could_have_made_is_not_used(cache: Path, tmp_path: Path) -> None:
    cache.parent.write_text("a file: nothing can be made here")
    shared = tmp_path / "tmp" / f"devexplorer-{os.getuid()}"
    (shared / "code" / "x").mkdir(parents=True)
    shared.chmod(0o777)
    with pytest.raises(Unavailable, match="others may write to it"):
        code_cache.kept("code", "x", lambda folder: None)


def test_our_modules_run_although_another_devexplorer_is_there(cache: Path, tmp_path: Path) -> None:
    for name in ("devexplorer", "missing", "old"):
        (tmp_path / "theirs" / name).mkdir(parents=True)
        (tmp_path / "theirs" / name / "__init__.py").write_text("whose = 'theirs'")
        if name != "devexplorer":
            (tmp_path / "ours" / name).mkdir(parents=True)
            (tmp_path / "ours" / name / "__init__.py").write_text("whose = 'ours'")
    folder = code_cache.folder()
    text = "import json, sys; import old, devexplorer; import devexplorer.resources as resources"
    text += "; print(json.dumps([old.whose, devexplorer.__file__, resources.__file__, sys.argv[1:], __name__]))"
    text += "; print(json.dumps(devexplorer.__start__)); print('__file__' in globals(), __spec__)"
    ours, theirs = str(tmp_path / "ours"), str(tmp_path / "theirs")
    result = run(folder, module(folder, text), "a b", "--c", before=ours, after=theirs)
    assert result.stderr == ""
    first, start, namespace = result.stdout.splitlines()
    package = str(folder / "devexplorer")
    expected = ["ours", f"{package}/__init__.py", f"{package}/resources/__init__.py", ["a b", "--c"], "__main__"]
    assert json.loads(first) == expected
    assert json.loads(start) == [str(folder / code_cache.BOOTSTRAP), f"--before={ours}", f"--after={theirs}"]
    assert namespace == "False None"
    result = run(folder, module(folder, "import old; print(old.whose)"), before=theirs, after=ours)
    assert result.stdout == "theirs\n"


def test_a_process_of_ours_starts_the_next_in_the_same_way(cache: Path) -> None:
    folder = code_cache.folder()
    text = "from devexplorer.core.base import module_command; print(module_command('devexplorer.core.cli', 'env')[1:])"
    result = run(folder, module(folder, text), after=OWN_PACKAGES.split(os.pathsep)[0])
    after = f"--after={OWN_PACKAGES.split(os.pathsep)[0]}"
    assert (result.stderr, eval(result.stdout)) == (
        "",
        ["-P", str(folder / code_cache.BOOTSTRAP), after, "devexplorer.core.cli", "env"],
    )
    assert module_command("a.b", "c") == [sys.executable, "-P", "-m", "a.b", "c"]


def test_code_of_the_user_s_may_start_processes_that_import_the_main_module(cache: Path, tmp_path: Path) -> None:
    """`multiprocessing` imports the main module in them, by its name or file, and they have no DevExplorer."""
    (tmp_path / "work.py").write_text("def double(x): return 2 * x")
    text = (
        f"import devexplorer, sys, multiprocessing; sys.path.append({str(tmp_path)!r}); import work\n"
        "print(multiprocessing.get_context('spawn').Pool(1).map(work.double, [4]))"
    )
    folder = code_cache.folder()
    assert run(folder, module(folder, text)).stdout == "[8]\n"


def test_what_an_engine_runs_with_is_in_use_as_long_as_it_runs(cache: Path) -> None:
    packages = code_cache.kept("packages", "x", lambda folder: None)
    folder = code_cache.folder()
    text = (
        "import threading, time, os; from devexplorer.core.environments.code_cache import keep_in_use; keep_in_use()\n"
        f"while os.stat({str(packages)!r}).st_mtime < 1e9: time.sleep(0.01)\n"
        "print([thread.name for thread in threading.enumerate()])"
    )
    name = module(folder, text)
    for used in (packages, folder):
        os.utime(used, (0, 0))
    own = run_with_packages(folder, name, packages)
    assert (own.stdout, own.stderr) == ("['MainThread', 'in-use']\n", "")
    assert folder.stat().st_mtime > 1e9


def run_with_packages(folder: Path, name: str, packages: Path) -> subprocess.CompletedProcess[str]:
    """As `run`, in a Python that has what our code needs."""
    command = [sys.executable, "-P", str(folder / code_cache.BOOTSTRAP), f"--after={packages}", name]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd="/", timeout=60)


def test_a_module_that_is_not_there(cache: Path) -> None:
    result = run(code_cache.folder(), "devexplorer.core.nothing")
    assert (result.returncode, result.stderr) == (1, "devexplorer: there is no module devexplorer.core.nothing\n")
