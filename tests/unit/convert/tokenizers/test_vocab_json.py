"""vocab.json with merges.txt give the ids of a tokenizer that `tokenizers` builds from the same files."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hybrid.convert.checkpoint import Config
from hybrid.convert.tokenizers import Vocabulary, read_vocabulary
from hybrid.convert.tokenizers.vocab_json import CLASSES, Code
from hybrid.infer.text.tokenizer import Tokenizer, load_tokenizer
from hybrid.quant.ggml.errors import HybridError, Remedy, UnsupportedError
from hybrid.quant.ggml.pretokenizers import Rule, by_name
from hybrid.quant.ggml.token_types import TokenType

N_VOCAB = 400
N = 323  # tokens of a vocabulary that is trained here
PROSE = "State-space models carry a state; they've 12 345 tokens.\n\n  Caf\u00e9 don't, DON'T, naïve 東京 \t x\r\n" * 30
PARTS = (
    "State", "models", "they've", "DON'T", "12345", "cafe\u0301", "é", "東京", "🙂", ".,;", "<mask>", "<|endoftext|>",
    "<s>", "<new>", "<|im_end|>", " ", "  ", "\n", "\n\n", "   \t ", "\r\n", "a", "\ufeff",
)  # fmt: skip


@pytest.fixture
def trained(tmp_path: Path) -> Callable[..., Path]:
    """Writes vocab.json and merges.txt of a byte-level BPE, with the other JSON files of `files`."""
    from tokenizers import Tokenizer as Backend
    from tokenizers import models, pre_tokenizers, trainers

    def write(special: tuple[str, ...] = ("<|endoftext|>",), **files: dict[str, Any]) -> Path:
        backend = Backend(models.BPE())
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        letters = pre_tokenizers.ByteLevel.alphabet()
        backend.train_from_iterator(
            [PROSE],
            trainers.BpeTrainer(
                vocab_size=340,
                special_tokens=list(special),
                initial_alphabet=letters,
                show_progress=False,
            ),
        )
        backend.model.save(str(tmp_path))
        for name, content in files.items():
            (tmp_path / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
        return tmp_path

    return write


def read(folder: Path, **config: Any) -> Vocabulary:
    return read_vocabulary(folder, Config(config, "config.json"), N_VOCAB)


def loaded(vocabulary: Vocabulary) -> Tokenizer:
    metadata = {key: value for key, value, _ in vocabulary.key_values()}
    return load_tokenizer(SimpleNamespace(path=Path("model.gguf"), metadata=metadata))


def reference(folder: Path, code: Code, prefix: bool, added: list[dict[str, Any]]) -> Any:
    """The tokenizer that transformers builds from the files."""
    from tokenizers import AddedToken, Regex, models, normalizers, pre_tokenizers
    from tokenizers import Tokenizer as Backend

    backend = Backend(models.BPE.from_file(str(folder / "vocab.json"), str(folder / "merges.txt")))
    if code.normalizer:
        backend.normalizer = getattr(normalizers, code.normalizer)()
    last = pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=not code.split)
    first = [pre_tokenizers.Split(Regex(one), "isolated") for one in code.split]
    backend.pre_tokenizer = pre_tokenizers.Sequence([*first, last])
    backend.add_tokens([AddedToken(**token) for token in added])
    return backend


def special(text: str, **more: bool) -> dict[str, Any]:
    return {"content": text, "special": True, "normalized": False, **more}


NEW, MASK = special("<new>"), special("<mask>", lstrip=True)
CASES: dict[str, tuple[dict[str, Any], list[dict[str, Any]], tuple[str, ...]]] = {
    "GPT2Tokenizer": ({}, [special("<|endoftext|>")], ("<|endoftext|>",)),
    "GPT2TokenizerFast": (
        {"special_tokens_map": {"pad_token": "<new>", "mask_token": MASK}},
        [special("<|endoftext|>"), NEW, MASK],
        ("<|endoftext|>",),
    ),
    "CodeGenTokenizer": (
        {"added_tokens": {"<new>": N + 1, "  ": N}, "special_tokens_map": {"additional_special_tokens": ["<new>"]}},
        [special("<|endoftext|>"), {"content": "  "}, NEW],
        ("<|endoftext|>",),
    ),
    "GPTNeoXTokenizer": ({}, [special("<|endoftext|>")], ("<|endoftext|>",)),
    "Qwen3_5Tokenizer": (
        {"special_tokens_map": {"additional_special_tokens": ["<new>"]}},
        [special("<|endoftext|>"), NEW],
        ("<|endoftext|>",),
    ),
    "Qwen2Tokenizer": (
        {"special_tokens_map": {"eos_token": "<|im_end|>", "additional_special_tokens": ["<|im_end|>", "<new>"]}},
        [special("<|endoftext|>"), special("<|im_end|>"), NEW],
        ("<|endoftext|>",),
    ),
    "RobertaTokenizer": (
        {},
        [special(text) for text in ("<s>", "<pad>", "</s>", "<unk>")] + [MASK],
        ("<s>", "<pad>", "</s>", "<unk>", "<mask>"),
    ),
}


@pytest.mark.parametrize(("name", "prefix"), [*((name, False) for name in CASES), ("GPT2Tokenizer", True)])
def test_ids(trained: Callable[..., Path], name: str, prefix: bool) -> None:
    files, added, in_vocabulary = CASES[name]
    folder = trained(in_vocabulary, tokenizer_config={"tokenizer_class": name, "add_prefix_space": prefix}, **files)
    expected = reference(folder, CLASSES[name.removesuffix("Fast")], prefix, added)
    vocabulary = read(folder)
    ours, known = loaded(vocabulary), {token["content"]: expected.token_to_id(token["content"]) for token in added}
    assert {text: ours.token(text) for text in known} == known
    kinds = {TokenType.CONTROL if token.get("special") else TokenType.USER_DEFINED for token in added}
    assert {vocabulary.types[token] for token in known.values()} == kinds
    draw, n_special = random.Random(1), 0
    for _ in range(300):
        text = "".join(draw.choices(PARTS, k=draw.randint(0, 12)))
        ids = ours.encode(text, add_special=False, parse_special=True)
        assert ids == expected.encode(text, add_special_tokens=False).ids, repr(text)
        n_special += len(set(ids) & set(known.values()))
    assert n_special > 20


def test_the_files_beside_them_count(trained: Callable[..., Path]) -> None:
    """As for a tokenizer.json: added_tokens_decoder, ids by name, and the class's default where no file has one."""
    decoder = {str(N): {"content": "<|im_end|>", "special": True, "rstrip": True}, str(N + 1): {"content": "  "}}
    folder = trained(
        tokenizer_config={
            "tokenizer_class": "Qwen2Tokenizer",
            "added_tokens_decoder": decoder,
            "unk_token": None,
            "eos_token": "<|im_end|>",
            "add_bos_token": False,
            "chat_template": "{{ messages }}",
        },
        special_tokens_map={"eos_token": "<other>"},
        generation_config={"eos_token_id": [N, 0]},
    )
    vocabulary = read(folder, vocab_size=N_VOCAB)
    keys = {key.removeprefix("tokenizer.ggml."): value for key, value, _ in vocabulary.key_values()}
    assert (keys["model"], keys["pre"], keys["hybrid.tokenizer.normalizer"]) == ("gpt2", "qwen2", "NFC")
    assert (keys["eos_token_id"], keys["padding_token_id"], keys["eot_token_id"]) == (N, 0, 0)
    assert "unknown_token_id" not in keys and "bos_token_id" not in keys and keys["add_bos_token"] is False
    assert keys["tokenizer.chat_template"] == "{{ messages }}" and keys["hybrid.tokenizer.rstrip_token_ids"] == [N]
    assert keys["token_type"][N : N + 3] == [TokenType.CONTROL, TokenType.USER_DEFINED, TokenType.UNUSED]
    assert len(keys["tokens"]) == N_VOCAB and vocabulary.notes == []


