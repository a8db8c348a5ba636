"""Lists the cards and their MIG instances, at start and again at any time. On the thread that lists, and on helpers of
it; no torch, no Qt.

What is known stays: a card that is listed again costs three calls, keeps what is remembered of it and gives an equal
record, and one that cannot be opened at present is not forgotten. What left is let go, handle and all. Each card is a
job for itself, so that one that hangs hides no other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from devexplorer.core.devices.nvml import fields
from devexplorer.core.devices.nvml.query import CardLostError, CardState, Query, QueryRunner
from devexplorer.core.devices.nvml_card import Card
from devexplorer.core.devices.plausible import in_range
from devexplorer.core.devices.time_limit import AbandonedError, CallTracker, TimeLimitError

InTime = Callable[[Sequence[Callable[[CallTracker], Any]]], list[Any]]
"""Does jobs in time (`time_limit.finished`)."""

HANDLE = "handle"
"""The field of the question that opens a card."""
_INSTANCES = Query(
    "mig_instances", (lambda n, h: int(in_range(n.nvmlDeviceGetMaxMigDeviceCount(h), 0, 64, "MIG instances")),)
)


def list_cards(
    asker: QueryRunner, machine: CardState, known: Mapping[str, CardState], in_time: InTime
) -> dict[str, CardState] | None:
    """`Card.key` -> card, in NVML's order, each card followed by its instances; None when NVML does not even count
    them.

    Raises `GoneError`.
    """

    def of_the_machine(line: CallTracker) -> tuple[Any, ...]:
        machine.line = line
        return tuple(
            asker.ask(machine, question) for question in (fields.DRIVER_VERSION, fields.CUDA_VERSION, fields.COUNT)
        )

    driver, cuda, count = in_time([of_the_machine])[0]
    if count is None:
        return None
    places = {one.card.index: one for one in known.values() if one.card and one.card.mig_instance is None}
    jobs = []
    for index in range(count):
        name = f"NVIDIA card {index}"
        blank = Card(
            index=index, uuid=None, name=name, named=False, driver_version=driver, cuda_version=fields.cuda_text(cuda)
        )
        jobs.append(partial(_card_with_instances, asker, known, places.get(index), blank))
    found: dict[str, CardState] = {}
    for one in (one for family in in_time(jobs) for one in family):
        if (twin := found.get(one.known_card.key)) is not None:
            one = _without_uuid(asker, one, twin)
        found[one.known_card.key] = one
    return found


def _without_uuid(asker: QueryRunner, opened: CardState, twin: CardState) -> CardState:
    """A card that answers with the UUID of another one goes by its place."""
    card = opened.known_card
    if opened is twin:
        return opened
    words = f"the driver gives this card the UUID of {twin.known_card.nvml_id} ({card.uuid})"
    asker.miss(opened, fields.UUID, words, problem=True)
    opened.card = msgspec.structs.replace(card, uuid=None)
    return opened


def _card_with_instances(
    asker: QueryRunner, known: Mapping[str, CardState], here_before: CardState | None, blank: Card, line: CallTracker
) -> list[CardState]:
    opened = _open(asker, known, here_before, blank, line)
    if opened.known_card.mig and opened.known_card.broken is None:
        return [opened, *_instances(asker, known, opened, line)]
    return [opened]


def _open(
    asker: QueryRunner, known: Mapping[str, CardState], here_before: CardState | None, blank: Card, line: CallTracker
) -> CardState:
    """The card at the place of `blank`."""
    fresh = CardState(blank.nvml_id, blank, line=line, hanging=asker.hanging_at(blank.index))
    opened = here_before or fresh
    try:
        handle = _handle(asker, opened, fresh, blank)
        if handle is None:
            return opened
        fresh.handle = handle
        uuid = asker.ask(fresh, fields.UUID)
        if uuid is not None:
            opened = known.get(uuid, fresh)  # else it is taken for the one that was here
        mig = asker.ask(fresh, fields.MIG)
        anew = opened is fresh or opened.handle is None  # without a handle: NVML was started again
        opened.handle, opened.device, opened.hanging = handle, blank.nvml_id, fresh.hanging
        opened.ask_again()
        card = opened.known_card
        if mig is None:
            mig = card.mig  # a question that fails for once switches nothing
        if anew or card.broken or not card.named or card.mig != mig or card.index != blank.index:
            card = msgspec.structs.replace(blank, uuid=uuid or card.uuid, mig=mig)
            fresh.card = card
            card = _described(asker, fresh, card)
            _take_reasons(asker, opened, fresh)  # another mode, other answers
            opened.card = card
    except CardLostError as error:
        asker.note(opened, None, str(error))
        opened.card = broken(opened.card or blank, str(error))
    return opened


def broken(card: Card, why: str) -> Card:
    """A card that nothing can be read from: what was in use when it was listed is no longer true."""
    return msgspec.structs.replace(card, broken=why, memory_used_bytes=None)


def _handle(asker: QueryRunner, opened: CardState, fresh: CardState, blank: Card) -> Any:
    """What NVML knows the card by; None where it cannot be opened, which is then stated."""
    try:
        return asker.call(fresh, Query(HANDLE, (lambda n, _: n.nvmlDeviceGetHandleByIndex(blank.index),)))
    except AbandonedError:
        raise
    except TimeLimitError as error:
        words = str(error)
    except Exception as error:
        asker.check(opened, getattr(error, "value", None))
        words = asker.words(error)
    asker.note(opened, None, f"the card cannot be opened: {words}")
    opened.card = broken(opened.card or blank, words)
    return None


def _take_reasons(asker: QueryRunner, opened: CardState, fresh: CardState) -> None:
    if opened is not fresh:
        asker.forget(opened)
        opened.reasons.update(fresh.reasons)
        for problem in fresh.problems.values():
            asker.note(opened, problem.field, problem.reason)


def _described(asker: QueryRunner, opened: CardState, card: Card) -> Card:
    """What a card or a MIG instance is."""
    name = asker.ask(opened, fields.NAME)
    memory: fields.Memory | None = asker.ask(opened, fields.MEMORY)
    if memory is not None and memory.shared and card.mig_instance is not None:
        memory = None  # what is cut into instances has memory of its own
    card = msgspec.structs.replace(
        card,
        name=name or card.name,
        named=name is not None,
        memory_total_bytes=memory.total_bytes if memory else None,
        memory_used_bytes=memory.used_bytes if memory else None,
        memory_shared=memory.shared if memory else False,
    )
    if card.mig_instance is not None:
        number = asker.ask(opened, fields.GPU_INSTANCE)
        return msgspec.structs.replace(card, mig_profile=fields.mig_profile(card.name), gpu_instance_id=number)
    return msgspec.structs.replace(
        card,
        bus_id=asker.ask(opened, fields.BUS_ID),
        compute_capability=asker.ask(opened, fields.CAPABILITY),
        ecc=asker.ask(opened, fields.ECC),
        compute_mode=asker.ask(opened, fields.COMPUTE_MODE),
    )


def _instances(
    asker: QueryRunner, known: Mapping[str, CardState], opened_card: CardState, line: CallTracker
) -> list[CardState]:
    """The MIG instances of a card."""
    found: list[CardState] = []
    card = opened_card.known_card
    parent = CardState(card.nvml_id, card, opened_card.handle, line=line, hanging=opened_card.hanging)
    try:
        places = asker.ask(parent, _INSTANCES)
        if places is None:
            return [one for one in known.values() if one.card and one.card.parent_key == card.key]
        for number in range(places):
            hanging = asker.hanging_at(card.index, number)
            fresh = CardState(card.nvml_id, card, parent.handle, line=line, hanging=hanging)
            try:
                handle = asker.call(fresh, Query(HANDLE, (partial(_instance_handle, number=number),)))
                fresh.handle = handle
                uuid = asker.call(fresh, fields.UUID)
            except AbandonedError:
                raise
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
            opened = known.get(uuid) or CardState(card.nvml_id, blank, hanging=hanging)
            anew = (
                opened.handle is None
                or opened.known_card.index != card.index
                or opened.known_card.mig_instance != number
            )
            opened.handle, opened.device, opened.hanging = handle, card.nvml_id, hanging
            opened.ask_again()
            if anew:
                fresh.card = blank
                description = _described(asker, fresh, blank)
                _take_reasons(asker, opened, fresh)
                opened.card = description
            found.append(opened)
    except CardLostError as error:
        asker.note(opened_card, None, str(error))  # the card stays in the list
    return found


def _instance_handle(nvml: Any, handle: Any, *, number: int) -> Any:
    return nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, number)
