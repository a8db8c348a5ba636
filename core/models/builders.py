"""Models that can be built again: a sample model or a source, by the name that the command line takes. Whatever making
one changes in this process is taken back. Jobs thread, or the main thread of a command."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch
from torch import nn

from devexplorer.core.base import BadInput, quoted
from devexplorer.core.isolation import notebook
from devexplorer.core.isolation.model_classes import without_name
from devexplorer.core.isolation.model_source import Source, parse
from devexplorer.core.models import libraries, loading, samples
from devexplorer.core.models.guard import Changes, kept
from devexplorer.core.models.libraries import Code
from devexplorer.core.models.samples.input_spec import InputSpec
from devexplorer.core.models.walk import is_uninitialised, parameters_and_buffers
from devexplorer.core.virtual.cuda.emulation import asks_for_cards, served, virtual_cards

_NOTEBOOK = "from devexplorer import notebook"
Sizes = list[tuple[torch.dtype, int]]
"""Dtype and number of elements of each tensor."""


@dataclass(frozen=True, slots=True)
class Made:
    """A model that was made."""

    model: nn.Module
    source: Source
    changes: Changes
    code: Code
    summary: str
    """What made it: `made by net:Net`."""


class SourceRecipe:
    """How one source becomes a model here; a `Builder`. `sizes`, before `make`, tells what it needs where that takes no
    running of code twice."""

    seeded = True

    def __init__(self, source: Source, folder: str) -> None:
        """Raises `BadInput` or `Unavailable` where a library has no such model; runs no user code."""
        self.source, self.folder = source, folder
        self._prepared = None if source.own_code else libraries.prepare(source, folder)
        self._configurations: dict[str, type] = {}
        """Arguments that were made for its factory."""
        self._own_module = ""

    @property
    def title(self) -> str:
        """The source without its options."""
        return self.source.text.partition("?")[0]

    def sizes(self) -> Sizes | None:
        """Its tensors, made without values; None for user code, and where a model of a library needs
        values."""
        if self._prepared is None:
            return None
        try:
            with kept(0), torch.device("meta"):
                model = libraries.made(self._prepared, self.source)
        except BadInput:  # building with values fails too, unless it only needs values
            return None
        return [
            (tensor.dtype, tensor.numel()) for tensor in parameters_and_buffers(model) if not is_uninitialised(tensor)
        ]

    def files(self) -> dict[str, loading.Stamp]:
        """The user's files that a model made here is made of."""
        return loading.files_of(self.source, self.folder) if self.source.own_code else {}

    def make(self, seed: int = 0, *, cuda: bool = False) -> Made:
        """Make the model on the CPU, in torch's own defaults. Raises `BadInput`; everything global is as it was in any
        case.

        Code that asks for CUDA gets the virtual GPUs of this process: with `cuda` from the start, else once it has
        failed without.
        """
        try:
            return self._made(seed, served() if cuda else nullcontext())
        except BadInput as error:
            if not asks_for_cards(error):
                raise
            if cuda or not virtual_cards():
                raise BadInput(*error.findings, virtual_helps=not virtual_cards()) from error
        return self._made(seed, served())

    def _made(self, seed: int, cards: AbstractContextManager[object]) -> Made:
        with cards, kept(seed) as changes:
            model = self.build(seed)
        summary = f"made by {self.source.text}" if self._prepared is None else self._prepared.summary
        return Made(model, self.source, changes, self.code(), summary)

    def build(self, seed: int) -> nn.Module:
        """The model alone, for a separate process: whatever its code changes for the process stays. Raises
        `BadInput`."""
        if self._prepared is not None:
            return libraries.made(self._prepared, self.source)
        factory = loading.factory_of(self.source, self.folder)
        self._configurations = loading.configurations(self.source, factory)
        self._own_module = getattr(factory, "__module__", "")
        torch.default_generator.manual_seed(seed)  # the import may have drawn; a second time there is none
        model: nn.Module = loading.make(self.source, factory, self.folder)
        return model

    build_on_cpu = build

    def build_without_values(self) -> nn.Module:
        """The same on `meta`. Raises `BadInput` where its code needs values."""
        with torch.device("meta"):
            return self.build(0)

    def specs(self) -> None:
        """What its forward gets: only the model can tell."""

    def code(self) -> Code:
        """The Python that does the same in a script."""
        if self._prepared is not None:
            return self._prepared.code
        home, source = self.source.home(self.folder), self.source
        path = f"sys.path.insert(0, {quoted(home)})"
        module = source.place if source.kind == "module" else source.importable(self.folder).module
        if module:
            call = f"importlib.import_module({quoted(module)}).{source.factory}({self._arguments()})"
            return Code(("import importlib", "import sys"), (path,), call)
        file = source.file(self.folder)
        module = _variable(file)
        given = self._arguments(here=module)
        if source.is_notebook:
            imports: tuple[str, ...] = ("import sys", "import types", "from pathlib import Path", _NOTEBOOK)
            if "importlib." in given:
                imports = ("import importlib", *imports)
            space = f"{module} = sys.modules[{quoted(module)}] = types.ModuleType({quoted(module)})"
            define = f"notebook.run(Path({quoted(str(file))}), vars({module}))  # its {notebook.DEFINITIONS}"
            return Code(imports, (path, space, define), f"{module}.{source.factory}({given})")
        lines = (
            f"{path}  # modules next to the file can be imported",
            f"{module} = sys.modules.get({quoted(module)})",
            f"if getattr({module}, '__file__', None) != {quoted(str(file))}:  # a second time its classes would be"
            " others",
            f"    spec = importlib.util.spec_from_file_location({quoted(module)}, {quoted(str(file))})",
            f"    {module} = sys.modules[{quoted(module)}] = importlib.util.module_from_spec(spec)",
            f"    spec.loader.exec_module({module})",
        )
        return Code(("import importlib.util", "import sys"), lines, f"{module}.{source.factory}({given})")

    def _arguments(self, here: str = "") -> str:
        """Of the call in a script; `here`: the name of the file's module in it."""
        given = []
        for name, kind in self._configurations.items():
            is_here = here and kind.__module__ == self._own_module
            module = here if is_here else f"importlib.import_module({quoted(kind.__module__)})"
            given.append(f"{name}={module}.{kind.__qualname__}()")
        given += [f"{name}={value!r}" for name, value in self.source.options.items()]
        return ", ".join(given)


