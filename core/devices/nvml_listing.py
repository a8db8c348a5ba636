"""Lists the cards and their MIG instances, at start and again at any time. On the thread that lists; no torch, no Qt.

What is known stays: a card that is listed again costs three calls, keeps what is remembered of it and gives an equal
record, and one that cannot be opened at present is not forgotten. What left is let go, handle and all.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from devexplorer.core.devices import nvml_fields as fields
from devexplorer.core.devices.nvml_asking import Asker, LostError, Opened, Question
from devexplorer.core.devices.nvml_card import Card

_INSTANCES = Question("mig_instances", (lambda n, h: int(fields.right(n.nvmlDeviceGetMaxMigDeviceCount(h), 0, 64, "MIG instances")),))


def listed(asker: Asker, machine: Opened, known: Mapping[str, Opened]) -> dict[str, Opened] | None:
    """`Card.key` -> card, in NVML's order, each card followed by its instances; None when NVML does not even count them.

    Raises `GoneError`.
    """
    driver = asker.ask(machine, fields.DRIVER_VERSION)
    cuda = fields.cuda_text(asker.ask(machine, fields.CUDA_VERSION))
    count = asker.ask(machine, fields.COUNT)
    if count is None:
        return None
    found: dict[str, Opened] = {}
    for index in range(count):
        blank = Card(index=index, uuid=None, name=f"NVIDIA card {index}", driver_version=driver, cuda_version=cuda)
        opened = _open(asker, known, blank)
        found[opened.known_card.key] = opened
        if opened.known_card.mig and opened.known_card.broken is None:
            found |= {instance.known_card.key: instance for instance in _instances(asker, known, opened)}
    return found


def _open(asker: Asker, known: Mapping[str, Opened], blank: Card) -> Opened:
    """The card at the place of `blank`."""
    fresh = Opened(blank.nvml_id, blank)
    places = {one.card.index: one for one in known.values() if one.card and one.card.mig_instance is None}
    opened = places.get(blank.index, fresh)
    try:
        try:
            fresh.handle = asker.module.nvmlDeviceGetHandleByIndex(blank.index)
        except Exception as error:
            asker.check(opened, getattr(error, "value", None))
            words = asker.words(error)
            asker.note(opened, None, f"the card cannot be opened: {words}")
            opened.card = msgspec.structs.replace(opened.card or blank, broken=words)
            return opened
        uuid = asker.ask(fresh, fields.UUID)
        if uuid is not None:
            opened = known.get(uuid, fresh)  # else it is taken for the one that was here
        anew = opened is fresh or opened.handle is None  # without a handle: NVML was started again
        opened.handle, opened.device = fresh.handle, blank.nvml_id
        opened.ask_again()
        card = opened.known_card
        mig = asker.ask(opened, fields.MIG)
        if mig is None:
            mig = card.mig  # a question that fails for once switches nothing
        if anew or card.broken or card.mig != mig or card.index != blank.index:
            nameless = fresh.reasons.get(fields.UUID.field)
            asker.forget(opened)  # another mode, other answers
            if nameless is not None:
                asker.miss(opened, fields.UUID, nameless, problem=True)
            opened.card = msgspec.structs.replace(blank, uuid=uuid or card.uuid, mig=mig)
            opened.card = _described(asker, opened, opened.card)
    except LostError as error:
        asker.note(opened, None, str(error))
        opened.card = msgspec.structs.replace(opened.card or blank, broken=str(error))
    return opened


def _described(asker: Asker, opened: Opened, card: Card) -> Card:
    """What a card or a MIG instance is."""
    name = asker.ask(opened, fields.NAME) or card.name
    memory: fields.Memory | None = asker.ask(opened, fields.MEMORY)
    if memory is not None and memory.shared and card.mig_instance is not None:
        memory = None  # what is cut into instances has memory of its own
    card = msgspec.structs.replace(
        card,
        name=name,
        memory_total_bytes=memory.total_bytes if memory else None,
        memory_used_bytes=memory.used_bytes if memory else None,
        memory_shared=memory.shared if memory else False,
    )
    if card.mig_instance is not None:
        return msgspec.structs.replace(card, mig_profile=fields.mig_profile(name))
    return msgspec.structs.replace(
        card,
        bus_id=asker.ask(opened, fields.BUS_ID),
        compute_capability=asker.ask(opened, fields.CAPABILITY),
        ecc=asker.ask(opened, fields.ECC),
        compute_mode=asker.ask(opened, fields.COMPUTE_MODE),
    )


def _instances(asker: Asker, known: Mapping[str, Opened], parent: Opened) -> list[Opened]:
    """The MIG instances of a card."""
    found: list[Opened] = []
    card = parent.known_card
    try:
        places = asker.ask(parent, _INSTANCES)
        if places is None:
            return [one for one in known.values() if one.card and one.card.parent_key == card.key]
        for number in range(places):
            try:
                handle = asker.module.nvmlDeviceGetMigDeviceHandleByIndex(parent.handle, number)
                uuid = fields.UUID.ways[0](asker.module, handle)
            except Exception:
                continue  # NotFound: places for instances are numbered to the maximum, most of them empty
            blank = Card(
                index=card.index,
                uuid=uuid,
                name=card.name,
                mig_instance=number,
                parent_key=card.key,
                bus_id=card.bus_id,
                compute_capability=card.compute_capability,
                driver_version=card.driver_version,
                cuda_version=card.cuda_version,
            )
            opened = known.get(uuid) or Opened(card.nvml_id, blank)
            anew = opened.handle is None or opened.known_card.index != card.index or opened.known_card.mig_instance != number
            opened.handle, opened.device = handle, card.nvml_id
            opened.ask_again()
            if anew:
                asker.forget(opened)
                opened.card = blank
                opened.card = _described(asker, opened, blank)
            found.append(opened)
    except LostError:
        pass  # stated by the asker; the card stays in the list
    return found
