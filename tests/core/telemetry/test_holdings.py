"""What each object holds on a device: a shared storage counts once, for the object that had it first."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from places import Place, place_of

from devexplorer.core.models.walk import MOST_OBJECTS
from devexplorer.core.records import BuildModel, Move, NewTensor, ObjectUse, Remove
from devexplorer.core.virtual.device.machine import VirtualMachine


@pytest.fixture
def place(virtual: VirtualMachine) -> Iterator[Place]:
    with place_of("vgpu") as made:
        yield made


def holdings(place: Place, device: str = "vgpu:0") -> dict[str, int]:
    return {use.name: use.bytes for use in place.workspace.holdings().objects.get(device, ())}


def test_objects_are_sorted_by_size_and_follow_changes(place: Place) -> None:
    place.do(NewTensor(name="small", shape=(100,), device="vgpu:0"))
    place.do(NewTensor(name="large", shape=(1000,), device="vgpu:0"))
    assert place.workspace.holdings().objects["vgpu:0"] == (ObjectUse("large", 4000), ObjectUse("small", 400))
    place.do(Move(targets=("large",), device="vgpu:1"))
    assert (holdings(place), holdings(place, "vgpu:1")) == ({"small": 400}, {"large": 4000})
    place.do(Remove(names=("small", "large")))
    assert place.workspace.holdings() == ({}, {})


def test_a_storage_that_two_objects_share_counts_for_the_older_and_then_for_the_one_that_stays(place: Place) -> None:
    place.do(NewTensor(name="x", shape=(1000,), device="vgpu:0"))
    place.workspace.add("view", place.workspace.get("x")[:10])  # type: ignore[index]
    place.workspace.add("again", place.workspace.get("x"))
    assert holdings(place) == {"x": 4000}
    assert place.held("vgpu:0") == 4000
    place.do(Remove(names=("x",)))
    assert holdings(place) == {"view": 4000}, "a view keeps the whole storage"
    place.do(Remove(names=("view",)))
    assert holdings(place) == {"again": 4000}


def test_a_model_on_two_devices_is_reported_on_each(place: Place) -> None:
    place.do(BuildModel(recipe="mlp", name="mlp", device="vgpu:0"))
    whole = holdings(place)["mlp"]
    place.do(Move(targets=("mlp:0",), device="vgpu:1"))
    assert holdings(place)["mlp"] + holdings(place, "vgpu:1")["mlp"] == whole
    assert sum(holdings(place).values()) == place.held("vgpu:0")


def test_no_more_than_the_largest_are_reported_one_by_one(place: Place) -> None:
    for number in range(MOST_OBJECTS + 5):
        place.do(NewTensor(name=f"t{number}", shape=(number + 1,), device="cpu"))
    found = place.workspace.holdings().objects["cpu"]
    assert len(found) == MOST_OBJECTS
    assert found[0] == ObjectUse(f"t{MOST_OBJECTS + 4}", 4 * (MOST_OBJECTS + 5))
    assert sum(use.bytes for use in found) < place.held("cpu")
