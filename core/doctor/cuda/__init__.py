"""Lets code that asks for CUDA run on virtual GPUs while it is examined, and finds devices that are written into it. No
thread here."""
