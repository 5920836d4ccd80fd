"""From what happened to numbers; nothing here keeps a run going or changes it."""
