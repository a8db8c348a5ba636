"""Models of other people: from their own code, or from a configuration of an installed library; built, tried and fed."""
