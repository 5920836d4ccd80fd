"""What the core and the plug-ins cost, in process."""
