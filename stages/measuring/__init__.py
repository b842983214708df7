"""How well a run answers, and how sure of that one can be."""
