"""Watches a forward and a backward, operation by operation: which line makes tensors of several devices meet? One
thread, the caller's."""

from devexplorer.core.doctor.tracing.op_tracer import OpTracer

__all__ = ["OpTracer"]
