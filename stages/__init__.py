"""Isthmus: from a text corpus to a dense retriever, one chapter a file."""
