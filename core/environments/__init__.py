"""Which Pythons are on a machine, what each of them has, and how our code runs in one of them. No torch, no Qt."""
