"""Injects a known defect at a random place of a clean model, and lets the doctor look for it. In this process, on the
main thread."""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import io
import random
import re
import signal
import sys
import textwrap
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from msgspec.structs import replace
from torch import nn

from devexplorer.core.base import BadInput
from devexplorer.core.doctor.examine import examine
from devexplorer.core.models import samples
from devexplorer.core.models.inputs import specs_for, tensors_for
from devexplorer.core.models.run import total
from devexplorer.core.records import Diagnosis, DoctorRequest, Finding
from devexplorer.core.virtual.backend import install
from fakes.defects import Defect
from fakes.doctor_models import cases

SECONDS = 60
"""That one examination may take."""
REACHED = """

REACHED = []


def reached(value):
    REACHED.append(isinstance(value, torch.Tensor) and value.is_floating_point() and value.dim() > 0)
"""
WRAPPED = """import torch
from torch import nn
{imports}

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = {inner}
        self.inner.get_submodule({path!r}).register_forward_hook(self.changed)

    def changed(self, module, given, value):
        if isinstance(value, torch.Tensor):
            value = value * 1.0
        return value

    def forward(self, *given):
        return self.inner(*given)
"""
TRANSFORMERS = (
    (
        "bert",
        "hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24, vocab_size=60",
        "2x8:int64",
    ),
    ("gpt2", "n_layer=2, n_embd=16, n_head=2, vocab_size=60, bos_token_id=1, eos_token_id=2", "2x8:int64"),
    (
        "llama",
        (
            "hidden_size=16, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2, intermediate_size=24,"
            " vocab_size=60"
        ),
        "2x8:int64",
    ),
    (
        "vit",
        (
            "num_hidden_layers=2, hidden_size=16, num_attention_heads=2, intermediate_size=24, image_size=32,"
            " patch_size=16"
        ),
        "2x3x32x32",
    ),
)


@dataclass(frozen=True)
class Subject:
    """A model without a defect, as source."""

    name: str
    source: str
    factory: str
    request: DoctorRequest


@dataclass(frozen=True)
class Outcome:
    """The result of one injection."""

    subject: str
    kind: str
    state: str
    """`found`, `missed`, or why there was nothing to find: `invalid: …`."""
    others: tuple[Finding, ...] = ()
    """Problems that are neither at the line nor in the original model."""
    said: tuple[Finding, ...] = ()


# --- clean models


def corpus() -> list[Subject]:
    """Those of `tests/doctor_models/clean.txt` without special options that move without changes."""
    plain = [case for case in cases("clean") if "needs" not in case.directives]
    requests = [(case, case.request(Path())) for case in plain if not re.search(r"def (to|_apply)\(", case.text)]
    return [Subject(case.name, case.text, one.source.partition(":")[2], one) for case, one in requests]


def wrapped_zoo(names: Sequence[str], random_: random.Random) -> Iterator[Subject]:
    """Sample models, changed by a hook on a random module."""
    for name in names:
        shapes = ",".join(
            "x".join(map(str, (2, *one.shape))) + (":int64" if one.dtype is not None else "")
            for one in samples.find(name).inputs
        )
        model = samples.build(name, 0)
        yield _wrapped(name, "from devexplorer import samples\n", f"samples.build({name!r}, 0)", model, shapes, random_)


def wrapped_transformers(random_: random.Random) -> Iterator[Subject]:
    """Configurations of transformers, changed in the same way."""
    transformers = importlib.import_module("transformers")
    for kind, options, shapes in TRANSFORMERS:
        inner = f"AutoModel.from_config(AutoConfig.for_model({kind!r}, {options}))"
        model = eval(inner, {"AutoModel": transformers.AutoModel, "AutoConfig": transformers.AutoConfig})
        yield _wrapped(kind, "from transformers import AutoConfig, AutoModel\n", inner, model, shapes, random_)


def _wrapped(name: str, imports: str, inner: str, model: nn.Module, shapes: str, random_: random.Random) -> Subject:
    parts = [path for path, one in model.named_modules() if path and next(one.parameters(), None) is not None]
    source = WRAPPED.format(imports=imports, inner=inner, path=random_.choice(parts))
    request = DoctorRequest(source="net.py:Net", device="vgpu:0", virtual="2x Tesla T4", inputs=shapes)
    return Subject(name, source, "Net", request)


# --- injection


def injected(subject: Subject, defect: Defect, random_: random.Random) -> tuple[str, int] | None:
    """The source with the defect at a random place, and its line; None if there is no place for it."""
    tree = ast.parse(subject.source)
    places = [
        (kind, method, at) for kind in tree.body if isinstance(kind, ast.ClassDef) for method, at in _places(kind)
    ]
    places = [one for one in places if not defect.make or _init_of(one[0]) is not None]
    if not places:
        return None
    kind, _, at = random_.choice(places)
    lines = subject.source.splitlines()
    edits = [_work(lines, at, defect.work)]
    init = _init_of(kind)
    if defect.make and init is not None:
        last = init.body[-1]
        edits.append((last.end_lineno or last.lineno, 0, _indented(defect.make, last.col_offset)))
    for line, replaced, new in sorted(edits, reverse=True):
        lines[line - replaced : line] = new
    text = "\n".join(lines) + REACHED
    marked = [number for number, line in enumerate(text.splitlines(), 1) if line.endswith("# defect")]
    return (text, marked[0]) if len(marked) == 1 else None


