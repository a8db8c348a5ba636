"""Small experiments that explain themselves: questions to tensors, replicas, timing, CPU against GPU. Jobs thread."""