def test_roberta_puts_tokens_around_a_text(trained: Callable[..., Path]) -> None:
    folder = trained(CASES["RobertaTokenizer"][2], tokenizer_config={"tokenizer_class": "RobertaTokenizer"})
    vocabulary = read_vocabulary(folder, Config({}, "config.json"), N_VOCAB, goes_on=False)
    assert loaded(vocabulary).encode("a")[::2] == [0, 2] and vocabulary.flags["add_sep_token"] is True


def test_the_class_may_stand_in_config_json(trained: Callable[..., Path]) -> None:
    folder = trained()
    for config, pre, normalizer in (
        ({"model_type": "qwen3"}, "qwen2", "NFC"),
        ({"model_type": "qwen3_5_moe"}, "qwen35", "NFC"),
        ({"model_type": "gpt2"}, "mpt", "none"),
        ({"model_type": "mamba2"}, "mpt", "NFC"),
        ({"model_type": "llama", "tokenizer_class": "GPT2Tokenizer"}, "mpt", "none"),
        ({"model_type": "gpt2", "tokenizer_class": "Qwen2TokenizerFast"}, "qwen2", "NFC"),
    ):
        vocabulary = read(folder, **config)
        keys = {key: value for key, value, _ in vocabulary.key_values()}
        assert (vocabulary.pre, keys["hybrid.tokenizer.normalizer"]) == (pre, normalizer)
        assert vocabulary.notes == []


