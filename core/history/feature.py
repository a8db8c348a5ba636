"""The history: every benchmark run that ends is kept, to be found, compared and exported. Data; any thread."""

from __future__ import annotations

from devexplorer.core.feature import Feature

FEATURE = Feature(
    listener="core.history.store_thread:StoreThread",
    tab="gui.history.tab:TAB",
    actions="gui.history.tab:actions",
    window="gui.history.room:history_of",
)
