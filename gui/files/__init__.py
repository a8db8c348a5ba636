"""Dialogs about files, own models and the session as Python. Main thread only."""
