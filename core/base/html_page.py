"""Pages of HTML that load nothing and run nothing: a frame, tables, and a style sheet, light, dark and for paper. Pure
functions, any thread.

Every text is escaped, because names come from other machines and other people.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

STYLE = """\
:root { --page: #F4F5F7; --card: #FFFFFF; --line: #DFE3E8; --text: #1D2126; --dim: #5C6570; --note: #9C6200; }
@media screen and (prefers-color-scheme: dark) {
  :root { --page: #16181C; --card: #1C1F24; --line: #2A2E35; --text: #E4E7EB; --dim: #9AA0AA; --note: #F0B429; }
}
body { margin: 0; background: var(--page); color: var(--text); font: 14px/1.45 system-ui, sans-serif; }
main { max-width: 1040px; margin: 0 auto; padding: 24px; }
section { background: var(--card); border: 1px solid var(--line); border-radius: 6px; padding: 16px 20px;
  margin: 16px 0; }
h1 { font-size: 22px; margin: 0 0 4px; } h2 { font-size: 17px; margin: 0 0 12px; } h3 { font-size: 14px;
  margin: 16px 0 6px; }
header p { margin: 4px 0; color: var(--dim); } header p.note { color: var(--note); }
.wide { overflow-x: auto; } table { border-collapse: collapse; width: 100%; font-size: 13px; }
th, td { text-align: left; padding: 4px 10px 4px 0; border-bottom: 1px solid var(--line); vertical-align: top; }
th { color: var(--dim); font-weight: 500; font-size: 12px; }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
tr.simulated td { font-style: italic; } tr.marked td { font-weight: 600; color: var(--note); }
ul { margin: 8px 0; padding-left: 20px; }
@page { size: A4; margin: 14mm; }
@media print {
  body { background: none; font-size: 11px; } main { max-width: none; padding: 0; }
  table { font-size: 10px; } th { font-size: 9px; }
  section { border: 0; padding: 0; margin: 12px 0; } .wide { overflow: visible; }
  thead { display: table-header-group; } tr, figure { break-inside: avoid; } h2, h3 { break-after: avoid; }
}
"""


def page(title: str, body: str, style: str = "") -> str:
    """A whole document; `body` is HTML, `style` follows the common style sheet."""
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        '<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light'
        ' dark">'
        f"<title>{escape(title)}</title><style>{STYLE}{style}</style></head><body><main>{body}</main></body></html>\n"
    )


def table(names: Iterable[str], body: str) -> str:
    """A table that scrolls by itself where it is too wide; a name that starts with `>` is over numbers."""
    head = "".join(
        f'<th scope="col"{_number(name.startswith(">"))}>{escape(name.removeprefix(">"))}</th>' for name in names
    )
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def table_row(
    cells: Iterable[str], *, numbers: Sequence[int] = (), simulated: bool = False, marked: bool = False
) -> str:
    """A row of texts; `numbers`: which of them are numbers; `marked`: it is what one looks for."""
    made = "".join(f"<td{_number(index in numbers)}>{escape(text)}</td>" for index, text in enumerate(cells))
    classes = " ".join(name for name, there in (("simulated", simulated), ("marked", marked)) if there)
    return f'<tr class="{classes}">{made}</tr>' if classes else f"<tr>{made}</tr>"


def _number(is_number: bool) -> str:
    return ' class="number"' if is_number else ""
