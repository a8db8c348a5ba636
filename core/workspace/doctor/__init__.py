"""Lets the placement doctor check a model of the workspace."""
