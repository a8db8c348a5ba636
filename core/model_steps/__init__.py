"""Model steps: how many samples a second a model takes."""