@pytest.mark.parametrize(
    ("config", "model_type", "preferred", "rule", "said"),
    [
        ({}, "llama", (), "gpt-2", "tokenizer_config.json names none"),
        ({}, None, ("llama-bpe",), "gpt-2", "names none"),
        ({}, "lfm2", ("lfm2",), "lfm2", "names none"),
        ({}, "deepseek_v2", ("deepseek-llm", "deepseek-coder"), "deepseek-llm", "names none"),
        ({"tokenizer_class": "PreTrainedTokenizerFast"}, "exaone", (), "gpt-2", "says PreTrainedTokenizerFast"),
        ({"tokenizer_class": "MyTokenizer"}, "qwen2", ("qwen2",), "Qwen2Tokenizer", "says MyTokenizer"),
        ({"tokenizer_class": "MyTokenizer"}, "hunyuan_v1_dense", ("gemma4",), "gpt-2", "says MyTokenizer"),
    ],
)
def test_a_class_that_is_not_known(
    trained: Callable[..., Path],
    config: dict[str, Any],
    model_type: str | None,
    preferred: tuple[str, ...],
    rule: str,
    said: str,
) -> None:
    """Texts are split by the family's rule, and a note says so."""
    folder = trained(**({"tokenizer_config": config} if config else {}))
    vocabulary = read_vocabulary(folder, Config({"model_type": model_type}, "config.json"), N_VOCAB,
                                 preferred_pre=preferred)  # fmt: skip
    (note,) = vocabulary.notes
    assert said in note and f"split by the rule {rule!r}, and may become other tokens" in note
    assert vocabulary.ids["eos"] == vocabulary.tokens.index("<|endoftext|>")
    known = CLASSES.get(rule)
    split = known.split if known else () if rule == "gpt-2" else (by_name(rule) or Rule((), ())).split
    ignore = rule == "lfm2"
    code = Code({}, split, known.normalizer if known else "", ignore_merges=ignore)
    expected = reference(folder, code, False, [special("<|endoftext|>")])
    expected.model.ignore_merges = ignore
    ours, draw = loaded(vocabulary), random.Random(2)
    for _ in range(60):
        text = "".join(draw.choices(PARTS, k=draw.randint(0, 12)))
        ids = ours.encode(text, add_special=False, parse_special=True)
        assert ids == expected.encode(text, add_special_tokens=False).ids, repr(text)


def test_without_an_end(trained: Callable[..., Path]) -> None:
    """No token is invented where nothing names one."""
    vocabulary = read(trained(special=("<s>",)))
    assert vocabulary.ids == {} and "<|endoftext|>" not in vocabulary.tokens


@pytest.mark.parametrize(
    ("config", "more", "says"),
    [
        ({"tokenizer_class": 3}, {}, "tokenizer_config.json says 3; GPT2Tokenizer, CodeGenTokenizer"),
        ({}, {"!": None}, "names none; .* no byte-level vocabulary"),
        ({"tokenizer_class": "CLIPTokenizer"}, {"a</w>": 399}, "says CLIPTokenizer; .* no byte-level vocabulary"),
        ({"tokenizer_class": "Qwen2Tokenizer", "add_prefix_space": True}, {}, "add_prefix_space = true is not supp"),
    ],
)
def test_a_vocabulary_that_is_refused(
    trained: Callable[..., Path], config: dict[str, Any], more: dict[str, int | None], says: str
) -> None:
    folder = trained(tokenizer_config=config)
    tokens = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
    tokens = {token: i for token, i in {**tokens, **more}.items() if i is not None}
    (folder / "vocab.json").write_text(json.dumps(tokens), encoding="utf-8")
    with pytest.raises(UnsupportedError, match=says) as caught:
        read(folder, model_type="llama")
    assert "add_prefix" in says or caught.value.remedy is Remedy.TOKENIZER


@pytest.mark.parametrize(
    ("file", "content", "says"),
    [
        ("merges.txt", None, "vocab.json is there, merges.txt beside it is not"),
        ("merges.txt", b"#version: 0.2\na b c\n", "vocab.json with merges.txt: merge 0 is a b c, expected two tokens"),
        ("merges.txt", b"a \xff\n", "merges.txt is not UTF-8: byte 2 is wrong"),
        ("merges.txt", b"zq qz\n", "merge 0 .* has a token that is not there"),
        ("vocab.json", b"[]", "vocab.json holds a list, expected an object"),
        ("vocab.json", b"{}", "model.vocab is not an object of tokens"),
        ("vocab.json", b'{"a": 0, "b": "1"}', "ids that are not small integers"),
        ("special_tokens_map.json", b'{"eos_token": 3}', "eos_token = 3 .*expected the text of a token"),
        ("special_tokens_map.json", b'{"additional_special_tokens": [{}]}', "expected the text of a token"),
        ("added_tokens.json", b'{"<|endoftext|>": "x"}', "added_tokens.json: .*expected an id"),
    ],
)
def test_damaged_files(trained: Callable[..., Path], file: str, content: bytes | None, says: str) -> None:
    folder = trained(tokenizer_config={"tokenizer_class": "GPT2Tokenizer"})
    if content is None:
        (folder / file).unlink()
    else:
        (folder / file).write_bytes(content)
    with pytest.raises(HybridError, match=says) as caught:
        read(folder)
    assert "\n" not in str(caught.value)


def test_lines_of_merges(trained: Callable[..., Path]) -> None:
    """Without a version line, with Windows line ends, with a byte order mark."""
    folder = trained(tokenizer_config={"tokenizer_class": "GPT2Tokenizer"})
    merges = read(folder).merges
    path = folder / "merges.txt"
    lines = path.read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith("#version") and merges == lines[1:]
    for text in ("\n".join(lines[1:]), "\r\n".join(lines) + "\r\n", "\ufeff" + "\n".join(lines)):
        path.write_bytes(text.encode())
        assert read(folder).merges == merges
