"""Costs of the parts of training on this machine, and the speed limit that follows."""
