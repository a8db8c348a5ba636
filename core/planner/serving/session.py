"""One run of a model that generates, without values: the prompts, then tokens with a cache of a given length. In the
planner's process.

The cache has its room from the start. Of decoding two steps are run, the first and the last; what lies between them
grows evenly, token by token."""

from __future__ import annotations

import gc
import inspect
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from devexplorer.core.base import BadInput
from devexplorer.core.devices.profiles import Profile, load_profiles
from devexplorer.core.models import clone_model, error_text, no_collections, parameters_and_buffers
from devexplorer.core.planner.run import Measuring, uncompiled
from devexplorer.core.planner.serving import kernels
from devexplorer.core.planner.serving.kernels import Latents, compute_in_eight_bits, one_kernel
from devexplorer.core.planner.serving.storage import LayerCache
from devexplorer.core.planner.serving.tensor_parallel import Exchange, TensorParallelSplit
from devexplorer.core.planner.subject import equal_shares
from devexplorer.core.planner.trace import Numbers, Trace
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


@dataclass
class Depth:
    """Which layers of a model were taken out."""

    path: str = ""
    """Of the list of layers; empty: nothing was taken out."""
    times: dict[str, int] = field(default_factory=dict)
    """Name of a layer that runs -> for how many it stands."""
    like: tuple[int, ...] = ()
    """For each layer, the number of the one that runs in its place."""
    dropped: tuple[Tensor, ...] = ()
    """Parameters and buffers that only layers that do not run have."""
    _all: dict[str, Any] = field(default_factory=dict)

    def restore(self, model: nn.Module) -> Depth:
        """Put every layer back."""
        if self.path:
            model.get_submodule(self.path)._modules = self._all
        return Depth()


def without_repeats(model: nn.Module, cache_layers: list[Any]) -> Depth:
    """Take out all but the first two of each kind; `cache_layers` are those of a cache of the model."""
    path, layers = next(
        (
            (path, module)
            for path, module in model.named_modules()
            if isinstance(module, nn.ModuleList) and len(module) == len(cache_layers) > 1
        ),
        ("", nn.ModuleList()),
    )
    kinds: dict[Hashable, list[int]] = {}
    for index, (layer, cached) in enumerate(zip(layers, cache_layers, strict=bool(path))):
        kinds.setdefault(_signature(layer, cached), []).append(index)
    if all(len(same) <= RUN for same in kinds.values()):
        return Depth()
    like = {index: index if index in same[:RUN] else same[RUN - 1] for same in kinds.values() for index in same}
    before, everything = parameters_and_buffers(model), layers._modules
    layers._modules = {str(index): everything[str(index)] for index in sorted(set(like.values()))}
    kept = set(map(id, parameters_and_buffers(model)))
    return Depth(
        path,
        {name: list(like.values()).count(int(name)) for name in layers._modules},
        tuple(like[index] for index in sorted(like)),
        tuple(tensor for tensor in before if id(tensor) not in kept),
        everything,
    )


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
NO_NUMBERS: Numbers = np.empty(0, dtype=np.int64)


def any_profile() -> Profile:
    """Sessions are run on a measuring GPU, which has no end: one for all cards, with flash attention."""
    return next(item for item in load_profiles().values() if has_flash(item.compute_capability))


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
    """Runs sessions of one model."""

    def __init__(self, served: ServedModel, *, every_layer: bool = False) -> None:
        """Finds out what its cache is like. Raises `BadInput` where it has none, or cannot run."""
        kernels.install()
        self.served = served
        self.notes: dict[str, None] = {}
        self.layers: tuple[LayerCache, ...] = ()
        """What each layer keeps."""
        self.heads: tuple[Heads, ...] = ()
        self.cache_name, self.slices_logits = _names_of(served.model)
        self._own = served.config._attn_implementation
        self._way = DIRECT
        self.depth = (
            Depth() if every_layer else without_repeats(served.model, PlacedCache(served.model, 1).cache.layers)
        )
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
        profile = any_profile()
        for self._way in (DIRECT, CAST, OWN_ATTENTION):
            try:
                self.run(profile, batch=2, prompt=3, generate=3)
            except (BadInput, ImportError):
                raise
            except Exception as error:
                failure = failure or error
                continue
            if self._way == OWN_ATTENTION:
                self.notes[NOTE_OWN_ATTENTION] = None
            return
        if self.depth.path:
            self.depth = self.depth.restore(self.served.model)
            self._find_out()
            return
        assert failure is not None
        raise BadInput(f"'{self.served.title}' cannot generate without values: {error_text(failure)}") from failure

    def run(
        self, profile: Profile, *, batch: int, prompt: int, generate: int, eight_bit: bool = False, whole: bool = True
    ) -> ServingSession:
        """Run a session. `eight_bit`: the card multiplies numbers of 8 bits. Without `whole` only what counts for
        memory."""
        cards = Measuring((profile,))
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
            lengths: Iterable[int] = ()
            if generate > 1:
                lengths = dict.fromkeys((prompt, last) if whole else (last,))
            decode = [run.tokens(1, length) for length in lengths]
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
        layers, heads, like = cache.layers(batch), cache.heads(), self.depth.like
        self.layers = tuple(layers[number] for number in like) if like else layers
        self.heads = tuple(heads[number] for number in like) if like else heads
        if not any(layer.parts or layer.state_bytes for layer in self.layers):
            raise BadInput(f"'{self.served.title}' keeps no cache, so how it generates is not planned for")

    @contextmanager
    def _implementation(self) -> Iterator[None]:
        config = self.served.config
        config._attn_implementation = self._own if self._way == OWN_ATTENTION else kernels.NAME
        try:
            with equal_shares(self.served.model):
                yield
        finally:
            config._attn_implementation = self._own


