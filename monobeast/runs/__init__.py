"""A run's folder: what is in it, how it is written, and how a run goes on from it."""
