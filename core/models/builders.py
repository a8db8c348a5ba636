"""Models that can be built again: a sample model or a source, by the name that the command line takes; and one whose
tensors came from a workspace file, while the code that makes it has not run. Jobs thread, or the main thread of a
command.

It has the modules, parameters and buffers under their paths, so it can be looked at, moved, trained values kept and
saved again. `adopt` gives its very tensors to a model that was built since.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from devexplorer.core.base import BadInput, quoted
from devexplorer.core.isolation import notebook
from devexplorer.core.isolation.model_classes import without_name
from devexplorer.core.isolation.model_source import Source, parse
from devexplorer.core.models import libraries, loading, samples
from devexplorer.core.models.guard import Changes, kept
from devexplorer.core.models.libraries import Code
from devexplorer.core.models.samples.registry import InputSpec
from devexplorer.core.models.walk import is_uninitialised, parameters_and_buffers
from devexplorer.core.records import Record
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


class ModelOrigin(Record, omit_defaults=True):
    """Where a model comes from."""

    type: str = ""
    """Its class, for a reader."""
    recipe: str | None = None
    """The sample model."""
    source: str | None = None
    """As `OpenModel.source`."""
    folder: str = ""
    seed: int = 0
    inputs: str = ""
    guessed: str = ""
    hops: bool = False
    """Its parts fetch their inputs."""


class StoredModule(nn.Module):
    """A module of such a model."""

    origin: ModelOrigin | None = None
    """Of the model as a whole; None in its parts."""

    def forward(self, *_args: Any, **_kwargs: Any) -> Any:
        """Refuses: there is no code."""
        raise BadInput(
            "only the tensors of this model are here, without the code that runs it; choose Run its code in the menu"
            " File"
        )


def every_slot(module: nn.Module) -> Iterator[tuple[str, nn.Module, str, Tensor]]:
    """`(path, part, name in it, tensor)` of every parameter and buffer, those included that no state dict has."""
    for path, part in module.named_modules(remove_duplicate=False):
        for name, tensor in (*part._parameters.items(), *part._buffers.items()):
            if tensor is not None:
                yield f"{path}.{name}" if path else name, part, name, tensor


def adopt(model: nn.Module, stored: nn.Module) -> str | None:
    """Let a model that was just built have the tensors and modes of the stored one; ties, gradients and optimizers
    come along, because the tensors stay the same objects.

    Returns why that is impossible, as a clause, and then has changed nothing.
    """
    own = {path: (part, name, tensor) for path, part, name, tensor in every_slot(model)}
    kept = {path: tensor for path, _, _, tensor in every_slot(stored)}
    if differing := sorted(own.keys() ^ kept.keys()):
        path = differing[0]
        return f"{'it has' if path in own else 'it no longer has'} '{path}', and the file has {_other(path, kept)}"
    for path, tensor in kept.items():
        mine = own[path][2]
        if isinstance(mine, nn.Parameter) != isinstance(tensor, nn.Parameter):
            return f"'{path}' is no longer a {'parameter' if isinstance(tensor, nn.Parameter) else 'buffer'}"
        if is_uninitialised(tensor) and not is_uninitialised(mine):
            return f"'{path}' has a shape now, and none in the file"
        if not is_uninitialised(mine) and mine.shape != tensor.shape:
            return f"'{path}' is {list(mine.shape)} now, and {list(tensor.shape)} in the file"
    for path, tensor in kept.items():
        part, name, _ = own[path]
        setattr(part, name, tensor)  # a module's own __setattr__ does more: an LSTM lists its weights
    modes = {path: part.training for path, part in stored.named_modules(remove_duplicate=False)}
    for path, part in model.named_modules(remove_duplicate=False):
        part.training = modes.get(path, part.training)
    return None


def _other(path: str, kept: dict[str, Tensor]) -> str:
    return "it" if path in kept else "not"
