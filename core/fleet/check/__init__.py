"""Measures the cards of a fleet: what, in which order, with which results."""
