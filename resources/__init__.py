"""Data files of DevExplorer (icons, GPU profiles), found with `importlib.resources`. No code."""