def _places(kind: ast.ClassDef) -> Iterator[tuple[ast.FunctionDef, ast.stmt]]:
    """Assignments of a name from a call or an operation, and returns, in methods that forward a value."""
    for method in kind.body:
        if isinstance(method, ast.FunctionDef) and method.name in ("forward", "changed") and not method.decorator_list:
            for node in ast.walk(method):
                if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                    if isinstance(node.value, (ast.Call, ast.BinOp)):
                        yield method, node
                elif (
                    isinstance(node, ast.Return)
                    and isinstance(node.value, (ast.Call, ast.BinOp))
                    and node in method.body
                ):
                    yield method, node


def _init_of(kind: ast.ClassDef) -> ast.FunctionDef | None:
    found = next((one for one in kind.body if isinstance(one, ast.FunctionDef) and one.name == "__init__"), None)
    return found if found is not None and re.search(r"super\(\)\.__init__\(", ast.unparse(found)) else None


def _work(lines: list[str], at: ast.stmt, work: str) -> tuple[int, int, list[str]]:
    """Where to insert lines, how many to replace, and the lines."""
    end = at.end_lineno or at.lineno
    if isinstance(at, ast.Assign):
        assert isinstance(at.targets[0], ast.Name)
        name = at.targets[0].id
        return end, 0, _indented(f"reached({name})\n{_named(work, name)}", at.col_offset)
    assert isinstance(at, ast.Return)
    assert at.value is not None
    value = ast.unparse(at.value)
    text = f"injected_value = {value}\nreached(injected_value)\n{_named(work, 'injected_value')}\nreturn injected_value"
    return end, end - at.lineno + 1, _indented(text, at.col_offset)


def _named(work: str, name: str) -> str:
    return re.sub(r"\bV\b", name, work)


def _indented(text: str, columns: int) -> list[str]:
    return textwrap.indent(text, " " * columns).splitlines()


# --- looking for it


def looked_for(subject: Subject, kind: str, defect: Defect, folder: Path, random_: random.Random) -> Outcome:
    """Inject it, run the doctor, and compare with the diagnosis of the original model."""
    made = injected(subject, defect, random_)
    if made is None:
        return Outcome(subject.name, kind, "invalid: no place for it")
    text, line = made
    request = replace(subject.request, train=subject.request.train or defect.train)
    if defect.cuts and not _cut_more(subject, request, text, folder):
        return Outcome(subject.name, kind, "invalid: no parameter learns through this place")
    try:
        before = said(subject.source, subject.factory, request, folder)
        diagnosis, reached = _examined(text, subject.factory, request, folder)
    except BadInput:
        return Outcome(subject.name, kind, "invalid: it fails on the CPU as well")
    if not reached or not all(reached):
        return Outcome(subject.name, kind, "invalid: not reached, or no float tensor")
    mine = [one for one in diagnosis.problems if Path(one.file).parent == folder]
    found = any(one.line == line and one.rule in defect.rules for one in mine)
    old = {one.rule for one in before.problems}
    near = range(line - 3, line + 4)
    old.add("dtype-promotion")  # a constant of float32 in a model of half precision: true, but not the injected defect
    others = tuple(
        one
        for one in diagnosis.problems
        if one.line not in near and one.rule not in old and one.rule not in defect.rules
    )
    return Outcome(subject.name, kind, "found" if found else "missed", others, diagnosis.problems)


_said: dict[tuple[str, bool], Diagnosis] = {}


def said(source: str, factory: str, request: DoctorRequest, folder: Path) -> Diagnosis:
    """The diagnosis of an original model; cached."""
    key = source, request.train
    if key not in _said:
        _said[key] = _examined(source, factory, request, folder)[0]
    return _said[key]


def _examined(text: str, factory: str, request: DoctorRequest, folder: Path) -> tuple[Diagnosis, list[bool]]:
    with _file(text, folder) as file, _limited(), contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        install().reset()
        known = set(sys.modules)
        diagnosis = examine(replace(request, source=f"{file.name}:{factory}", folder=str(folder)))
        modules = [sys.modules[name] for name in set(sys.modules) - known]
        return diagnosis, next((one.REACHED for one in modules if hasattr(one, "REACHED")), [])


def _cut_more(subject: Subject, request: DoctorRequest, text: str, folder: Path) -> bool:
    """Whether fewer parameters get a gradient with the defect, on the CPU and without the doctor."""
    before, after = (_with_gradient(source, subject.factory, request, folder) for source in (subject.source, text))
    return before is not None and after is not None and after < before


def _with_gradient(text: str, factory: str, request: DoctorRequest, folder: Path) -> int | None:
    with _file(text, folder) as file, _limited(), contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            module = _imported(file)
            torch.manual_seed(0)
            model: nn.Module = getattr(module, factory)()
            given = tensors_for(model, specs_for(model, factory, request.inputs, values=True), seed=0)
            loss = total(model.train()(*given))
            if loss is not None:
                loss.backward()
        except Exception:
            return None
        finally:
            torch.set_grad_enabled(True)
    return sum(one.grad is not None for one in model.parameters())


def _imported(file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"plain_{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_numbers = iter(range(10**9))


@contextlib.contextmanager
def _file(text: str, folder: Path) -> Iterator[Path]:
    """A separate file; its modules are unloaded afterwards."""
    file = folder / f"injected_{next(_numbers)}.py"
    file.write_text(text)
    try:
        yield file
    finally:
        file.unlink()
        for name in [name for name, one in sys.modules.items() if getattr(one, "__file__", None) == str(file)]:
            del sys.modules[name]


@contextlib.contextmanager
def _limited() -> Iterator[None]:
    def over(number: int, frame: Any) -> None:
        raise TimeoutError(f"took more than {SECONDS} s")

    before = signal.signal(signal.SIGALRM, over)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


__all__ = ["Outcome", "Subject", "corpus", "looked_for", "said", "wrapped_transformers", "wrapped_zoo"]
