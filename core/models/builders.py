"""Models that can be built again: a sample model, a source, or one of an installed library with random weights, by the
name that the command line takes; and one whose tensors came from a workspace file, while its code has not run. Jobs
thread, or the main thread of a command.

Of libraries nothing is downloaded: a name that only a hub knows is refused, and so is every option that asks for
weights.

A `StoredModule` has the modules, parameters and buffers under their paths, so it can be looked at, moved, trained
values kept and saved again. `adopt` gives its very tensors to a model that was built since."""

from __future__ import annotations

import importlib
import inspect
import json
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Protocol
from unittest.mock import patch

import torch
from torch import Tensor, nn

from devexplorer.core.base import BadInput, DevExplorerError, Unavailable, quoted, suggestion
from devexplorer.core.isolation import config_file, notebook
from devexplorer.core.isolation.model_classes import without_name
from devexplorer.core.isolation.model_source import Source, parse
from devexplorer.core.models import loading, samples
from devexplorer.core.models.guard import Changes, kept
from devexplorer.core.models.loading import error_text
from devexplorer.core.models.samples.registry import InputSpec
from devexplorer.core.models.walk import is_uninitialised, parameters_and_buffers
from devexplorer.core.records import Record
from devexplorer.core.virtual.cuda.emulation import asks_for_cards, served, virtual_cards

HEADS: Mapping[str, str] = {
    "base": "AutoModel",
    "seq2seq-lm": "AutoModelForSeq2SeqLM",
    "masked-lm": "AutoModelForMaskedLM",
    "causal-lm": "AutoModelForCausalLM",
    "sequence-classification": "AutoModelForSequenceClassification",
    "token-classification": "AutoModelForTokenClassification",
    "question-answering": "AutoModelForQuestionAnswering",
    "image-classification": "AutoModelForImageClassification",
}
"""`head=` -> the class of transformers that makes a model with it."""
LANGUAGE = ("seq2seq-lm", "masked-lm", "causal-lm")
"""Tried in this order where neither `head=` nor the configuration says which: BERT fills masks, GPT-2 and Llama
continue a text."""
WEIGHTS = ("weights", "weights_backbone", "pretrained", "pretrained_backbone")


@dataclass(frozen=True, slots=True)
class Code:
    """The Python that makes a model, in parts."""

    imports: tuple[str, ...]
    lines: tuple[str, ...]
    expression: str

    def text(self, name: str, seed: int, changes: Changes, move: str = "") -> str:
        """The whole of it, with the model bound to `name`; `move` is put behind it: `.to("vgpu:0")`."""
        imports = [*self.imports, "import torch"]
        lines = [*self.lines, f"torch.manual_seed({seed})"]
        if changes.random:
            imports.append("import random")
            lines.append(f"random.seed({seed})")
        if changes.numpy:
            imports.append("import numpy")
            lines.append(f"numpy.random.seed({seed % 2**32})")
        imports.sort(key=lambda line: (line.startswith("from "), line))
        moved = [f"{name} = {name}{move}"] if move else []
        return "\n".join([*dict.fromkeys(imports), "", *lines, f"{name} = {self.expression}", *changes.code, *moved])


@dataclass(frozen=True, slots=True)
class Prepared:
    """A model that can be made, and its Python."""

    make: Callable[[], nn.Module]
    code: Code
    summary: str
    """What it is, in a phrase."""


def prepare(source: Source, folder: str) -> Prepared:
    """Everything short of making the model. Raises `BadInput`, or `Unavailable` where the library is not installed."""
    with _offline():
        return _transformers(source, folder) if source.kind == "transformers" else _torchvision(source)


def made(prepared: Prepared, source: Source) -> nn.Module:
    """Make it where torch's default device is; raises `BadInput` when the library refuses."""
    try:
        with _offline():
            model = prepared.make()
    except DevExplorerError:
        raise
    except Exception as error:
        raise BadInput(f"{source.kind} cannot make {source.text}: {error_text(error)}") from error
    if not isinstance(model, nn.Module):
        raise BadInput(f"{source.kind} gave a {type(model).__name__} for {source.text}; a torch.nn.Module is required")
    return model


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        if error.name is not None and error.name.partition(".")[0] != name:
            raise Unavailable(f"the package {name} cannot be imported: {error_text(error)}") from error
        how = (
            'pip install "devexplorer[models]"'
            if name == "transformers"
            else f"pip install {name}, in the version that fits this torch"
        )
        raise Unavailable(f"the package {name} is not installed; get it with {how}") from error


# --- transformers


