"""Behaviour 1: the application shows what torch and the driver report, and what is missing and why."""

from __future__ import annotations

import torch
from places import Place

from devexplorer.core.devices.catalog import join
from devexplorer.core.devices.cpu import CpuReader
from devexplorer.core.devices.nvml.library import Nvml
from devexplorer.core.devices.torch_devices import TorchBackend, torch_facts
from devexplorer.core.records import AddVirtual, EngineReady
from devexplorer.core.session.state import this_machine


def test_the_first_page_says_what_is_here_and_what_is_missing(place: Place) -> None:
    nvml, torch_side = Nvml(), TorchBackend()
    try:
        cards = nvml.cards()
        catalog = join(
            CpuReader().info(), cards, place.registry.infos(), problems=(*nvml.problems, *torch_side.problems())
        )
    finally:
        nvml.close()
    ready = EngineReady(**torch_facts(), pid=1, virtual_unavailable=None, recipes={})
    answer = this_machine(ready, catalog.devices, catalog.problems)
    facts = {fact.label: fact.value for fact in answer.facts}
    assert facts["torch"] == torch.__version__
    assert facts["cuda.is_available()"] == str(torch.cuda.is_available())
    assert facts["cuda.device_count()"] == str(torch.cuda.device_count() if torch.cuda.is_available() else 0)
    assert "torch.cuda.is_available()" in answer.code
    if torch.cuda.is_available():
        return
    if place.kind == "vgpu":
        assert answer.title == "2 virtual GPUs can be used"
        assert "simulated" in answer.words
        assert not answer.offers
    else:
        assert answer.title == "No GPU can be used here"
        assert len(answer.words) > 20, "the reason"
        assert [offer.command for offer in answer.offers] == [AddVirtual(spec="2x Tesla T4")]
