"""Scaling: the same job on several devices at once, and one after the other."""
