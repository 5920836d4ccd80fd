"""What fairlead promises, executed."""
