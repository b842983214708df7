"""From a model or an index to a run: encoders, losses, search, and the total order of a run."""
