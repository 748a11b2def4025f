"""A run's folder: its files, how they are written, and how a run continues from them."""
