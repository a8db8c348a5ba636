"""Lets code that asks for CUDA run on virtual GPUs, and tells an observer what it asked for. No thread here."""
