"""Files of tensors: writing them whole or not at all, looking into them, loading them, checkpoints. Jobs thread."""
