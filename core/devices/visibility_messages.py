"""Messages about a new CUDA_VISIBLE_DEVICES: which card has which number, what is hidden, what was not restored. No
thread."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from devexplorer.core.base import count_text, sentence
from devexplorer.core.devices.cuda_visible_devices import VARIABLE, VisibleCards, card_number, value_text, visible_cards
from devexplorer.core.records import AddVirtual, Answer, DeviceInfo, Fact, Offer, Rebuilt

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
