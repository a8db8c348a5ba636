"""Models of installed libraries, with random weights: transformers from a configuration, torchvision by name. Jobs
thread.

Nothing is downloaded: a name that only a hub knows is refused, and so is every option that asks for weights.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any
from unittest.mock import patch

from torch import nn

from devexplorer.core.base import BadInput, DevExplorerError, Unavailable, quoted, suggestion
from devexplorer.core.isolation.model_source import Source
from devexplorer.core.models.guard import Changes
from devexplorer.core.models.loading import error_text

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
