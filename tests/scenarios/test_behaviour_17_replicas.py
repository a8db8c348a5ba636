"""Behaviour 17: a model is replicated over several devices: a copy and its memory on each, the batch split, the outputs
gathered."""

from __future__ import annotations

import torch
from places import Place

from devexplorer.core.experiments.records import Replicate
from devexplorer.core.records import AddVirtual, BuildModel, Check, NewTensor, Undo


def test_a_copy_per_device_and_the_batch_split_over_them(place: Place) -> None:
    place.do(BuildModel(recipe="mlp", device=place.first))
    place.do(NewTensor(name="x", fill="randn", shape=(5, 20), device=place.first))
    if place.second is None:
        assert place.offers_virtual_gpus(Replicate(target="mlp", devices=("cpu", "cuda:0"), input="x"))
        return
    before = place.snapshot("mlp")
    done = place.do(Replicate(target="mlp", devices=(place.first, place.second), input="x"))
    assert [snapshot.name for snapshot in done.changed] == ["mlp-0", "mlp-1"]
    nbytes = before.bytes_by_device[place.first]
    assert [snapshot.bytes_by_device for snapshot in done.changed] == [{place.first: nbytes}, {place.second: nbytes}]
    assert place.snapshot("mlp") == before
    facts = {fact.label: fact.value for fact in done.answer.facts}
    assert facts[place.first].startswith("31.04 KiB for mlp-0, 3 rows: ")
    assert facts[place.second].startswith("31.04 KiB for mlp-1, 2 rows: ")
    assert facts["output 0"] == f"5×10 float32 on {place.first}"
    assert float(facts["largest difference"]) < 1e-5
    assert ("simulated" in facts["together"]) == (place.kind == "vgpu")
    assert "3 + 2" in done.answer.words
    for explained in ("DataParallel", "DistributedDataParallel", "gradients"):
        assert explained in done.answer.words

    undone = place.do(Undo())
    assert set(undone.removed) == {"mlp-0", "mlp-1"}
    assert place.workspace.names == ("mlp", "x")


def test_each_copy_computes_what_the_model_computes(place: Place) -> None:
    if place.second is None:
        return
    place.do(BuildModel(recipe="mlp", device=place.first))
    place.do(Replicate(target="mlp", devices=(place.first, place.second)))
    x = torch.randn(4, 20, generator=torch.Generator().manual_seed(0))
    outputs = []
    for name in ("mlp", "mlp-0", "mlp-1"):
        model = place.workspace.get(name)
        assert isinstance(model, torch.nn.Module)
        outputs.append(model(x.to(next(model.parameters()).device)).detach().cpu())
    assert all(torch.allclose(outputs[0], other, atol=1e-5) for other in outputs[1:])


def test_one_device_is_explained(place: Place) -> None:
    place.do(BuildModel(recipe="mlp", device=place.first))
    answer = place.answer(Replicate(target="mlp", devices=(place.first,)))
    assert answer.failed
    assert answer.title == "Nothing was replicated"
    assert "over two devices at least" in answer.words
    offered = [offer.command for offer in answer.offers]
    assert offered == ([] if place.kind == "vgpu" else [AddVirtual(spec="2x Tesla T4")])
    assert place.workspace.names == ("mlp",)


def test_a_batch_with_fewer_rows_than_devices_leaves_one_idle(place: Place) -> None:
    if place.second is None:
        return
    place.do(BuildModel(recipe="mlp", device=place.first))
    place.do(NewTensor(name="x", fill="randn", shape=(1, 20), device=place.first))
    answer = place.answer(Replicate(target="mlp", devices=(place.first, place.second), input="x"))
    assert not answer.failed
    assert f"{place.second} had nothing to do: 1 row gives 1 part for 2 devices" in answer.words
    assert place.held(place.second) > 0


def test_a_model_that_can_live_on_one_device_only_is_explained_by_its_line(place: Place) -> None:
    if place.second is None:
        return
    place.do(BuildModel(recipe="noise-pitfall"))
    answer = place.answer(Replicate(target="noise-pitfall", devices=(place.first, place.second)))
    assert answer.failed
    assert "of custom.py. torch.randn makes its tensor on cpu, because it names no device" in answer.words
    assert any(isinstance(offer.command, Check) for offer in answer.offers)
    assert list(place.workspace.names) == ["noise-pitfall"], "no replica is left behind"
