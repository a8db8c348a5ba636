"""A plot's title as a quiet button with a menu. Main thread."""

from __future__ import annotations

from PySide6.QtWidgets import QHBoxLayout, QMenu, QToolButton

from devexplorer.gui.widgets import Role, font

BUTTON_EDGE_PX = 5
"""Border and padding of the button in the style sheet."""


def title_button(header: QHBoxLayout, menu: QMenu) -> QToolButton:
    """Put a button with this menu, which the caller owns, at the beginning of the header."""
    button = QToolButton(popupMode=QToolButton.ToolButtonPopupMode.InstantPopup)
    button.setProperty("look", "title")
    button.setMenu(menu)
    button.setFont(font(Role.STRONG))
    button.setToolTip("Choose what this plot shows")
    header.insertWidget(0, button)
    margins = header.contentsMargins()  # the text is where the label's was
    header.setContentsMargins(margins.left() - BUTTON_EDGE_PX, margins.top(), margins.right(), margins.bottom())
    return button
