"""Text for people. Any thread.

At run time a `Message` is a `str`, so records, JSON and recordings hold plain text. To the type checker it is a type
without the methods of `str`: text can be shown and continued, but code that asks what it says is an error. What code
needs to know is a field beside the message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:

    class Message:
        """A sentence or more; `str(message)` where it is shown."""

        def __init__(self, text: str = "") -> None: ...
        def __add__(self, more: str | Message) -> Message: ...
        def __bool__(self) -> bool: ...

else:
    Message = str
