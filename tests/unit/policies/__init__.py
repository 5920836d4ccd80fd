"""One file for each policy; each test is a story."""
