"""Token ids and texts compared with sentencepiece, tokenizers and llama.cpp; tests/data/tokenizers has the small set.

`golden_<kind>.json` holds the reference library's results for 214 strings with the original tokenizer file; here the
tokenizer is built from GGUF metadata alone.
"""

import base64
import json
import random
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import random_checkpoints
from reference import tiktoken_ranks
from reference.tokenizer_files import FakeGGUF, bpe, gemma_json, sentencepiece, wordpiece

from hybrid.convert import convert
from hybrid.infer.text.chat_template import ChatTemplate
from hybrid.infer.text.tokenizer import Tokenizer, load_tokenizer
from hybrid.infer.text.tokenizer import bpe as tokenizer_bpe
from hybrid.quant.ggml.errors import TemplateError
from hybrid.quant.ggml.reader import GGUFFile

BUNDLED = {
    "jamba": "checkpoints/jamba-dense/tokenizer.model",
    "neox": "checkpoints/mamba-bf16/tokenizer.json",
    "unigram": "checkpoints/llama-unigram-bin/tokenizer.model",
    "unigram_bf": "tokenizers/sp_unigram_bf.model",
    "gemma": "tokenizers/sp_bpe_gemma.model",  # has tokens of several newlines
    "llama3": "tokenizers/bpe_llama3.json",  # ignore_merges
    "qwen": "tokenizers/bpe_qwen.json",
    "qwen35": "tokenizers/bpe_qwen35.json",
    "wordpiece": "tokenizers/wordpiece/tokenizer.json",
}
WITH_PROMPTS = ("jamba", "neox", "unigram")  # of checkpoints in the repository
SENTENCEPIECE = {
    "jamba": "sp_bpe_jamba.model",
    "llama": "sp_bpe_llama.model",
    "gemma": "sp_bpe_gemma.model",
    "unigram": "sp_unigram.model",
    "unigram_bf": "sp_unigram_bf.model",
}
PRE = {"neox": "mpt", "qwen": "qwen2", "qwen35": "qwen35", "llama3": "llama-bpe"}
NFC = {"neox", "qwen", "qwen35"}
PARSED = {*PRE, "wordpiece"}  # kinds whose library parses special tokens in text
# Kinds whose repositories have a chat template, and a checkpoint with it.
TEMPLATES = {
    "jamba": "jamba-dense",
    "llama": "llama",
    "gemma": "recurrent-gemma",
    "qwen": "qwen3-next",
    "qwen35": "qwen3_5",
    "llama3": "falcon-h1",
}


def metadata(kind: str, path: Path) -> FakeGGUF:
    if kind in SENTENCEPIECE:
        return sentencepiece(path)
    if kind == "wordpiece":
        return wordpiece(path)
    return bpe(path, PRE[kind], normalizer="NFC" if kind in NFC else "none")


def compare(tok: Tokenizer, golden: dict[str, Any], parses_special: bool, plain_only: bool = False) -> None:
    """parses_special: the reference library parses control tokens in text. plain_only: skip texts with them."""
    assert len(golden["items"]) == 214
    for item in golden["items"]:
        text = item["text"]
        if plain_only and item["has_special_text"]:
            continue
        ids = tok.encode(text, add_special=False, parse_special=parses_special)
        assert ids == item["ids"], repr(text)
        assert tok.decode(ids) == item["decoded"] or item["has_special_text"], repr(text)
        stream = tok.stream(at_start=True)
        assert "".join(map(stream.push, ids)) + stream.flush() == tok.decode(ids), repr(text)


@pytest.mark.parametrize("kind", BUNDLED)
def test_bundled_kinds(kind: str, data_dir: Path) -> None:
    tok = load_tokenizer(metadata(kind, data_dir / BUNDLED[kind]))
    golden = json.loads((data_dir / "tokenizers" / f"golden_{kind}.json").read_text())
    # Gemma's <end_of_turn> is USER_DEFINED in its sentencepiece model, but not text for us: it ends an answer
    compare(tok, golden, parses_special=kind in PARSED, plain_only=kind == "gemma")
    assert tok.n_vocab == golden["vocab_size"]


