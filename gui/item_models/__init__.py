"""Adapters from the state to Qt's item views. Main thread only."""
