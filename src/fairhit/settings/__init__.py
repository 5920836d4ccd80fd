"""Settings, declared once: the field helper, kinds of values, and the flags and tables that follow."""
