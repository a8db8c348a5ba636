"""The tree of tensors and models, and the inspector. Main thread only."""
