"""What a workspace file says about its objects beside their values: kind, recipe and seed, devices, flags. Pure, jobs
thread.

It is one JSON document in the metadata of a safetensors file, under `devexplorer`; other programs see the
tensors alone.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from devexplorer.core.records import Record

KEY = "devexplorer"
SCHEMA = 1
SEPARATOR = "/"
"""Between the name of an object and a key of its state dict."""


class SavedObject(Record, omit_defaults=True):
    """One object of a workspace file."""

    name: str
    kind: str
    """`tensor`, `model` or `part` (of a model)."""
    type: str = ""
    recipe: str | None = None
    """The sample model that it is; with `seed` it can be built again."""
    seed: int = 0
    source: str | None = None
    """What a model was opened from; it is never opened by loading the file."""
    inputs: str = ""
    devices: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    """Device -> keys below the object that were there; no keys: all that no other device has."""
    frozen: tuple[str, ...] = ()
    """Parameters that do not require a gradient; for a tensor `requires_grad` says it."""
    requires_grad: bool = False
    training: bool = True
    other_modes: tuple[str, ...] = ()
    """Modules whose mode is not the model's."""
    waiting: tuple[str, ...] = ()
    """Lazy parameters without a shape: there were no values to write."""


class Document(Record):
    """The whole of it."""

    schema: int
    objects: tuple[SavedObject, ...]

    def devices(self, keys: Iterable[str]) -> dict[str, str]:
        """Where the tensors with these keys were when they were saved."""
        named: dict[tuple[str, str], str] = {}
        rest: dict[str, str] = {}
        for item in self.objects:
            for device, own in item.devices.items():
                named.update({(item.name, key): device for key in own})
                if not own:
                    rest[item.name] = device
        found = {}
        for key in keys:
            name, _, below = ("", "", key) if self.single else key.partition(SEPARATOR)
            where = named.get((name, below)) or rest.get(name)
            if where is not None:
                found[key] = where
        return found

    @property
    def single(self) -> SavedObject | None:
        """The one object of a file that is a plain state dict, whose keys have no name before them."""
        return self.objects[0] if len(self.objects) == 1 and not self.objects[0].name else None


def encoded(objects: tuple[SavedObject, ...]) -> str:
    """The text for the metadata."""
    return msgspec.json.encode(Document(schema=SCHEMA, objects=objects)).decode()


def decoded(text: str | None) -> Document | None:
    """The document; None where there is none, or none that can be read."""
    if text is None:
        return None
    try:
        document = msgspec.json.decode(text, type=Document)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    return document if document.schema == SCHEMA else None
