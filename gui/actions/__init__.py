"""What the user can do: the table of actions and the controller behind it. Main thread only."""
