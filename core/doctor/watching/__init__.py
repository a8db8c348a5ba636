"""Watches a forward and a backward, operation by operation: which line makes tensors of several devices meet? One thread, the caller's."""

from devexplorer.core.doctor.watching.watching import Watching

__all__ = ["Watching"]
