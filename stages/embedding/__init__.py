"""Texts → vectors in memory, and a look at what the vectors are worth while a model is trained."""
