"""The tensor of a virtual GPU and how each torch operator runs on it. Any thread."""
