"""Sweeps: products of many shapes on one device, and the search for the fastest."""
