"""The planner: will a model fit a card, and how fast would it be? Runs the real graph without values, in its own
process."""
