"""A card's own factors of the cost model: what is measured, and what follows from it."""
