"""Documents: JSON with a checksum, in files that the program names.

hybrid document 1 CRC32 BYTES     one line, then the JSON
"""

import json
import os
import zlib
from pathlib import Path
from typing import Any

from hybrid.quant.ggml.errors import StateError
from hybrid.quant.ggml.replacing import replace_file

_HEAD = b"hybrid document 1 "
MOST_DOCUMENT = 256 << 20  # bytes: a larger document counts as damaged


def write_document(path: Path, data: bytes) -> None:
    """Stores JSON. After an OSError the older document is still there."""
    replace_file(path, [_HEAD + b"%08x %d\n" % (zlib.crc32(data), len(data)), data])


def read_document(path: Path) -> Any:
    """The stored value, or None if there is no such file. Raises StateError if it is damaged."""
    try:
        with path.open("rb") as file:
            head = file.readline(80)
            crc, n = head.removeprefix(_HEAD).split() if head.startswith(_HEAD) else (b"", b"")
            if not n.isdigit() or int(n) > min(MOST_DOCUMENT, os.fstat(file.fileno()).st_size):
                raise ValueError
            data = file.read(int(n) + 1)
        if len(data) != int(n) or zlib.crc32(data) != int(crc, 16):
            raise ValueError
        return json.loads(data.decode("utf-8", "surrogatepass"))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StateError(f"{path.name} cannot be read: {error.strerror or error}.") from None
    except (ValueError, RecursionError):
        raise StateError(f"{path.name} is damaged: its contents are lost.") from None
