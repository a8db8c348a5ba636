"""The process that holds torch, and the link to it. Nothing here imports Qt; only `engine`, `commands` and `benchmarks`
import torch."""
