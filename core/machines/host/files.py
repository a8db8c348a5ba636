"""What a window asks about this machine: folders, kinds of files, models, Pythons, files piece by piece, and objects on
their way between machines. One thread for each window, `host-files`, because a disk can take its time, or never answer.

Files are read and written as this user, with whatever that user may.

An object on its way has a folder of its own, so that it keeps its name; all of them are in one folder below the cache,
which goes when the process does."""

from __future__ import annotations

import hashlib
import os
import platform
import secrets
import shutil
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import platformdirs
import psutil

from devexplorer.core.base import BadInput, DevExplorerError, bytes_text, open_regular
from devexplorer.core.environments.environment import find, given, probe
from devexplorer.core.files.kinds import recognise
from devexplorer.core.files.records import Save
from devexplorer.core.isolation.model_classes import candidates
from devexplorer.core.machines.records import (
    Chunk,
    Done,
    FileKindFound,
    FileKinds,
    FindModels,
    FindPythons,
    Folder,
    FolderEntry,
    ForgetCopy,
    ListFolder,
    ModelFound,
    ModelsFound,
    PlaceCopy,
    ProbePython,
    PythonProbed,
    PythonsFound,
    ReadFile,
    RecogniseFiles,
    Result,
    SaveCopy,
    Text,
    WriteFile,
)
from devexplorer.core.records import Answer, BaseEvent, Cancel, JobEnded

if TYPE_CHECKING:
    from devexplorer.core.session.session import Session


MOST_ENTRIES = 5_000
MOST_FILES = 200
MOST_BYTES = 1 << 20
"""Of one piece."""
MOST_WAITING = 1_000

SAVED = "copy.safetensors"
"""What objects are saved as."""
LONGEST_NAME = 255
"""In bytes."""
Reply = Callable[[Result | None, str], None]
"""A result, or one line that says why there is none."""


