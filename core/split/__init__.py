"""A model over several devices: planned, split, joined, and hops that carry activations between its parts."""
