"""The process that plans, and how it is asked: above both plans of a step and of generating text."""
