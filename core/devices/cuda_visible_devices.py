"""CUDA_VISIBLE_DEVICES: which cards a list means, and whether it makes sense. Pure functions, any thread;
no torch.

Read as CUDA and torch read it (NVIDIA's CUDA C++ Programming Guide, "CUDA Environment Variables";
`torch.cuda._parse_visible_devices` and `_transform_uuid_to_ordinals`): numbers or UUIDs, whose beginning is enough; the
first entry that names no card ends the list; a card named twice leaves none; the cards are numbered from 0, in the
order of the list; a process gets one MIG instance, the first.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from devexplorer.core.base import BadInput
from devexplorer.core.records import DeviceInfo

VARIABLE = "CUDA_VISIBLE_DEVICES"
LONGEST = 4096
"""Characters that a list may have: 64 UUIDs take 2,600."""
_NUMBER = re.compile(r"[+-]?[0-9]+", re.ASCII)
_UUID = re.compile(r"(GPU|MIG|VGPU)-[0-9A-Za-z/-]*", re.ASCII)


class VisibleCards(NamedTuple):
    """What a process with the variable sees."""

    order: tuple[int, ...]
    """Numbers of the cards, in the order of the new ordinals: the first is `cuda:0`."""
    note: str | None = None
    """What about the list works differently from what it says, as a clause; None: nothing."""


def visible_cards(value: str | None, uuids: Sequence[str | None]) -> VisibleCards:
    """The cards that remain of those with these UUIDs, numbered by their place. None: the variable is unset, all
    remain.

    >>> seen("1,0", ["GPU-a", "GPU-b"]).order, seen("GPU-b,GPU-x", ["GPU-a", "GPU-b"]).order, seen("", ["GPU-a"]).order
    ((1, 0), (1,), ())
    """
    if value is None:
        return VisibleCards(tuple(range(len(uuids))))
    entries = [entry.strip() for entry in value.split(",")]
    if entries == [""]:
        return VisibleCards(())
    form = _UUID.match(entries[0])
    note = None
    order: list[int] = []
    read: list[int | str] = []
    for entry in entries:
        given: int | str | None = None
        if form is None:
            given = _leading(entry)
        elif entry.startswith(f"{form.group(1)}-"):
            given = entry
        if given in read:  # also where the list has ended before
            return VisibleCards((), f"{entry} is named twice: then no card is visible at all")
        if given is not None:
            card = _card(given, uuids)
        elif form is None:
            card = f"'{entry}' is no number"
        else:
            card = f"'{entry}' does not begin with {form.group(1)}- as the first entry does"
        if isinstance(card, int) and note is None:
            order.append(card)
        elif isinstance(card, str) and note is None:
            note = f"{card}; the list ends before it"
        if given is None or (isinstance(given, int) and given < 0):
            break
        read.append(given)
    if len(set(order)) < len(order):
        return VisibleCards((), "two beginnings name one card: then no card is visible at all")
    if form is not None and form.group(1) == "MIG" and len(order) > 1:
        return VisibleCards((order[0],), "a process gets one MIG instance: the first one counts")
    return VisibleCards(tuple(order), note)


def _card(given: int | str, uuids: Sequence[str | None]) -> int | str:
    """The number of the card that an entry names, or why it names none."""
    if isinstance(given, int):
        if 0 <= given < len(uuids):
            return given
        if not uuids:
            there = "there is none here"
        elif len(uuids) == 1:
            there = "the only one is 0"
        else:
            there = f"they are 0 to {len(uuids) - 1}"
        return f"there is no card {given} ({there})"
    matches = [number for number, uuid in enumerate(uuids) if uuid is not None and uuid.startswith(given)]
    if len(matches) == 1:
        return matches[0]
    return (
        f"'{given}' is the beginning of several UUIDs" if matches else f"no card has a UUID that begins with '{given}'"
    )


def _leading(entry: str) -> int | None:
    """CUDA reads the digits at the beginning and leaves out what follows them (`strtoul`): `1gpu` is 1."""
    digits = _NUMBER.match(entry)
    return int(digits.group()[:10]) if digits is not None else None


def checked(text: str) -> str:
    """The list as it goes into the environment, without blanks; `BadInput` for what makes no sense.

    A number that there is no card for is no mistake of writing: `visible_cards` says what it does.

    >>> checked(" 1, 0 ")
    '1,0'
    """
    entries = [entry.strip() for entry in text.split(",")]
    if entries == [""]:
        return ""
    if len(text) > LONGEST:
        raise BadInput(f"the list is {len(text):,} characters long; {LONGEST:,} are the most")
    while entries[-1] == "" and len(entries) > 1:
        entries.pop()  # a comma at the end adds nothing
    for entry in entries:
        if not entry:
            raise BadInput("there is nothing between two commas; write the list like 0,2 or GPU-8f4c,GPU-01ab")
        if not _NUMBER.fullmatch(entry) and not _UUID.fullmatch(entry):
            shown = (entry if entry.isprintable() else ascii(entry)[1:-1])[:60]
            raise BadInput(f"'{shown}' is neither a number nor a UUID; write the list like 0,2 or GPU-8f4c,GPU-01ab")
    if len({bool(_UUID.fullmatch(entry)) for entry in entries}) > 1:
        raise BadInput(
            "numbers and UUIDs are mixed, and CUDA ends the list at the first of the other kind; write one kind only"
        )
    return ",".join(entries)


def value_text(value: str | None) -> str:
    """The variable's value as people read it: `unset`, `empty`, or itself."""
    return "unset" if value is None else value or "empty"


def assignment(value: str | None) -> str:
    """`CUDA_VISIBLE_DEVICES=1`, with the quotes that a shell needs for the empty value."""
    if value is None:
        return f"{VARIABLE} unset"
    return f"{VARIABLE}={value}" if value else f'{VARIABLE}=""'


# --- virtual GPUs: cards 0 to N - 1 of their own
# ------------------------------------------------------------------------------


def virtual_uuid(card: int, name: str) -> str:
    """What identifies a virtual GPU: the number of the card and its model."""
    return f"VGPU-{card}-{re.sub(r'[^a-z0-9]+', '-', name.lower()).strip('-')}"


def card_number(info: DeviceInfo) -> int | None:
    """The number that a card has whatever is visible: NVML's, or a virtual GPU's own; None for other devices."""
    if info.kind != "virtual":
        return info.nvml_index
    number = (info.uuid or "").removeprefix("VGPU-").partition("-")[0]
    return int(number) if number.isdigit() else None


def hidden_by(value: str) -> str:
    """The reason of a card that the variable hides."""
    return f"hidden from the engine by {assignment(value)}"
