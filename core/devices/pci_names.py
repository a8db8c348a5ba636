"""What a PCI device is called, from the list that Linux systems carry (pci.ids of the PCI ID project). Any thread;
reads a file."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

_MARKETED = re.compile(r"\[(.+)\]")


def pci_name(vendor: int | None, product: int | None, places: Iterable[Path]) -> str | None:
    """The name of a product as it is sold, with its maker's; None where no list knows it.

    `Navi 31 [Radeon RX 7900 XT/7900 XTX]` is the chip and what is sold with it: the second counts.
    """
    if vendor is None or product is None:
        return None
    for place in places:
        try:
            with place.open(encoding="utf-8", errors="replace") as lines:
                result = _product(lines, f"{vendor:04x}", f"\t{product:04x}  ")
        except OSError:
            continue
        if result is not None:
            sold = _MARKETED.search(result)
            return f"{_MAKERS.get(vendor, '')} {sold.group(1) if sold else result}".strip()
    return None


_MAKERS = {0x1002: "AMD", 0x8086: "Intel"}


def _product(lines: Iterable[str], vendor: str, product: str) -> str | None:
    """Vendors stand at the beginning of a line, their products below them behind one tab."""
    inside = False
    for line in lines:
        if line[:1] not in ("\t", "#", "\n"):
            if inside:
                return None
            inside = line.startswith(f"{vendor}  ")
        elif inside and line.startswith(product):
            return line[len(product) :].strip()
    return None
