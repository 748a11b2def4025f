"""A terminal for a command, and what it shows."""

import fcntl
import os
import re
import select
import struct
import subprocess
import termios
import time

_LIMIT_S = 120.0


class Terminal:
    """Runs a command as the foreground process of a terminal: what is typed reaches it, Ctrl-C as a signal."""

    def __init__(self, command, columns=0, **options):
        self.columns = columns  # 0: it does not know, as one that was just made
        self._output = b""
        self._master, slave = os.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24 if columns else 0, columns, 0, 0))
        # What opens a terminal first in a session of its own is controlled by it.
        attached = ["sh", "-c", f'exec "$@" <>{os.ttyname(slave)} >&0 2>&0', "sh", *command]
        self.process = subprocess.Popen(attached, start_new_session=True, **options)
        self._slave = slave  # kept open: what the command said last could not be read otherwise

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._master)
        os.close(self._slave)

    def press(self, keys):
        os.write(self._master, keys.encode())

    def wait_for(self, text):
        """Reads on until `text` has come anew."""
        seen = len(self._output)
        deadline = time.monotonic() + _LIMIT_S
        while text.encode() not in self._output[seen:]:
            assert self.process.poll() is None and time.monotonic() < deadline, self.output
            self._read(0.1)

    def finish(self):
        """The exit code, once the command has ended."""
        deadline = time.monotonic() + _LIMIT_S
        while self.process.poll() is None:
            assert time.monotonic() < deadline, self.output
            self._read(0.1)
        while self._read(0):
            pass
        return self.process.returncode

    def _read(self, timeout_s):
        is_ready = bool(select.select([self._master], [], [], timeout_s)[0])
        if is_ready:
            self._output += os.read(self._master, 65536)
        return is_ready

    @property
    def output(self):
        return self._output.decode(errors="replace")

    @property
    def lines(self):
        return lines_shown(self.output, self.columns or 80)


def lines_shown(output, columns):
    """What stands on a terminal after `output`, a line each; one that it broke at its last column is one line."""
    lines, row, column = [[]], 0, 0
    for token in re.findall(r"\x1b\[[A-Z]|.", output, re.DOTALL):
        if token == "\r":
            # At the start of a broken line's last part, as a terminal knows nothing of the parts before.
            column = max(0, column - 1) // columns * columns
        elif token == "\n":
            row, column = row + 1, 0
            lines += [[]] * (row == len(lines))
        elif token == "\x1b[K":
            del lines[row][column:]
        elif token == "\x1b[A":
            row -= 1
        else:
            lines[row] += " " * (column - len(lines[row]))
            lines[row][column:column + 1] = token
            column += 1
    return ["".join(line).rstrip() for line in lines]
