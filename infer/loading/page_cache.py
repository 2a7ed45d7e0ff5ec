"""What the system has of a file in memory."""

import errno
import os


def is_held(fd: int, at: int) -> bool:
    """Whether the system has the byte in memory; False where the file system does not tell."""
    return _answer(fd, at) == 0


def tells(fd: int) -> bool:
    """Whether the file system says what it has in memory; tmpfs does not, where everything is."""
    return _answer(fd, 0) != errno.EOPNOTSUPP


def _answer(fd: int, at: int) -> int:
    try:
        os.preadv(fd, [bytearray(1)], at, os.RWF_NOWAIT)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EOPNOTSUPP):
            return error.errno
        raise
    return 0
