"""After "out of memory": the file that is written names the cause in its first line, and the script never notices."""

from __future__ import annotations

import ctypes
import functools
import json
import os
import subprocess
import sys
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import msgspec
import pytest
import torch
from fakes.command_line import Document, Refusal

from devexplorer.core.base import NO_PROGRESS
from devexplorer.core.files.kinds import OUT_OF_MEMORY, recognise
from devexplorer.core.observe import causes, explain, memory_report, out_of_memory, when_full
from devexplorer.core.observe.alive import variables
from devexplorer.core.observe.memory_report import ExplainReport, OutOfMemoryReport
from devexplorer.core.observe.when_full import OutOfMemoryWatch
from devexplorer.core.virtual.device.machine import VirtualMachine

HERE = Path(__file__).parent
SCRIPTS = HERE / "out_of_memory"
WANTED: dict[str, Any] = json.loads((SCRIPTS / "wanted.json").read_text())
CAUGHT = """
import torch
from torch import nn


def fits(batch):
    model = nn.Sequential(nn.Linear(64, 1024), nn.ReLU(), nn.Linear(1024, 64)).cuda()
    try:
        model(torch.randn(batch, 64, device="cuda")).sum().backward()
    except torch.OutOfMemoryError:
        return False
    return True


assert not fits(1 << 17)
assert torch.cuda.memory_allocated() == 0
assert fits(1 << 15)
"""


class Ran(NamedTuple):
    error: str
    path: str
    problems: list[str]

    @property
    def report(self) -> OutOfMemoryReport:
        return memory_report.read(self.path)


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ran]:
    """All scripts in one process."""
    folder = tmp_path_factory.mktemp("reports")
    (folder / "caught.py").write_text(CAUGHT)
    scripts = [*map(str, sorted(SCRIPTS.glob("*.py"))), str(folder / "caught.py")]
    command = [sys.executable, str(HERE / "run_out_of_memory.py"), "vgpu", str(folder), *scripts]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    return {Path(script).stem: Ran(*rest) for script, *rest in lines}


def test_every_script_has_a_cause() -> None:
    assert {path.stem for path in SCRIPTS.glob("*.py")} == set(WANTED)


@pytest.mark.parametrize("name", WANTED)
def test_the_first_line_names_the_cause(ran: dict[str, Ran], name: str) -> None:
    report = ran[name].report
    assert report.cause.kind == WANTED[name]["cause"], report.cause
    first = explain.lines(report)[0].lower()
    assert [word for word in WANTED[name]["first_line"] if word.lower() not in first] == [], first
    assert report.cause.remedies
    assert report.place is not None
    assert os.path.basename(report.place.file) == f"{name}.py"
    assert report.error == ran[name].error
    assert not ran[name].problems


def test_views_that_keep_more_than_they_show_are_told_apart(ran: dict[str, Ran]) -> None:
    cause = ran["16_views_of_large_tensors"].report.cause
    assert "They are views with" in cause.evidence[0]
    assert "clone()" in cause.remedies[0]
    assert not ran["11_features_kept_on_the_card"].report.cause.evidence


def test_the_parts_make_up_the_device(ran: dict[str, Ran]) -> None:
    for name, one in ran.items():
        parts = {part.name: part.bytes for part in one.report.parts}
        assert sum(parts.values()) == one.report.capacity_bytes == 1 << 30, name


def test_tensors_have_a_line_a_name_and_a_holder(ran: dict[str, Ran]) -> None:
    report = ran["11_features_kept_on_the_card"].report
    kept = [tensor for tensor in report.tensors if tensor.shape == (16, 16, 64, 64)]
    assert len(kept) == 40
    assert all(tensor.bytes == 4 << 20 and tensor.dtype == "float32" for tensor in kept)
    assert {tensor.made_at.line for tensor in kept if tensor.made_at is not None} == {12}
    assert any("features[" in words for tensor in kept for words in tensor.held_by)
    (container,) = [one for one in report.containers if one.name == "features"]
    assert container.tensors * (4 << 20) == container.bytes
    names = {tensor.name for tensor in ran["05_first_step_of_the_optimizer"].report.tensors}
    assert {"embedding.weight", "gradient of embedding.weight", "exp_avg of embedding.weight"} <= names


def test_activations_are_counted_by_layer(ran: dict[str, Ran]) -> None:
    report = ran["01_too_large_a_batch"].report
    layers = {(one.layer, one.operation): one.bytes for one in report.layers}
    assert layers["0", "Relu"] == 384 * 8 * 128 * 128 * 4
    assert report.layer == "3 (ReLU)"
    assert report.phase == "forward"


