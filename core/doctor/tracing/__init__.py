"""Watches a forward and a backward, operation by operation: which line makes tensors of several devices meet, and which
cuts a parameter off from its gradient? One thread, the caller's."""
