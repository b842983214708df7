"""One reader for each kind of collection; what they share is checked and counted in one place."""
