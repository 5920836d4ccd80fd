"""What goes wrong in operation, tried on real processes; docs/reference/faults.md has the numbers."""