def _transformers(source: Source, folder: str) -> Prepared:
    if not source.place.endswith(".json") and "/" in source.place:
        raise BadInput(
            f"'{source.place}' is a name on a hub, and nothing is downloaded; save its config.json and name that file,"
            " or take a model type as in transformers:llama"
        )
    transformers = _library("transformers")
    options = dict(source.options)
    head = options.pop("head", None)
    if head is not None and head not in HEADS:
        raise BadInput(f"there is no head '{head}'; {suggestion(str(head), HEADS)}")
    content = _content(source, folder) if source.place.endswith(".json") else {}
    kind = content.get("model_type", source.place) if content else source.place
    mapping = importlib.import_module("transformers.models.auto.configuration_auto").CONFIG_MAPPING
    if kind not in mapping:
        raise BadInput(
            f"transformers {transformers.__version__} has no model type '{kind}'; {_near(kind, list(mapping.keys()))}"
            " (names of a hub are not looked up)"
        )
    try:
        config = _config(mapping[kind], content, options, kind)
    except DevExplorerError:
        raise
    except Exception as error:
        raise BadInput(
            f"transformers refuses this configuration of {kind}: {' '.join(str(error).split())[:200]}"
        ) from error
    auto, direct = _architecture(transformers, config, head, kind)
    given = "".join(f", {key}={value!r}" for key, value in options.items())
    line = f"config = AutoConfig.for_model({quoted(kind)}{given})"
    if content:
        line = f"config = AutoConfig.from_pretrained({quoted(str(source.file(folder)))}{given})"
    imported = auto or direct
    make = getattr(transformers, auto).from_config if auto else getattr(transformers, direct)
    origin = f"the configuration {source.place}" if content else f"its configuration of {kind}"
    return Prepared(
        lambda: make(config),
        Code(
            (f"from transformers import AutoConfig, {imported}",),
            (line,),
            f"{auto}.from_config(config)" if auto else f"{direct}(config)",
        ),
        f"made by transformers {transformers.__version__} from {origin}",
    )


def _content(source: Source, folder: str) -> dict[str, Any]:
    path = source.file(folder)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {(error.strerror or str(error)).lower()}") from error
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{path} is no JSON: {error_text(error)}") from error
    if not isinstance(content, dict) or not isinstance(content.get("model_type"), str):
        raise BadInput(f"{path} names no model_type, so it is no configuration of transformers")
    content.pop("auto_map", None)  # it names code that came with the weights; the library's own class is made instead
    content.pop("quantization_config", None)  # of weights that are not loaded
    return content


def _config(kind: Any, content: dict[str, Any], options: dict[str, Any], name: str) -> Any:
    usual = kind()
    ways = {key.removeprefix("_") for key in dir(kind) if key.startswith("_") and key.endswith("_implementation")}
    _check_options(name, usual, options, {*content, *ways})
    merged = {
        key: {**content[key], **value} if isinstance(value, dict) and isinstance(content.get(key), dict) else value
        for key, value in options.items()
    }
    return kind.from_dict(content, **merged) if content else kind(**merged)


def _check_options(
    name: str, config: Any, options: Mapping[str, Any], others: Collection[str] = (), above: str = ""
) -> None:
    """Raise `BadInput` for options that a configuration, or one within it (`text_config.num_hidden_layers=2`), has
    not. `others` are what it takes as well; `above` is its path, with a dot."""
    known = sorted({above + key for key in (*config.to_dict(), *getattr(config, "attribute_map", {}), *others)})
    unknown = [path for key in options if (path := above + key) not in known]
    if unknown:
        raise BadInput(*(f"the configuration of {name} has no '{path}'; {_near(path, known)}" for path in unknown))
    for key, value in options.items():
        part = getattr(config, key, None)
        if isinstance(value, dict) and hasattr(part, "to_dict"):
            _check_options(name, part, value, above=f"{above}{key}.")


def _architecture(transformers: Any, config: Any, head: str | None, kind: str) -> tuple[str, str]:
    """The Auto class that makes the model, or else the name of its own class."""
    tables = {name: getattr(transformers, auto)._model_mapping for name, auto in HEADS.items()}
    if head is not None:
        if type(config) not in tables[head]:
            has = [name for name, table in tables.items() if type(config) in table]
            raise BadInput(f"{kind} has no head '{head}' in transformers; it has {', '.join(has) or 'no head at all'}")
        return HEADS[head], ""
    for name in config.architectures or ():
        own = getattr(transformers, name, None)
        if not isinstance(own, type) or not issubclass(own, nn.Module):
            continue
        auto = next(
            (HEADS[head] for head, table in tables.items() if type(config) in table and table[type(config)] is own), ""
        )
        return auto, name
    for name in (*LANGUAGE, "base", *HEADS):
        if type(config) in tables[name]:
            return HEADS[name], ""
    raise BadInput(f"transformers makes no model from a configuration of {kind}; choose another model type")


