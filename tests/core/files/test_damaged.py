"""Damaged and inconsistent files are refused with one line, before large allocations, and leave the workspace
unchanged."""

from __future__ import annotations

import json
import random
import struct
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from places import Place, place_of
from safetensors.torch import save_file

from devexplorer.core.base import BadInput, DoesNotFit
from devexplorer.core.base import python_names as names
from devexplorer.core.files import pickle_tree, symbols
from devexplorer.core.files.load import name_for
from devexplorer.core.files.records import CompareCheckpoint, FileListed, ListFile, Load, LoadCheckpoint
from devexplorer.core.records import BuildModel, Command, Remove

ALLOCATION_LIMIT = 8 << 20


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    with place_of("cpu") as made:
        made.do(BuildModel(recipe="mlp"))
        yield made


def commands(path: Path) -> list[Command]:
    return [
        ListFile(path=str(path)),
        Load(path=str(path)),
        CompareCheckpoint(target="mlp", path=str(path)),
        LoadCheckpoint(target="mlp", path=str(path), partial=True),
    ]


def refused(place: Place, path: Path, match: str = "cannot be opened") -> str:
    """Every command refuses the file, in one line, and allocates little."""
    names = place.workspace.names
    line = ""
    for command in commands(path):
        tracemalloc.start()
        try:
            with pytest.raises(BadInput, match=match) as error:
                place.do(command)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        line = str(error.value)
        assert "\n" not in line
        assert len(line) < 1000
        assert peak < ALLOCATION_LIMIT
    assert place.workspace.names == names
    return line


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("whole")
    values = {"0.weight": torch.rand(4, 3), "0.bias": torch.arange(5), "tied": torch.ones(2)}
    save_file(values, folder / "a.safetensors", metadata={"other": "tied"})
    torch.save({"model": values, "epoch": 3}, folder / "a.pt")
    return {name: (folder / name).read_bytes() for name in ("a.safetensors", "a.pt")}


