"""Sample models, by family: `blocks`, `custom`, `vision`, `sequence`; `registry` lists and builds them. Own code, no
torchvision."""

from devexplorer.core.models.samples.registry import Recipe, build, find, is_known, meta, recipes, sample_for

__all__ = ["Recipe", "build", "find", "is_known", "meta", "recipes", "sample_for"]
