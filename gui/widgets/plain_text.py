"""Text from the engine or from a person's code, for places where Qt would take a tag for markup. Main thread."""

from __future__ import annotations

from html import escape


def tip(text: str) -> str:
    """`text` for a tooltip: Qt shows anything with a tag as rich text, so that is escaped; everything else stays
    plain."""
    return f"<qt>{escape(text).replace(chr(10), '<br>')}</qt>" if "<" in text else text
