"""What this machine has, and what a pipeline will ask of it."""