def _variable(file: Path) -> str:
    stem = "".join(letter if f"a{letter}".isidentifier() else "_" for letter in file.stem)
    return f"{stem}_file" if stem[:1].isidentifier() else f"_{stem}_file"


class Builder(Protocol):
    """Builds one model as often as needed."""

    @property
    def title(self) -> str:
        """Its name for people: `net.py:Net`."""
        ...

    @property
    def seeded(self) -> bool:
        """Whether another seed gives other initial values."""
        ...

    def build(self, seed: int) -> nn.Module:
        """Build it as its user's program would. Raises `BadInput`."""
        ...

    def build_on_cpu(self, seed: int) -> nn.Module:
        """The same with everything on the CPU, even what its code puts elsewhere; within `OnCpu`."""
        ...

    def specs(self) -> tuple[InputSpec, ...] | None:
        """What its forward gets, where that is known without asking the model."""
        ...


NamedBuilder = samples.Recipe | SourceRecipe


def builder_of(source: str, folder: str) -> NamedBuilder:
    """For a sample model's name or a source. Raises `BadInput`, with what there is to choose from where a file or a
    module is named alone; runs no user code."""
    if ":" in source:
        return SourceRecipe(parse(source), folder)
    if not samples.is_known(source):
        choice = without_name(source, folder)
        if choice is not None:
            raise BadInput(choice)
        if os.path.isfile(os.path.join(folder, source)):
            raise BadInput(
                f"'{source}' is not Python code, and no model is made of it; devexplorer show lists what a checkpoint"
                " holds; to examine its model, name the code that makes it: net.py:Net"
            )
    return samples.find(source)
