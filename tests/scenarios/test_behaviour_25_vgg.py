"""Behaviour 25: VGG-16-BN goes to the first GPU if there is one: 138 million parameters, their bytes, the jump in
memory."""

from __future__ import annotations

from places import Place

from devexplorer.core.records import BuildModel, Remove
from devexplorer.core.workspace.tensors import try_gpu

PARAMETERS = 138_365_992


def test_vgg_on_the_first_gpu_or_the_cpu(place: Place) -> None:
    device, why = try_gpu(place.registry)
    assert (why is not None) == (place.kind == "cpu")
    assert device == place.first
    before = 0 if place.kind == "cpu" else place.allocated(device)
    answer = place.do(BuildModel(recipe="vgg16-bn", device=device)).answer
    assert f"{PARAMETERS:,} parameter values" in answer.words
    snapshot = place.snapshot("vgg16-bn")
    assert sum(row.elements for row in snapshot.rows if row.kind == "parameter") == PARAMETERS
    held = snapshot.bytes_by_device[device]
    assert set(snapshot.bytes_by_device) == {device}
    assert held > 4 * PARAMETERS  # plus batch norm's running statistics
    assert place.workspace.held_bytes_by_device() == {device: held}
    if place.kind != "cpu":
        jump = place.allocated(device) - before
        assert held <= jump <= 1.01 * held  # rounded up by the allocator
    place.do(Remove(names=("vgg16-bn",)))
    assert place.workspace.held_bytes_by_device() == {}
    if place.kind != "cpu":
        assert place.allocated(device) == before
    else:
        assert place.offers_virtual_gpus(BuildModel(recipe="vgg16-bn", device="cuda:0"))
