"""Small experiments that explain themselves: Python's questions to tensors, replicas, timing without synchronising, CPU against device."""
