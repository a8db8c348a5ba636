"""What only the live model of the workspace can show: it was moved, split and trained there. Jobs thread."""
