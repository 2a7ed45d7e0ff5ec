"""Sizes as options take them: one grammar for all, the units of the International System and of IEC 80000-13.

    1500        bytes
    1.5K 1.5KB  1000 bytes each; M, G, T: the powers of 1000
    1.5Ki 1.5KiB  1024 bytes each; Mi, Gi, Ti: the powers of 1024

In either case of the letters. So does llama-gguf-split; `console.size` prints the second kind.
"""

import re
from fractions import Fraction

from hybrid.quant.ggml.errors import UsageError, shown

# for the help of every option that takes one
UNITS = "G is 10^9 bytes, GiB 2^30"
_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*(?:([kmgt])(i?))?b?\s*", re.IGNORECASE | re.ASCII)
_MOST = (1 << 63) - 1


def parse_size(text: str, option: str) -> int:
    """Bytes, rounded down. UsageError names the option."""
    match = _SIZE.fullmatch(text)
    if match is not None and len(text) < 100:
        unit = 1024 if match[3] else 1000
        power = " kmgt".index(match[2].lower()) if match[2] else 0
        nbytes = int(Fraction(match[1]) * unit**power)
        if nbytes <= _MOST:
            return nbytes
    raise UsageError(f"{option} {shown(text)}: expected a size like 900M, 2G or 1.5GiB ({UNITS}).")
