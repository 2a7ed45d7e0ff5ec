"""Freeing a large block does not make the next one come from an arena."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import ctypes, sys
from hybrid.cli.serve import malloc

class Info(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in
                ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keep")]

libc = ctypes.CDLL(None)
if not hasattr(libc, "mallinfo2"):
    sys.exit("no mallinfo2")
libc.mallinfo2.restype = Info
libc.malloc.restype, libc.malloc.argtypes, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]
if sys.argv[1] == "fixed":
    assert malloc.return_freed_memory()
libc.free(libc.malloc(4 * malloc.LARGE))
before = libc.mallinfo2().hblks
block = libc.malloc(malloc.LARGE + 1)
print(libc.mallinfo2().hblks - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="mallopt is glibc's")
@pytest.mark.parametrize(("how", "mapped"), [("not fixed", "0"), ("fixed", "1")])
def test_a_large_block_is_mapped_alone(how: str, mapped: str) -> None:
    env = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_TUNABLES"))}
    done = subprocess.run([sys.executable, "-c", PROGRAM, how], capture_output=True, text=True, check=False, env=env)
    if "no mallinfo2" in done.stderr:
        pytest.skip("mallinfo2 needs glibc 2.33")
    assert done.stdout.strip() == mapped, done.stderr
