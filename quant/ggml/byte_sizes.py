"""Numbers of bytes as text, parsed and printed, with the units of the SI and of IEC 80000-13.

    1500        bytes
    1.5K 1.5KB  1000 bytes each; M, G, T: the powers of 1000
    1.5Ki 1.5KiB  1024 bytes each; Mi, Gi, Ti: the powers of 1024

Letters may be in upper or lower case, as in llama-gguf-split; `size_text` prints the second kind.
"""

import re

from .errors import UsageError, shown

# for the help of every option that takes one
UNITS = "G is 10^9 bytes, GiB 2^30"
_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*(?:([kmgt])(i?))?b?\s*", re.IGNORECASE | re.ASCII)
_MOST = (1 << 63) - 1


def parse_size(text: str, name: str) -> int:
    """Bytes, rounded down. UsageError names the option or setting with this text."""
    match = _SIZE.fullmatch(text)
    if match is not None and len(text) < 100:
        unit = 1024 if match[3] else 1000
        power = " kmgt".index(match[2].lower()) if match[2] else 0
        whole, _, tenths = match[1].partition(".")
        nbytes: int = int(whole + tenths) * unit**power // 10 ** len(tenths)
        if nbytes <= _MOST:
            return nbytes
    raise UsageError(f"{name} {shown(text)}: expected a size like 900M, 2G or 1.5GiB ({UNITS}).")


def size_text(nbytes: float, digits: int = 1) -> str:
    """`21.8 MiB`; digits: after the point, from KiB on."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(nbytes) < 1024:
            return f"{nbytes:.0f} B" if unit == "B" else f"{nbytes:.{digits}f} {unit}"
        nbytes /= 1024
    return f"{nbytes:.{digits}f} TiB"
