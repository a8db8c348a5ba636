"""All-reduce: the sum of a tensor of every rank, in every rank."""
