"""The dashboard: one snapshot a second, its history, and the page that draws it."""
