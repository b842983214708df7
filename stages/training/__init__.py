"""How anything is trained here: processes, the loop, progress. Knows nothing of retrieval."""
