"""`devexplorer host`, and commands on another machine (`--ssh`)."""
