"""What is left of a check: one line a card, a document, a file for others, an entry in the history."""
