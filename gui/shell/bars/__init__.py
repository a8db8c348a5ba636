"""What surrounds the panels: toolbar, menus, status bar, what the window says by itself. Main thread only."""
