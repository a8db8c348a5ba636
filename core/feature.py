"""What a feature adds to the kernel: commands and what carries them out, events, its part of the state, its tab and
actions; all that the features of the list have; decoders of records that hold commands, events or benchmarks of
whichever feature. Plain data; any thread, no torch, no Qt.

A feature's folder has a `feature.py` with a `FEATURE`. What is imported only when it is used (handlers, pages) is
named, as `package.module:name` below devexplorer.

A field that holds a command, an event or a benchmark is declared as `Command`, `Event`, `BenchSpec` or `BenchResult`;
msgspec asks here what that is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache, reduce
from operator import or_
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import msgspec

from devexplorer.core.base import BadInput, EventHandlers
from devexplorer.core.features import FEATURES
from devexplorer.core.records.base import BaseCommand, BaseEvent, Record
from devexplorer.core.records.benchmark import BenchResult, BenchSpec
from devexplorer.core.records.messages import KERNEL_COMMANDS, KERNEL_EVENTS, KERNEL_RESULTS, Command, Event
from devexplorer.core.records.objects import ObjectSnapshot

if TYPE_CHECKING:
    from devexplorer.core.benchmark.kind import BenchmarkKind
    from devexplorer.core.devices.catalog import Catalog
    from devexplorer.core.session import Change, Settings
    from devexplorer.core.session.poll import PollResult
    from devexplorer.core.session.session import Session
    from devexplorer.core.workspace import Handler


Text = str | Callable[[Any], str]
"""A title that names fields of the command `c`, or what makes one from the command."""


class CommandSpec(msgspec.Struct, frozen=True):
    """One kind of command."""

    record: type[BaseCommand]
    title: Text
    """What it is called while it runs: "moving mlp to vgpu:1"."""
    refused: Text = "That did not work"
    """The title of the answer when it failed: "mlp was not moved"."""
    handler: Handler | str | None = None
    """What carries it out, or where that is: `package.module:function` below core. None: the engine itself does."""
    undoable: bool = False
    """What it changes is one step of Undo, and is reverted when it fails half-way."""
    replayed: bool = False
    """A new engine is given it again, to make the workspace what it was."""
    names_result: bool = False
    """Its `name` is that of what it makes: a replay gives the name that was chosen then."""
    in_script: bool = True
    """The Python of its answer is part of the session's script."""
    replaces: bool = False
    """It puts another workspace in the place of what is here: that of the file `path`, where it has one."""
    question: bool = False
    """Its answer is what was asked for, and no page shows it: the inspector unfolds it."""
    looks: bool = False
    """It changes nothing, and a script that runs on its own answers it as well."""
    repeatable: bool = True
    """It can be part of a session that another window repeats."""
    verb: str = ""
    """What is done to its objects meanwhile, in one word: "moving"; empty: "working"."""
    runs: str = ""
    """It runs its `target`, a model, on its `input`; so buttons call that: "run forward"."""
    clears: str = ""
    """The side effect of earlier commands of which nothing is left after it, where its `target` is a whole object."""

    def resolve(self) -> Handler:
        """The function that carries it out."""
        if self.handler is None:
            raise TypeError(f"{self.record.__name__} is carried out by the engine itself")
        if isinstance(self.handler, str):
            return _resolve(self.handler)
        return self.handler


@cache
def _resolve(name: str) -> Handler:
    handler: Handler = resolve_name(f"devexplorer.core.{name}")
    return handler


class Trouble(NamedTuple):
    """Something that a feature finds wrong with a device."""

    device: str
    brief: str
    """In a few words: `Temperature 91 °C`."""
    words: str
    """A sentence without full stop, which names the device."""
    is_alert: bool = True
    """False: a notice, which is only listed."""


