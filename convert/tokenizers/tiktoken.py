"""Reads tiktoken's files: a line `BASE64 RANK` per token. Two neighbours are merged if there is a token with their
bytes, lowest rank first.

How texts are split before that is code in the repository, which is not run: it is known for the files below.
"""

import base64
import binascii
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from hybrid.quant.ggml.errors import Remedy, TokenizerError, shown
from hybrid.quant.ggml.pretokenizers import byte_letters
from hybrid.quant.ggml.token_types import TokenType
from hybrid.quant.ggml.types import ValueType

from .special import read_config
from .vocabulary import Vocabulary

_LINE = re.compile(rb"([A-Za-z0-9+/]+={0,2}) (\d{1,8})")
_MAX_BYTES = 64 << 20
_LONGEST = 1024  # bytes of a token; published ones have at most 128
_KIMI_RESERVED = 256


@dataclass(frozen=True)
class Code:
    """What a repository's code does with a file of ranks.

    special  special tokens from id `first` (the number of ranks) on, if tokenizer_config.json does not name them
    bos      what texts begin with, whatever config.json says; empty: config.json decides
    """

    pre: str
    normalizer: str
    special: Callable[[int], Sequence[str]]
    bos: str = ""


def _reserved(first: int) -> list[str]:
    return [f"<|reserved_token_{first + i}|>" for i in range(_KIMI_RESERVED)]


def _hunyuan(first: int) -> list[str]:
    names = "endoftext", "startoftext", "bos", "eos", "pad"
    return [f"<|{name}|>" for name in names] + [f"<|extra_{i}|>" for i in range(205)]


_KIMI, _HUNYUAN = Code("kimi-k2", "none", _reserved), Code("hunyuan", "NFC", _hunyuan, bos="<|bos|>")
FILES: Mapping[str, Code] = {"tiktoken.model": _KIMI, "hy.tiktoken": _HUNYUAN}
# By the module that tokenizer_config.json names, where it names one.
_MODULES = {"tokenization_kimi": _KIMI, "tokenization_moonshot": _KIMI, "tokenization_hy": _HUNYUAN}


def find_ranks(folder: Path) -> Path | None:
    """The file of ranks in a folder, under a known name or another."""
    named = (folder / name for name in (*FILES, "tokenizer.model"))
    others = sorted(folder.glob("*.tiktoken"))
    return next((path for path in (*named, *others) if path.is_file() and is_ranks(path)), None)


def is_ranks(path: Path) -> bool:
    """Whether a file begins like one of tiktoken; tokenizer.model may also be sentencepiece's."""
    if path.name != "tokenizer.model":
        return True
    try:
        with path.open("rb") as file:
            return _LINE.fullmatch(file.readline(2 * _LONGEST).rstrip(b"\r\n")) is not None
    except OSError:
        return False


def read_ranks(path: Path, n_vocab: int) -> Vocabulary:
    """The vocabulary with its special tokens. TokenizerError: an unknown splitting, or a wrong line."""
    code, source = _code(path), shown(path.name)
    ranks = _ranks(path, source)
    names = {token: _spelt(token) for token in ranks}
    vocabulary = Vocabulary(
        "gpt2",
        code.pre,
        source,
        tokens=list(names.values()),
        types=[TokenType.NORMAL] * len(ranks),
        merges=[f"{names[a]} {names[b]}" for a, b in merges(ranks)],
    )
    vocabulary.more.append(("hybrid.tokenizer.normalizer", code.normalizer, ValueType.STRING))
    first = len(ranks)
    for token, text in enumerate(code.special(first)[: max(0, n_vocab - first)], first):
        vocabulary.add(token, text, True, n_vocab)
    if code.bos in vocabulary.tokens:
        vocabulary.fixed["bos"] = vocabulary.tokens.index(code.bos)
    return vocabulary


def _code(path: Path) -> Code:
    """The code by the module that the repository loads, or else by the file's name."""
    auto_map = read_config(path.parent, "tokenizer_config.json").get("auto_map")
    entry = auto_map.get("AutoTokenizer") if isinstance(auto_map, dict) else None
    stated = next(iter(entry), None) if isinstance(entry, list) else entry
    module = stated.rpartition("--")[2].rpartition(".")[0] if isinstance(stated, str) else ""
    code = _MODULES.get(module) if module else FILES.get(path.name)
    if code is None:
        where = f"{shown(module)}.py" if module else "code of the repository"
        raise TokenizerError(
            f"{shown(path.name)} is a file of tiktoken, and how texts are split beforehand stands in {where}, which is "
            f"not known here and not run. Known are {', '.join(_MODULES)}. Expected tokenizer.json.",
            remedy=Remedy.TOKENIZER,
        )
    return code


def _ranks(path: Path, source: str) -> dict[bytes, int]:
    """The rank of every token, in order: all ranks from 0 on, including one for each byte."""
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise TokenizerError(f"{source} has {path.stat().st_size} bytes, too many for a file of tiktoken.")
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise TokenizerError(f"{source} cannot be read: {error.strerror}.") from None
    ranks: dict[bytes, int] = {}
    for number, line in enumerate(lines, 1):
        token, rank = _parsed(line)
        if not token or token in ranks:
            raise TokenizerError(
                f"{source}: line {number} is {shown(line.decode('latin-1'), 60)}, expected another token in base64, of "
                f"up to {_LONGEST} bytes, and its rank. Download it again."
            )
        ranks[token] = rank
    ordered = sorted(ranks.items(), key=lambda pair: pair[1])
    wrong = next((i for i, (_, rank) in enumerate(ordered) if rank != i), None)
    if wrong is not None:
        raise TokenizerError(f"{source}: {len(ranks)} tokens, of which none or several have rank {wrong}.")
    lost = next((byte for byte in range(256) if bytes([byte]) not in ranks), None)
    if lost is not None:
        raise TokenizerError(f"{source} has no token for the byte {lost:#04x}. Download it again.")
    return dict(ordered)


def _parsed(line: bytes) -> tuple[bytes, int]:
    """The token and its rank; no bytes if the line is malformed."""
    match = _LINE.fullmatch(line)
    try:
        token = base64.b64decode(match[1], validate=True) if match else b""
    except binascii.Error:
        token = b""
    return (token, int(match[2])) if match and len(token) <= _LONGEST else (b"", 0)


def merges(ranks: Mapping[bytes, int]) -> Iterator[tuple[bytes, bytes]]:
    """The pairs that are merged to a token, in the order of the tokens' ranks.

    A token is merged from the two parts that lower ranks make of its bytes. If they make more than two parts, which
    training never does, any two parts will do.
    """
    for token, rank in ranks.items():
        if len(token) == 1:
            continue
        parts = apart(ranks, token, rank)
        if len(parts) == 2:
            yield parts[0], parts[1]
        else:
            halves = ((token[:i], token[i:]) for i in range(1, len(token)))
            yield from (pair for pair in halves if pair[0] in ranks and pair[1] in ranks)


def apart(ranks: Mapping[bytes, int], token: bytes, below: int) -> list[bytes]:
    """The parts that ranks lower than `below` make of a token's bytes."""
    parts = [bytes([byte]) for byte in token]
    while len(parts) > 1:
        rank, i = min((ranks.get(a + b, below), i) for i, (a, b) in enumerate(pairwise(parts)))
        if rank >= below:
            break
        parts[i : i + 2] = [parts[i] + parts[i + 1]]
    return parts


def _spelt(token: bytes) -> str:
    letters = byte_letters()
    return "".join(letters[byte] for byte in token)
