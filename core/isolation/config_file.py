"""A configuration file as the value of an option, `cfg=@config.yaml`: where it is looked for, what it holds, and which
one is probably meant. Any thread; reads files, runs nothing and imports no torch.

YAML and TOML are data alone here: `yaml.safe_load` makes no objects of a file's choosing.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from devexplorer.core.base import BadInput, bytes_text, first_line, quoted

SIGN = "@"
MOST_BYTES = 4 << 20
_PARSERS = {
    ".yaml": ("import yaml", "yaml.safe_load"),
    ".yml": ("import yaml", "yaml.safe_load"),
    ".json": ("import json", "json.loads"),
    ".toml": ("import tomllib", "tomllib.loads"),
}
"""How a script reads a file that ends so: the import, and what is called with its text."""
_NAMES = re.compile(
    r"(.*_)?(cfg|config|configs|configuration|conf|hparams|hparam|hyperparameters|settings|args|opts?|options|params)",
    re.IGNORECASE,
)
"""Arguments that are given a whole configuration."""
_TYPABLE = re.compile(r"[\w.\-]+")
"""Names of files without what separates options."""


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """The value of an option: the mapping in a file."""

    name: str
    """As it was given: relative to the folders, or absolute."""

    def __str__(self) -> str:
        return f"{SIGN}{self.name}"

    def find(self, folders: Sequence[Path]) -> Path:
        """The first one in these folders. Raises `BadInput` where there is none."""
        named = Path(self.name).expanduser()
        places = dict.fromkeys(Path(os.path.abspath(folder / named)) for folder in folders)
        for place in places:
            if os.path.isfile(place):
                return place
        if named.is_absolute():
            raise BadInput(f"there is no file {named}")
        looked = ", ".join(str(folder) for folder in dict.fromkeys(folders))
        raise BadInput(f"there is no file '{self.name}' in {looked}")

    def read(self, folders: Sequence[Path]) -> dict[str, Any]:
        """What is in it, new each time: code may change what it was given. Raises `BadInput` with what is wrong."""
        path = self.find(folders)
        try:
            size = os.stat(path).st_size
            text = path.read_text("utf-8") if size <= MOST_BYTES else ""
        except OSError as error:
            raise BadInput(f"{path} cannot be read: {(error.strerror or str(error)).lower()}") from error
        except UnicodeDecodeError as error:
            raise BadInput(f"{path} is no text in UTF-8") from error
        if size > MOST_BYTES:
            raise BadInput(f"{path} has {bytes_text(size)}; a configuration has at most {bytes_text(MOST_BYTES)}")
        found = _parsed(text, path)
        if not isinstance(found, dict):
            held = "is empty" if found is None else f"holds a {type(found).__name__}"
            raise BadInput(f"{path} {held}; a configuration has names with values, as in width: 64")
        return found


def config_file(text: str) -> ConfigFile | None:
    """The value of an option that is `@FILE`; None for another value. Raises `BadInput` for a file of no such kind."""
    if not text.startswith(SIGN):
        return None
    name = text.removeprefix(SIGN).strip()
    if Path(name).suffix.lower() not in _PARSERS:
        raise BadInput(f"'{text}' is no configuration file: its name ends with {', '.join(_PARSERS)}")
    return ConfigFile(name)


def _parsed(text: str, path: Path) -> Any:
    kind = path.suffix.lower()
    if kind == ".json":
        parse: Any = json.loads
    elif kind == ".toml":
        parse = tomllib.loads
    else:
        try:
            parse = importlib.import_module("yaml").safe_load
        except ImportError as error:
            raise BadInput(
                f"{path.name} is YAML, and PyYAML is not installed: pip install pyyaml, or write it as JSON or TOML"
            ) from error
    try:
        return parse(text)
    except Exception as error:  # PyYAML lets an IndexError of its own through: `width: !!int ''`
        raise BadInput(f"{path} is no {kind[1:].upper()}{_reason(error)}") from error


def _reason(error: Exception) -> str:
    """`, line 3: expected ':'`."""
    mark = getattr(error, "problem_mark", None)
    if mark is not None:
        return f", line {mark.line + 1}: {getattr(error, 'problem', None) or 'it cannot be parsed'}"
    return f": {first_line(error)}"


def filled(options: Mapping[str, Any], folders: Sequence[Path]) -> dict[str, Any]:
    """The options with what is in their files. Raises `BadInput`."""
    values: dict[str, Any] = {}
    for name, value in options.items():
        if isinstance(value, ConfigFile):
            value = value.read(folders)
        elif isinstance(value, dict):
            value = filled(value, folders)
        values[name] = value
    return values


def config_files(options: Mapping[str, Any]) -> Iterator[ConfigFile]:
    """Those among the options, and among the options within them."""
    for value in options.values():
        if isinstance(value, ConfigFile):
            yield value
        elif isinstance(value, dict):
            yield from config_files(value)


def value_code(value: Any, folders: Sequence[Path]) -> str:
    """A value of an option as Python: a file is read by the script as well."""
    if isinstance(value, ConfigFile):
        path = value.find(folders)
        return f"{_PARSERS[path.suffix.lower()][1]}(Path({quoted(str(path))}).read_text('utf-8'))"
    if isinstance(value, dict):
        items = (f"{name!r}: {value_code(inner, folders)}" for name, inner in value.items())
        return f"{{{', '.join(items)}}}"
    return repr(value)


def imports(options: Mapping[str, Any]) -> tuple[str, ...]:
    """What `value_code` needs."""
    found = [_PARSERS[Path(file.name).suffix.lower()][0] for file in config_files(options)]
    return (*dict.fromkeys(found), "from pathlib import Path") if found else ()


def probable(argument: str, folders: Sequence[Path]) -> ConfigFile | None:
    """The file that is probably meant for an argument: of its own name, or `config*` where the argument's name says
    that it is a configuration. In the first of the folders that has one."""
    for folder in folders:
        try:
            names = sorted(name for name in os.listdir(folder) if _TYPABLE.fullmatch(name))
        except OSError:
            continue
        for stem in _stems(argument):
            for name in names:
                path = Path(name)
                if path.suffix.lower() in _PARSERS and re.fullmatch(stem, path.stem) and os.path.isfile(folder / name):
                    return ConfigFile(name)
    return None


def _stems(argument: str) -> tuple[str, ...]:
    """Patterns of names without their ending, the likeliest first."""
    own = re.escape(argument)
    return (own, "config", "config.*") if _NAMES.fullmatch(argument) else (own,)
