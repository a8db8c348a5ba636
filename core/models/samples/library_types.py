"""Which model of an installed library a bare name could mean, found without importing the library. Looks at its folders
only."""

from __future__ import annotations

import os
import re
from importlib.util import find_spec


def type_of_transformers(name: str) -> str | None:
    """`transformers:gpt2` for `gpt2`, where transformers is installed and has that type; else None."""
    kind = name.strip().lower().partition("?")[0]
    folder = re.sub(r"\W", "_", kind)
    try:
        spec = find_spec("transformers")
    except (ImportError, ValueError):  # half imported, or replaced
        return None
    if not folder or spec is None or not spec.submodule_search_locations:
        return None
    file = os.path.join(spec.submodule_search_locations[0], "models", folder, f"configuration_{folder}.py")
    return f"transformers:{kind}" if os.path.isfile(file) else None
