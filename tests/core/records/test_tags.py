"""A record's tag is used on the link and in recordings: each is explicit, so that renaming a class keeps its tag."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import textwrap
from collections import Counter
from collections.abc import Iterator
from typing import Any, get_args

import msgspec
import pytest

import devexplorer.core.records
from devexplorer.core.feature import any_command, any_event, command_types, event_types, features
from devexplorer.core.recording.format import Recorded
from devexplorer.core.records.base import BaseCommand, BaseEvent

for _module in pkgutil.iter_modules(devexplorer.core.records.__path__):
    importlib.import_module(f"devexplorer.core.records.{_module.name}")
features()


def below(kind: type) -> Iterator[type]:
    for derived in kind.__subclasses__():
        yield derived
        yield from below(derived)


TAGGED = sorted(
    (
        kind
        for kind in below(msgspec.Struct)
        if kind.__module__.startswith("devexplorer.") and kind.__struct_config__.tag is not None
    ),
    key=lambda kind: (kind.__module__, kind.__name__),  # whatever was imported first: every test process has one order
)


def test_every_record_of_the_link_and_of_recordings_has_a_tag() -> None:
    assert set(command_types()) | set(event_types()) | set(get_args(Recorded)) <= set(TAGGED)
    assert len(TAGGED) > 90


def test_every_tag_is_written_out() -> None:
    for kind in TAGGED:
        (definition,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
        assert isinstance(definition, ast.ClassDef)
        written = [keyword.value for keyword in definition.keywords if keyword.arg == "tag"]
        values = [value.value for value in written if isinstance(value, ast.Constant)]
        assert values == [kind.__struct_config__.tag], kind


@pytest.mark.parametrize(
    "kinds", [command_types(), event_types(), get_args(Recorded)], ids=["commands", "events", "recorded"]
)
def test_no_two_records_of_a_union_share_a_tag(kinds: tuple[type[msgspec.Struct], ...]) -> None:
    tags = Counter(kind.__struct_config__.tag for kind in kinds)
    assert [tag for tag, count in tags.items() if count > 1] == []


@pytest.mark.parametrize(
    ("base", "union"), [(BaseCommand, any_command()), (BaseEvent, any_event())], ids=["command", "event"]
)
def test_a_record_without_a_tag_cannot_join_a_union(base: type[msgspec.Struct], union: object) -> None:
    untagged: Any = type(base)("Untagged", (base,), {})
    with pytest.raises(TypeError, match="must be tagged"):
        msgspec.msgpack.Decoder(union | untagged)
