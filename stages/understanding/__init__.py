"""Sentences and pairs of them, classified by a fine-tuned encoder: GLUE."""
