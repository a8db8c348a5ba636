"""What is in the memory of a device that is full, and why: the report that `when_full` writes. The thread on which it
happened; a few seconds at most."""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

import msgspec
import torch

from devexplorer.core.base import bytes_text
from devexplorer.core.isolation.source_location import kind_of
from devexplorer.core.observe.alive import Holder, frames_outwards, is_ours, namespaces, search, variables
from devexplorer.core.observe.causes import judge
from devexplorer.core.observe.graph import grad_fn
from devexplorer.core.observe.live_memory import (
    BUFFERS,
    GRADIENTS,
    OTHERS,
    PARAMETERS,
    SAVED,
    STATE,
    FullDevice,
    LiveMemory,
    Piece,
    Root,
)
from devexplorer.core.observe.memory import virtual_machine
from devexplorer.core.observe.memory_case import MemoryCase
from devexplorer.core.observe.memory_report import (
    SCHEMA,
    CodeLine,
    GraphsHeld,
    LayerActivations,
    LiveModel,
    LiveTensor,
    OutOfMemoryReport,
    TensorContainer,
    UsedPart,
)
from devexplorer.core.observe.moment import Moment, code_line, moment

if TYPE_CHECKING:
    from devexplorer.core.virtual.device.machine import VirtualGpu

COLLECT_SECONDS, SEARCH_SECONDS = 1.5, 1.5
MOST_TENSORS, MOST_NAMED, MOST_CONTAINERS, MOST_MODELS = 40, 24, 6, 6
MOST_GRAPHS = 40
"""Tensors with a graph that are asked for their names, the latest."""
WITHOUT_NAMES = ("batch", "activations", "one_tensor", "largest_part")
"""Causes that are named where nothing was found that is kept without need."""


def frames_of_script() -> list[FrameType]:
    """What runs on this thread, the innermost first; where it is one of autograd's, which C++ has started and where
    nothing of Python's need be, also what waits for it."""
    frames = list(frames_outwards(sys._getframe()))
    here, main = threading.get_ident(), threading.main_thread().ident
    ours = (thread for thread in threading.enumerate() if not isinstance(thread, threading._DummyThread))
    if any(thread.ident == here for thread in ours):
        return frames
    waiting = {
        number: list(frames_outwards(frame)) for number, frame in sys._current_frames().items() if number != here
    }
    for others in waiting.values():
        if any(frame.f_code.co_name == "_engine_run_backward" for frame in others):
            return frames + others
    return frames + waiting.get(main or 0, [])


def frames_in(trace: TracebackType | None) -> list[FrameType]:
    """Of a traceback, the innermost first."""
    frames: list[FrameType] = []
    while trace is not None:
        if not is_ours(trace.tb_frame.f_code.co_filename):
            frames.insert(0, trace.tb_frame)
        trace = trace.tb_next
    return frames


def virtual_card(gpu: VirtualGpu) -> FullDevice:
    """A virtual GPU as it is now."""
    figures = gpu.memory.figures()
    free = gpu.profile.usable_bytes - figures.used
    return FullDevice(
        device=torch.device("vgpu", gpu.index),
        spoken=gpu.spoken,
        name=gpu.profile.name,
        simulated=True,
        capacity=gpu.profile.usable_bytes,
        context=figures.context_bytes,
        limit=gpu.profile.usable_bytes,
        allocated=figures.allocated_bytes,
        reserved=figures.reserved_bytes,
        largest_free=max(figures.largest_free_block_bytes, free),
        size_of=lambda tensor: _virtual_size(tensor, gpu),
        line_of=_virtual_line,
    )


def _virtual_size(tensor: torch.Tensor, gpu: VirtualGpu) -> int:
    held = getattr(tensor.untyped_storage(), "_vgpu", None)
    return 0 if held is None or held.gpu is not gpu else int(held.block.size)


def _virtual_line(tensor: torch.Tensor) -> tuple[str, int, str] | None:
    held = getattr(tensor.untyped_storage(), "_vgpu", None)
    stack = None if held is None else held.block.stack
    return stack[0] if stack else None