def _near(word: str, known: Collection[str]) -> str:
    """The nearest names, or how many there are with a few examples."""
    if near := get_close_matches(word, known, n=3):
        return f"did you mean {' or '.join(near)}?"
    return f"there are {len(known)} of them, such as {', '.join(list(known)[:4])}"


@contextmanager
def _offline() -> Iterator[None]:
    """A configuration can ask for a part that comes from a hub; that fails at once instead of being fetched."""
    before = os.environ.get("HF_HUB_OFFLINE")
    os.environ["HF_HUB_OFFLINE"] = "1"
    constants: Any = None
    with suppress(ImportError):
        constants = importlib.import_module("huggingface_hub.constants")
    known = hasattr(constants, "HF_HUB_OFFLINE")
    try:
        with patch.object(constants, "HF_HUB_OFFLINE", True) if known else nullcontext():
            yield
    finally:
        if before is None:
            del os.environ["HF_HUB_OFFLINE"]
        else:
            os.environ["HF_HUB_OFFLINE"] = before


# --- torchvision


def _torchvision(source: Source) -> Prepared:
    models = _library("torchvision").models
    asked = [key for key in source.options if key in WEIGHTS and source.options[key]]
    if asked:
        raise BadInput(
            f"'{asked[0]}' would download weights, and nothing is downloaded; open the model without, then load a"
            " checkpoint"
        )
    known = models.list_models()
    if source.place not in known:
        raise BadInput(f"torchvision has no model '{source.place}'; {_near(source.place, known)}")
    builder = models.get_model_builder(source.place)
    takes = inspect.signature(builder).parameters
    free = any(item.kind is item.VAR_KEYWORD for item in takes.values())
    unknown = [key for key in source.options if key not in takes and not free]
    if unknown:
        raise BadInput(
            *(f"torchvision's {source.place} has no option '{key}'; {suggestion(key, list(takes))}" for key in unknown)
        )
    options = {"weights": None, **({"weights_backbone": None} if "weights_backbone" in takes else {}), **source.options}
    given = "".join(f", {key}={value!r}" for key, value in options.items())
    return Prepared(
        lambda: builder(**options),
        Code(("import torchvision",), (), f"torchvision.models.get_model({quoted(source.place)}{given})"),
        f"made by torchvision from its model {source.place}",
    )


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
        self._prepared = None if source.own_code else prepare(source, folder)
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
                model = made(self._prepared, self.source)
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
            torch.default_generator.manual_seed(seed)
            return made(self._prepared, self.source)
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
        reading = config_file.imports(source.options)
        module = source.place if source.kind == "module" else source.importable(self.folder).module
        if module:
            call = f"importlib.import_module({quoted(module)}).{source.factory}({self._arguments()})"
            return Code(("import importlib", "import sys", *reading), (path,), call)
        file = source.file(self.folder)
        module = _variable(file)
        given = self._arguments(here=module)
        if source.is_notebook:
            imports: tuple[str, ...] = ("import sys", "import types", "from pathlib import Path", _NOTEBOOK)
            if "importlib." in given:
                imports = ("import importlib", *imports)
            space = f"{module} = sys.modules[{quoted(module)}] = types.ModuleType({quoted(module)})"
            define = f"notebook.run(Path({quoted(str(file))}), vars({module}))  # its {notebook.DEFINITIONS}"
            return Code((*imports, *reading), (path, space, define), f"{module}.{source.factory}({given})")
        lines = (
            f"{path}  # modules next to the file can be imported",
            f"{module} = sys.modules.get({quoted(module)})",
            f"if getattr({module}, '__file__', None) != {quoted(str(file))}:  # a second time its classes would be"
            " others",
            f"    spec = importlib.util.spec_from_file_location({quoted(module)}, {quoted(str(file))})",
            f"    {module} = sys.modules[{quoted(module)}] = importlib.util.module_from_spec(spec)",
            f"    spec.loader.exec_module({module})",
        )
        return Code(("import importlib.util", "import sys", *reading), lines, f"{module}.{source.factory}({given})")

    def _arguments(self, here: str = "") -> str:
        """Of the call in a script; `here`: the name of the file's module in it."""
        given = []
        for name, kind in self._configurations.items():
            is_here = here and kind.__module__ == self._own_module
            module = here if is_here else f"importlib.import_module({quoted(kind.__module__)})"
            given.append(f"{name}={module}.{kind.__qualname__}()")
        folders = self.source.config_folders(self.folder)
        given += [f"{name}={config_file.value_code(value, folders)}" for name, value in self.source.options.items()]
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
