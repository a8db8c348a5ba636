"""The stylesheet: what the palette cannot say about Qt's own widgets. Main thread only.

No fonts and no sizes of text here (see `theme.font`). The only images are ticks and arrows (`style-*.svg`).
A widget asks for a look with dynamic properties: `look` on buttons and fields (`primary`, `quiet`, `copy`, `code`),
`words` on labels (`dim`, `soft`, `warning`, `error`).

Tooltips are plain text, whoever sets them: Qt would show a text with tags as rich text, and names come from files and
other machines; an `<img>` of theirs would be loaded, and one that is a FIFO would stop the window for good. The
property is set before the first text (`QTipLabel` is polished when it is made). Labels are plain where they are made.
"""

from __future__ import annotations

from importlib.resources import files
from string import Template
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from devexplorer.gui.widgets.theme import Theme

_SHEET = Template("""
QToolTip {
  color: $text; background: $card; border: 1px solid $border_strong; padding: 4px 6px;
  qproperty-textFormat: PlainText;
}

QLabel[words="dim"] { color: $dim; }
QLabel[words="soft"] { color: $soft; }
QLabel[words="warning"] { color: $warning; }
QLabel[words="error"] { color: $error; }
QLabel#readout {
  color: $text; background: $card; border: 1px solid $border_strong; border-radius: 4px; padding: 4px 7px;
}

QPushButton, QToolButton {
  color: $text; background: $button; border: 1px solid $border_strong; border-radius: 5px; padding: 4px 11px;
}
QToolButton { padding: 3px 11px 2px 11px; }
QFileDialog QToolButton { padding: 2px; }
QPushButton:hover, QToolButton:hover { background: $button_hover; }
QPushButton:pressed, QToolButton:pressed, QPushButton:checked, QToolButton:checked { background: $border; }
QPushButton:focus, QToolButton:focus { border-color: $focus; }
QPushButton:disabled, QToolButton:disabled { color: $disabled; background: $panel; border-color: $border; }
QPushButton[look="primary"], QToolButton[look="primary"] {
  color: $accent_text; background: $accent; border-color: $accent;
}
QPushButton[look="primary"]:focus, QToolButton[look="primary"]:focus { border-color: $accent_text; }
QPushButton[look="primary"]:disabled, QToolButton[look="primary"]:disabled {
  color: $disabled; background: $panel; border-color: $border;
}
QPushButton[look="quiet"], QToolButton[look="quiet"] {
  color: $dim; background: transparent; border: 1px solid transparent; padding: 1px 6px;
}
QPushButton[look="quiet"]:hover, QToolButton[look="quiet"]:hover { color: $text; background: $button_hover; }
QPushButton[look="quiet"]:focus, QToolButton[look="quiet"]:focus { border-color: $focus; }
QPushButton[look="quiet"]:disabled, QToolButton[look="quiet"]:disabled { color: $disabled; }
QPushButton[words="error"] { color: $error; }
QPushButton[look="quiet"]:checked { color: $text; background: $border; }
QFrame#rail { background: $panel; border: 0; border-right: 1px solid $border; }
QToolButton[look="rail"] {
  color: $soft; background: transparent; border: 1px solid transparent; border-radius: 6px; padding: 5px 0 3px 0;
}
QToolButton[look="rail"]:hover { background: $button_hover; }
QToolButton[look="rail"]:checked { color: $text; background: $border; }
QToolButton[look="rail"]:focus { border-color: $focus; }
QToolButton[look="title"] {
  color: $text; background: transparent; border: 1px solid transparent; padding: 1px 4px;
}
QToolButton[look="title"]:hover { background: $button_hover; }
QToolButton[look="title"]:focus { border-color: $focus; }
QPushButton[look="copy"] { color: $dim; background: $code; border-radius: 4px; padding: 1px 6px; }
QPushButton[look="copy"]:hover { color: $text; }
QPushButton::menu-indicator, QToolButton::menu-indicator { width: 0; image: none; }

QLineEdit, QPlainTextEdit, QAbstractSpinBox, QComboBox {
  color: $text; background: $field; border: 1px solid $border_strong; border-radius: 5px; padding: 3px 7px;
  selection-background-color: $accent; selection-color: $accent_text;
}
QLineEdit:focus, QPlainTextEdit:focus, QAbstractSpinBox:focus, QComboBox:focus { border-color: $focus; }
QLineEdit:disabled, QAbstractSpinBox:disabled, QComboBox:disabled { color: $disabled; background: $panel; }
QLineEdit[look="quiet"] { background: transparent; border: 1px solid transparent; padding: 1px 6px; }
QLineEdit[look="quiet"]:hover { border-color: $border_strong; }
QLineEdit[look="quiet"]:focus { background: $field; border-color: $focus; }
QPlainTextEdit[look="code"] { background: $code; border: 1px solid $border; padding: 8px 9px; }
QPlainTextEdit[look="code"]:focus { border-color: $focus; }
QPlainTextEdit[look="log"] { background: $panel; border: 1px solid transparent; border-radius: 0; padding: 7px 10px; }
QPlainTextEdit[look="log"]:focus { border-color: $focus; }
QTextEdit[look="block"] { color: $text; background: transparent; border: 0; padding: 0; }
QTextEdit[words="dim"] { color: $dim; }
QTextEdit[words="soft"] { color: $soft; }
QTextEdit[words="error"] { color: $error; }
QComboBox { padding-left: 9px; }
QComboBox:editable { padding-left: 7px; }
QComboBox::drop-down { border: 0; width: 20px; }
QComboBox::down-arrow, QAbstractSpinBox::down-arrow { image: url("$icons/style-down.svg"); width: 10px; height: 10px; }
QAbstractSpinBox { padding: 2px 18px 1px 7px; }
QComboBox QLineEdit { background: transparent; border: 0; padding: 0; }
QAbstractSpinBox QLineEdit { background: transparent; border: 0; padding: 0; }
QAbstractSpinBox::up-button, QAbstractSpinBox::down-button { background: transparent; border: 0; width: 18px; }
QAbstractSpinBox::up-arrow { image: url("$icons/style-up.svg"); width: 10px; height: 10px; }
QCheckBox { spacing: 7px; }
QCheckBox::indicator, QTreeView::indicator, QListView::indicator {
  width: 14px; height: 14px; background: $field; border: 1px solid $bar_other; border-radius: 3px;
}
QCheckBox::indicator:focus { border-color: $focus; }
QCheckBox { border: 1px solid transparent; border-radius: 4px; padding: 0 2px; }
QCheckBox:focus { border-color: $focus; }
QCheckBox::indicator:checked, QTreeView::indicator:checked, QListView::indicator:checked {
  background: $accent; border-color: $accent; image: url("$icons/$tick.svg");
}
QCheckBox::indicator:disabled { background: $panel; border-color: $border; }
QComboBox QAbstractItemView {
  color: $text; background: $panel; border: 1px solid $border_strong; padding: 3px;
  selection-background-color: $selection; selection-color: $text; outline: 0;
}

QFrame#panel { background: $panel; border: 1px solid $border; border-radius: 6px; }
QWidget#panelHeader { border: 0; border-bottom: 1px solid $border; }
QFrame#offer { background: $card; border: 1px solid $border_strong; border-radius: 6px; }
QScrollArea, QScrollArea > QWidget > QWidget#scrolled { background: transparent; border: 0; }
QWidget#focusFrame { background: transparent; border: 1px solid $focus; }

QTreeView::branch:has-children:closed { image: url("$icons/style-right.svg"); }
QTreeView::branch:has-children:open { image: url("$icons/style-down.svg"); }
QTreeView, QTableView, QListView { color: $text; background: $panel; border: 0; outline: 0; }
QListView#boxed, QTreeView#boxed {
  background: $window; border: 1px solid $border_strong; border-radius: 5px; padding: 3px;
}
QListView#boxed:focus, QTreeView#boxed:focus { border-color: $focus; }
QListView#boxed::item { padding: 4px 6px; border-radius: 4px; }
QTreeView#boxed::item { padding: 4px 6px; }
QListView#boxed::item:selected, QTreeView#boxed::item:selected { color: $text; background: $selection; }
QHeaderView { background: $panel; border: 0; }
QHeaderView::section {
  color: $dim; background: $panel; border: 0; border-bottom: 1px solid $border; padding: 0 12px 0 0;
}
QHeaderView::section:first { padding-left: 12px; }

QMenu { color: $text; background: $panel; border: 1px solid $border_strong; padding: 4px; }
QMenu::item { padding: 5px 24px 5px 10px; border-radius: 4px; }
QMenu::item:selected { background: $selection; }
QMenu::item:disabled { color: $disabled; }
QMenu::icon { padding-left: 8px; }
QMenu::separator { height: 1px; background: $border; margin: 4px 6px; }

QTabWidget::pane { border: 0; border-top: 1px solid $border; }
QTabWidget::tab-bar { left: 2px; }
QTabBar { background: transparent; border: 0; }
QTabBar::tab {
  color: $dim; background: transparent; border: 0; border-bottom: 2px solid transparent;
  padding: 6px 0 4px 0; margin: 0 10px;
}
QTabBar::tab:hover { color: $text; }
QTabBar::tab:selected { color: $text; border-bottom-color: $accent; }
QTabBar::scroller { width: 44px; }
QTabBar QToolButton { background: $panel; border: 0; padding: 0; }
QTabBar QToolButton:hover { background: $button_hover; }
QTabBar QToolButton::left-arrow { image: url("$icons/style-left.svg"); width: 10px; height: 10px; }
QTabBar QToolButton::right-arrow { image: url("$icons/style-right.svg"); width: 10px; height: 10px; }
QTabBar::tab:focus { color: $text; background: $hover; border-bottom-color: $focus; }

QScrollBar:vertical { background: transparent; width: 10px; margin: 0; }
QScrollBar:horizontal { background: transparent; height: 10px; margin: 0; }
QScrollBar::handle { background: $border_strong; border-radius: 3px; margin: 2px; }
QScrollBar::handle:vertical { min-height: 24px; }
QScrollBar::handle:horizontal { min-width: 24px; }
QScrollBar::handle:hover { background: $bar_other; }
QScrollBar::add-line, QScrollBar::sub-line { width: 0; height: 0; }
QScrollBar::add-page, QScrollBar::sub-page { background: transparent; }
QAbstractScrollArea::corner { background: transparent; border: 0; }

QSlider { background: transparent; border: 1px solid transparent; border-radius: 5px; min-height: 20px; }
QSlider:focus { border-color: $focus; }
QSlider::groove:horizontal { background: $bar_free; border-radius: 2px; height: 4px; margin: 0 4px; }
QSlider::sub-page:horizontal { background: $accent; border-radius: 2px; margin: 0 4px; }
QSlider::sub-page:horizontal:disabled { background: $bar_free; }
QSlider::handle:horizontal { background: $text; border-radius: 6px; width: 12px; margin: -4px 0; }
QSlider::handle:horizontal:disabled { background: $disabled; }

QSplitter::handle { background: transparent; }
QFrame#toolbar { background: $panel; border: 0; border-bottom: 1px solid $border; }
QFrame#statusBar { background: $panel; border: 0; border-top: 1px solid $border; }
QFrame#banner { background: $card; border: 0; border-bottom: 1px solid $border; }
QProgressBar {
  color: $text; background: $bar_free; border: 0; border-radius: 2px; text-align: center; max-height: 6px;
}
QProgressBar::chunk { background: $accent; border-radius: 2px; }
""")


def stylesheet(theme: Theme) -> str:
    """The sheet in the colours of `theme`."""
    colours = {name: getattr(theme, name) for name in _SHEET.get_identifiers() if name not in ("icons", "tick")}
    folder = str(files("devexplorer.resources").joinpath("icons")).replace("\\", "/")
    tick = "style-tick" if theme.accent_text == "#FFFFFF" else "style-tick-dark"
    return _SHEET.substitute(colours, icons=folder, tick=tick)
