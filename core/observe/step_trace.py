"""A step of a running script as a trace of the planner: what is in the memory when backward begins, what backward then
takes and gives back by the graph that it will follow, and what the optimizer takes beside that. The script's own
thread, as in `step_memory`.
"""

from __future__ import annotations

import math
import os
import sys
from collections import Counter
from typing import Any

import numpy as np
import torch

from devexplorer.core.observe.graph import gradient
from devexplorer.core.observe.live_memory import (
    BUFFERS,
    GRADIENTS,
    OTHERS,
    PARAMETERS,
    SAVED,
    STATE,
    LiveMemory,
    Piece,
    sequence,
)
from devexplorer.core.observe.memory import bytes_here
from devexplorer.core.observe.observer import Observation
from devexplorer.core.observe.out_of_memory import COLLECT_SECONDS
from devexplorer.core.observe.step_memory import cards_in_use
from devexplorer.core.planner.observed import ObservedDevice, ObservedStep
from devexplorer.core.planner.trace import Trace

KINDS = {PARAMETERS: "parameters", BUFFERS: "buffers", STATE: "optimizer", GRADIENTS: "gradients"}
"""As the planner calls them; the rest are activations."""
PASSED_ON = frozenset(
    f"{name}Backward{number}"
    for name in (
        "T", "View", "UnsafeView", "ReshapeAlias", "Transpose", "Permute", "Squeeze", "Unsqueeze", "Alias", "Add",
        "Clone",
    )
    for number in (0, 1)
)  # fmt: skip
"""Operations whose gradient is the one that they get, in another shape perhaps: it takes no memory."""
TOGETHER = {"SGD": 0, "Adadelta": 2}
"""Temporary tensors for each parameter while an optimizer steps over all of them at once (`foreach`); others have one,
beside the copies of gradients that a weight decay is added to."""
ONE_BY_ONE = {"SGD": 0, "Adam": 2, "AdamW": 2, "NAdam": 2, "RAdam": 2}
"""While it steps over one after the other."""


def observed_step(observation: Observation) -> ObservedStep:
    """The step whose backward begins now."""
    devices: list[ObservedDevice] = []
    optimizers: dict[str, None] = {}
    parameters = state = 0
    convolutions = stopped = False
    with torch._C.DisableTorchFunction(), torch.no_grad():
        for card in cards_in_use():
            live = LiveMemory(card, 0, COLLECT_SECONDS)
            try:
                step = StepTracer(live, observation.batch)
                devices.append(step.device())
                optimizers |= {type(one).__name__: None for one in live.optimizers if one.param_groups}
                parameters += sum(piece.largest.numel() for piece in live.pieces.values() if piece.part == PARAMETERS)
                state += live.bytes_of(STATE)
                stopped = stopped or live.stopped
                convolutions = convolutions or any("onvolution" in node.name() for node in live.graphs.nodes)
            finally:
                live.forget()
    return ObservedStep(
        script=os.path.basename(observation.settings.script),
        optimizer=" and ".join(optimizers) or "no optimizer",
        batch=observation.batch,
        parameters=parameters,
        convolutions=convolutions,
        stopped=stopped,
        lacks_state=not state and any(name != "SGD" for name in optimizers),
        devices=devices,
    )


