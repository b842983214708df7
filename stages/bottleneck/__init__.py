"""Pre-training through a bottleneck: a view of a text is rebuilt from the vector of another view."""
