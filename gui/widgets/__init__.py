"""Widgets and looks that belong to no feature: theme, tables, forms, code views. Main thread only."""