class FeatureState(EventHandlers):
    """What a feature knows of a session: part of `State`, which hands it the events that it handles. Its handlers
    return what changed. It is made before the first event."""

    def __init__(self, objects: dict[str, ObjectSnapshot]) -> None:
        self.objects = objects
        """Those of the state, to be read."""

    def forget(self, name: str) -> None:
        """An object was removed."""

    def forget_all(self) -> None:
        """The engine was lost, and every object with it."""

    def devices_changed(self, catalog: Catalog) -> Change | None:
        """The list of devices, or what is wrong with it, is another; returns what else changed."""

    def follow(self, settings: Settings) -> None:
        """What the user has chosen, for every machine and for recordings."""

    def troubles(self) -> Sequence[Trouble]:
        """What is wrong with devices now, the most serious first."""
        return ()

    def past(self) -> Iterable[BaseEvent]:
        """Events that tell a window that comes later what this knows."""
        return ()

    def go_on_from(self, older: Self) -> None:
        """That one knows the same machine until now: keep its past."""


class Listener:
    """What a feature does with all that a session of this machine tells."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def start(self) -> None:
        """The session starts."""

    @property
    def eager(self) -> bool:
        """Whether readings are wanted as often while the window is hidden."""
        return False

    def drained(self, result: PollResult) -> None:
        """What the window gets, where it is more than readings. Main thread."""

    def close(self, deadline_s: float) -> bool:
        """The session ends; False when something still runs at the deadline."""
        return True


class LastingState(FeatureState):
    """What follows from all readings before a moment, each in its turn: in a recording they are judged from its
    beginning. It handles readings and details of devices, and `devices_changed`."""

    def copy(self) -> Self:
        """Another one that has come as far."""
        raise NotImplementedError

    def begin(self, unix_s: float) -> None:
        """The time before the first reading."""


class Feature(Record):
    """What one feature adds."""

    needs: tuple[str, ...] = ()
    """Other features that it imports."""
    commands: tuple[CommandSpec, ...] = ()
    events: tuple[type[BaseEvent], ...] = ()
    """Others that it sends, which no later window needs."""
    results: tuple[type[BaseEvent], ...] = ()
    """Events that answer its commands: the latest of each kind about each object (`target`) is what a window that
    connects later gets."""
    state: str = ""
    """Its `FeatureState`."""
    listener: str = ""
    """Its `Listener`."""
    tab: str = ""
    """Its `TabSpec`."""
    actions: str = ""
    """What makes its actions, given the context of the window."""
    offers: str = ""
    """What makes offers about what is selected, given the state of the session and one or two targets."""
    window: str = ""
    """Begins what it does by itself in a window, given the context of that."""
    device_menu: str = ""
    """Adds its lines to the menu of a device, given the menu, the context of the window, and the device."""
    settings: tuple[tuple[str, str], ...] = ()
    """What of it is remembered between starts: keys of `Settings.of_features`, each with its type."""
    layout: str = ""
    """Its `Layout` of the window."""
    choices: str = ""
    """What makes more lines of the palette, given the context of the window."""
    ways_out: str = ""
    """Given an error that is about where the parts of a model are, and the command that it ended, says what can be
    done: words, and offers (`core.commands.refusals`)."""
    pythons: str = ""
    """The module that runs ours in another Python (`core.environments.environment`); one feature has it."""
    engine: str = ""
    """Begins what it does by itself in the engine's process."""
    outdated: str = ""
    """Given the workspace and the name of a model, says which files have changed since it was made of them, and how it
    is made again: words, and offers; empty where none has. One feature has it."""
    hops: str = ""
    """Makes the hooks that let activations follow the parts of a model, of the model and the devices
    (`core.models.CrossingHooks`); one feature has it."""
    explains: str = ""
    """Says why a model that ran failed for where its operands are (`core.models.run.Explain`); one feature has it."""
    benchmark: str = ""
    """Its kind of benchmark (`core.benchmark.kind.BenchmarkKind`)."""
    marks: tuple[tuple[bytes, str], ...] = ()
    """How files begin that only it knows, and their kinds."""
    opens: tuple[tuple[str, str], ...] = ()
    """Kinds of files that it opens, each with the function that does: it gets the context of the
    window, the path, and of which file of another machine this is a copy, if so."""


@cache
def features() -> dict[str, Feature]:
    """Each by its folder, in the order of the list. Raises ImportError where one needs another that is not in it."""
    found: dict[str, Feature] = {name: resolve_name(f"devexplorer.core.{name}.feature:FEATURE") for name in FEATURES}
    for name, feature in found.items():
        for needed in feature.needs:
            if needed not in found:
                raise ImportError(f"{name} needs {needed}, which core/features.py does not list")
    return found


