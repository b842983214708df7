"""One page that shows what a run was worth, what it learned from, and what it was made of."""
