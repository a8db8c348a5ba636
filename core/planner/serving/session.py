"""One run of a model that generates, without values: the prompts, then tokens with a cache of a given length. In the
planner's process.

The cache has its room from the start. Of decoding two steps are run, the first and the last; what lies between them
grows evenly, token by token."""

from __future__ import annotations

import gc
import inspect
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from devexplorer.core.base import BadInput
from devexplorer.core.devices.profiles import load_profiles
from devexplorer.core.models import clone_model, error_text, no_collections, parameters_and_buffers
from devexplorer.core.planner.run import Measuring, uncompiled
from devexplorer.core.planner.serving import kernels
from devexplorer.core.planner.serving.kernels import Latents, compute_in_eight_bits, one_kernel
from devexplorer.core.planner.serving.storage import LayerCache
from devexplorer.core.planner.serving.tensor_parallel import Exchange, TensorParallelSplit
from devexplorer.core.planner.subject import equal_shares
from devexplorer.core.planner.trace import NO_BLOCKS, Numbers, Trace
from devexplorer.core.virtual.backend import meta_empty
from devexplorer.core.virtual.operators.kernels import has_flash
from devexplorer.core.virtual.operators.work import module_calls

# Layers that are alike: two of each kind run, and the second stands for all others. In the planner's process.
# A model of 80 equal layers takes as long as one of two so. In inference nothing of a layer but its output and its
# cache outlives it, so the peak of memory does not depend on how many run; the parameters and the cache of the others
# are held all the same.

SIMPLE = (bool, int, float, str, type(None))
RUN = 2
"""Of each kind."""
OWN = ("layer_idx", "layer_id", "layer_index")
"""Attributes that differ between layers that are alike."""


@dataclass(frozen=True)
class Depth:
    """Which layers of a model were taken out."""

    path: str = ""
    """Of the list of layers; empty: nothing was taken out."""
    like: tuple[int, ...] = ()
    """For each layer, the number of the one that runs in its place."""
    dropped: tuple[Tensor, ...] = ()
    """Parameters and buffers that only layers that do not run have."""
    every: dict[str, Any] = field(default_factory=dict)
    """All layers by name."""


def without_repeats(model: nn.Module, cache_layers: Sequence[Any]) -> Depth:
    """Take out all but the first two of each kind; `cache_layers` are those of a cache of the model."""
    path, layers = "", nn.ModuleList()
    for name, module in model.named_modules():
        if isinstance(module, nn.ModuleList) and len(module) == len(cache_layers) > 1:
            path, layers = name, module
            break
    kinds: defaultdict[Hashable, list[int]] = defaultdict(list)
    like = []
    for index, (layer, cached) in enumerate(zip(layers, cache_layers, strict=bool(path))):
        same = kinds[_signature(layer, cached)]
        if len(same) < RUN:
            same.append(index)
        like.append(same[-1])
    running = sorted(set(like))
    if len(running) == len(like):
        return Depth()
    before, every = parameters_and_buffers(model), layers._modules
    layers._modules = {str(index): every[str(index)] for index in running}
    kept = set(map(id, parameters_and_buffers(model)))
    return Depth(path, tuple(like), tuple(tensor for tensor in before if id(tensor) not in kept), every)


def _signature(layer: nn.Module, cached: Any) -> Hashable:
    """What decides which operations it runs: classes, plain attributes, shapes, and what its cache keeps."""
    modules = tuple(
        (path, type(module).__name__, _plain(vars(module)))
        for path, module in layer.named_modules(remove_duplicate=False)
    )
    tensors = tuple(
        (path, tuple(tensor.shape), str(tensor.dtype), str(tensor.device))
        for named in (layer.named_parameters, layer.named_buffers)
        for path, tensor in named(remove_duplicate=False)
    )
    return modules, tensors, type(cached).__name__, getattr(cached, "sliding_window", None)


