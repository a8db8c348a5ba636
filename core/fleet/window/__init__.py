"""The fleet of a window: what it watches, and the machines it has anyway."""
