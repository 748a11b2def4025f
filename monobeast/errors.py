"""What errors say, in one line."""

# Of PyTorch for the CPU and for GPUs, and of the libraries that it calls, such as cuBLAS.
_NO_MEMORY = ("allocate memory", "out of memory", "ALLOC_FAILED")


def describe(error: BaseException, is_short: bool = False) -> str:
    """Type and message of an error; the type alone where it says nothing.

    Args:
        error: Maybe of somebody else's code: what would move or color the line is escaped.
        is_short: Of a message of several lines the first alone, and that there are more.
    """
    lines = str(error).strip().splitlines()
    if is_short and len(lines) > 1:
        lines[1:] = ["..."]
    text = " ".join(" ".join(lines).split())
    text = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def missing_package(who: str, package: str, reason: object, install: str = "") -> ValueError:
    """The error to raise for what needs an optional package, with the command that installs it.

    Args:
        who: The flag that asks for it, and its value.
        package: Its name.
        reason: Why it cannot be used.
        install: What to give pip, if that is not the package alone.
    """
    return ValueError(f"{who}: needs {package} ({reason}): python -m pip install {install or package}")


def is_out_of_memory(error: Exception) -> bool:
    """Whether the memory of this machine or of a GPU ran out."""
    return isinstance(error, MemoryError) or any(words in str(error) for words in _NO_MEMORY)
