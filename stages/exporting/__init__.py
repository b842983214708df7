"""What leaves the house: collections, runs and training groups in other programs' forms, and a model with its card."""
