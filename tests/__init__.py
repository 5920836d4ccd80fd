"""What fairhit promises, executed."""
