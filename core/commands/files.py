"""The commands about files of tensors and who carries them out. Jobs thread."""

from __future__ import annotations

from devexplorer.core.files.into_model import compare, load_checkpoint
from devexplorer.core.files.listing import list_file
from devexplorer.core.files.load import load
from devexplorer.core.files.save import save
from devexplorer.core.records.laboratory import CompareCheckpoint, ListFile, Load, LoadCheckpoint, Save
from devexplorer.core.workspace.command_result import Topic

TOPIC: Topic = {
    Save: save,
    ListFile: list_file,
    Load: load,
    CompareCheckpoint: compare,
    LoadCheckpoint: load_checkpoint,
}
"""Every command about files."""
