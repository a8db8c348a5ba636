"""CUDA_VISIBLE_DEVICES: which cards a list means, whether it makes sense, and what a new one changes, in words. Pure
functions, any thread; no torch.

Read as CUDA and torch read it (NVIDIA's CUDA C++ Programming Guide, "CUDA Environment Variables";
`torch.cuda._parse_visible_devices` and `_transform_uuid_to_ordinals`): numbers or UUIDs, whose beginning is enough; the
first entry that names no card ends the list; a card named twice leaves none; the cards are numbered from 0, in the
order of the list; a process gets one MIG instance, the first.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import NamedTuple

from devexplorer.core.base import BadInput, count_text, sentence
from devexplorer.core.records import AddVirtual, Answer, DeviceInfo, Fact, Offer, Rebuilt

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


ONCE = "CUDA reads this variable only once per process, so the engine was restarted with it."


def cards_to_choose(devices: Sequence[DeviceInfo]) -> list[DeviceInfo]:
    """The cards that the variable chooses among, by their own numbers: the real ones; where there is none, the virtual
    ones.

    Each MIG instance follows its card.
    """
    numbered = [info for info in devices if card_number(info) is not None]
    family = [info for info in numbered if not info.simulated] or numbered
    return sorted(family, key=lambda info: (card_number(info) or 0, info.parent is not None))


def cards_in_order(devices: Sequence[DeviceInfo]) -> list[DeviceInfo]:
    """The cards as a list of numbers counts them, MIG instances left out: in CUDA's order where the engine shows all of
    them.

    Otherwise in NVML's, which is the same one with CUDA_DEVICE_ORDER=PCI_BUS_ID, and mostly among cards of one model.
    """
    cards = [info for info in cards_to_choose(devices) if info.parent is None]
    ordinals = [info.cuda_ordinal for info in cards]
    if sorted(ordinal for ordinal in ordinals if ordinal is not None) == list(range(len(cards))):
        return sorted(cards, key=lambda info: info.cuda_ordinal or 0)
    return cards


def selected_cards(value: str | None, devices: Sequence[DeviceInfo]) -> list[DeviceInfo]:
    """The cards that the list means, in its order."""
    cards, visible = _read(value, devices)
    return [cards[index] for index in visible.order]


def _read(value: str | None, devices: Sequence[DeviceInfo]) -> tuple[list[DeviceInfo], VisibleCards]:
    """The cards as the list counts them, and what it says about them."""
    cards = cards_in_order(devices) if is_number_list(value) else cards_to_choose(devices)
    return cards, visible_cards(value, [info.uuid for info in cards])


def is_number_list(value: str | None) -> bool:
    """Whether the list is read as one of numbers; unset and empty count as such."""
    return not value or value[0] in "+-0123456789"


def visibility_note(value: str | None, devices: Sequence[DeviceInfo]) -> str | None:
    """Where the list works differently from what it says on these devices, as a sentence; None: it does what it
    says."""
    cards, visible = _read(value, devices)
    return sentence(visible.note) if cards and visible.note is not None else None


def visibility_answer(
    before: str | None, now_is: str | None, devices: Sequence[DeviceInfo], rebuilt: Rebuilt, *, now: float
) -> Answer:
    """The answer to a change of the variable from `before` to `now_is`, with the devices that the new engine has."""
    cards = cards_to_choose(devices)
    visible = [info for info in devices if info.usable and info.kind in ("cuda", "virtual")]
    facts = [
        Fact("before", value_text(before)),
        Fact("now", value_text(now_is)),
        *(Fact(info.id, f"{_card_text(info)}{', simulated' if info.simulated else ''}") for info in visible),
        *(Fact(info.id, f"{_card_text(info)}, not visible") for info in cards if not info.usable),
    ]
    if rebuilt.restored or rebuilt.lost:
        facts.append(Fact("restored", ", ".join(rebuilt.restored) or "nothing"))
        facts.append(Fact("not restored", "; ".join(rebuilt.lost) or "nothing"))
    sentences = [ONCE]
    offers: tuple[Offer, ...] = ()
    if not cards:
        sentences.append(f"{VARIABLE} selects NVIDIA cards, and this machine has none. Virtual GPUs follow it too.")
        offers = (Offer("Add two virtual GPUs", AddVirtual(spec="2x Tesla T4")),)
    else:
        if (note := visibility_note(now_is, devices)) is not None:
            sentences.append(note)
        sentences.append(_counted(visible, hidden=sum(not info.usable and info.parent is None for info in cards)))
    if rebuilt.lost:
        sentences.append("Objects that were on a missing device, or depended on one, are listed below.")
    return Answer(
        title=f"{VARIABLE} is {value_text(now_is)}",
        words=" ".join(sentences),
        facts=tuple(facts),
        code=_code(now_is),
        offers=offers,
        time_unix_s=now,
    )


def _card_text(info: DeviceInfo) -> str:
    number = card_number(info)
    parts = [info.name]
    if number is not None:
        parts.append(f"card {number}" if info.simulated else f"nvidia-smi {number}")
    if info.uuid is not None:
        parts.append(info.uuid)
    return ", ".join(parts)


def _counted(visible: Sequence[DeviceInfo], hidden: int) -> str:
    if not visible:
        return "No card is visible: torch has the CPU only."
    first = visible[0]
    number = card_number(first)
    message = f"The engine sees {count_text(len(visible), 'card')}"
    message += f" and not the other {hidden}" if hidden else ""
    moved = number is not None and not first.id.endswith(f":{number}")
    which = "" if number is None else f" {number}"
    return f"{message}; they are numbered from 0" + (f": {first.id} is the card{which} now." if moved else ".")


def _code(value: str | None) -> str:
    if value is None:
        return f'import os\n\nos.environ.pop("{VARIABLE}", None)  # before the first use of CUDA, which reads it once'
    return (
        f'import os\n\nos.environ["{VARIABLE}"] = {value!r}  # before the first use of CUDA, which reads it once\n'
        f"# in the shell, which is always early enough: {VARIABLE}={shlex.quote(value)} python train.py"
    )
