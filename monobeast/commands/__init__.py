"""Further commands of the command line, a file each: `add_arguments(parser)`, and `run(arguments)`, the exit code."""
