"""Texts from language models: a model from a hub or a folder, or a small one that learns on the corpus itself."""