def _plain(attributes: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple((name, value) for name, value in attributes.items() if name not in OWN and isinstance(value, SIMPLE))


NOTE_OWN_ATTENTION = (
    "Its attention ran as transformers' own code, with masks and copies, because a single kernel in its place failed."
)
DIRECT, CAST, OWN_ATTENTION = range(3)
"""Ways to attend: one kernel that reads the cache in its dtype, one that reads a cast of it, the model's own code."""


@dataclass(frozen=True)
class ServedModel:
    """A model on `meta`, as one card holds it."""

    title: str
    model: nn.Module
    split: TensorParallelSplit
    dtype: torch.dtype
    """Of activations."""
    kv_dtype: torch.dtype | None = None
    block: int | None = None
    chunk: int | None = None

    @property
    def config(self) -> Any:
        """Of transformers."""
        return self.model.config


@dataclass(frozen=True)
class Phase:
    """One pass through the model."""

    trace: Trace
    """Its work; nothing about memory."""
    exchanges: Counter[Exchange]


@dataclass(frozen=True)
class ServingSession:
    """What was run."""

    prefill: tuple[Phase, ...]
    """The first piece of the prompts, and the last where it is another one."""
    pieces: float
    """How many pieces of that size the prompts are."""
    decode: tuple[Phase, ...]
    """The first token after the prompt's own, and the last one."""
    trace: Trace
    """All of it, for its memory."""
    cache_blocks: Numbers
    """Numbers of the blocks of the cache in that trace, in the order of `CacheLayout.sizes`."""


class SessionRunner:
    """Runs sessions of one model, on a measuring GPU, which has no end: one for all cards, with flash attention."""

    def __init__(self, served: ServedModel, *, every_layer: bool = False) -> None:
        """Finds out what its cache is like. Raises `BadInput` where it has none, or cannot run."""
        kernels.install()
        self.served = served
        self.notes: dict[str, None] = {}
        self.layers: tuple[LayerCache, ...] = ()
        """What each layer keeps."""
        self.heads: tuple[Heads, ...] = ()
        parameters = inspect.signature(served.model.forward).parameters
        names = [name for name in ("past_key_values", "cache_params") if name in parameters]
        if not names:
            raise BadInput(
                f"the forward of {type(served.model).__name__} takes no cache, so how it generates is not planned for"
            )
        self.cache_name = names[0]
        self.slices_logits = "logits_to_keep" in parameters
        """Whether it can be asked for the last logits only."""
        self._own = served.config._attn_implementation
        self._way = DIRECT
        self._profile = next(item for item in load_profiles().values() if has_flash(item.compute_capability))
        self.depth = Depth()
        if not every_layer:
            self.depth = without_repeats(served.model, PlacedCache(served.model, 1).cache.layers)
        self._find_out()

    @property
    def direct(self) -> bool:
        """Whether attention reads the cache in its dtype."""
        return self._way == DIRECT

    @property
    def one_kernel(self) -> bool:
        """Whether attention is one kernel."""
        return self._way != OWN_ATTENTION

    def _find_out(self) -> None:
        """The first way to attend that works; where none does, with every layer."""
        failure: Exception | None = None
        for self._way in (DIRECT, CAST, OWN_ATTENTION):
            try:
                self.run(batch=2, prompt=3, generate=3)
            except (BadInput, ImportError):
                raise
            except Exception as error:
                failure = failure or error
                continue
            if self._way == OWN_ATTENTION:
                self.notes[NOTE_OWN_ATTENTION] = None
            return
        if self.depth.path:
            self.served.model.get_submodule(self.depth.path)._modules = self.depth.every
            self.depth = Depth()
            self._find_out()
            return
        assert failure is not None
        raise BadInput(f"'{self.served.title}' cannot generate without values: {error_text(failure)}") from failure

    def run(
        self, *, batch: int, prompt: int, generate: int, eight_bit: bool = False, whole: bool = True
    ) -> ServingSession:
        """Run a session. `eight_bit`: the card multiplies numbers of 8 bits. Without `whole` only what counts for
        memory."""
        cards = Measuring((self._profile,))
        gc.collect()
        with (
            no_collections(),
            uncompiled(),
            module_calls(cards.module_called),
            self._implementation(),
            one_kernel(self.served.model),
        ):
            run = _SessionRun(self, cards, batch, prompt + generate, eight_bit)
            chunk = min(prompt, self.served.chunk or prompt)
            prefill = [run.tokens(chunk, 0)]
            if chunk < prompt:
                prefill.append(run.tokens(chunk, prompt - chunk))
            last = prompt + generate - 2
            decode = []
            if generate > 1:
                if whole and last > prompt:
                    decode.append(run.tokens(1, prompt))
                decode.append(run.tokens(1, last))
            if not self.layers:
                self._learn(run.cache, batch)
            held = list(run.cache.tensors())
            cards.label(held, "buffers")
            numbers = np.array([cards.block_number(tensor) for tensor in held], dtype=np.int64)
            cards.step_ends()
            trace = cards.traces()[0]
            del run, held
        return ServingSession(tuple(prefill), prompt / chunk, tuple(decode), trace, numbers)

    def _learn(self, cache: PlacedCache, batch: int) -> None:
        layers, heads = cache.layers(batch), cache.heads()
        like = self.depth.like or range(len(layers))
        self.layers, self.heads = tuple(layers[one] for one in like), tuple(heads[one] for one in like)
        if not any(layer.parts or layer.state_bytes for layer in self.layers):
            raise BadInput(f"'{self.served.title}' keeps no cache, so how it generates is not planned for")

    @contextmanager
    def _implementation(self) -> Iterator[None]:
        config = self.served.config
        config._attn_implementation = kernels.NAME if self.one_kernel else self._own
        try:
            with equal_shares(self.served.model):
                yield
        finally:
            config._attn_implementation = self._own


Noted = tuple[Counter[Any], Counter[Any], Counter[Any]]
"""Kernels (`Work`), calls of the host (`HostCall`) and exchanges, and how often each."""


class _SessionRun:
    """The steps of one session."""

    def __init__(self, runner: SessionRunner, cards: Measuring, batch: int, length: int, eight_bit: bool) -> None:
        served, depth, device = runner.served, runner.depth, cards.devices[0]
        self._runner, self._cards, self._batch = runner, cards, batch

        def placed(tensor: Tensor) -> Tensor:
            return meta_empty(tensor.shape, tensor.dtype, device)

        self._dropped = list(map(placed, depth.dropped))
        self._model = clone_model(served.model, placed).eval()
        cards.label(self._model.parameters(), "parameters")
        cards.label(self._model.buffers(), "buffers")
        for tensor, held in zip(depth.dropped, self._dropped, strict=True):
            cards.label([held], "parameters" if isinstance(tensor, nn.Parameter) else "buffers")
        compute_in_eight_bits(self._model, eight_bit)
        self._exchanges: list[Exchange] = []
        served.split.watch(self._model, self._exchanges)
        self._more: Noted = Counter(), Counter(), Counter()
        """What layers that do not run would add."""
        for number, times in Counter(depth.like).items():
            if times > 1:
                self._watch(self._model.get_submodule(f"{depth.path}.{number}"), times - 1)
        self._latents = Latents(self._model, served.dtype) if runner.one_kernel else None
        self.cache = PlacedCache(self._model, length, served.kv_dtype, block=served.block, direct=runner.direct)
        if runner.heads:
            self.cache.make_room(batch, runner.heads, served.dtype, device)
            for number, kept in enumerate(depth.like):
                if kept != number:
                    self.cache.make_states(batch, number, runner.layers[number], device)

    def _watch(self, layer: nn.Module, others: int) -> None:
        """Add the work of a layer that stands for others, as often as there are others."""
        began: list[Noted] = []

        def ended(*_: Any) -> None:
            for total, now, before in zip(self._more, self._so_far(), began.pop(), strict=True):
                for item, times in (now - before).items():
                    total[item] += others * times

        layer.register_forward_pre_hook(lambda *_: began.append(self._so_far()))
        layer.register_forward_hook(ended)

    def _so_far(self) -> Noted:
        ran = self._cards.traces()[0]
        return Counter(ran.work), Counter(ran.calls), Counter(self._exchanges)

    def tokens(self, count: int, before: int) -> Phase:
        """So many tokens of each sequence, with so many before them."""
        self.cache.jump(before)
        self._exchanges.clear()
        self._more = Counter(), Counter(), Counter()
        if self._latents is not None:
            self._latents.absorb(count == 1)
        self._cards.step_begins()
        options: dict[str, Any] = {self._runner.cache_name: self.cache.cache, "use_cache": True}
        if self._runner.slices_logits:
            options["logits_to_keep"] = 1
        with torch.no_grad():
            ids = meta_empty((self._batch, count), torch.int64, self._cards.devices[0])
            self._model(input_ids=ids, **options).logits[:, -1].argmax(-1)
        work, calls, exchanges = self._so_far()
        trace = replace(
            self._cards.traces()[0],
            sizes=NO_BLOCKS,
            events=NO_BLOCKS,
            kinds={},
            work=work + self._more[0],
            calls=calls + self._more[1],
        )
        return Phase(trace, exchanges + self._more[2])


# The cache of transformers in which attention layers write in place, into room for the final length.

Heads = tuple[tuple[int, int], ...]
"""Of keys and of values: how many, and their width."""


class PlacedLayer:
    """Room for the keys and values of one layer; takes over the `update` of a layer of transformers."""

    def __init__(self, layer: Any, cache: PlacedCache) -> None:
        self._layer, self._cache = layer, cache
        self.window: int | None = layer.sliding_window if layer.is_sliding else None
        self.seen = 0
        """Tokens before the next one."""
        self.room: tuple[Tensor, ...] = ()
        """For keys and for values; empty where another layer has them, or before the first token."""
        layer.update, layer.get_seq_length = self.update, lambda: self.seen

    @property
    def heads(self) -> Heads:
        """Heads of keys and of values, and the width of each."""
        return tuple((room.shape[1], room.shape[3]) for room in self.room)

    def make_room(self, batch: int, heads: Heads, dtype: torch.dtype, device: str | torch.device) -> None:
        """For everything that it will hold."""
        tokens = LayerCache((1,), self.window).tokens(self._cache.length, self._cache.block)
        shapes = [(batch, count, tokens, width) for count, width in heads]
        self.room = tuple(torch.empty(shape, dtype=dtype, device=device) for shape in shapes)
        self._layer.is_initialized = True

    def jump(self, tokens: int) -> None:
        """Go on as if there were so many tokens in it."""
        self.seen = tokens
        if hasattr(self._layer, "cumulative_length"):
            self._layer.cumulative_length = tokens

    def update(self, keys: Tensor, values: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Write them, and return everything that is attended to."""
        if not self.room:
            heads = tuple((new.shape[1], new.shape[3]) for new in (keys, values))
            self.make_room(keys.shape[0], heads, self._cache.dtype or keys.dtype, keys.device)
        answer = tuple(self._with(room, new) for room, new in zip(self.room, (keys, values), strict=True))
        self.jump(self.seen + keys.shape[-2])
        return answer[0], answer[1]

    def _with(self, room: Tensor, new: Tensor) -> Tensor:
        count = new.shape[2]
        written = min(count, room.shape[2])
        begin = min(self.seen, room.shape[2] - written)
        room[:, :, begin : begin + written].copy_(new[:, :, count - written :])
        if not self.seen:
            return new
        before = self.seen if self.window is None else min(self.seen, self.window - 1)
        if self.window is not None and count > 1:  # the window of the first of them and that of the last
            return torch.cat([room[:, :, :before].to(new.dtype), new], dim=2)
        held = room[:, :, : before + count]
        return held if self._cache.direct else held.to(new.dtype)


class PlacedCache:
    """A cache for one model. `cache` is what its forward gets."""

    def __init__(
        self,
        model: nn.Module,
        length: int,
        dtype: torch.dtype | None = None,
        *,
        block: int | None = None,
        direct: bool = True,
    ) -> None:
        """`length`: tokens at the end. `direct`: attention reads the cache's dtype; otherwise what it reads is cast
        before. Raises `BadInput` for a kind of layer that is not planned for."""
        from transformers.cache_utils import DummyLayer, DynamicCache, DynamicLayer, DynamicSlidingWindowLayer

        self.length, self.dtype, self.block, self.direct = length, dtype, block, direct
        self.cache = DynamicCache(config=model.config)  # type: ignore[arg-type]
        grow = (DynamicLayer.update, DynamicSlidingWindowLayer.update)
        self._layers: list[tuple[Any, PlacedLayer | None]] = []
        self._states: dict[int, list[Tensor]] = {}
        """Room for the states of layers that do not run, by their number."""
        for layer in self.cache.layers:
            update = getattr(type(layer), "update", None)
            placed = update in grow and not hasattr(layer, "update_indexer")
            if not placed and not isinstance(layer, DummyLayer) and update is not None:
                raise BadInput(f"a cache with a {type(layer).__name__} is not planned for")
            self._layers.append((layer, PlacedLayer(layer, self) if placed else None))

    def jump(self, tokens: int) -> None:
        """Go on as if there were so many tokens in it."""
        for _, placed in self._layers:
            if placed is not None:
                placed.jump(tokens)

    def heads(self) -> tuple[Heads, ...]:
        """Of each layer, once tokens went through; empty for one that keeps none."""
        return tuple(() if placed is None else placed.heads for _, placed in self._layers)

    def make_room(self, batch: int, heads: Sequence[Heads], dtype: torch.dtype, device: str) -> None:
        """For the whole request, before its first token, as a serving engine does. States get theirs from the layers
        that run; `make_states` is for the others."""
        for (_, placed), some in zip(self._layers, heads, strict=True):
            if placed is not None and some:
                placed.make_room(batch, some, self.dtype or dtype, device)

    def make_states(self, batch: int, number: int, layer: LayerCache, device: str) -> None:
        """Room for the states of a layer that does not run."""
        self._states[number] = [
            torch.empty(batch * nbytes, dtype=torch.uint8, device=device) for nbytes in layer.state_bytes
        ]

    def layers(self, batch: int) -> tuple[LayerCache, ...]:
        """What each layer keeps of one sequence, once a batch of so many went through."""
        answer = []
        for layer, placed in self._layers:
            heads, window = ((), None) if placed is None else (placed.heads, placed.window)
            states = tuple(state.nbytes // batch for state in _states(layer))
            answer.append(LayerCache(tuple(count * width for count, width in heads), window if heads else None, states))
        return tuple(answer)

    def tensors(self) -> Iterator[Tensor]:
        """Layer by layer, as `LayerCache.sizes` counts them."""
        for number, (layer, placed) in enumerate(self._layers):
            yield from () if placed is None else placed.room
            yield from _states(layer) or self._states.get(number, [])


def _states(layer: Any) -> list[Tensor]:
    """What does not grow with the sequence."""
    held = (getattr(layer, name, None) or {} for name in ("conv_states", "recurrent_states"))
    return [state for states in held for state in states.values() if isinstance(state, Tensor)]