class FileWork:
    """`ask` on the main thread; each reply comes on the thread, or at a look at the session."""

    def __init__(self, session: Session | None, copies: Path | None = None) -> None:
        """`session`: None where there is nothing to save. `copies`: where those of all processes are; None: in the
        user's cache."""
        self.session = session
        base = copies or Path(platformdirs.user_cache_dir("devexplorer", appauthor=False)) / "copies"
        self._copies = base / (platform.node() or "here") / str(os.getpid())  # machines can share a home folder
        self._saving: int | None = None
        """The command that saves a copy now."""
        self._questions: SimpleQueue[tuple[Callable[[], Result], Reply] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="host-files", daemon=True)
        self._writing: dict[str, _Writing] = {}
        self._handlers: dict[type, Callable[[Any], Result]] = {
            ListFolder: list_folder, RecogniseFiles: _recognise, FindModels: _find_models, ReadFile: self._read,
            WriteFile: self._write, FindPythons: _find_pythons, ProbePython: _probe_python,
            PlaceCopy: self._place, ForgetCopy: self._forget,
        }  # fmt: skip

    def takes(self, question: object) -> bool:
        """Whether it is one of these."""
        return type(question) in self._handlers or isinstance(question, SaveCopy)

    def ask(self, question: object, reply: Reply) -> None:
        """Answer a question that it `takes`."""
        if isinstance(question, SaveCopy):
            self._save(question, reply)
        elif isinstance(question, ForgetCopy) and not question.path:
            if self._saving is not None and self.session is not None:
                self.session.send_aside(Cancel(job=self._saving), lambda _: None)
            reply(Done(), "")
        else:
            self.do(lambda: self._handlers[type(question)](question), reply)

    def do(self, work: Callable[[], Result], reply: Reply) -> None:
        """Do other work that can wait for a disk."""
        if self._questions.qsize() >= MOST_WAITING:
            reply(None, "too many questions wait for the disk of that machine")
            return
        if self._thread.ident is None:
            self._thread.start()
        self._questions.put((work, reply))

    def close(self) -> None:
        """The window is gone for good; does not wait."""
        if self._thread.ident is not None:
            self._questions.put(None)

    def join(self, deadline_s: float) -> bool:
        """After `close`: whether the thread ended in time."""
        if self._thread.ident is not None:
            self._thread.join(deadline_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (asked := self._questions.get()) is not None:
            work, reply = asked
            try:
                reply(work(), "")
            except DevExplorerError as error:
                reply(None, str(error))
            except OSError as error:
                reply(None, f"{error.filename or 'the file'}: {(error.strerror or str(error)).lower()}")
            except Exception as error:  # a fault of ours: reported as one, and the window does not wait for ever
                reply(None, f"the host could not do that ({type(error).__name__}: {error})")
                threading.excepthook(
                    threading.ExceptHookArgs((type(error), error, error.__traceback__, threading.current_thread()))
                )
        for unfinished in self._writing.values():
            unfinished.discard()

    # --- pieces of files

    def _read(self, question: ReadFile) -> Chunk:
        path, count = _whole(question.path), min(max(question.count, 1), MOST_BYTES)
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(question.offset, 0))
            data = file.read(count)
        if question.offset + len(data) < size:
            return Chunk(data=data, size_bytes=size)
        return Chunk(data=data, size_bytes=size, sha256=_sum(path))

    def _write(self, question: WriteFile) -> Done:
        path = _whole(question.path)
        if len(question.data) > MOST_BYTES:
            raise BadInput(f"a piece of a file has at most {MOST_BYTES} bytes, not {len(question.data)}")
        if question.offset == 0:
            if (old := self._writing.pop(str(path), None)) is not None:
                old.discard()
            _check_room(path, question.size_bytes)
            self._writing[str(path)] = _Writing.begin(path, overwrite=question.overwrite)
        writing = self._writing.get(str(path))
        if writing is None:
            raise BadInput(f"{path}: no file was begun; send it from its beginning")
        try:
            done = writing.append(question)
        except BaseException:
            del self._writing[str(path)]
            writing.discard()
            raise
        if done:
            del self._writing[str(path)]
        return Done(words=str(path) if done else "")

    # --- objects on their way between machines

    def _save(self, question: SaveCopy, reply: Reply) -> None:
        session = self.session
        if session is None:
            reply(None, "no engine was started on this machine")
            return
        if self._saving is not None:
            reply(None, "objects are being saved for another machine already; wait until they are")
            return
        try:
            path = str(self._new(SAVED))
        except OSError as error:
            reply(None, f"{error.filename}: {(error.strerror or str(error)).lower()}")
            return
        problems: list[str] = []

        def take(event: BaseEvent) -> None:
            if isinstance(event, Answer) and event.failed:
                problems.append(event.words)
            elif isinstance(event, JobEnded):
                self._saving = None
                if event.ok:
                    reply(Text(text=path), "")
                else:
                    reply(None, problems[-1] if problems else "the engine ended before the objects were saved")

        command = Save(targets=question.targets, path=path, named=True, overwrite=True)
        self._saving = session.send_aside(command, take)
        self.do(self._sweep, lambda _, __: None)

    def _place(self, question: PlaceCopy) -> Text:
        self._sweep()
        return Text(text=str(self._new(question.name)))

    def _forget(self, question: ForgetCopy) -> Done:
        path = Path(question.path)
        if path.parent.parent != self._copies or path.parent.name == "..":
            raise BadInput(f"{path} is no copy of the host's")
        shutil.rmtree(path.parent, ignore_errors=True)
        return Done()

    def _new(self, name: str) -> Path:
        """A path of this name in a new folder."""
        if name in ("", ".", "..") or "/" in name or "\0" in name or len(name.encode()) > LONGEST_NAME:
            name = SAVED
        place = self._copies / secrets.token_hex(8) / name
        self._copies.mkdir(mode=0o700, parents=True, exist_ok=True)
        place.parent.mkdir(mode=0o700)
        return place

    def _sweep(self) -> Done:
        """Remove what processes that are gone have left."""
        with suppress(OSError):
            for other in self._copies.parent.iterdir():
                if other.name.isdecimal() and not psutil.pid_exists(int(other.name)):
                    shutil.rmtree(other, ignore_errors=True)
        return Done()

    def remove_copies(self) -> None:
        """Those of this process."""
        shutil.rmtree(self._copies, ignore_errors=True)


