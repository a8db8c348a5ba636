"""Parameters of models and tensors: their values, initial values, ties, flags, and the optimizers that change them."""
