"""CUDA_VISIBLE_DEVICES: parsed like torch, respected by virtual GPUs, refused if nonsensical, explained afterwards."""

from __future__ import annotations

import queue

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from devexplorer.core.base import BadInput
from devexplorer.core.devices.cuda_visible_devices import (
    ONCE,
    assignment,
    card_number,
    cards_to_choose,
    checked,
    hidden_by,
    value_text,
    visibility_answer,
    visibility_note,
    visible_cards,
)
from devexplorer.core.devices.profiles import parse_virtual
from devexplorer.core.engine.engine import Engine
from devexplorer.core.records import AddVirtual, Answer, DeviceInfo, EngineReady, Event, JobEnded, Rebuilt
from devexplorer.core.virtual.device.machine import VirtualMachine

UUIDS = ["GPU-aa01", "GPU-aa02", "GPU-bb00", "GPU-bb11"]
NOTHING_LOST = Rebuilt(restored=(), lost=())


def torchs_own(value: str) -> list[int]:
    """What torch makes of the variable, its count of cards included (`_device_count_nvml`)."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUDA_VISIBLE_DEVICES", value)
        given = torch.cuda._parse_visible_devices()
    if given and isinstance(given[0], str):
        return torch.cuda._transform_uuid_to_ordinals(given, UUIDS)  # type: ignore[arg-type]
    return [
        int(number)
        for number in given[: next((at for at, number in enumerate(given) if int(number) >= len(UUIDS)), None)]
    ]


ENTRIES = st.sampled_from(
    ["0", "1", "2", "3", "9", "-1", "+2", "1gpu", "x", "GPU-aa01", "GPU-aa", "GPU-bb0", "GPU-c", "GPU-bb00", "MIG-1"]
)


@given(st.lists(ENTRIES, min_size=1, max_size=5).map(",".join))
def test_a_list_means_what_torch_takes_it_for(value: str) -> None:
    assert list(visible_cards(value, UUIDS).order) == torchs_own(value)


def test_unset_is_all_of_them_and_empty_is_none() -> None:
    assert visible_cards(None, UUIDS).order == (0, 1, 2, 3)
    assert visible_cards("", UUIDS) == ((), None)
    assert (value_text(None), value_text(""), value_text("1")) == ("unset", "empty", "1")
    assert (assignment(None), assignment("")) == ("CUDA_VISIBLE_DEVICES unset", 'CUDA_VISIBLE_DEVICES=""')


@pytest.mark.parametrize(
    ("value", "order", "words"),
    [
        ("1,0", (1, 0), None),
        ("1,7,0", (1,), "there is no card 7"),
        ("-1", (), "there is no card -1"),
        ("1,1", (), "named twice"),
        ("GPU-aa02,GPU-", (1,), "the beginning of several"),
        ("GPU-zz", (), "no card has a UUID that begins with 'GPU-zz'"),
        ("GPU-aa01,0", (0,), "does not begin with GPU-"),
    ],
)
def test_where_a_list_does_other_than_it_says_that_is_said(
    value: str, order: tuple[int, ...], words: str | None
) -> None:
    found = visible_cards(value, UUIDS)
    assert found.note is None if words is None else words in (found.note or "")
    assert found.order == order


def test_a_process_gets_one_mig_instance() -> None:
    found = visible_cards("MIG-b,MIG-a", ["GPU-x", "MIG-a", "MIG-b"])
    assert found.order == (2,)
    assert "one MIG instance" in (found.note or "")


@pytest.mark.parametrize(
    ("text", "value"), [(" 1, 0 ", "1,0"), ("", ""), ("2,", "2"), ("-1", "-1"), ("GPU-8f4c, GPU-1", "GPU-8f4c,GPU-1")]
)
def test_a_list_is_tidied(text: str, value: str) -> None:
    assert checked(text) == value


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("all", "'all' is neither a number nor a UUID"),
        ("0,,1", "nothing between two commas"),
        ("0,GPU-aa", "mixed"),
        ("cuda:1", "neither"),
        ("1\x00", "neither"),
        ("1\n2", "neither"),
        ("9," * 3000, "6,000 characters"),
        ("gpu-1234", "neither"),
        ("a" * 100, "neither"),
    ],
)
def test_nonsense_is_refused_in_one_line(text: str, words: str) -> None:
    with pytest.raises(BadInput) as refused:
        checked(text)
    assert words in str(refused.value)
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 200


# --- virtual GPUs


def machine(visible: str | None, spec: str = "Tesla T4, NVIDIA A10") -> VirtualMachine:
    made = VirtualMachine()
    made.set_visible(visible)
    made.add(parse_virtual(spec))
    return made


def there(found: VirtualMachine) -> list[tuple[str, str]]:
    return [(info.id, info.name) for info in found.devices() if info.usable]


def test_virtual_gpus_obey_a_chosen_list_as_cards_do() -> None:
    assert there(machine(None)) == [("vgpu:0", "Tesla T4"), ("vgpu:1", "NVIDIA A10")]
    assert there(machine("1")) == [("vgpu:0", "NVIDIA A10")]
    assert there(machine("1,0")) == [("vgpu:0", "NVIDIA A10"), ("vgpu:1", "Tesla T4")]
    assert there(machine("0,4,1")) == [("vgpu:0", "Tesla T4")]
    assert there(machine("VGPU-1")) == [("vgpu:0", "NVIDIA A10")]
    assert there(machine("")) == there(machine("0,0")) == there(machine("GPU-aa01")) == []


def test_the_uuid_is_the_cards_whatever_its_number_is_and_what_is_hidden_says_why() -> None:
    whole, swapped = machine(None), machine("1")
    assert swapped.devices()[0].uuid == whole.devices()[1].uuid
    assert card_number(swapped.devices()[0]) == 1
    hidden = swapped.devices()[1]
    assert (hidden.id, hidden.usable, hidden.uuid, hidden.simulated) == (
        "virtual:0",
        False,
        whole.devices()[0].uuid,
        True,
    )
    assert hidden.reason == hidden_by("1") == "hidden from the engine by CUDA_VISIBLE_DEVICES=1"


def test_only_what_is_visible_can_be_asked_for() -> None:
    found = machine("1")
    assert found.gpu("vgpu:0").profile.name == "NVIDIA A10"
    for device in ("vgpu:1", "virtual:0"):
        with pytest.raises(KeyError):
            found.gpu(device)


def test_cards_that_join_later_lengthen_the_list_and_change_no_number() -> None:
    found = machine("2,0", "Tesla T4")
    assert there(found) == []
    assert [gpu.id for gpu in found.add(parse_virtual("2x NVIDIA A10"))] == ["vgpu:0", "vgpu:1"]
    assert there(found) == [("vgpu:0", "NVIDIA A10"), ("vgpu:1", "Tesla T4")]
    assert found.add(parse_virtual("Tesla T4")) == (), "card 3 is not on the list"
    assert len(found.devices()) == 4
    with pytest.raises(BadInput, match="64"):
        found.add(parse_virtual("61x Tesla T4"))


def test_what_the_shell_has_set_hides_no_virtual_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert len(there(machine(None))) == 2


def test_adding_cards_that_the_list_hides_says_so(virtual: VirtualMachine) -> None:
    virtual.reset()
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()
    engine = Engine(events.put, visible_devices="0", sampling_seconds=None)
    engine.start()
    answers: dict[int, Answer] = {}
    try:
        for request in (1, 2):
            engine.submit(AddVirtual(request=request, spec="Tesla T4"))
        while not isinstance(event := events.get(timeout=30), JobEnded) or event.request != 2:
            if isinstance(event, Answer):
                answers[event.request] = event
            if isinstance(event, EngineReady):
                assert event.cuda_visible_devices == "0"
    finally:
        assert engine.close()
    assert answers[1].title == "vgpu:0 is here"
    assert "does not see" in answers[2].title
    assert "CUDA_VISIBLE_DEVICES=0" in answers[2].words
    assert not answers[2].failed, "it is there: another list shows it"


# --- words

CPU = DeviceInfo(id="cpu", kind="cpu", name="CPU")


def card(index: int, ordinal: int | None, **more: object) -> DeviceInfo:
    device = f"nvml:{index}" if ordinal is None else f"cuda:{ordinal}"
    return DeviceInfo(
        id=device, kind=device.partition(":")[0], name="A10", uuid=f"GPU-{index}", nvml_index=index,
        cuda_ordinal=ordinal,
        usable=ordinal is not None, **more,  # type: ignore[arg-type]
    )  # fmt: skip


def test_the_answer_says_which_card_has_which_number_now() -> None:
    answer = visibility_answer(
        None,
        "1",
        [CPU, card(1, 0), card(0, None)],
        Rebuilt(restored=("mlp",), lost=("move x to cuda:1: gone",)),
        now=5.0,
    )
    facts = {fact.label: fact.value for fact in answer.facts}
    assert answer.title == "CUDA_VISIBLE_DEVICES is 1"
    assert ONCE in answer.words
    assert "cuda:0 is the card 1 now" in answer.words
    assert (facts["before"], facts["now"]) == ("unset", "1")
    assert facts["cuda:0"] == "A10, nvidia-smi 1, GPU-1"
    assert facts["nvml:0"] == "A10, nvidia-smi 0, GPU-0, not visible"
    assert (facts["restored"], facts["not restored"]) == ("mlp", "move x to cuda:1: gone")
    assert not answer.failed
    assert not answer.offers
    compile(answer.code, "code", "exec")


@pytest.mark.parametrize("value", [None, "", "1", "GPU-1'; import os"])
def test_the_code_is_python_whatever_was_inherited(value: str | None) -> None:
    compile(visibility_answer(None, value, [CPU], NOTHING_LOST, now=0.0).code, "code", "exec")


def test_without_any_card_it_is_explained_and_virtual_gpus_are_offered() -> None:
    answer = visibility_answer(None, "0", [CPU], NOTHING_LOST, now=0.0)
    assert "this machine has none" in answer.words
    assert [offer.command for offer in answer.offers] == [AddVirtual(spec="2x Tesla T4")]


def test_the_real_cards_are_chosen_among_and_virtual_ones_where_there_are_no_others() -> None:
    virtual = list(machine("1").devices())
    instance = card(0, None, parent="nvml:0")
    assert [info.uuid for info in cards_to_choose([CPU, card(1, 0), instance, card(0, None), *virtual])] == [
        "GPU-0",
        "GPU-0",
        "GPU-1",
    ]
    assert [card_number(info) for info in cards_to_choose([CPU, *virtual])] == [0, 1]
    assert "there is no card 2" in (visibility_note("2", [CPU, *virtual]) or "").lower()
    assert visibility_note("1,0", [CPU, *virtual]) is None
    assert visibility_note("7", [CPU]) is None