def named(attribute: str) -> list[Any]:
    """What the features name as their `tab`, `actions`, `state` and so on, imported now."""
    names = [getattr(feature, attribute) for feature in features().values()]
    return [resolve_name(f"devexplorer.{name}") for name in names if name]


def pythons() -> Any:
    """The module that runs ours in another Python. Raises `BadInput` where there is none."""
    for module in named("pythons"):
        return module
    raise BadInput("this DevExplorer has no other Python environments than its own")


def kind_of_head(head: bytes) -> str | None:
    """The kind of a file that begins so, where a feature knows it."""
    marks = (mark for feature in features().values() for mark in feature.marks)
    return next((kind for start, kind in marks if head.startswith(start)), None)


def opener(kind: str | None) -> Callable[..., object] | None:
    """The function of the feature that opens files of this kind."""
    for feature in features().values():
        for opened, name in feature.opens:
            if opened == kind:
                found: Callable[..., object] = resolve_name(f"devexplorer.{name}")
                return found
    return None


@cache
def benchmark_kinds() -> dict[str, BenchmarkKind[Any, Any]]:
    """Every kind of benchmark by its name, in the order in which they are offered; imported with the first question."""
    made = [kind() for kind in (resolve_name("devexplorer.core.benchmark.matmul_kind:MatmulKind"), *named("benchmark"))]
    return {kind.name: kind for kind in made}


def offered_kinds() -> dict[str, BenchmarkKind[Any, Any]]:
    """Those that can be started."""
    return {name: kind for name, kind in benchmark_kinds().items() if kind.page}


def feature_settings() -> dict[str, Any]:
    """The types of what features remember between starts."""
    named_types = (pair for feature in features().values() for pair in feature.settings)
    return {key: resolve_name(f"devexplorer.{name}") for key, name in named_types}


def command_specs() -> tuple[CommandSpec, ...]:
    """Of all features."""
    return tuple(spec for feature in features().values() for spec in feature.commands)


@cache
def command_types() -> tuple[type[BaseCommand], ...]:
    """Every command, the kernel's first."""
    return (*KERNEL_COMMANDS, *(spec.record for spec in command_specs()))


@cache
def result_types() -> tuple[type[BaseEvent], ...]:
    """Events that hold results about objects, the kernel's first."""
    return (*KERNEL_RESULTS, *(kind for feature in features().values() for kind in feature.results))


@cache
def event_types() -> tuple[type[Record], ...]:
    """Every event."""
    others = (kind for feature in features().values() for kind in feature.events)
    return (*KERNEL_EVENTS, *others, *result_types())


def one_of(types: tuple[Any, ...]) -> Any:
    """The union of these types."""
    return reduce(or_, types)


def any_command() -> Any:
    """The union of all commands."""
    return one_of(command_types())


def any_event() -> Any:
    """The union of all events."""
    return one_of(event_types())


def any_spec() -> Any:
    """The union of what all kinds of benchmarks measure."""
    return one_of(tuple(kind.spec for kind in benchmark_kinds().values()))


def any_result() -> Any:
    """The union of the results of all kinds of benchmarks."""
    return one_of(tuple(kind.result for kind in benchmark_kinds().values()))


def decoder(kind: Any) -> msgspec.msgpack.Decoder[Any]:
    """Of msgpack, for records of this type."""
    return msgspec.msgpack.Decoder(kind, dec_hook=_inner)


def converted(value: object, kind: Any) -> Any:
    """A record of this type from plain values, as JSON has them. Raises `msgspec.ValidationError`."""
    return msgspec.convert(value, kind, dec_hook=_inner)


def _inner(kind: type, value: object) -> Any:
    if kind is Command:
        return converted(value, any_command())
    if kind is Event:
        return converted(value, any_event())
    if kind is BenchSpec:
        return converted(value, any_spec())
    if kind is BenchResult:
        return converted(value, any_result())
    raise NotImplementedError