@pytest.mark.parametrize("kind", PRE)
@pytest.mark.parametrize("fresh", [True, False])
def test_short_texts(kind: str, fresh: bool, data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They have the same tokens by the tokens and merges that they can have, of themselves or of all texts before."""
    monkeypatch.setattr(tokenizer_bpe, "FEW", sys.maxsize)
    file = metadata(kind, data_dir / BUNDLED[kind])
    tok, n_small = load_tokenizer(file), 0
    for item in json.loads((data_dir / "tokenizers" / f"golden_{kind}.json").read_text())["items"]:
        if "_backend" in vars(tok):  # the text before was long
            tok = load_tokenizer(file)
        assert tok.encode(item["text"], add_special=False, parse_special=True) == item["ids"], repr(item["text"])
        n_small += "_backend" not in vars(tok)
        if fresh:
            tok = load_tokenizer(file)
    assert n_small > 150


CONVERTED = {"jamba-dense": "jamba", "mamba-bf16": "neox", "falcon-mamba": "neox", "llama-unigram-bin": "unigram"}


@pytest.mark.parametrize("name", CONVERTED)
def test_what_the_converter_writes(name: str, data_dir: Path, tmp_path: Path) -> None:
    kind, folder = CONVERTED[name], data_dir / "checkpoints" / name
    convert(folder, tmp_path / "vocabulary.gguf", vocab_only=True)
    golden = json.loads((data_dir / "tokenizers" / f"golden_{kind}.json").read_text())
    with GGUFFile.open(tmp_path / "vocabulary.gguf") as file:
        tok = load_tokenizer(file)
        template = ChatTemplate.from_gguf(file, tok)
    compare(tok, golden, parses_special=kind in PARSED)
    for prompt in json.loads((folder / "golden" / "prompts.json").read_text()).values():
        assert tok.encode(prompt["text"]) == prompt["ids"]
    if kind == "jamba":
        assert template is not None
        compare_chats(golden, template, tok)
    else:
        assert template is None


CONVERTED_SHARED = {
    "falcon-h1": "llama3",
    "nemotron-h": "llama3",
    "lfm2": "llama3",
    "granite-moe": "llama3",
    "qwen3-next": "qwen",
    "qwen3_5": "qwen35",
    "recurrent-gemma": "gemma",
    "llama": "llama",
}


@pytest.mark.parametrize("name", CONVERTED_SHARED)
def test_what_the_converter_writes_for_other_families(name: str, shared_dir: Path, tmp_path: Path) -> None:
    kind, folder = CONVERTED_SHARED[name], shared_dir / "checkpoints" / name
    convert(folder, tmp_path / "vocabulary.gguf", vocab_only=True)
    golden = json.loads((shared_dir / "checkpoints" / "tok" / f"golden_{kind}.json").read_text())
    with GGUFFile.open(tmp_path / "vocabulary.gguf") as file:
        tok = load_tokenizer(file)
        template = ChatTemplate.from_gguf(file, tok)
    # Gemma's turn tags are ordinary pieces of its sentencepiece model, and special tokens of its tokenizer
    compare(tok, golden, parses_special=kind in PARSED, plain_only=kind == "gemma")
    for prompt in json.loads((folder / "golden" / "prompts.json").read_text()).values():
        assert tok.encode(prompt["text"]) == prompt["ids"]
    assert template is not None
    compare_chats(golden, template, tok)


@pytest.fixture(scope="module")
def kimi(data_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """Kimi's tokenizer, converted from a tiktoken file."""
    folder = tmp_path_factory.mktemp("kimi")
    shutil.copytree(data_dir / "tokenizers" / "kimi", folder, dirs_exist_ok=True)
    config = random_checkpoints.CONFIGS["kimi-linear"] | {"vocab_size": 1700, "model_max_length": 64}
    (folder / "config.json").write_text(json.dumps(config))
    convert(folder, folder / "vocabulary.gguf", vocab_only=True)
    with GGUFFile.open(folder / "vocabulary.gguf") as file:
        return load_tokenizer(file)


def test_ids_of_tiktoken(kimi: Tokenizer, data_dir: Path) -> None:
    for item in json.loads((data_dir / "tokenizers" / "golden_kimi.json").read_text())["items"]:
        assert kimi.encode(item["text"]) == item["ids"], repr(item["text"])
        assert kimi.decode(item["ids"]) == item["text"]
    assert kimi.encode("a<|im_end|>", parse_special=True)[-1] == 1402


def test_ids_of_ranks(kimi: Tokenizer, data_dir: Path) -> None:
    """The same ids as our reference, on texts of letters that distinguish its character classes."""
    lines = (data_dir / "tokenizers" / "kimi" / "tiktoken.model").read_text().split("\n")[:-1]
    ranks = {base64.b64decode(token): int(rank) for token, rank in map(str.split, lines)}
    rng, letters = random.Random(1), "aBéΔǅʰªाै月々日カ 한5²Ⅳ\u0301_'sSlL-\n\r\t \u3000"
    for _ in range(300):
        text = "".join(rng.choices(letters, k=rng.randrange(1, 30)))
        assert kimi.encode(text) == tiktoken_ranks.encode(ranks, text, tiktoken_ranks.kimi()), repr(text)


@pytest.mark.parametrize("kind", [kind for kind in SENTENCEPIECE if kind not in BUNDLED])
def test_other_kinds(kind: str, shared_dir: Path) -> None:
    folder = shared_dir / "checkpoints" / "tok"
    tok = load_tokenizer(metadata(kind, folder / SENTENCEPIECE[kind]))
    compare(tok, json.loads((folder / f"golden_{kind}.json").read_text()), parses_special=kind in PARSED)


def test_the_goldens_have_what_tells_kinds_apart(data_dir: Path) -> None:
    """Runs of newlines that are one token; bytes of characters without tokens. (Llama 3's merges reach all its tokens
    here: unit/infer/text/tokenizer/test_tokenizer.py tests the effect of ignoring them.)"""

    def items(kind: str) -> list[dict[str, Any]]:
        return json.loads((data_dir / "tokenizers" / f"golden_{kind}.json").read_text())["items"]

    assert any(len(piece) > 2 and set(piece) == {"\n"} for i in items("gemma") for piece in i["pieces"])
    assert any(piece.startswith("<0x") for i in items("unigram_bf") for piece in i["pieces"])


@pytest.mark.parametrize("kind", WITH_PROMPTS)
def test_prompts_of_the_checkpoints(kind: str, data_dir: Path) -> None:
    """With BOS if the family adds one: the ids of the golden logits."""
    checkpoint = (data_dir / BUNDLED[kind]).parent
    gguf = metadata(kind, data_dir / BUNDLED[kind])
    if kind == "unigram":
        gguf.metadata["tokenizer.ggml.add_eos_token"] = False  # the goldens leave </s> out
    tok = load_tokenizer(gguf)
    for name, prompt in json.loads((checkpoint / "golden" / "prompts.json").read_text()).items():
        assert tok.encode(prompt["text"]) == prompt["ids"], name


def chat_template(config: dict[str, Any]) -> ChatTemplate:
    tokens = {name: config[name] for name in ("bos_token", "eos_token") if config.get(name)}
    return ChatTemplate(config["chat_template"], tokens=tokens)


def compare_chats(golden: dict[str, Any], template: ChatTemplate, tok: Tokenizer) -> None:
    assert golden["chats"]
    for chat in golden["chats"]:
        if "error" in chat:
            with pytest.raises(TemplateError) as error:
                template.render(chat["messages"], chat["add_generation_prompt"])
            assert chat["error"] in str(error.value)
            continue
        text = template.render(chat["messages"], chat["add_generation_prompt"])
        assert text == chat["rendered"]
        assert tok.encode(text, add_special=False, parse_special=True) == chat["hf_ids"], text


def test_chats_of_the_bundled_kind(data_dir: Path) -> None:
    folder = data_dir / "checkpoints" / "jamba-dense"
    config = json.loads((folder / "tokenizer_config.json").read_text())
    golden = json.loads((data_dir / "tokenizers" / "golden_jamba.json").read_text())
    compare_chats(golden, chat_template(config), load_tokenizer(sentencepiece(folder / "tokenizer.model")))


@pytest.mark.parametrize("kind", TEMPLATES)
def test_chats(kind: str, shared_dir: Path) -> None:
    folder = shared_dir / "checkpoints"
    config = json.loads((folder / TEMPLATES[kind] / "tokenizer_config.json").read_text())
    golden = json.loads((folder / "tok" / f"golden_{kind}.json").read_text())
    tok = load_tokenizer(metadata(kind, folder / "tok" / SENTENCEPIECE.get(kind, f"bpe_{kind}.json")))
    compare_chats(golden, chat_template(config), tok)


# Vocabularies of llama.cpp with expected ids, and the number of texts; missing ones are skipped.
VOCABULARIES = {
    "bert-bge": 47, "command-r": 47, "deepseek-coder": 47, "deepseek-llm": 47, "falcon": 47, "gemma-4": 46, "gpt-2": 47,
    "llama-bpe": 47, "llama-spm": 47, "mpt": 47, "phi-3": 47, "qwen2": 47, "qwen35": 51, "refact": 47, "starcoder": 47,
}  # fmt: skip


@pytest.mark.parametrize("name", VOCABULARIES)
def test_vocabularies_of_llama_cpp(name: str, shared_dir: Path) -> None:
    path = shared_dir / "vocabs" / f"ggml-vocab-{name}.gguf"
    if not path.exists():
        pytest.skip(f"{path.name} is not there")
    with GGUFFile.open(path) as file:
        tok = load_tokenizer(file)
    texts = Path(f"{path}.inp").read_bytes().decode().split("\n__ggml_vocab_test__\n")
    lines = Path(f"{path}.out").read_text().split("\n")[: len(texts)]
    assert len(texts) == VOCABULARIES[name]
    for text, line in zip(texts, lines, strict=True):
        ids = tok.encode(text, add_special=False)
        assert ids == [int(word) for word in line.split()], repr(text)
        # WordPiece loses capitals, accents and spaces
        assert tok.decode(ids) == text or name == "bert-bge"


@pytest.mark.parametrize("bos", [True, False])
def test_gemma_from_tokenizer_json(bos: bool, data_dir: Path, tmp_path: Path) -> None:
    """Merges of characters, compared with the `tokenizers` library. Kind gemma4 begins with BOS; a file without BOS
    becomes another kind with the same splitting."""
    import tokenizers

    content = gemma_json(data_dir / BUNDLED["gemma"])
    if not bos:
        content["post_processor"] = None
    source = tmp_path / "source"
    source.mkdir()
    (source / "tokenizer.json").write_text(json.dumps(content))
    (source / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<bos>", "eos_token": "<eos>"}))
    reference = tokenizers.Tokenizer.from_file(str(source / "tokenizer.json"))
    model = data_dir / "checkpoints" / "jamba-dense"
    convert(model, tmp_path / "vocabulary.gguf", vocab_only=True, tokenizer=source)
    with GGUFFile.open(tmp_path / "vocabulary.gguf") as file:
        assert (file.get("tokenizer.ggml.model"), file.get("tokenizer.ggml.pre", None)) == (
            ("gemma4", None) if bos else ("gpt2", "sarvam-moe")
        )
        tok = load_tokenizer(file)
    golden = json.loads((data_dir / "tokenizers" / "golden_gemma.json").read_text())
    texts = [item["text"] for item in golden["items"]]
    assert len(texts) == 214
    for text in [*texts, *("a" + "\n" * n + "b" + " " * n for n in range(1, 50))]:
        expected = reference.encode(text)
        assert tok.encode(text, parse_special=True) == expected.ids, repr(text)
        assert tok.decode(expected.ids) == reference.decode(expected.ids, skip_special_tokens=False), repr(text)


def test_wordpiece_as_converted(data_dir: Path, tmp_path: Path) -> None:
    """From tokenizer.json and from vocab.txt alone, with the tokens that Hugging Face adds around a text."""
    golden = json.loads((data_dir / "tokenizers" / "golden_wordpiece.json").read_text())
    source = data_dir / "tokenizers" / "wordpiece"
    old = tmp_path / "old"
    old.mkdir()
    for name in ("vocab.txt", "tokenizer_config.json"):
        (old / name).write_bytes((source / name).read_bytes())
    keys = []
    for folder in (source, old):
        model = random_checkpoints.write(random_checkpoints.ENCODERS["bert"], tmp_path / f"{folder.name}-model")
        target = tmp_path / f"{folder.name}.gguf"
        convert(model, target, vocab_only=True, tokenizer=folder)
        with GGUFFile.open(target) as file:
            tok = load_tokenizer(file)
            keys.append({key: file.get(key) for key in file.metadata if key.startswith("tokenizer.")})
        compare(tok, golden, parses_special=True)
        for item in golden["items"]:
            assert tok.encode(item["text"], parse_special=True) == item["hf_ids_with_special"]
    assert keys[0].keys() - keys[1].keys() == {"tokenizer.ggml.add_sep_token"}
    for key, value in keys[1].items():
        assert (keys[0][key] == value) if isinstance(value, str | int) else list(keys[0][key]) == list(value), key