class _Writing:
    """A file that arrives piece by piece, beside its place."""

    def __init__(self, path: Path, part: Path, *, overwrite: bool) -> None:
        self._path, self._part, self._overwrite = path, part, overwrite
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self._file = os.fdopen(os.open(part, flags, 0o666), "wb")
        self._sum, self._size = hashlib.sha256(), 0

    @classmethod
    def begin(cls, path: Path, *, overwrite: bool) -> _Writing:
        """Begin; `BadInput` where it may not be written."""
        if os.path.islink(path):  # what it points to is replaced, not the link
            path = Path(os.path.realpath(path))
        _check_free(path, overwrite=overwrite)
        return cls(path, path.with_name(f".{path.name[:100]}.{secrets.token_hex(4)}.part"), overwrite=overwrite)

    def append(self, piece: WriteFile) -> bool:
        """Add a piece; whether it was the last one, and the file is in its place."""
        if piece.offset != self._size:
            raise BadInput(f"{self._path}: a piece at {piece.offset} came where {self._size} was due")
        self._file.write(piece.data)
        self._sum.update(piece.data)
        self._size += len(piece.data)
        if not piece.sha256:
            return False
        if self._sum.hexdigest() != piece.sha256.lower():
            raise BadInput(f"{self._path}: it arrived damaged, and was not kept")
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        _check_free(self._path, overwrite=self._overwrite)
        os.replace(self._part, self._path)
        return True

    def discard(self) -> None:
        """Let go of what came."""
        with suppress(OSError):
            self._file.close()
        with suppress(OSError):
            self._part.unlink(missing_ok=True)


def _check_free(path: Path, *, overwrite: bool) -> None:
    if os.path.isdir(path):
        raise BadInput(f"{path} is a folder")
    if os.path.exists(path) and not overwrite:
        raise BadInput(f"{path} exists already and is not overwritten")
    if not os.path.isdir(path.parent):
        raise BadInput(f"there is no folder {path.parent}")


def _check_room(path: Path, size_bytes: int) -> None:
    free = shutil.disk_usage(path.parent).free if size_bytes else 0
    if size_bytes > free:
        raise BadInput(
            f"there is no room for {path.name}: it needs {bytes_text(size_bytes)}, and {bytes_text(free)} are free on"
            " that disk"
        )


def list_folder(question: ListFolder) -> Folder:
    """What is in a folder: folders first."""
    path = _whole(question.path)
    entries: list[FolderEntry] = []
    left_out = 0
    with os.scandir(path) as found:
        for item in found:
            if len(entries) >= MOST_ENTRIES or not _is_text(item.name):
                left_out += 1
                continue
            try:
                about = item.stat()
                is_folder = item.is_dir()
            except OSError:  # a link to nowhere, a file that has just gone
                entries.append(FolderEntry(item.name))
                continue
            entries.append(FolderEntry(item.name, is_folder, 0 if is_folder else about.st_size, about.st_mtime))
    entries.sort(key=lambda entry: (not entry.is_folder, entry.name.casefold(), entry.name))
    return Folder(path=str(path), entries=tuple(entries), left_out=left_out)


def _recognise(question: RecogniseFiles) -> FileKinds:
    if len(question.paths) > MOST_FILES:
        raise BadInput(f"{len(question.paths)} files at once are too many; {MOST_FILES} is the most")
    kinds = [recognise(_whole(path)) for path in question.paths]
    return FileKinds(files=tuple(FileKindFound(str(kind.path), kind.kind, kind.reason) for kind in kinds))


def _find_models(question: FindModels) -> ModelsFound:
    return ModelsFound(models=tuple(ModelFound(*found) for found in candidates(_whole(question.path))))


def _find_pythons(question: FindPythons) -> PythonsFound:
    if question.path:
        return PythonsFound(environments=(given(question.path),))
    return PythonsFound(environments=find(_whole(question.folder)))


def _probe_python(question: ProbePython) -> PythonProbed:
    return PythonProbed(probe=probe(question.path))


def _whole(text: str) -> Path:
    """The path as a whole one; `~` is the home folder."""
    if "\0" in text:
        raise BadInput("a path has no zero byte in it")
    path = Path(text or os.curdir)
    with suppress(RuntimeError):  # there is no such home folder
        path = path.expanduser()
    path = Path(os.path.abspath(path))
    if not _is_text(str(path)):
        raise BadInput(f"the name of {path!r} is no text")
    return path


def _is_text(name: str) -> bool:
    """A name can be any bytes; what is no text cannot cross the link."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _sum(path: Path) -> str:
    found = hashlib.sha256()
    with open_regular(path) as file:
        while piece := file.read(MOST_BYTES):
            found.update(piece)
    return found.hexdigest()