def test_what_a_script_catches_is_written_too(ran: dict[str, Ran]) -> None:
    assert ran["caught"].error == "nothing was raised"
    assert ran["caught"].report.requested_bytes == 512 << 20
    assert ran["caught"].report.cause.kind == "batch"


def test_it_is_printed_as_text_and_as_a_document(ran: dict[str, Ran], document: Document, refusal: Refusal) -> None:
    one = ran["03_kept_graph"]
    assert document("explain", one.path, "--json")["cause"]["kind"] == "kept_graph"
    text = "\n".join(explain.lines(one.report))
    for words in ("03_kept_graph.py ran out of memory on cuda:0 (Tesla T4, simulated)", "saved for backward", "Tanh"):
        assert words in text
    answer = explain.explain_report(None, ExplainReport(path=one.path), NO_PROGRESS).answer  # type: ignore[arg-type]
    assert answer.title == one.report.cause.text
    assert recognise(Path(one.path)).kind == OUT_OF_MEMORY
    assert "devexplorer explain FILE" in refusal("show", one.path)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"{}", "is not a report of DevExplorer"),
        (memory_report.MARK, "is damaged or cut off"),
        (memory_report.MARK + b',"schema":1}', "is damaged or cut off"),
        (memory_report.MARK + b',"schema":99}', "was written by a newer DevExplorer (schema 99"),
        (memory_report.MARK + b',"schema":1,"script":"\xff"}', "is damaged or cut off"),
    ],
)
def test_other_files_are_refused_in_a_line(tmp_path: Path, refusal: Refusal, content: bytes, words: str) -> None:
    path = tmp_path / "report.json"
    path.write_bytes(content)
    assert words in refusal("explain", str(path))


def test_a_missing_file_is_refused_in_a_line(tmp_path: Path, refusal: Refusal) -> None:
    assert "could not be read" in refusal("explain", str(tmp_path / "missing.json"))


# --- the script never notices


@pytest.fixture
def watch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OutOfMemoryWatch:
    monkeypatch.setattr(when_full, "problems", [])
    made = OutOfMemoryWatch()
    made.folder = str(tmp_path)
    return made


def full(watch: OutOfMemoryWatch, virtual: VirtualMachine) -> None:
    watch._virtual_full(virtual.gpus[0], 1 << 30, "CUDA out of memory")


