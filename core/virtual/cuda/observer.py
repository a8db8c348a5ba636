"""What the emulation of CUDA tells about the code that it serves. The threads of that code."""

from __future__ import annotations

from types import FrameType


class Observer:
    """Hears of each device that code names, and of what virtual GPUs cannot do in CUDA's place. This one does nothing
    with it.

    `frame` is where the emulation was asked: the code in question is there or further out.
    """

    def seen(self, frame: FrameType | None, argument: str | None = None) -> None:
        """A device was named in a call made at this frame, in an argument of that name."""

    def missing(self, name: str, frame: FrameType | None) -> None:
        """A card was named that is not there; CUDA's error follows."""

    def not_checked(self, what: str, why: str, frame: FrameType | None) -> None:
        """Something was used that has no equivalent on a virtual GPU; without a frame: at no particular line."""
