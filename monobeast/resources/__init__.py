"""What a run needs and what the machine has, before the run starts."""