def test_a_fault_of_ours_is_noted_and_not_raised(
    watch: OutOfMemoryWatch, virtual: VirtualMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> OutOfMemoryReport:
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(out_of_memory, "look", fails)
    full(watch, virtual)
    assert when_full.problems == ["RuntimeError: a fault of ours"]
    assert watch.last is None


def test_one_that_follows_at_once_is_not_looked_at(watch: OutOfMemoryWatch, virtual: VirtualMachine) -> None:
    full(watch, virtual)
    assert watch.last is not None
    written = Path(watch.last[0])
    written.unlink()
    full(watch, virtual)
    assert not written.exists()


def test_one_that_was_not_looked_at_is_when_it_ends_the_script(
    watch: OutOfMemoryWatch, virtual: VirtualMachine
) -> None:
    full(watch, virtual)
    assert watch.last is not None
    os.unlink(watch.last[0])
    watch._uncaught(torch.OutOfMemoryError("CUDA out of memory"), None)
    assert not os.path.exists(watch.last[0])  # it was looked at
    full(watch, virtual)
    error = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total capacity of …")
    watch._uncaught(error, None)
    report = memory_report.read(watch.last[0])
    assert (report.device, report.requested_bytes) == (virtual.gpus[1].spoken, 2 << 30)


def test_cuda_is_asked_when_the_script_starts_it_and_not_before(
    watch: OutOfMemoryWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    queued: list[Any] = []

    def attach(observer: object) -> None:
        raise RuntimeError("Found no NVIDIA driver on your system")

    monkeypatch.setattr(torch._C, "_cuda_attach_out_of_memory_observer", attach, raising=False)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "_initialized", False)
    monkeypatch.setattr(torch.cuda, "_queued_calls", queued)
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    for hook in ("observe_full", "register_optimizer_step_post_hook"):
        monkeypatch.setattr(when_full, hook, lambda _: None)
    watch.install()
    assert len(queued) == 1
    assert not when_full.problems
    for call, _ in queued:
        call()
    assert when_full.problems == ["RuntimeError: Found no NVIDIA driver on your system"]


def test_backward_on_a_thread_of_autograds_is_what_the_script_does_and_raises_nothing_of_ours(
    watch: OutOfMemoryWatch, virtual: VirtualMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C++ has started it: nothing of Python's runs there."""
    monkeypatch.setattr(
        out_of_memory, "cuda_card", lambda index, limit: out_of_memory.virtual_card(virtual.gpus[index])
    )
    raised: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", raised.append)
    system, thread = ctypes.CDLL(None), ctypes.c_ulong()
    told = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(
        functools.partial(watch._cuda_full, 0, 1 << 30, 1 << 30)  # type: ignore[arg-type]
    )

    def _engine_run_backward() -> None:
        assert system.pthread_create(ctypes.byref(thread), None, told, None) == 0
        assert system.pthread_join(thread, None) == 0

    _engine_run_backward()
    assert not raised
    assert not when_full.problems
    assert watch.last is not None
    report = memory_report.read(watch.last[0])
    assert report.phase == "backward"
    assert report.place is not None
    assert report.place.function == "_engine_run_backward"


class Card(NamedTuple):
    """What `torch.cuda` says of a card with 16 MiB, of which others have 4, and where this process may use `share`."""

    share: float
    blocks: list[dict[str, Any]]

    def put(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """In place of `torch.cuda`."""
        said = {
            "mem_get_info": (6 << 20, 16 << 20),
            "memory_reserved": 6 << 20,
            "memory_allocated": 4 << 20,
            "get_device_name": "a card",
            "get_per_process_memory_fraction": self.share,
            "memory_snapshot": [
                {"device": 1, "blocks": [{"address": 0, "size": 1 << 30, "state": "inactive"}]},
                {"device": 0, "blocks": self.blocks},
            ],
        }
        for name, value in said.items():
            monkeypatch.setattr(torch.cuda, name, lambda *_, value=value: value, raising=False)


@pytest.mark.parametrize(("share", "usable", "largest"), [(1.0, 12 << 20, 6 << 20), (0.5, 8 << 20, 2 << 20)])
def test_what_a_process_may_use_of_a_card_is_what_it_is_judged_by(
    monkeypatch: pytest.MonkeyPatch, share: float, usable: int, largest: int
) -> None:
    Card(share, [{"address": 512, "size": 1 << 20, "state": "inactive"}]).put(monkeypatch)
    card = out_of_memory.cuda_card(0)
    assert (card.usable, card.free, card.largest_free) == (usable, usable - (4 << 20), largest)
    assert out_of_memory.cuda_card(0, 5 << 20).usable == 5 << 20  # the error says it


@pytest.mark.parametrize(("share", "kind"), [(1.0, "other_processes"), (0.1, "none")])
def test_other_processes_are_no_cause_where_this_one_is_limited(
    monkeypatch: pytest.MonkeyPatch, share: float, kind: str
) -> None:
    Card(share, []).put(monkeypatch)
    card = out_of_memory.cuda_card(0)._replace(context=8 << 20)
    case: Any = SimpleNamespace(others=card.context, live=SimpleNamespace(card=card))
    found = causes._others(case)
    assert ("none" if found is None else found.kind) == kind


def test_a_block_of_a_card_has_its_own_size_and_the_line_that_was_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded, other, fake = torch.ones(10), torch.ones(10), torch.ones(10, device="meta")
    frames = [
        {"filename": torch.__file__, "line": 1, "name": "ones"},
        {"filename": __file__, "line": 7, "name": "made"},
    ]
    block = {"address": recorded.data_ptr(), "size": 4096, "state": "active_allocated", "frames": frames}
    Card(1.0, [block]).put(monkeypatch)
    card = out_of_memory.cuda_card(0)
    assert [card.size_of(tensor) for tensor in (recorded, recorded[5:], other, fake)] == [4096, 4096, 512, 0]
    assert card.line_of(recorded) == (__file__, 7, "made")
    assert card.line_of(other) is None


def test_other_errors_are_left_alone(watch: OutOfMemoryWatch) -> None:
    watch._uncaught(RuntimeError("CUDA error: device-side assert triggered"), None)
    assert watch.last is None
    assert not when_full.problems


def test_where_the_folder_takes_no_file_the_cache_does(
    watch: OutOfMemoryWatch, virtual: VirtualMachine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    watch.folder = str(tmp_path / "file")  # no folder can be made of it; permissions do not stop root
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    full(watch, virtual)
    assert watch.last is not None
    assert Path(watch.last[0]).parent == tmp_path / "cache" / "devexplorer" / "out-of-memory"


def test_what_a_function_deletes_after_we_looked_is_gone() -> None:
    class Thing:
        pass

    thing = Thing()
    known = weakref.ref(thing)
    assert variables(sys._getframe())["thing"] is thing
    del thing
    assert known() is None


def test_the_records_say_their_version_first(ran: dict[str, Ran]) -> None:
    data = Path(ran["caught"].path).read_bytes()
    assert data.startswith(memory_report.MARK + b',"schema":1,')
    assert msgspec.json.decode(data)["schema"] == memory_report.SCHEMA
