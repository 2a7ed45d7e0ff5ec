"""Parses numbers on a benchmark's command line, in llama-bench's notation.

    512            one value
    128,256,512    several
    1-4            1, 2, 3, 4
    128-512+128    128, 256, 384, 512
    1-16*2         1, 2, 4, 8, 16

Items are separated by commas and may be mixed: `1,4-8+2`.
"""

import re

from hybrid.quant.ggml.errors import UsageError

_ITEM = re.compile(r"([0-9]+)(?:-([0-9]+)(?:([+*])([0-9]+))?)?")
# stops typing errors such as 1-1000000
_MAX_VALUES = 1000


def parse_ints(text: str, option: str, minimum: int = 0) -> list[int]:
    """All values of `text`, in the order written. Raises UsageError, which names `option` and the wrong part."""
    values: list[int] = []
    for item in text.replace(" ", "").split(","):
        match = _ITEM.fullmatch(item)
        if match is None or max(map(len, filter(None, match.groups()))) > 9:
            raise UsageError(
                f"{option} {text}: '{item}' is not a number or a range such as 1-4, 128-512+128 or 1-16*2."
            )
        first, step = int(match[1]), int(match[4] or 1)
        last = int(match[2]) if match[2] else first
        if last < first:
            raise UsageError(f"{option} {text}: the range '{item}' ends before it starts.")
        if match[4] and (step == 0 or (match[3] == "*" and (step == 1 or first == 0))):
            raise UsageError(f"{option} {text}: the range '{item}' never reaches {last}.")
        value = first
        while value <= last:
            values.append(value)
            value = value * step if match[3] == "*" else value + step
            if len(values) > _MAX_VALUES:
                raise UsageError(f"{option} {text}: more than {_MAX_VALUES} values. Give a step, as in 128-4096+128.")
    small = [value for value in values if value < minimum]
    if small:
        raise UsageError(f"{option} {text}: {small[0]} is less than {minimum}.")
    return values


def parse_pair(text: str, option: str) -> tuple[int, int]:
    """Parse `512,128`: a prompt of 512 tokens, then 128 generated. Raises UsageError for anything else."""
    match = re.fullmatch(r"([0-9]{1,9}),([0-9]{1,9})", text.replace(" ", ""))
    if match is None or match[1].strip("0") + match[2].strip("0") == "":
        raise UsageError(f"{option} {text}: expected PROMPT,GENERATED, as in 512,128.")
    return int(match[1]), int(match[2])
