"""The main script of this process's program, which children import before anything else."""

import multiprocessing
import os
import sys

NO_GUARD_EXIT_CODE = 71  # of a child whose main script started a run while it was imported; no other meaning
NO_GUARD = (  # what is to be said then
    "It ended before it began: if a script of yours calls monobeast.train, it must do so under\n"
    'if __name__ == "__main__":\nsince every process of the run imports the script.'
)


def check_main_script() -> None:
    """Makes sure that children can import this process's main script.

    A child that is just importing it, since the script lacks the `__main__` guard, ends here, silently: the parent says
    what is wrong, once.

    Raises:
        RuntimeError: the script came by standard input, so that there is nothing to import.
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        os._exit(NO_GUARD_EXIT_CODE)
    path = getattr(sys.modules["__main__"], "__file__", None)
    if path is not None and not os.path.exists(path):
        raise RuntimeError(
            f"the run's processes import the main script, and {path} is no file: save the script, or use "
            "--num_actors 0 and no --evaluate_every"
        )
