"""Asks whether the system has parts of a file in memory."""

import errno
import os


def is_held(fd: int, at: int) -> bool:
    """Whether byte `at` of a file is in memory; False if the file system does not tell."""
    return _answer(fd, at) == 0


def tells(fd: int) -> bool:
    """Whether the file system tells which pages are in memory. tmpfs does not: all of its pages are."""
    return _answer(fd, 0) != errno.EOPNOTSUPP


def _answer(fd: int, at: int) -> int:
    try:
        os.preadv(fd, [bytearray(1)], at, os.RWF_NOWAIT)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EOPNOTSUPP):
            return error.errno
        raise
    return 0
