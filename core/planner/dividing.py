"""Over which cards a model is divided, through the planner of splits. In the planner's process."""

from __future__ import annotations

from collections.abc import Sequence

from devexplorer.core.base import BadInput, count_text
from devexplorer.core.devices.profiles import Profile
from devexplorer.core.planner.run import DeviceMap
from devexplorer.core.planner.subject import Subject
from devexplorer.core.split.blocks import Block, blocks_of
from devexplorer.core.split.planner import Groups, propose
from devexplorer.core.split.spread import even_budget

GROWTH = 1.02
"""Unequal budgets grow by so much until everything has its place."""


def divided(subject: Subject, profiles: Sequence[Profile], weights: Sequence[float]) -> DeviceMap:
    """Which card holds which block: the least budgets for parameters, in proportion to these weights, with which
    everything has its place.

    Raises `BadInput` where the model cannot be divided, `Unavailable` without accelerate.
    """
    blocks, _ = blocks_of(subject.model)
    if len(Groups(blocks).members) < 2:
        several = count_text(len(profiles), "card")
        raise BadInput(f"'{subject.title}' is one block that stays together, so it cannot be divided over {several}")
    names = [f"card {number} ({profile.name})" for number, profile in enumerate(profiles, start=1)]
    devices = _proposed(subject.title, blocks, names, weights)
    cards = {
        id(tensor): names.index(device)
        for block, device in zip(blocks, devices, strict=True)
        for tensor in block.tensors
    }
    return DeviceMap(tuple(profiles), tuple(cards.items()))


def _proposed(title: str, blocks: list[Block], names: list[str], weights: Sequence[float]) -> list[str]:
    sizes = Groups(blocks).bytes
    if len(set(weights)) == 1:
        return propose(title, blocks, dict.fromkeys(names, even_budget(sizes, len(names)))).devices
    share = sum(sizes) / sum(weights)
    while True:
        budgets = {name: int(share * weight) + 1 for name, weight in zip(names, weights, strict=True)}
        try:
            return propose(title, blocks, budgets).devices
        except BadInput:
            if max(budgets.values()) > sum(sizes):
                raise
            share *= GROWTH
