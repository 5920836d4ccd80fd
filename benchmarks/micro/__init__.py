"""CPU costs of the core and the plug-ins, measured in process."""
