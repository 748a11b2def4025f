"""How `multiprocessing` starts processes: by a fork server, or each as a program of its own."""

import multiprocessing
import shutil


def context(start_method: str, preload: list[str]) -> multiprocessing.context.BaseContext:
    """A multiprocessing context whose fork server, if it has one, imports `preload` once for all children.

    Fork itself is not offered: after torch's thread pool or CUDA has started, a forked child hangs or fails.
    """
    if start_method not in multiprocessing.get_all_start_methods():
        start_method = "spawn"  # Windows has no fork server
    made = multiprocessing.get_context(start_method)
    if start_method == "forkserver":
        made.set_forkserver_preload(preload)
    return made


def remove_temporary_folder() -> None:
    """Removes where the fork server's socket is, which `multiprocessing` does at an exit that is not `os._exit`."""
    folder = getattr(multiprocessing.current_process(), "_config", {}).get("tempdir")
    if folder:
        shutil.rmtree(folder, ignore_errors=True)
