"""Plans for generating text on every card: memory with the key-value cache, time to the first token, tokens a second,
the largest batch, the longest context; and what these figures rest on, in sentences. In the planner's process."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import cache
from typing import Any, Literal, NamedTuple

import numpy as np

from devexplorer.core.base import Report, bytes_text, count_text, no_report
from devexplorer.core.devices.profiles import Profile
from devexplorer.core.planner import messages
from devexplorer.core.planner.cards import Libraries, Room
from devexplorer.core.planner.messages import CONTEXT, MPS_MEMORY, MPS_SECONDS, as_it_is, calibrated, label
from devexplorer.core.planner.records import (
    LARGEST_BATCH,
    LONGEST_CONTEXT,
    Bound,
    Fit,
    FitBytes,
    FitCard,
    FitReport,
    FitSpec,
    ServingFit,
    ranged,
)
from devexplorer.core.planner.serving.kernels import has_scans, keeps_latents
from devexplorer.core.planner.serving.request import checked, lacks
from devexplorer.core.planner.serving.served import Served, make
from devexplorer.core.planner.serving.session import Phase, ServingSession, SessionRunner
from devexplorer.core.planner.serving.storage import CacheLayout
from devexplorer.core.planner.subject import EQUAL_SHARES, has_experts
from devexplorer.core.planner.trace import (
    PACKED,
    PACKED_FROM,
    BatchScaling,
    context_bytes,
    cublas_bytes,
    fit_scaling,
    step_estimate,
)
from devexplorer.core.planner.trace_cache import runs_convolutions
from devexplorer.core.virtual.device.memory import MIN_BLOCK

CROSS_ATTENTION = ("encoder_attn", "crossattention", "cross_attn")
"""What models of transformers call the attention of a decoder to what an encoder, of text, sound or pictures, found."""
LEFT_OUT = (
    "It is a decoder that attends to the output of an encoder, and it was planned for alone. Left out are the encoder"
    " (its weights and its run), the keys and values of its output that every such layer keeps for each sequence, and"
    " the attention to them; the weights of that attention are counted."
)


def assumptions(spec: FitSpec, made: Served, runner: SessionRunner, devices: Collection[str]) -> list[str]:
    """One sentence each."""
    serving = spec.serving
    assert serving is not None
    weights = f"Weights are {str(made.served.dtype).removeprefix('torch.')}"
    if made.scheme is not None:
        weights = f"Weights are {made.scheme.title}, everything else is {weights.removeprefix('Weights are ')}"
    if made.checkpoint is not None:
        files, size = count_text(made.checkpoint.files, "file"), bytes_text(made.checkpoint.nbytes)
        weights += f": {size} by the headers of {files} of '{made.checkpoint.path}'"
    kept = "the whole sequence" if serving.kv_block is None else f"blocks of {serving.kv_block} tokens"
    sentences = [
        "Nothing ran on a real card: memory is counted by the rules of PyTorch's caching allocator, seconds are"
        " simulated by a roofline.",
        f"{weights}.",
        f"The cache has room for {kept} from the start, and tokens are written in place; transformers' own DynamicCache"
        " would copy it for each token.",
        "All prompts have the same length, and all sequences end together; the first token is there when the whole"
        " batch went through.",
        "Attention is one kernel that reads keys and values as they are kept.",
    ]
    if made.changed:
        sentences.append(as_it_is(made.changed))
    if any(name.rpartition(".")[2] in CROSS_ATTENTION for name, _ in made.served.model.named_modules()):
        sentences.append(LEFT_OUT)
    if "mps" in devices:
        sentences += [MPS_MEMORY, MPS_SECONDS]
    if "cuda" in devices:
        sentences.append(CONTEXT)
    if serving.prefill_chunk is None:
        sentences.append("Each prompt goes through the model as a whole; --prefill-chunk takes less memory.")
    if any(layer.state_bytes for layer in runner.layers):
        sentences.append("States (convolutions, recurrences) keep the dtype that the model gives them.")
    if any(map(keeps_latents, made.served.model.modules())) and runner.one_kernel:
        sentences.append(
            "Latents (MLA) are expanded for prompts; a later token attends to them as they lie, the projections"
            " absorbed, as serving engines do. transformers' own models expand the whole context for each token, which"
            " takes longer."
        )
    if has_scans(made.served.model):
        sentences.append(
            "Scans of state-space layers and updates of their states are one kernel each, as in mamba-ssm; without that"
            " package transformers takes several times as long."
        )
    if has_experts(made.served.model):
        sentences.append(EQUAL_SHARES)
    if serving.tensor_parallel > 1:
        sentences.append(
            f"Layers are split over {count_text(serving.tensor_parallel, 'card')} by transformers' plan for the model,"
            " what it leaves out is on every card; exchanges are rings over the profile's link, and nothing overlaps"
            " them."
        )
    return sentences


class PassSeconds(NamedTuple):
    """Simulated seconds of one pass, or of several together."""

    seconds: float
    low: float
    high: float
    exchanged: float
    """Of them, in which cards exchange results."""
    bound: Bound


def _together(parts: Iterable[tuple[PassSeconds, float]]) -> PassSeconds:
    """So many passes of each; what bounds most of it bounds all."""
    all_of_them = list(parts)
    most, _ = max(all_of_them, key=lambda part: part[0].seconds * part[1])
    seconds, low, high, exchanged = np.sum([times * np.array(one[:4]) for one, times in all_of_them], axis=0).tolist()
    return PassSeconds(seconds, low, high, exchanged, most.bound)


LAW_BATCHES = (8, 12, 20)
"""With fewer tokens each expert may have a single one, for which other operations run."""
LAW_TOKENS = 256
"""Prompts of a law differ by multiples of it, so that states that are computed in chunks grow evenly."""
NO_LAW = "Memory does not grow evenly with the {}, so the largest one was searched for by running; it may be larger."
What = Literal["batch", "context"]


class ServingCalculator:
    """Works out the fits of one request."""

    def __init__(self, made: Served, runner: SessionRunner, spec: FitSpec, has_time: Callable[[], bool]) -> None:
        assert spec.serving is not None
        self._made, self._runner, self._spec, self._serving = made, runner, spec, spec.serving
        self._has_time = has_time
        self._libraries = Libraries(products=True, convolutions=runs_convolutions(made.served.model), train=False)
        kv_dtype = made.served.kv_dtype or made.served.dtype
        self.layout = CacheLayout(runner.layers, kv_dtype.itemsize, self._serving.kv_block)
        self.notes: dict[str, None] = {}
        self._session, self._law, self._most = cache(self._run), cache(self._find_law), cache(self._search)

    def fit(self, profile: Profile) -> Fit:
        """The answer for one card, or for as many of them as share the layers."""
        serving, count, ways = self._serving, self._spec.batch, self._serving.tensor_parallel
        eight = self._eight_bit(profile)
        session = self._session(count, serving.prompt, eight, whole=True)
        card = self._card(session, profile)
        missing = lacks(profile, serving)
        fits = card.fits and missing is None
        found: dict[str, Any] = {}
        known: dict[str, Any] = {}
        if self._spec.search:
            batch = context = Most(0, False)
            if missing is None:
                room = self._room(profile)
                batch, context = self._most("batch", room, eight), self._most("context", room, eight)
            ends = {LONGEST_CONTEXT: "", self._made.positions: "positions"}.get(context.number, "memory")
            found = {"largest_batch": batch.number, "at_least": batch.at_least}
            known = {"largest_context": context.number, "context_limit": ends}
        if fits:
            pieces = session.pieces / len(session.prefill)
            whole = prefill = _together((self._phase(profile, phase), pieces) for phase in session.prefill)
            known |= ranged("prefill_seconds", *prefill[:3])
            if session.decode:
                share = 1 / len(session.decode)
                decode = _together((self._phase(profile, phase), share) for phase in session.decode)
                known |= self._rates(decode)
                whole = _together([(prefill, 1), (decode, serving.generate - 1)])
            found |= ranged("step_seconds", *whole[:3])
            found |= ranged("samples_per_s", count / whole.seconds, count / whole.high, count / whole.low)
            found["bound"] = whole.bound
        return Fit(
            gpu=label([profile] * ways),
            fits=fits,
            cards=(card,) * ways,
            reason=missing or messages.reason((card,)),
            serving=ServingFit(
                kv_cache_bytes=ways * self.layout.bytes(count, serving.context),
                kv_bytes_per_token=ways * self.layout.bytes_per_token,
                cache=self.layout.groups(count, serving.context),
                **known,
            ),
            **found,
        )

    def _rates(self, decode: PassSeconds) -> dict[str, Any]:
        """Fields of a `ServingFit` about later tokens."""
        batch, ways = self._spec.batch, self._serving.tensor_parallel
        rate = batch / decode.seconds
        return {
            **ranged("decode_tokens_per_s", rate, batch / decode.high, batch / decode.low),
            "decode_step_seconds": decode.seconds,
            "decode_tokens_per_s_per_user": rate / batch,
            "decode_tokens_per_s_per_card": rate / ways,
            "communication_share": decode.exchanged / decode.seconds if ways > 1 else None,
            "decode_bound": decode.bound,
        }

    def flop(self) -> int:
        """Floating-point operations of the request on all cards; what lies between two passes grows evenly."""
        session = self._session(self._spec.batch, self._serving.prompt, False, whole=True)
        total = 0.0
        for phases, times in ((session.prefill, session.pieces), (session.decode, self._serving.generate - 1)):
            for phase in phases:
                total += phase.trace.flop * times / len(phases)
        return round(total * self._serving.tensor_parallel)

    def _phase(self, profile: Profile, phase: Phase) -> PassSeconds:
        ways = self._serving.tensor_parallel
        exchanged = sum(item.seconds(profile, ways) * times for item, times in phase.exchanges.items())
        packed = self._made.scheme is not None and self._spec.batch >= PACKED_FROM and not self._eight_bit(profile)
        step = step_estimate((phase.trace,), (profile,), (PACKED,) if packed else ())
        self.notes.update(dict.fromkeys(doubt.words for doubt in step.doubts))
        bound: Bound = "link" if exchanged > step.seconds else step.bound
        return PassSeconds(step.seconds + exchanged, step.low + exchanged, step.high + exchanged, exchanged, bound)

    # --- memory

    def _eight_bit(self, profile: Profile) -> bool:
        scheme = self._made.scheme
        return scheme is not None and bool(scheme.activations) and scheme.activations in profile.tflops

    def _run(self, batch: int, prompt: int, eight: bool, *, whole: bool = False) -> ServingSession:
        generate = self._serving.generate
        return self._runner.run(batch=batch, prompt=prompt, generate=generate, eight_bit=eight, whole=whole)

    def _room(self, profile: Profile) -> Room:
        capacity, taken = self._libraries.room(profile)
        return capacity, taken + self._made.more_bytes

    def _card(self, session: ServingSession, profile: Profile) -> FitCard:
        """The cache was labelled as buffers; states get their room in the first pass, so at the peak it may not be
        there yet, and is counted all the same."""
        replay = session.trace.replay(*self._room(profile))
        sizes = session.trace.sizes[session.cache_blocks]
        cached = int((-(-sizes // MIN_BLOCK) * MIN_BLOCK).sum())
        library, more = self._libraries.bytes_on(profile), self._made.more_bytes
        kept = cublas_bytes(profile.compute_capability, products=True, train=False)
        moments = []
        for found, workspace in ((replay.parts, library), (replay.rest, kept)):
            parts = Counter(found)
            parts["parameters"] += more
            parts["buffers"] = max(parts["buffers"] - cached, 0)
            context = context_bytes(profile)
            moments.append(FitBytes(**parts, kv_cache=cached, library_workspace=workspace, context=context))
        return FitCard(
            gpu=profile.name,
            capacity_bytes=profile.usable_bytes,
            bytes=moments[0],
            rest=moments[1],
            reserved_bytes=replay.reserved + library + more,
            fits=replay.fits,
            device=profile.device,
        )

    # --- the largest

    def _find_law(self, what: What, eight: bool) -> BatchScaling | None:
        """How blocks grow with the batch, or with the prompt; those of the cache have the sizes of its layout."""
        batch, prompt = self._spec.batch, self._serving.prompt
        if what == "batch":
            runs = {some: self._session(some, prompt, eight) for some in LAW_BATCHES}
        else:
            first = LAW_TOKENS * (1 + (self._serving.prefill_chunk or 0) // LAW_TOKENS)
            runs = {some: self._session(batch, some, eight) for some in (first, 2 * first, 4 * first)}
        blocks = [run.cache_blocks for run in runs.values()]
        found = None
        if all(np.array_equal(blocks[0], others) for others in blocks):
            found = fit_scaling({some: run.trace for some, run in runs.items()}, blocks[0])
        if found is None:
            self.notes[NO_LAW.format(what)] = None
        return found

    def _search(self, what: What, room: Room, eight: bool) -> Most:
        """The largest batch or context with which a card has room."""
        batch, serving = self._spec.batch, self._serving
        least, limit = 1, LARGEST_BATCH
        if what == "context":
            least = serving.generate + 1
            limit = min(self._made.positions or LONGEST_CONTEXT, LONGEST_CONTEXT)
        known = self._law(what, eight)

        def computed(number: int) -> bool:
            assert known is not None
            if what == "batch":
                trace = known.at(number, self.layout.sizes(number, serving.context))
            else:
                trace = known.at(number - serving.generate, self.layout.sizes(batch, number))
            return trace.replay(*room).fits

        def ran(number: int) -> bool:
            if what == "batch":
                session = self._session(number, serving.prompt, eight)
            else:
                session = self._session(batch, number - serving.generate, eight)
            return session.trace.replay(*room).fits

        guess = 0
        if known is not None:
            result = most(computed, least, limit, lambda: True)
            if known.exact or not result.number or not self._has_time():
                return result
            guess = result.number
        return most(ran, least, limit, self._has_time, guess)


class Most(NamedTuple):
    """What a search found."""

    number: int
    """0: not even the least."""
    at_least: bool
    """There was no time for more, or nothing larger was looked for."""


def most(fits: Callable[[int], bool], least: int, limit: int, has_time: Callable[[], bool], guess: int = 0) -> Most:
    """The largest number up to a limit that fits, where everything smaller does, too: from a guess, or the least, on
    doubled, then halved."""
    if least > limit:
        return Most(0, False)
    low, step, high = max(guess, least), 1, limit + 1
    while not fits(low):
        if low == least:
            return Most(0, False)
        high, low, step = low, max(least, low - step), 2 * step
    step = 1
    while high - low > 1:
        if not has_time():
            return Most(low, True)
        middle = min(low + step, (low + high) // 2)
        if fits(middle):
            low, step = middle, 2 * step
        else:
            high = middle
    return Most(low, low == limit)


def plan_serving(spec: FitSpec, progress: Report = no_report) -> FitReport:
    """The whole answer: the last of `serving_plans`."""
    return list(serving_plans(spec, progress))[-1]


def serving_plans(spec: FitSpec, progress: Report = no_report) -> Iterator[FitReport]:
    """Answer a request, with more cards each time. It replaces the virtual GPUs of this process.

    Raises `BadInput` where there is no such model, or it does not generate text.
    """
    serving = spec.serving
    assert serving is not None
    cards = checked(spec)
    started = time.monotonic()
    progress(0.0, f"making {spec.source}")
    made = make(spec)
    progress(0.1, f"generating with {spec.source} without values")
    runner = SessionRunner(made.served)
    calculator = ServingCalculator(made, runner, spec, lambda: time.monotonic() - started < spec.patience_seconds)
    fits: list[Fit] = []
    for index, profile in enumerate(cards):
        progress(0.3 + 0.7 * index / len(cards), f"{spec.source} on {profile.name}")
        fits.append(calculator.fit(profile))
        yield FitReport(
            spec=spec,
            fits=tuple(fits),
            late=tuple(card.name for card in cards[index + 1 :]),
            parameters=made.parameters,
            changed_tensors=made.changed,
            inputs=f"{spec.batch}x{serving.prompt}:int64",
            flop_per_step=calculator.flop() or None,
            assumptions=(
                *assumptions(spec, made, runner, {profile.device for profile in cards}),
                *calibrated(cards),
                *runner.notes,
                *calculator.notes,
            ),
        )
    progress(1.0, f"done after {time.monotonic() - started:.1f} s")
