"""A small tokenizer of kind plamo2, with a repository's files, and its ids by definition."""

import json
from functools import lru_cache
from pathlib import Path

import numpy as np

CONTROL = ("<|plamo:unk|>", "<|plamo:bos|>", "<|plamo:eos|>", "<|plamo:pad|>", "<|plamo:op|>")
ALPHABET = "abcdef ABC.,\n東京都日本語のはé\U0001f600"
TEXTS = (
    "", " ", "abc", "abcabcabc", "fedcba", "a b\n\nc", "東京都の日本語は", "京都東京", "zzz", "a\u00e9z\u00e9",
    "\U0001f600\U0001f601", "\x00\t", "aaaaaaaaaaaaaaaaaaaaaaaa", "ABC. abc, 日本語\n", "北海道", "<0x41>",
    "e\u0301", "\u07ff\u0800\uffff\U00010000",
)  # fmt: skip


def rows() -> list[list[object]]:
    """[token, score, type] of control tokens, bytes, characters and pieces; some pieces have equal scores."""
    rng = np.random.default_rng(7)
    tokens: list[list[object]] = [
        [text, 0.0, "UNKNOWN" if i == 0 else "CONTROL"] for i, text in enumerate(CONTROL[:-1])
    ]
    tokens.append([CONTROL[-1], 0.0, "NORMAL"])  # control only by its name
    tokens += [[f"<0x{byte:02X}>", 0.0, "BYTE"] for byte in range(256)]
    tokens += [[c, -9.0 - i / 7, "NORMAL"] for i, c in enumerate(ALPHABET)]
    pieces: dict[str, None] = {}
    while len(pieces) < 200:
        n = int(rng.integers(2, 6))
        pieces["".join(ALPHABET[i] for i in rng.integers(0, len(ALPHABET), n))] = None
    for i in range(2, 9):
        pieces["a" * i] = None
    tokens += [[piece, float(-np.round(rng.uniform(4, 14), 1)), "NORMAL", 1, 2, 3, 4] for piece in pieces]
    return tokens


def write(folder: Path) -> Path:
    """Write tokenizer.jsonl and tokenizer_config.json into an existing folder."""
    text = "\n".join(json.dumps(row, ensure_ascii=False) for row in rows())
    (folder / "tokenizer.jsonl").write_text(text + "\n", encoding="utf-8")
    config = {f"{kind}_token": f"<|plamo:{kind}|>" for kind in ("unk", "bos", "eos", "pad")}
    added = {"1": {"content": CONTROL[1], "special": True}}
    config_file = {"tokenizer_class": "Plamo2Tokenizer", "add_bos_token": True, "added_tokens_decoder": added, **config}
    (folder / "tokenizer_config.json").write_text(json.dumps(config_file))
    return folder


def ids(text: str) -> list[int]:
    """The segmentation with the lowest cost; of equal ones the first piece is as long as possible. Bytes cost 10^7 per
    character."""
    table = {str(row[0]): (i, row[1]) for i, row in enumerate(rows()) if row[2] == "NORMAL" and row[0] not in CONTROL}

    @lru_cache(None)
    def best(at: int) -> tuple[int, list[int]]:
        if at == len(text):
            return 0, []
        options = []
        for end in range(len(text), at, -1):
            if text[at:end] in table:
                token, score = table[text[at:end]]
                cost, rest = best(end)
                options.append((cost - round(float(str(score)) * 1e4), [token, *rest]))
        cost, rest = best(at + 1)
        options.append((cost + 10**7, [*(len(CONTROL) + byte for byte in text[at].encode()), *rest]))
        return min(options, key=lambda option: option[0])

    return best(0)[1]
