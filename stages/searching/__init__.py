"""A corpus to be searched by people: an index on disk, three ways of ranking, and a small page."""
