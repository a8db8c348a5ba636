"""What another machine prints is text and our own codes; nothing of what was on the terminal before is touched."""

from __future__ import annotations

import pytest

from devexplorer.core.cli.terminal import OwnCodes

TABLE = "\x1b[?25l\x1b[2ma  b\x1b[0m\nc\r\x1b[2K\x1b[1A\x1b[2K\x1b[31md\x1b[0m\ne\n\x1b[?25h"


def test_a_table_that_renews_itself_passes_however_it_is_cut_up() -> None:
    for size in range(1, len(TABLE)):
        codes = OwnCodes()
        pieces = [codes.shown(TABLE[start : start + size]) for start in range(0, len(TABLE), size)]
        assert "".join(pieces) + codes.end() == TABLE, size


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b]0;title\x07", "?]0;title?"),
        ("\x1b]52;c;aGk=\x1b\\\\", "?]52;c;aGk=?\\\\"),
        ("\x1bP$q\x1b\\\\", "?P$q?\\\\"),
        ("\x9b2J\x08\x0b\x0c\x00", "?2J????"),
        ("\x1b[5mblinks\x1b[8mhides\x1b[41m\x1b[38;5;8;8m", "?[5mblinks?[8mhides?[41m?[38;5;8;8m"),
        ("\x1b[6n\x1b[c\x1b[?1049h\x1b[?1000h\x1b[!p\x1bc", "?[6n?[c?[?1049h?[?1000h?[!p?c"),
        ("\x1b[1;1H\x1b[3J\x1b[1K\x1b[2;2r\x1b[5B\x1b[S", "?[1;1H?[3J?[1K?[2;2r?[5B?[S"),
        ("\x1b[2J\x1b[H\x1b[1A\x1b[A", "?[2J?[H?[A"),
        ("one\ntwo\n\x1b[9A\x1b[1Aup", "one\ntwo\n\x1b[2Aup"),
        (
            "\x1b[1;36m\x1b[38;5;237m\x1b[38;2;249;38;114ma\x1b[m",
            "\x1b[1;36m\x1b[38;5;237m\x1b[38;2;249;38;114ma\x1b[m",
        ),
        ("\x1b[" + "1" * 40 + "m", "?[" + "1" * 40 + "m"),
        ("\u202eright to left\u200b", "?right to left?"),
        ("cut off \x1b[3", "cut off ?[3"),
    ],
)
def test_everything_else_is_shown_as_signs(text: str, shown: str) -> None:
    codes = OwnCodes()
    assert codes.shown(text) + codes.end() == shown


def test_the_screen_is_cleared_once_after_its_size_has_changed() -> None:
    codes = OwnCodes()
    codes.shown("a\nb\n")
    codes.resized()
    assert codes.shown("\x1b[2J\x1b[H\x1b[2Ac\x1b[2J\x1b[H") == "\x1b[2J\x1b[Hc?[2J?[H"


def test_the_terminal_is_in_order_after_an_output_that_broke_off() -> None:
    codes = OwnCodes()
    codes.shown("\x1b[?25l\x1b[31mred")
    assert codes.end() == "\x1b[0m\x1b[?25h"
