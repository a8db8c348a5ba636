"""What another machine prints, for the terminal here: text, and of all codes only those that our commands use. Main
thread.

That machine is not trusted. Colours of text pass; the cursor goes up no further than to where the output began, so that
what was on the terminal before stays as it is; the screen is cleared only after its size has changed, when `watch` does
that. All else is shown as signs.
"""

from __future__ import annotations

import re

from devexplorer.core.base import printable

_PARTS = re.compile(r"(\x1b\[\??[0-9;]{0,30}[A-Za-z]|[\n\r\t])")
_BEGUN = re.compile(r"\x1b(\[\??[0-9;]{0,30})?\Z")
"""The beginning of a code whose rest has not come."""
_CODE = re.compile(r"\x1b\[(\??[0-9;]*)([A-Za-z])")
_STYLE = r"(?:[0-4]|2[2-4]|3[0-79]|9[0-7]|38;5;\d{1,3}|38;2;\d{1,3};\d{1,3};\d{1,3})"
_STYLES = re.compile(rf"(?:{_STYLE}(?:;{_STYLE})*)?")
"""No background, nothing that blinks or hides."""
_PLAIN, _SHOW, _HIDE = "\x1b[0m", "\x1b[?25h", "\x1b[?25l"


class OwnCodes:
    """`shown` for each piece of the output in turn, `end` at the end."""

    def __init__(self) -> None:
        self._begun = ""
        self._lines = 0
        """Between the first line of the output and the cursor."""
        self._may_clear = self._may_go_home = False
        self._is_styled = self._is_hidden = False

    def resized(self) -> None:
        """The terminal has another size: its lines were folded, and the screen may be cleared once."""
        self._may_clear = self._may_go_home = True

    def shown(self, text: str) -> str:
        """What the terminal gets."""
        text = self._begun + text
        begun = _BEGUN.search(text)
        self._begun = "" if begun is None else begun[0]
        parts = _PARTS.split(text[: len(text) - len(self._begun)])
        return "".join(self._code(part) if number % 2 else printable(part) for number, part in enumerate(parts))

    def end(self) -> str:
        """What the terminal gets at last, however the output ended: the cursor is seen, and text is plain."""
        begun, self._begun = printable(self._begun), ""
        return f"{begun}{_PLAIN if self._is_styled else ''}{_SHOW if self._is_hidden else ''}"

    def _code(self, code: str) -> str:
        if code == "\n":
            self._lines += 1
        if code in "\n\r\t":
            return code
        values, kind = _CODE.findall(code)[0]
        if kind == "m" and _STYLES.fullmatch(values):
            self._is_styled = values not in ("", "0")
            return code
        if code in (_SHOW, _HIDE):
            self._is_hidden = code == _HIDE
            return code
        if kind == "K" and values in ("", "0", "2"):
            return code
        if kind == "A" and values.isdecimal():
            return self._up(int(values))
        if kind == "J" and values == "2":
            permitted, self._may_clear = self._may_clear, False
            return code if permitted else printable(code)
        if kind == "H" and not values:
            permitted, self._may_go_home = self._may_go_home, False
            self._lines = 0 if permitted else self._lines
            return code if permitted else printable(code)
        return printable(code)

    def _up(self, lines: int) -> str:
        lines = min(lines, self._lines)
        self._lines -= lines
        return f"\x1b[{lines}A" if lines else ""
