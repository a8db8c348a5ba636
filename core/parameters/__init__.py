"""Values, new values, ties and flags of parameters; optimizers and training steps."""