class StepTracer:
    """What one device takes and gives back, from the moment on at which backward begins. `batch`: 0 where it is not
    known."""

    def __init__(self, live: LiveMemory, batch: int) -> None:
        self._live, self._batch = live, batch
        self._sizes: list[int] = []
        self._events: list[int] = []
        self._kinds: dict[int, str] = {}
        self._growing: set[int] = set()
        self._holders: Counter[int] = Counter()
        """Number of a block -> how many hold it."""
        self._saved: dict[int, int] = {}
        """Storage that is saved for backward -> number of its block."""
        self._known: dict[int, int] = {}
        """`id` of a parameter -> bytes of its gradient."""
        self._hold()
        self._backward()

    def device(self) -> ObservedDevice:
        """What came of it."""
        card, known = self._live.card, sum(piece.bytes for piece in self._live.pieces.values())
        return ObservedDevice(
            device=card.spoken,
            name=card.name,
            simulated=card.simulated,
            trace=self._with_optimizers(on_cards=False),
            on_cards=self._with_optimizers(on_cards=True),
            growing=sorted(self._growing),
            beside_bytes=max(0, card.allocated - known),
        )

    def _take(self, size: int, kind: str = "", *, grows: bool = False) -> int:
        number = len(self._sizes)
        self._sizes.append(size)
        self._events.append(number)
        self._holders[number] = 1
        if kind:
            self._kinds[number] = kind
        if grows:
            self._growing.add(number)
        return number

    def _give(self, number: int) -> None:
        self._holders[number] -= 1
        if not self._holders[number]:
            self._events.append(~number)

    # what is there

    def _hold(self) -> None:
        for part in (*KINDS, OTHERS, SAVED):
            for piece in self._live.pieces.values():
                if piece.part != part:
                    continue
                number = self._take(piece.bytes, KINDS.get(part, ""), grows=self._grows(piece))
                if part == SAVED:
                    self._saved[piece.key] = number

    def _grows(self, piece: Piece) -> bool:
        """What is saved does, and of the rest what has the batch in its first dimension."""
        if piece.part != OTHERS or not self._batch:
            return piece.part == SAVED
        shape = piece.largest.shape
        return bool(shape) and shape[0] % self._batch == 0

    # backward, latest operation first

    def _backward(self) -> None:
        graphs = self._live.graphs
        uses = Counter(key for saved in graphs.saved for key in {key for key, _ in saved} if key in self._saved)
        inner = [number for number in range(len(graphs.nodes)) if graphs.variable[number] is None]
        inner.sort(key=lambda number: -sequence(graphs.nodes[number]))
        arrived: dict[int, dict[int, int]] = {}
        """Number of a node -> its gradients by their places there."""
        for number in inner:
            node = graphs.nodes[number]
            came = arrived.pop(number, None)
            if came is None:  # a loss
                came = {0: self._take(self._gradient_bytes(node, 0), grows=True)}
            passed = next(iter(came.values())) if node.name() in PASSED_ON else None
            for below, place in node.next_functions:
                child = graphs.number.get(below)
                if child is None:
                    continue
                variable = graphs.variable[child]
                if variable is None:
                    self._arrive(arrived.setdefault(child, {}), place, self._gradient_bytes(below, place), passed)
                else:
                    self._keep(variable, passed)
            for block in came.values():
                self._give(block)
            for key in {key for key, _ in graphs.saved[number]}:
                if key in self._saved:
                    uses[key] -= 1
                    if not uses[key]:
                        self._give(self._saved[key])

    def _arrive(self, there: dict[int, int], place: int, size: int, passed: int | None) -> None:
        """A gradient for an operation; one that is there already is added to."""
        if place in there:
            if passed is None:
                self._give(self._take(size, grows=True))
        elif passed is not None and self._sizes[passed] == size:
            self._holders[passed] += 1
            there[place] = passed
        else:
            there[place] = self._take(size, grows=True)

    def _keep(self, variable: torch.Tensor, passed: int | None) -> None:
        """The gradient of a leaf; one that is there already is added to."""
        if variable.device != self._live.card.device:
            return
        size = bytes_here(variable)
        if id(variable) in self._known or gradient(variable) is not None:
            if passed is None:
                self._give(self._take(size))
        elif passed is not None and self._sizes[passed] == size:
            self._holders[passed] += 1
            self._kinds[passed] = "gradients"
            self._growing.discard(passed)
        else:
            self._take(size, "gradients")
        self._known[id(variable)] = size

    def _gradient_bytes(self, node: Any, place: int) -> int:
        """Of the gradient that an operation gets there; 0 on another device, and where torch does not say."""
        try:
            about = node._input_metadata[place]
            if about.device != self._live.card.device:
                return 0
            return math.prod(int(length) for length in about.shape) * int(about.dtype.itemsize)
        except (AttributeError, IndexError, RuntimeError, TypeError, ValueError):
            return 0

    # the optimizer

    def _with_optimizers(self, *, on_cards: bool) -> Trace:
        """What was taken so far, and then by each optimizer: as it steps here, or as it would on cards."""
        sizes, events = list(self._sizes), list(self._events)
        for optimizer in self._live.optimizers:
            for group in optimizer.param_groups:
                numbers = range(len(sizes), len(sizes) + len(self._temporary(optimizer, group, on_cards)))
                sizes += self._temporary(optimizer, group, on_cards)
                events += numbers
                events += [~number for number in numbers]
        return Trace(
            sizes=np.array(sizes, dtype=np.int64),
            events=np.array(events, dtype=np.int64),
            kinds=self._kinds,
            work={},
            calls={},
            copies={},
        )

    def _temporary(self, optimizer: Any, group: dict[str, Any], on_cards: bool) -> list[int]:
        """Bytes of the temporary tensors that are there at one time."""
        stepped = [parameter for parameter in group["params"] if id(parameter) in self._known]
        sizes = [self._known[id(parameter)] for parameter in stepped]
        if group.get("fused") or not sizes:
            return []
        name, together = type(optimizer).__name__, group.get("foreach")
        if together is None:
            together = on_cards or _steps_together(stepped)
        if together:
            times = TOGETHER.get(name, 1)
        else:
            times, sizes = ONE_BY_ONE.get(name, 1), [max(sizes)]
        decoupled = name == "AdamW" or group.get("decoupled_weight_decay")
        if group.get("weight_decay") and not decoupled:  # added to a copy of the gradients
            times += 1
        return sizes * times


def _steps_together(parameters: list[torch.Tensor]) -> bool:
    """Whether torch would step over all of these at once unless it is told: on CUDA it does."""
    choose = getattr(sys.modules[torch.optim.Optimizer.__module__], "_default_to_fused_or_foreach", None)
    return choose is None or bool(choose(parameters, False, False)[1])