def cuda_card(index: int, limit: int | None = None) -> FullDevice:
    """A CUDA card as it is now. `limit`: what this process may reserve, where that was said with the error."""
    free, total = torch.cuda.mem_get_info(index)
    if limit is None:
        limit = _limit_of(index, total)
    reserved, allocated = torch.cuda.memory_reserved(index), torch.cuda.memory_allocated(index)
    blocks = _blocks(index)
    in_use = {block["address"]: block for block in blocks if block["state"].startswith("active")}
    largest_cached = max((block["size"] for block in blocks if block["state"] == "inactive"), default=0)

    def size_of(tensor: torch.Tensor) -> int:
        address = _address(tensor)
        if address in in_use:
            return int(in_use[address]["size"])
        return -(-tensor.untyped_storage().nbytes() // 512) * 512 if address else 0

    def line_of(tensor: torch.Tensor) -> tuple[str, int, str] | None:
        block = in_use.get(_address(tensor))
        return None if block is None else _recorded_line(block)

    return FullDevice(
        device=torch.device("cuda", index),
        spoken=f"cuda:{index}",
        name=torch.cuda.get_device_name(index),
        simulated=False,
        capacity=total,
        context=max(0, total - free - reserved),
        limit=limit,
        allocated=allocated,
        reserved=reserved,
        largest_free=max(0, min(free, limit - reserved), largest_cached),
        size_of=size_of,
        line_of=line_of,
    )


def _limit_of(index: int, total: int) -> int:
    share = getattr(torch.cuda, "get_per_process_memory_fraction", None)
    return total if share is None else int(total * share(index))


def _blocks(index: int) -> list[dict[str, Any]]:
    """Of PyTorch's own allocator; CUDA's (`backend:cudaMallocAsync`) tells of none."""
    try:
        segments = torch.cuda.memory_snapshot()
    except RuntimeError:
        return []
    return [block for segment in segments if segment["device"] == index for block in segment["blocks"]]


def _address(tensor: torch.Tensor) -> int:
    """Where its storage begins; 0: it has no memory. Unlike `data_ptr` it never copies one that is shared until it is
    written."""
    try:
        return int(torch._C._data_address(tensor))  # type: ignore[attr-defined]
    except RuntimeError:
        return 0


def _recorded_line(block: dict[str, Any]) -> tuple[str, int, str] | None:
    """The line of the script that made a block; known where `torch.cuda.memory._record_memory_history` is on."""
    for frame in block.get("frames", ()):
        if kind_of(frame["filename"]) == "user":
            return frame["filename"], frame["line"], frame["name"]
    return None


def card_named(message: str) -> FullDevice | None:
    """The device that an error is about."""
    found = re.search(r"GPU (\d+) has", message)
    index = int(found[1]) if found else 0
    machine = virtual_machine()
    if machine is not None and index < len(machine.gpus):
        return virtual_card(machine.gpus[index])
    return cuda_card(index) if torch.cuda.is_available() else None


def asked_for(message: str) -> int:
    """Bytes, as the text of the error has them; 0: it does not say."""
    found = re.search(r"allocate ([\d.]+) (B|KiB|MiB|GiB|TiB)", message)
    if found is None:
        return 0
    return int(float(found[1]) * (1 << 10 * ("B", "KiB", "MiB", "GiB", "TiB").index(found[2])))


def look(
    card: FullDevice, requested: int, message: str, frames: list[FrameType], records: bool, step_mark: int
) -> OutOfMemoryReport:
    """What is in the memory of a device that is full, and why. `frames`: of the script, the innermost first."""
    live = LiveMemory(card, step_mark, COLLECT_SECONDS, containers=True)
    try:
        return _report(live, requested, message, frames, records)
    finally:
        live.forget()


def _report(
    live: LiveMemory, requested: int, message: str, frames: list[FrameType], records: bool
) -> OutOfMemoryReport:
    card, now = live.card, moment(frames, records)
    live.find_containers(namespaces(frames))
    live.find_errors(frames)
    pieces = sorted(live.pieces.values(), key=lambda piece: -piece.bytes)
    models = [root for root in live.roots if root.here][:MOST_MODELS]
    held = live.held.union(*(map(id, variables(frame).values()) for frame in frames))
    wanted = _wanted(live, pieces, models, held)
    holders = search(wanted, frames, live.own(), seconds=SEARCH_SECONDS, most=4, nearest=True, tensors=live.tensors)
    holders = {key: _outside_first(found, now) for key, found in holders.items()}
    case = MemoryCase(
        live=live,
        moment=now,
        requested=requested,
        others=0 if card.simulated else card.context,
        name_of=lambda thing: _name(holders.get(id(thing), ())),
        path_of=lambda thing: _variable(holders.get(id(thing), ())),
        outside=lambda thing: _is_outside(holders.get(id(thing), ()), now),
        adrift=lambda thing: _is_adrift(holders.get(id(thing), ())),
    )
    known = sum(piece.bytes for piece in pieces)
    cause = judge(case)
    if cause.kind in WITHOUT_NAMES and any(one.stopped for found in holders.values() for one in found):
        cause = msgspec.structs.replace(cause, text=f"{cause.text} Not sure: there was no time to find all names.")
    notes = []
    if live.stopped:
        notes.append("The search ended at its time limit: parts can be larger than they are given here.")
    if card.limit < card.capacity - card.context:
        notes.append(
            f"This process may use {bytes_text(card.limit)} of the device: torch.cuda.set_per_process_memory_fraction,"
            " or per_process_memory_fraction in PYTORCH_ALLOC_CONF."
        )
    return OutOfMemoryReport(
        devexplorer="out of memory",
        schema=SCHEMA,
        cause=cause,
        error=message,
        script=sys.argv[0] if sys.argv else "",
        arguments=tuple(sys.argv[1:]),
        pid=os.getpid(),
        python=sys.version.split()[0],
        torch=str(torch.__version__),
        time_unix_s=time.time(),
        device=card.spoken,
        device_name=card.name,
        simulated=card.simulated,
        phase=now.phase,
        place=now.place,
        layer=_layer_name(now),
        requested_bytes=requested,
        largest_free_bytes=card.largest_free,
        capacity_bytes=card.capacity,
        allocated_bytes=card.allocated,
        reserved_bytes=card.reserved,
        parts=_parts(live, known),
        models=tuple(_model(live, root, case.path_of(root.module)) for root in models),
        tensors=tuple(_tensor(live, piece, holders) for piece in pieces[:MOST_TENSORS]),
        tensors_left_out=max(0, len(pieces) - MOST_TENSORS),
        bytes_left_out=sum(piece.bytes for piece in pieces[MOST_TENSORS:]),
        containers=tuple(
            TensorContainer(
                name=case.path_of(held.thing),
                where=case.name_of(held.thing),
                tensors=len(held.tensors),
                bytes=held.bytes,
                graph_bytes=held.graph_bytes,
                with_graph=held.with_graph,
            )
            for held in live.containers[:MOST_CONTAINERS]
            if case.path_of(held.thing)
        ),
        graphs=GraphsHeld(
            nodes=len(live.graphs.nodes),
            bytes=live.bytes_of(SAVED),
            passes=live.passes,
            earlier_bytes=live.earlier_bytes,
        )
        if live.graphs.nodes
        else None,
        layers=tuple(LayerActivations(layer=one, operation=what, bytes=size) for one, what, size in live.layers),
        lines=_lines(pieces),
        seconds=round(time.monotonic() - live.began, 3),
        notes=tuple(notes),
    )


def _wanted(live: LiveMemory, pieces: list[Piece], models: list[Root], held: set[int]) -> list[Any]:
    """What is to be named. `held`: tensors that the script's variables and objects refer to; a graph has saved many
    more."""
    found: dict[int, Any] = {id(root.module): root.module for root in models}
    found |= {id(held.thing): held.thing for held in live.containers[:MOST_CONTAINERS]}
    if live.errors is not None:
        found[id(live.errors.thing)] = live.errors.thing
    unnamed = [piece for piece in pieces if not piece.name]
    found |= {id(piece.largest): piece.largest for piece in unnamed[:MOST_NAMED]}
    graphs = [
        (int(grad_fn(tensor)._sequence_nr()), number, tensor)
        for piece in pieces
        if piece.part in (OTHERS, SAVED)
        for number, tensor in ((id(one), one) for one in piece.tensors)
        if number in held and grad_fn(tensor) is not None
    ]
    found |= {number: tensor for _, number, tensor in sorted(graphs, key=lambda one: one[:2])[-MOST_GRAPHS:]}
    return list(found.values())


def _variable(holders: Iterable[Holder]) -> str:
    paths = [
        holder.path.removesuffix(".__dict__")
        for holder in holders
        if holder.kind in ("variable", "global", "closure", "class") and not holder.through
    ]
    return next((path for path in paths if path != "self"), paths[0] if paths else "")


def _is_outside(holders: Iterable[Holder], now: Moment) -> bool:
    """Whether a variable leads there that is none of the functions within the forward that runs."""
    named = [one for one in holders if one.kind != "nothing" and not one.through]
    return any(one.kind != "variable" or (one.file, one.function) not in now.inside for one in named)


def _outside_first(holders: Iterable[Holder], now: Moment) -> tuple[Holder, ...]:
    """Variables of the forward that runs come last: what called it says more."""
    return tuple(sorted(holders, key=lambda one: one.kind == "variable" and (one.file, one.function) in now.inside))


def _is_adrift(holders: tuple[Holder, ...]) -> bool:
    return bool(holders) and all(one.kind in ("object", "nothing") and not one.stopped for one in holders)


def _name(holders: Iterable[Holder]) -> str:
    for holder in holders:
        path = holder.path.removesuffix(".__dict__")
        if holder.through or holder.kind not in ("variable", "global", "closure", "class"):
            continue
        if holder.kind == "variable":
            return f"{path} in {holder.function} ({os.path.basename(holder.file)}, line {holder.line})"
        if holder.kind == "class":
            return f"{path} (an attribute of a class)"
        what = "a global" if holder.kind == "global" else "from a closure"
        return f"{path} ({what} of {os.path.basename(holder.file) or holder.function})"
    return ""


def _layer_name(now: Moment) -> str:
    if now.layer is None:
        return ""
    kind = type(now.layer).__name__
    if now.root is None:
        return kind
    path = next((name for name, module in now.root.named_modules() if module is now.layer), "")
    return f"{path} ({kind})" if path else kind


def _parts(live: LiveMemory, known: int) -> tuple[UsedPart, ...]:
    card = live.card
    counts = Counter(piece.part for piece in live.pieces.values())
    parts = [
        UsedPart(name=part, bytes=live.bytes_of(part), tensors=counts[part])
        for part in (PARAMETERS, BUFFERS, GRADIENTS, STATE, SAVED, OTHERS)
    ]
    not_ours = card.capacity - card.context - max(card.usable, card.reserved)
    parts += [
        UsedPart(name="held by C++ alone (buffers of operations)", bytes=max(0, card.allocated - known)),
        UsedPart(name="reserved and not in use", bytes=max(0, card.reserved - card.allocated)),
        UsedPart(name="context" if card.simulated else "context and other processes", bytes=card.context),
        UsedPart(name="free", bytes=max(0, card.usable - card.reserved)),
        UsedPart(name="more than this process may use", bytes=max(0, not_ours)),
    ]
    return tuple(part for part in parts if part.bytes)


def _model(live: LiveMemory, root: Root, name: str) -> LiveModel:
    own = {id(parameter) for parameter in root.module.parameters()}
    gradients = [p.grad for p in root.module.parameters() if p.grad is not None]
    state = 0
    for optimizer in live.optimizers:
        for parameter, values in optimizer.state.items():
            if id(parameter) in own and isinstance(values, dict):
                state += sum(value.nbytes for value in values.values() if isinstance(value, torch.Tensor))
    return LiveModel(
        name=name,
        kind=type(root.module).__name__,
        training=root.module.training,
        bytes_here=root.here,
        bytes_in_all=root.in_all,
        dtype=root.dtype,
        gradient_bytes=sum(gradient.nbytes for gradient in gradients),
        optimizer_bytes=state,
    )


def _tensor(live: LiveMemory, piece: Piece, holders: dict[int, tuple[Holder, ...]]) -> LiveTensor:
    tensor = piece.largest
    return LiveTensor(
        bytes=piece.bytes,
        shape=tuple(int(size) for size in tensor.shape),
        dtype=str(tensor.dtype).removeprefix("torch."),
        device=live.card.spoken,
        part=piece.part,
        name=piece.name,
        made_at=code_line(*piece.line) if piece.line else None,
        held_by=tuple(str(holder) for holder in holders.get(id(tensor), ()) if holder.kind != "nothing")[:3],
    )


def _lines(pieces: list[Piece]) -> tuple[tuple[CodeLine, int], ...]:
    sums: Counter[tuple[str, int, str]] = Counter()
    for piece in pieces:
        if piece.line is not None:
            sums[piece.line] += piece.bytes
    return tuple((code_line(*line), size) for line, size in sums.most_common(10))
