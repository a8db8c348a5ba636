"""Copies of files from the machine at the far end of a link, and to it, piece by piece. Main thread; every answer comes
at a later beat. Nothing of that machine is opened here by its path."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import partial

from devexplorer.core.machines.remote_session import RemoteSession
from devexplorer.core.records.host import Chunk, Done, ReadFile, WriteFile

CHUNK_BYTES = 1 << 18
MOST_BYTES = 1 << 30
"""Of a file that is copied from there."""

Failed = Callable[[str], None]
"""Gets one sentence."""
Progressed = Callable[[int, int], bool]
"""Gets the bytes so far and of all; False: leave it."""


class FarFiles:
    """Each method asks; `then` gets the answer, or `failed` one sentence."""

    def __init__(self, session: RemoteSession) -> None:
        self._session = session

    def read(
        self,
        path: str,
        then: Callable[[bytes], None],
        failed: Failed,
        progressed: Progressed = lambda done, of: True,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        """The contents of a file, whole and as they were sent."""
        parts = bytearray()

        def came(chunk: Chunk) -> None:
            parts.extend(chunk.data)
            if chunk.size_bytes > most_bytes or len(parts) > most_bytes:
                failed("The file is larger than what is copied from there.")
            elif chunk.sha256:
                whole = hashlib.sha256(parts).hexdigest() == chunk.sha256
                then(bytes(parts)) if whole else failed("The file has changed while it was read.")
            elif not chunk.data:
                failed("The file ended before all of it was read.")
            elif progressed(len(parts), chunk.size_bytes):
                ask()

        def ask() -> None:
            self._session.ask(ReadFile(path=path, offset=len(parts), count=CHUNK_BYTES), came, failed)

        ask()

    def write(
        self,
        path: str,
        data: bytes,
        then: Callable[[], None],
        failed: Failed,
        progressed: Progressed = lambda done, of: True,
        *,
        overwrite: bool = False,
    ) -> None:
        """Put a file there; it appears under its name when all of it has arrived."""

        def went(end: int, _: Done) -> None:
            if end >= len(data):
                then()
            elif progressed(end, len(data)):
                ask(end)

        def ask(offset: int) -> None:
            end = min(offset + CHUNK_BYTES, len(data))
            piece = WriteFile(
                path=path, offset=offset, data=data[offset:end], overwrite=overwrite,
                sha256=hashlib.sha256(data).hexdigest() if end == len(data) else "",
            )  # fmt: skip
            self._session.ask(piece, partial(went, end), failed)

        ask(0)
