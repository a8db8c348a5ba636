"""What the window remembers between starts: one small JSON file in the user's configuration folder. Main thread, a few hundred bytes."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Annotated

import msgspec
import platformdirs


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """All of it; unknown or broken files count as empty."""

    theme: str = "dark"
    geometry: str = ""
    """Of the window, base64 as Qt saves it."""
    splitters: dict[str, list[Annotated[int, msgspec.Meta(ge=0, le=100_000)]]] = {}
    """Sizes in pixels, by the splitter's name."""
    span_s: Annotated[float, msgspec.Meta(ge=1, le=3600)] = 120.0


class SettingsFile:
    """Reads and writes the settings; never raises."""

    def __init__(self, folder: Path | None = None) -> None:
        self.path = (folder or Path(platformdirs.user_config_dir("devexplorer", appauthor=False))) / "window.json"

    def load(self) -> Settings:
        """The saved settings, or the defaults when there are none that can be read."""
        try:
            return msgspec.json.decode(self.path.read_bytes(), type=Settings)
        except (OSError, msgspec.DecodeError, RecursionError):
            return Settings()

    def save(self, settings: Settings) -> str | None:
        """Write all or nothing; returns one sentence when that was not possible."""
        temporary = None
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=self.path.parent, prefix=".window-")
            with os.fdopen(handle, "wb") as file:
                file.write(msgspec.json.format(msgspec.json.encode(settings)))
            os.replace(temporary, self.path)
        except OSError as error:
            if temporary is not None:
                Path(temporary).unlink(missing_ok=True)
            return f"The settings could not be saved in {self.path.parent} ({error.strerror}); make the folder writable to keep the layout."
        return None

    def writable(self) -> str | None:
        """One sentence when saving will not be possible, so that it can be said at the start instead of at the end."""
        folder = self.path.parent
        while not folder.exists() and folder != folder.parent:
            folder = folder.parent
        if folder.is_dir() and os.access(folder, os.W_OK | os.X_OK):
            return None
        return f"The folder {self.path.parent} is not writable: the layout of this session will not be remembered."
