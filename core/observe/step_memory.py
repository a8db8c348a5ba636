"""What a step of a running script has in the memory when backward begins, by part and by layer. The script's own
thread: no operation of torch is run, and nothing is allocated on a device."""

from __future__ import annotations

from collections import Counter

import torch

from devexplorer.core.base import bytes_text, count_text
from devexplorer.core.observe.live_memory import (
    BUFFERS,
    GRADIENTS,
    OTHERS,
    PARAMETERS,
    SAVED,
    STATE,
    FullDevice,
    LiveMemory,
)
from devexplorer.core.observe.memory import virtual_machine
from devexplorer.core.observe.out_of_memory import COLLECT_SECONDS, cuda_card, virtual_card
from devexplorer.core.records import Answer, Fact


def step_memory() -> Answer:
    """Of every device that has tensors."""
    facts: list[Fact] = []
    lines: list[str] = []
    with torch._C.DisableTorchFunction(), torch.no_grad():
        for card in cards_in_use():
            live = LiveMemory(card, 0, COLLECT_SECONDS)
            try:
                _add(live, facts, lines)
            finally:
                live.forget()
    words = "\n".join(lines) or "Nothing is saved for backward."
    return Answer(title="Memory of a step, when backward begins", words=words, facts=tuple(facts))


def _add(live: LiveMemory, facts: list[Fact], lines: list[str]) -> None:
    card = live.card
    where = f"{card.spoken} (simulated)" if card.simulated else card.spoken
    counts = Counter(piece.part for piece in live.pieces.values())
    known = 0
    for part in (PARAMETERS, BUFFERS, GRADIENTS, STATE, SAVED, OTHERS):
        size = live.bytes_of(part)
        known += size
        if size:
            facts.append(Fact(f"{part}, {where}", f"{bytes_text(size)} in {count_text(counts[part], 'tensor')}"))
    if card.allocated > known:
        facts.append(Fact(f"held by C++ alone, {where}", bytes_text(card.allocated - known)))
    if card.allocated:
        facts.append(Fact(f"allocated, {where}", bytes_text(card.allocated)))
    if live.layers:
        lines.append(f"Saved for backward on {where}, by layer and operation:")
    others = live.bytes_of(SAVED)
    for layer, operation, size in live.layers:
        lines.append(f"• {bytes_text(size)}  {layer or '(before the first layer)'}: {operation}")
        others -= size
    if others:
        lines.append(f"• {bytes_text(others)}  in smaller parts")
    if live.stopped:
        lines.append("The look ended at its time limit: there can be more.")


def cards_in_use() -> list[FullDevice]:
    """Those in use; the CPU where there is none."""
    machine = virtual_machine()
    cards: list[FullDevice] = []
    if machine is not None:
        cards = [virtual_card(gpu) for gpu in machine.gpus if gpu.memory.figures().allocated_bytes]
    elif torch.version.cuda and torch.cuda.is_initialized():
        cards = [cuda_card(index) for index in range(torch.cuda.device_count()) if torch.cuda.memory_allocated(index)]
    return cards or [_host()]


def _host() -> FullDevice:
    return FullDevice(
        device=torch.device("cpu"),
        spoken="cpu",
        name="",
        simulated=False,
        capacity=0,
        context=0,
        limit=0,
        allocated=0,
        reserved=0,
        largest_free=0,
        size_of=lambda tensor: int(tensor.untyped_storage().nbytes()),
        line_of=lambda _: None,
    )
