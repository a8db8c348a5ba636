"""How names are written in Python."""

from __future__ import annotations

import ast

import pytest

from devexplorer.core.base import quoted


@pytest.mark.parametrize("name", ['a"; import os #', "a\\", "a\nb", "a\u2028b", "😀", "\udcff", "\\N{DIGIT ONE}", "\0"])
def test_a_quoted_name_means_the_same_in_a_file_of_python(name: str) -> None:
    """Also that of a file with bytes that are no UTF-8, which Python reads as halves of pairs."""
    assert ast.literal_eval(quoted(name).encode().decode()) == name
