"""The tree of tensors and models, the inspector and the values of a tensor. Main thread only."""
