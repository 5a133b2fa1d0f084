"""The program `tessera`: `python -m tessera list`."""

import signal
import sys

from tessera import _core


def main() -> int:
    """Runs the program on the words of the command line. Returns its exit code: 0 ok, 1 failed, 2 wrong usage."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # no Python code runs that could see the signal
    return _core.run_program(["tessera", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
