"""Carries out `ListFile`: what is in a file, without reading a value. Runs on the jobs thread."""

from __future__ import annotations

from collections import Counter

from msgspec.structs import replace

from devexplorer.core.base import ProgressMonitor, bytes_text, count_text
from devexplorer.core.files import code
from devexplorer.core.files.entries import TensorFile, shown
from devexplorer.core.files.load import MOST_TENSORS
from devexplorer.core.files.manifest import SEPARATOR
from devexplorer.core.files.opening import opened
from devexplorer.core.files.records import FileContents, FileEntry, FileListed, ListFile, Load
from devexplorer.core.files.sent import as_known, origin, with_origin
from devexplorer.core.models import dtype_name
from devexplorer.core.records import Answer, Fact, Offer
from devexplorer.core.workspace import CommandResult, Workspace

LISTED = 5000
"""Entries that are listed."""


def list_file(workspace: Workspace, command: ListFile, progress: ProgressMonitor) -> CommandResult:
    """Look into the file."""
    with opened(as_known(command).path, command.path) as file:
        contents = replace(contents_of(file), path=command.path)
        return CommandResult(_answer(command, file, contents), events=(FileListed(contents=contents),))


def contents_of(file: TensorFile) -> FileContents:
    """The record: tensors, or for a workspace file its objects."""
    models = file.models
    entries: list[FileEntry] = []
    totals: Counter[str] = Counter()
    for key, entry in file.entries.items():
        head = key.partition(SEPARATOR)[0]
        own = 0 if entry.same_as is not None else entry.nbytes
        if head in models:
            totals[head] += own
        else:
            entries.append(FileEntry(key, entry.shape, dtype_name(entry.dtype), own))
    entries = [FileEntry(shown(name), (), shown(item.type), totals[name]) for name, item in models.items()] + entries
    saved_on = sorted({entry.device for entry in file.entries.values() if entry.device is not None})
    return FileContents(
        path=file.path,
        form="workspace" if models else file.form,
        entries=tuple(entries[:LISTED]),
        bytes=file.size,
        count=len(file.entries),
        saved_on=", ".join(saved_on) or None,
    )


def _answer(command: ListFile, file: TensorFile, contents: FileContents) -> Answer:
    dtypes = Counter(dtype_name(entry.dtype) for entry in file.entries.values())
    nbytes = sum(entry.nbytes for entry in file.entries.values() if entry.same_as is None)
    tied = [entry for entry in file.entries.values() if entry.same_as is not None]
    words = [f"{count_text(contents.count, 'tensor')} with {bytes_text(nbytes)} of values; none of them were read."]
    if contents.form == "workspace" and file.document is not None:
        sample = [item.name for item in file.document.objects if item.recipe]
        words.append(f"It is a workspace of {count_text(len(file.document.objects), 'object')}.")
        if sample:
            words.append(f"Loading it builds {', '.join(sample)} again; a file never runs the code of any other model.")
    if tied:
        words.append(f"{tied[0].key} is the very same tensor as {tied[0].same_as}: it is in the file once.")
    if contents.saved_on:
        words.append(f"When it was saved it was on {contents.saved_on}; it can be loaded to any device.")
    words += file.notes
    facts = (
        Fact("file", f"{origin(command)}, {bytes_text(file.size)}"),
        Fact(
            "format",
            "safetensors, a workspace" if contents.form == "workspace" else file.title,
        ),
        Fact("dtypes", ", ".join(f"{count:,} {name}" for name, count in dtypes.most_common()) or "none"),
        Fact("saved on", contents.saved_on or "the file does not say"),
    )
    load = Load(path=command.path, sent_from=command.sent_from)
    offers = (Offer("Load all of it", load),) if 0 < len(contents.entries) <= MOST_TENSORS else ()
    return Answer(
        title=f"{count_text(contents.count, 'tensor')} in the file",
        words=" ".join(words),
        facts=facts,
        code=with_origin(code.listed(as_known(command), file.form), command.sent_from),
        offers=offers,
    )