@pytest.mark.parametrize("name", ["a.safetensors", "a.pt"])
def test_a_file_that_is_cut_off_anywhere_is_refused(
    place: Place, files: dict[str, bytes], tmp_path: Path, name: str
) -> None:
    whole = files[name]
    path = tmp_path / name
    step = max(1, len(whole) // 150)
    for length in [*range(40), *range(40, len(whole), step), len(whole) - 1]:
        path.write_bytes(whole[:length])
        with pytest.raises(BadInput) as error:
            place.do(ListFile(path=str(path)))
        assert "\n" not in str(error.value)
    path.write_bytes(whole[: len(whole) // 2])
    refused(place, path)


@pytest.mark.parametrize("name", ["a.safetensors", "a.pt"])
def test_flipped_bytes_are_refused_or_harmless(
    place: Place, files: dict[str, bytes], tmp_path: Path, name: str
) -> None:
    whole = files[name]
    path = tmp_path / name
    dice = random.Random(7)
    lines: set[str] = set()
    for _ in range(300):
        damaged = bytearray(whole)
        for _ in range(dice.choice((1, 1, 2, 8))):
            damaged[dice.randrange(len(damaged))] ^= 1 << dice.randrange(8)
        path.write_bytes(damaged)
        for command in (ListFile(path=str(path)), Load(path=str(path), name="damaged")):
            try:
                outcome = place.do(command)
            except BadInput as error:
                lines.add(str(error))
            else:
                place.workspace.drop(tuple(snapshot.name for snapshot in outcome.changed))
    assert lines
    assert not any("\n" in line for line in lines)
    assert place.workspace.names == ("mlp",)


def safetensors(header: Any, data: bytes = b"", length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def entry(shape: list[Any], begin: int, end: int, dtype: str = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


LIES: dict[str, tuple[bytes, str]] = {
    "no bytes": (b"", "is empty"),
    "a header longer than the file": (safetensors({}, length=1000), "cut off inside its header"),
    "a header of exabytes": (safetensors({}, length=2**63), "the length of its header makes no sense"),
    "a list for a header": (safetensors([1, 2]), "its header is invalid"),
    "json nested without end": (safetensors(b'{"a":' * 200_000), "its header is damaged"),
    "a number of a million digits": (safetensors(b'{"a":' + b"9" * 1_000_000 + b"}"), "its header is invalid"),
    "a name that cannot be sent": (
        safetensors(b'{"\\ud800":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}'),
        "its header is damaged",
    ),
    "two of one name": (
        safetensors(
            b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}',
            b"12",
        ),
        "names something twice",
    ),
    "a tensor without a place": (safetensors({"a": {"dtype": "U8", "shape": [1]}}, b"1"), "has no place"),
    "a shape of exabytes": (
        safetensors({"a": entry([2**60, 2], 0, 8)}, b"12345678"),
        "more elements than can be counted",
    ),
    "a negative shape": (safetensors({"a": entry([-1, -1], 0, 4)}, b"1234"), "a negative size"),
    "a shape of words": (safetensors({"a": entry(["x"], 0, 4)}, b"1234"), "its header is invalid"),
    "a hundred dimensions": (safetensors({"a": entry([1] * 100, 0, 4)}, b"1234"), "100 dimensions"),
    "an unknown dtype": (safetensors({"a": entry([1], 0, 4, "F99")}, b"1234"), "F99, for which there is no dtype"),
    "offsets beyond the file": (safetensors({"a": entry([2**30], 0, 2**32)}, b"1234"), "it is cut off"),
    "offsets before the file": (
        safetensors({"a": entry([1], -8, -4)}, b"1234"),
        "overlaps another tensor, or there is a gap",
    ),
    "a gap": (safetensors({"a": entry([1], 0, 4), "b": entry([1], 8, 12)}, b"x" * 12), "there is a gap before it"),
    "something behind": (safetensors({"a": entry([1], 0, 4)}, b"1234more"), "something after its last tensor"),
    "a name of megabytes": (safetensors({"n" * 2_000_000: entry([0], 0, 0)}), "a name of 2,000,000 characters"),
}


@pytest.mark.parametrize("what", LIES)
def test_a_lying_header_is_refused(place: Place, tmp_path: Path, what: str) -> None:
    data, match = LIES[what]
    path = tmp_path / "lie.safetensors"
    path.write_bytes(data)
    if what in ("json nested without end", "a number of a million digits", "a name of megabytes"):
        with pytest.raises(BadInput, match=match):
            place.do(ListFile(path=str(path)))
    else:
        refused(place, path, match)


def archive(path: Path, records: dict[str, bytes], *, compressed: tuple[str, ...] = (), comment: bytes = b"") -> None:
    with zipfile.ZipFile(path, "w") as made:
        for name, data in records.items():
            made.writestr(f"archive/{name}", data, zipfile.ZIP_DEFLATED if name in compressed else zipfile.ZIP_STORED)
        made.comment = comment


def changed(path: Path, what: bytes, number: int) -> None:
    """An archive whose directory has another size of a record."""
    archive(path, records())
    data = bytearray(path.read_bytes())
    at = data.rindex(what) - 46
    struct.pack_into("<2I", data, at + 20, number, number)
    path.write_bytes(data)


def without(path: Path, begin: int, end: int) -> None:
    archive(path, records())
    data = path.read_bytes()
    path.write_bytes(data[:begin] + data[end:])


def pickled(
    shape: tuple[int, ...] = (2,),
    stride: tuple[int, ...] = (1,),
    *,
    offset: int = 0,
    elements: int = 2,
    key: str = "0",
    reference: str = "storage",
) -> bytes:
    """What torch.save writes for one tensor, with these figures."""

    def number(value: int) -> bytes:
        raw = value.to_bytes(9, "little", signed=True)
        return b"\x8a\x09" + raw

    def text(value: str) -> bytes:
        return b"X" + struct.pack("<I", len(value)) + value.encode()

    def numbers(values: tuple[int, ...]) -> bytes:
        return b"(" + b"".join(map(number, values)) + b"t"

    storage = b"(" + text(reference) + b"ctorch\nFloatStorage\n" + text(key) + text("cpu") + number(elements) + b"tQ"
    arguments = storage + number(offset) + numbers(shape) + numbers(stride) + b"\x89ccollections\nOrderedDict\n)R"
    return b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n(" + arguments + b"tR."


def records(**changes: Any) -> dict[str, bytes]:
    return {
        "data.pkl": pickled(**changes),
        "byteorder": b"little",
        "data/0": struct.pack("<2f", 1, 2),
        "version": b"3\n",
    }


def test_the_archive_made_here_is_one_that_torch_opens(place: Place, tmp_path: Path) -> None:
    path = tmp_path / "right.pt"
    archive(path, records())
    assert torch.load(path, weights_only=True).tolist() == [1, 2]
    name = place.do(Load(path=str(path))).changed[0].name
    assert place.workspace.tensor_named(name).tolist() == [1, 2]
    place.do(Remove(names=(name,)))


ARCHIVES: dict[str, tuple[Callable[[Path], None], str]] = {
    "a shape beyond its storage": (lambda p: archive(p, records(shape=(2**40,))), "reaches beyond the end of the file"),
    "a negative offset": (lambda p: archive(p, records(offset=-1)), "strides that make no sense"),
    "negative strides": (lambda p: archive(p, records(stride=(-1,))), "strides that make no sense"),
    "elements that are not there": (
        lambda p: archive(p, records(elements=2**50)),
        "reaches beyond the end of the file",
    ),
    "a storage that is not there": (lambda p: archive(p, records(key="9")), "a storage that it needs is not in it"),
    "something else than a storage": (
        lambda p: archive(p, records(reference="module")),
        "something outside that is no storage",
    ),
    "a bomb for a storage": (
        lambda p: archive(p, {**records(elements=2**24), "data/0": bytes(2**26)}, compressed=("data/0",)),
        "it is compressed or encrypted",
    ),
    "a comment": (lambda p: archive(p, records(), comment=b"PK"), "something was added to its end"),
    "records that overlap": (lambda p: changed(p, b"archive/data/0", 40), "records in it overlap"),
    "a record beyond the end": (lambda p: changed(p, b"archive/version", 4000), "reaches beyond its end"),
    "a piece that is missing": (lambda p: without(p, 60, 64), "records in it overlap"),
    "a record that is another one": (
        lambda p: (archive(p, records()), p.write_bytes(p.read_bytes().replace(b"data/0", b"data/1", 1))),
        "names a record that is not there",
    ),
    "an end that is missing": (lambda p: without(p, -4, 9999), "cut off"),
    "two records of one name but for case": (
        lambda p: archive(p, {**records(), "DATA.pkl": b""}),
        "torch.save did not write it",
    ),
    "TorchScript": (
        lambda p: archive(p, {**records(), "constants.pkl": b""}),
        "a TorchScript archive, which is a program",
    ),
    "a list in itself": (
        lambda p: archive(p, {**records(), "data.pkl": b"\x80\x02]q\x00h\x00a."}),
        "nested too deeply, or in themselves",
    ),
    "billions of laughs": (
        lambda p: archive(
            p,
            {
                **records(),
                "data.pkl": b"\x80\x02]q\x00"
                + b"".join(b"(" + b"h%c" % i * 10 + b"tq%c" % (i + 1) for i in range(30))
                + b".",
            },
        ),
        "nested too deeply, or in themselves",
    ),
    "a pickle without end": (
        lambda p: archive(p, {**records(), "data.pkl": b"\x80\x02" + b"N" * 30_000}),
        "more than 20,000 steps",
    ),
    "a list for a key": (
        lambda p: archive(p, {**records(), "data.pkl": b"\x80\x02}]Ns."}),
        "damaged or cut off",
    ),
    "an end without a beginning": (lambda p: archive(p, {**records(), "data.pkl": b"\x80\x02."}), "damaged or cut off"),
}


@pytest.mark.parametrize("what", ARCHIVES)
def test_a_lying_archive_is_refused(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    make, match = ARCHIVES[what]
    path = tmp_path / "lie.pt"
    make(path)
    monkeypatch.setattr(symbols, "NODES_LIMIT", 10_000)
    monkeypatch.setattr(pickle_tree, "STEPS_LIMIT", 20_000)
    monkeypatch.setattr(torch, "load", None)  # it never gets to see the file
    refused(place, path, match)


def test_terabytes_out_of_one_value_are_listed_and_do_not_fit(place: Place, tmp_path: Path) -> None:
    path = tmp_path / "lie.pt"
    archive(path, records(shape=(2**45,), stride=(0,)))
    assert "it was saved expanded" in place.do(ListFile(path=str(path))).answer.words
    with pytest.raises(DoesNotFit):
        place.do(Load(path=str(path)))


BOMBS = {
    "memo numbers": b"\x80\x02Nr\xff\xff\xff\x7f.",
    "copies of one text": b"\x80\x02c_codecs\nencode\nq\x00X" + struct.pack("<I", 9000) + b"a" * 9000
    + b"q\x01X\x06\x00\x00\x00latin1q\x02" + b"h\x00h\x01h\x02\x86R" * 3000 + b".",
    "a length of exabytes": b"\x80\x04\x8e" + b"\xff" * 7 + b"\x7f.",
    "keys that are nested deeply": b"\x80\x02})" + b"\x85" * 100_000 + b"NsN.",
    "an extension": b"\x80\x02\x82\x01.",
}  # fmt: skip


@pytest.mark.parametrize("what", BOMBS)
@pytest.mark.parametrize("bare", [True, False])
def test_a_pickle_that_asks_for_more_than_it_is_takes_no_memory(
    place: Place, tmp_path: Path, what: str, bare: bool
) -> None:
    path = tmp_path / "bomb.pt"
    if bare:
        path.write_bytes(BOMBS[what])
    else:
        archive(path, {**records(), "data.pkl": BOMBS[what]})
    tracemalloc.start()
    try:
        if what in ("keys that are nested deeply", "memo numbers"):  # not hashed, only named; not a list
            assert not place.do(ListFile(path=str(path))).answer.failed
        else:
            with pytest.raises(BadInput, match="cannot be opened") as error:
                place.do(ListFile(path=str(path)))
            assert "\n" not in str(error.value)
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < ALLOCATION_LIMIT


def test_a_file_that_shrinks_while_it_is_read_is_an_error_in_words(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from devexplorer.core.files import load

    path = tmp_path / "x.safetensors"
    save_file({"a": torch.ones(1000)}, path)
    real = load.check_sizes

    def shrinks(*given: Any) -> None:
        path.write_bytes(path.read_bytes()[:2000])
        real(*given)

    monkeypatch.setattr(load, "check_sizes", shrinks)
    with pytest.raises(BadInput, match="ended while it was read"):
        place.do(Load(path=str(path)))
    assert place.workspace.names == ("mlp",)


def test_no_file_no_right_and_no_ordinary_file_are_said_plainly(place: Place, tmp_path: Path) -> None:
    refused(place, tmp_path / "none.pt", "there is no file")
    refused(place, tmp_path, "is a folder without a checkpoint")
    refused(place, Path("/dev/zero"), "is not a regular file")
    refused(place, tmp_path / ("n" * 300), "file name too long")
    with pytest.raises(BadInput, match="choose a file"):
        place.do(ListFile(path=" "))
    with pytest.raises(BadInput, match="a zero byte"):
        place.do(ListFile(path="a\0b"))
    with pytest.raises(BadInput, match=r"could not be read: (no such file|not a directory)"):
        place.do(ListFile(path=str(Path(__file__) / "x.pt")))


def described(*objects: dict[str, Any]) -> dict[str, str]:
    return {"devexplorer": json.dumps({"schema": 1, "objects": objects})}


LARGE = {"name": "v", "kind": "model", "recipe": "vgg16-bn"}
DESCRIPTIONS: dict[str, list[dict[str, Any]]] = {
    "a sample model without its values": [LARGE],
    "a thousand of them": [{**LARGE, "name": f"v{number}"} for number in range(1000)],
    "a seed that is none": [{"name": "x", "kind": "model", "recipe": "mlp", "seed": -1}],
    "a seed of many digits": [{"name": "x", "kind": "model", "recipe": "list-pitfall", "seed": 10**30}],
    "a recipe that is code": [{"name": "x", "kind": "model", "recipe": "os:system", "source": "evil.py:run"}],
    "lazy values of a model that is not lazy": [
        {"name": "m", "kind": "model", "recipe": "mlp", "waiting": ["0.weight", "0.bias"]}
    ],
    "names that are none": [{"name": "../x\n<b>", "kind": "model"}, {"name": "", "kind": "tensor"}],
    "devices that are none": [{"name": "a", "kind": "tensor", "devices": {"<b>cuda:0</b>" * 1000: []}}],
}


@pytest.mark.parametrize("what", DESCRIPTIONS)
def test_a_lying_description_of_a_workspace_costs_nothing(
    place: Place, tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "lie.safetensors"
    save_file({"a": torch.ones(3)}, path, metadata=described(*DESCRIPTIONS[what]))
    monkeypatch.setattr("devexplorer.core.models.samples.build", None)
    (event,) = place.do(ListFile(path=str(path))).events
    assert isinstance(event, FileListed)
    assert event.contents.saved_on is None
    outcome = place.do(Load(path=str(path)))
    names = tuple(snapshot.name for snapshot in outcome.changed)
    assert names == ("a",)
    place.workspace.drop(names)


def test_a_description_that_cannot_be_read_leaves_the_tensors(place: Place, tmp_path: Path) -> None:
    path = tmp_path / "lie.safetensors"
    for text in (
        "{",
        "[]",
        '{"schema": 99, "objects": []}',
        '{"schema": 1, "objects": [{"name": 3}]}',
        '{"a":' * 100_000,
    ):
        save_file({"a": torch.ones(3)}, path, metadata={"devexplorer": text})
        outcome = place.do(Load(path=str(path)))
        assert "Its description of the objects cannot be read" in outcome.answer.words
        place.workspace.drop(tuple(snapshot.name for snapshot in outcome.changed))


def test_a_workspace_without_any_value_makes_nothing(place: Place, tmp_path: Path) -> None:
    path = tmp_path / "empty.safetensors"
    save_file({}, path, metadata=described(LARGE))
    with pytest.raises(BadInput, match="has no values that could become"):
        place.do(Load(path=str(path)))
    save_file({}, path)
    with pytest.raises(BadInput, match="there are no tensors in"):
        place.do(Load(path=str(path)))


def test_whatever_a_key_is_its_tensor_gets_a_name(place: Place) -> None:
    dice = random.Random(3)
    taken: list[str] = []
    keys = [
        "",
        ".",
        "/",
        "0",
        "a" * 500,
        "ä/ö",
        "块 0.weight",
        "a\nb",
        "../../x",
        "<b>",
        "lambda",
        "_x",
        "ﬁ",
        "²",
        "9.9",
    ]
    keys += ["".join(dice.choice("aZ_0.-/ \n<ä²块") for _ in range(dice.randrange(80))) for _ in range(300)]
    for key in keys:
        taken.append(names.checked_name(name_for(key, dice.choice((None, "old")), "/tmp/0 file.pt", taken), taken))
