"""Further commands, one file each, with `add_arguments(parser)` and `run(arguments)`, which returns the exit code."""