class _SessionRun:
    """The steps of one session."""

    def __init__(self, runner: SessionRunner, cards: Measuring, batch: int, length: int, eight_bit: bool) -> None:
        served, device = runner.served, cards.devices[0]
        self._runner, self._cards, self._batch, self._device = runner, cards, batch, device
        dropped = [meta_empty(tensor.shape, tensor.dtype, device) for tensor in runner.depth.dropped]
        self._model = clone_model(served.model, lambda tensor: meta_empty(tensor.shape, tensor.dtype, device)).eval()
        cards.label(self._model.parameters(), "parameters")
        cards.label(self._model.buffers(), "buffers")
        self._dropped = dropped
        for tensor, held in zip(runner.depth.dropped, dropped, strict=True):
            cards.label([held], "parameters" if isinstance(tensor, nn.Parameter) else "buffers")
        compute_in_eight_bits(self._model, eight_bit)
        self._exchanges: list[Exchange] = []
        served.split.watch(self._model, self._exchanges)
        self._repeats: Counter[Any] = Counter()
        self._calls: Counter[Any] = Counter()
        self._more: Counter[Exchange] = Counter()
        self._watch_layers()
        self._latents = Latents(self._model, served.dtype) if runner.one_kernel else None
        self.cache = PlacedCache(self._model, length, served.kv_dtype, block=served.block, direct=runner.direct)
        if runner.heads:
            self.cache.make_room(batch, runner.heads, served.dtype, device)
            for number, kept in enumerate(runner.depth.like):
                if kept != number:
                    self.cache.make_states(batch, number, runner.layers[number], device)

    def _watch_layers(self) -> None:
        """Add the work of each layer that stands for others, as often as there are others."""
        depth = self._runner.depth
        for name, times in depth.times.items():
            if times > 1:
                layer = self._model.get_submodule(f"{depth.path}.{name}")
                began: list[tuple[Counter[Any], ...]] = []
                layer.register_forward_pre_hook(lambda *_, began=began: began.append(self._so_far()))
                layer.register_forward_hook(lambda *_, began=began, more=times - 1: self._repeat(began.pop(), more))

    def _so_far(self) -> tuple[Counter[Any], ...]:
        ran = self._cards.traces()[0]
        return Counter(ran.work), Counter(ran.calls), Counter(self._exchanges)

    def _repeat(self, before: tuple[Counter[Any], ...], more: int) -> None:
        totals = self._repeats, self._calls, self._more
        for total, now, then in zip(totals, self._so_far(), before, strict=True):
            for item, times in (now - then).items():
                total[item] += more * times

    def tokens(self, count: int, before: int) -> Phase:
        """So many tokens of each sequence, with so many before them."""
        self.cache.jump(before)
        for noted in (self._exchanges, self._repeats, self._calls, self._more):
            noted.clear()
        if self._latents is not None:
            self._latents.absorb(count == 1)
        self._cards.step_begins()
        options: dict[str, Any] = {self._runner.cache_name: self.cache.cache, "use_cache": True}
        if self._runner.slices_logits:
            options["logits_to_keep"] = 1
        with torch.no_grad():
            ids: Tensor = meta_empty((self._batch, count), torch.int64, self._device)
            self._model(input_ids=ids, **options).logits[:, -1].argmax(-1)
        ran = self._cards.traces()[0]
        work, calls = Counter(ran.work) + self._repeats, Counter(ran.calls) + self._calls
        trace = replace(ran, sizes=NO_NUMBERS, events=NO_NUMBERS, kinds={}, work=work, calls=calls)
        return Phase(trace, Counter(self._exchanges) + self._more)


def _names_of(model: nn.Module) -> tuple[str, bool]:
    """How forward calls the cache, and whether it can be asked for the last logits only."""
    parameters = inspect.signature(model.forward).parameters
    name = next((name for name in ("past_key_values", "cache_params") if name in parameters), None)
    if name is None:
        raise BadInput(f"the forward of {type(model).__name__} takes no cache, so how it generates is not planned for")
    return name, "logits_to_keep" in parameters


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
        self.room = tuple(
            torch.empty((batch, count, tokens, width), dtype=dtype, device=device) for count, width in heads
        )
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
