"""A CUDA without a card: PyTorch's CUDA build on cards that are host memory. docs/standin.md has the whole of it."""
