"""Files that arrive where a link is: what the link points to is replaced, and the link stays."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.hosts import READY, HostHere, WindowHere

from devexplorer.core.machines.records import SnapshotEnd, WriteFile


@pytest.fixture
def window(tmp_path: Path) -> Iterator[WindowHere]:
    host = HostHere(tmp_path / "host")
    host.say(READY)
    made = WindowHere(host)
    made.connect()
    made.wait_for(SnapshotEnd)
    yield made
    made.close()
    host.close()


def write(window: WindowHere, path: Path, data: bytes) -> str:
    digest = hashlib.sha256(data).hexdigest()
    return window.ask(WriteFile(path=str(path), offset=0, data=data, sha256=digest, overwrite=True)).problem


def test_a_link_to_a_file_and_one_to_nothing_yet(window: WindowHere, tmp_path: Path) -> None:
    (tmp_path / "old").write_bytes(b"old")
    for name in ("old", "new"):
        link = tmp_path / f"link to {name}"
        link.symlink_to(tmp_path / name)
        assert write(window, link, b"it") == ""
        assert link.is_symlink()
        assert (tmp_path / name).read_bytes() == b"it"


def test_links_that_point_to_each_other_are_no_fault_of_ours(window: WindowHere, tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    one.symlink_to(other)
    other.symlink_to(one)
    assert write(window, one, b"it") == ""
    assert one.read_bytes() == b"it"
