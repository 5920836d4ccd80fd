"""One file for each module; each test is a story."""
