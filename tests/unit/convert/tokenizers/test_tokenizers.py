"""Vocabularies against sentencepiece and tokenizers themselves, and against written cases."""

import json
from pathlib import Path

import numpy as np
import pytest

from hybrid.convert.checkpoint import Config
from hybrid.convert.tokenizers import read_vocabulary
from hybrid.convert.tokenizers.pre import Structure, canonical, find_name
from hybrid.quant.ggml import pretokenizers
from hybrid.quant.ggml.errors import CheckpointError, HybridError, Remedy, TokenizerError, UnsupportedError, UsageError
from hybrid.quant.ggml.token_types import TokenType
from hybrid.quant.ggml.writer import GGUFWriter

NONE = Config({}, "config.json")
PIECES = [("<unk>", 0.0, 2), ("<s>", 0.0, 3), ("</s>", 0.0, 3), ("▁a", -1.0, 1), ("<x>", 0.0, 4), ("<0x0A>", 0.0, 6)]


def read(folder, n=None, config=None, **options):
    return read_vocabulary(Path(folder), Config(config or {}, "config.json"), n or 10, **options)


@pytest.fixture
def model(tmp_path, spm):
    """Writes a tokenizer.model and other JSON files; returns the folder."""

    def write(pieces=PIECES, unigram=False, normalizer=b"", **files):
        (tmp_path / "tokenizer.model").write_bytes(spm(pieces, unigram=unigram, normalizer=normalizer))
        for name, content in files.items():
            (tmp_path / f"{name}.json").write_text(json.dumps(content))
        return tmp_path

    return write


@pytest.fixture
def bpe(tmp_path):
    """Writes a byte-level tokenizer.json, changed by `change`, and other JSON files; returns the folder."""

    def write(change=lambda content: None, **files):
        content = {
            "model": {
                "type": "BPE",
                "vocab": {"<|end|>": 0, "a": 1, "b": 2, "Ġ": 3, "ab": 4, "Ġab": 6},
                "merges": [["a", "b"], ["Ġ", "ab"]],
            },
            "normalizer": {"type": "NFC"},
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True},
            "post_processor": {"type": "ByteLevel"},
            "decoder": {"type": "ByteLevel"},
            "added_tokens": [
                {"id": 0, "content": "<|end|>", "special": True},
                {"id": 7, "content": "  ", "special": False},
            ],
        }
        change(content)
        (tmp_path / "tokenizer.json").write_text(json.dumps(content))
        for name, value in files.items():
            (tmp_path / f"{name}.json").write_text(json.dumps(value))
        return tmp_path

    return write


# --- sentencepiece ---


@pytest.mark.parametrize("name", ["jamba-dense", "llama-unigram-bin"])
def test_pieces_are_those_of_the_library(data_dir, name):
    from sentencepiece import SentencePieceProcessor

    folder = data_dir / "checkpoints" / name
    vocab = read(folder, 2000)
    library = SentencePieceProcessor(model_file=str(folder / "tokenizer.model"))
    assert len(vocab.tokens) == len(library)
    specials = json.loads((folder / "tokenizer_config.json").read_text())["added_tokens_decoder"]
    for i, (text, kind, score) in enumerate(zip(vocab.tokens, vocab.types, vocab.scores, strict=True)):
        assert text == library.id_to_piece(i)
        assert (kind == TokenType.UNKNOWN) == library.is_unknown(i)
        assert (kind == TokenType.BYTE) == library.is_byte(i)
        assert (kind == TokenType.CONTROL) == library.is_control(i)
        assert str(i) in specials or np.float32(score) == np.float32(library.get_score(i))
    assert vocab.ids["unk"] == library.unk_id()
    assert vocab.ids["bos"] == library.bos_id() and vocab.ids["eos"] == library.eos_id()


def test_unigram(data_dir):
    vocab = read(data_dir / "checkpoints" / "llama-unigram-bin", 2000)
    more = {key.removeprefix("tokenizer.ggml."): value for key, value, _ in vocab.more}
    assert vocab.model == "t5" and more["add_space_prefix"] is True and more["remove_extra_whitespaces"] is True
    assert len(more["precompiled_charsmap"]) > 100_000
    assert [vocab.types[vocab.tokens.index(text)] for text in ("<sep>", "<cls>")] == [TokenType.USER_DEFINED] * 2
    # Causal models go on after the prompt, whatever the tokenizer was made for.
    assert vocab.flags == {"add_bos_token": False, "add_eos_token": False}
    assert any("EOS" in note for note in vocab.notes)


def test_added_tokens_and_padding(model):
    decoder = {
        "1": {"content": "<s>", "special": True},
        "3": {"content": "▁a", "special": False},  # inside the base vocabulary
        "8": {"content": "<|im_end|>", "special": True},
        "12": {"content": "far", "special": True},
    }
    vocab = read(model(tokenizer_config={"added_tokens_decoder": decoder, "add_bos_token": True}), 10)
    assert vocab.tokens == [
        "<unk>",
        "<s>",
        "</s>",
        " a",
        "<x>",
        "<0x0A>",
        "[PAD6]",
        "[PAD7]",
        "<|im_end|>",
        "[PAD9]",
    ]
    assert vocab.types == [2, 3, 3, 4, 4, 6, 5, 5, 3, 5]
    assert vocab.flags == {"add_bos_token": True}
    assert any("12" in note for note in vocab.notes)


def test_flags_of_the_normalizer(model):
    assert [pair[0] for pair in read(model(normalizer=b"\x20\x00")).more] == []
    prefix = read(model(normalizer=b"\x18\x00\x20\x00")).more
    assert [(key, value) for key, value, _ in prefix] == [("tokenizer.ggml.add_space_prefix", False)]
    extra = read(model()).more
    assert [(key, value) for key, value, _ in extra] == [("tokenizer.ggml.remove_extra_whitespaces", True)]


def test_prefix_turned_off_beside_the_model(model):
    folder = model(normalizer=b"\x20\x00", tokenizer_config={"add_prefix_space": False})
    assert [pair[:2] for pair in read(folder).more] == [("tokenizer.ggml.add_space_prefix", False)]
    (folder / "tokenizer_config.json").write_text('{"add_prefix_space": null}')
    assert read(folder).more == []


def test_special_ids(model):
    """The tokenizer's own files first, then config.json, then the sentencepiece model."""
    folder = model(tokenizer_config={"bos_token": {"content": "<x>"}, "eos_token": "not there"})
    vocab = read(folder, config={"bos_token_id": 2, "pad_token_id": 5, "eos_token_id": [3, 2]})
    assert (vocab.ids["bos"], vocab.ids["pad"], vocab.ids["eos"], vocab.ids["unk"]) == (4, 5, 3, 0)
    (folder / "tokenizer_config.json").unlink()
    assert read(folder).ids == {"unk": 0, "bos": 1, "eos": 2}


@pytest.mark.parametrize("text", ["<|eom|>", "<turn|>"])
def test_end_of_turn(model, text):
    pieces = [*PIECES, (text, 0.0, 3)]
    assert "eot" not in read(model(pieces)).ids
    assert read(model(pieces, tokenizer_config={"chat_template": "{{ m }}" + text})).ids["eot"] == 6
    assert read(model(pieces, generation_config={"eos_token_id": [2, 5]})).ids["eot"] == 5


def test_end_of_code_llamas_gaps(model):
    assert read(model([*PIECES, ("▁<EOT>", 0.0, 1)])).ids["eot"] == len(PIECES)


@pytest.mark.parametrize(
    "damage",
    [
        lambda raw: b"",
        lambda raw: b"\x00" * 100,
        lambda raw: raw[:-3],
        lambda raw: raw[: len(raw) // 2],
        lambda raw: b"<html>not found</html>",
        lambda raw: raw.replace(b"<unk>", b"\xff\xfe\xfd\xfc\xfb"),
        lambda raw: raw.replace(b"\x18\x02", b"\x18\x63"),
        lambda raw: b"version https://git-lfs.github.com/spec/v1\n",
    ],
)
def test_damaged_models(model, damage):
    folder = model()
    path = folder / "tokenizer.model"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(TokenizerError, match=r"tokenizer\.model is") as caught:
        read(folder)
    assert "\n" not in str(caught.value)


def test_random_bytes_in_a_model_never_crash(model):
    folder = model()
    path = folder / "tokenizer.model"
    whole = path.read_bytes()
    rng = np.random.default_rng(5)
    for _ in range(500):
        broken = bytearray(whole)
        broken[rng.integers(len(whole))] = rng.integers(256)
        path.write_bytes(broken)
        try:
            read(folder)
        except HybridError as error:
            assert "\n" not in str(error)


def test_more_tokens_than_the_model(model):
    with pytest.raises(TokenizerError, match=r"tokenizer\.model has 6 tokens, .* only 5\. Is it") as refused:
        read(model(), 5)
    assert refused.value.remedy is Remedy.TOKENIZER


def test_no_tokenizer(tmp_path):
    with pytest.raises(TokenizerError, match=r"has no tokenizer ") as refused:
        read(tmp_path)
    assert refused.value.remedy is Remedy.TOKENIZER
    with pytest.raises(UsageError, match="does not exist"):
        read(tmp_path / "nothing")


# --- tokenizer.json ---


def test_byte_level(bpe):
    vocab = read(bpe(tokenizer_config={"bos_token": "<|end|>", "eos_token": "<|end|>"}), 9, preferred_pre=("gpt-2",))
    assert (vocab.model, vocab.pre) == ("gpt2", "gpt-2")
    assert vocab.tokens == ["<|end|>", "a", "b", "Ġ", "ab", "[PAD5]", "Ġab", "  ", "[PAD8]"]
    assert vocab.types == [3, 1, 1, 1, 1, 5, 1, 4, 5]
    assert vocab.merges == ["a b", "Ġ ab"]
    assert vocab.ids == {"bos": 0, "eos": 0}
    assert vocab.flags == {"add_bos_token": False, "add_eos_token": False}
    assert [pair[:2] for pair in vocab.more] == [("hybrid.tokenizer.normalizer", "NFC")]


def test_merges_of_both_spellings(bpe):
    old = read(bpe(lambda c: c["model"].update(merges=["a b", "Ġ ab"])))
    assert old.merges == ["a b", "Ġ ab"]


def test_neox_is_that_of_the_library(data_dir):
    from tokenizers import Tokenizer

    folder = data_dir / "checkpoints" / "mamba-bf16"
    vocab = read(folder, 2048)
    library = Tokenizer.from_file(str(folder / "tokenizer.json"))
    assert vocab.tokens[: library.get_vocab_size()] == [library.id_to_token(i) for i in range(library.get_vocab_size())]
    assert vocab.tokens[2023:] == [f"[PAD{i}]" for i in range(2023, 2048)]
    assert vocab.types[:3] == [3, 3, 1] and vocab.types[2000:2023] == [4] * 23 and vocab.types[2023:] == [5] * 25


def test_byte_fallback(bpe):
    """Scores are minus the merge's rank; special tokens inside the vocabulary also get their type, not only those after
    it."""

    def change(content):
        content["model"] = {
            "type": "BPE",
            "byte_fallback": True,
            "unk_token": "<unk>",
            "merges": ["▁ b", "a b", "▁b c"],
            "vocab": {"<unk>": 0, "<s>": 1, "<0x0A>": 2, "▁": 3, "a": 4, "b": 5, "c": 6, "ab": 7, "▁b": 8, "▁bc": 9},
        }
        content["normalizer"] = {
            "type": "Sequence",
            "normalizers": [
                {"type": "Prepend", "prepend": "▁"},
                {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
            ],
        }
        content["pre_tokenizer"] = None
        content["decoder"] = {"type": "Sequence", "decoders": [{"type": "ByteFallback"}]}
        content["post_processor"] = {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}],
            "pair": [
                {"SpecialToken": {"id": "<s>"}},
                {"Sequence": {"id": "A"}},
                {"SpecialToken": {"id": "<s>"}},
                {"Sequence": {"id": "B"}},
            ],
        }
        content["added_tokens"] = [
            {"id": 1, "content": "<s>", "special": True},
            {"id": 4, "content": "a", "special": False},
        ]

    vocab = read(bpe(change))
    assert (vocab.model, vocab.pre, vocab.merges) == ("llama", "default", None)
    assert vocab.types == [2, 3, 6, 1, 4, 1, 1, 1, 1, 1]
    assert vocab.scores[7:10] == [-1.0, -0.0, -2.0]
    assert vocab.ids == {"unk": 0, "bos": 1}
    assert vocab.flags == {"add_bos_token": True, "add_eos_token": False, "add_sep_token": False}
    assert vocab.more == []  # a space is put before the text, as readers do without a key

    def split(content):
        change(content)
        content["pre_tokenizer"] = {"type": "Digits"}

    assert read(bpe(split)).notes == [
        "tokenizer.json splits text before the merges, which readers of kind llama do not"
    ]


def gemma(content):
    """Characters with byte fallback and no space before the text."""
    content["model"] = {
        "type": "BPE", "byte_fallback": True, "unk_token": "<unk>", "merges": ["▁ b", "a b"],
        "vocab": {"<unk>": 0, "<bos>": 1, "<0x0A>": 2, "▁": 3, "a": 4, "b": 5, "ab": 6, "▁b": 7, "<|turn>": 8,
                  "<|channel>": 9},
    }  # fmt: skip
    content["normalizer"] = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    content["pre_tokenizer"] = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious"}
    content["decoder"] = {"type": "Sequence", "decoders": [{"type": "ByteFallback"}]}
    content["post_processor"] = {"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A"}}], "pair": []}
    content["added_tokens"] = [
        {"id": i, "content": text, "special": True}
        for i, text in enumerate(["<unk>", "<bos>", "", "", "", "", "", "", "<|turn>", "<|channel>"])
        if text
    ]


def gguf_of(path, **keys):
    """A GGUF file of a vocabulary of kind gemma4."""
    with GGUFWriter(path, "gemma4") as writer:
        defaults = {
            "model": "gemma4",
            "tokens": ["<unk>", "<bos>", "a", "b", "ab"],
            "token_type": [3, 3, 1, 1, 1],
            "scores": [-1000.0] * 5,
            "merges": ["a b"],
            "bos_token_id": 1,
            "add_bos_token": True,
        }
        for key, value in (defaults | keys).items():
            writer.add(f"tokenizer.ggml.{key}", value)
    return path


def test_gemma4_from_a_gguf_file(tmp_path):
    vocab = read(gguf_of(tmp_path / "a.gguf"), 6)
    assert (vocab.model, vocab.pre, vocab.merges) == ("gemma4", "", ["a b"])
    assert vocab.tokens == ["<unk>", "<bos>", "a", "b", "ab", "[PAD5]"]
    by_key = {key: value for key, value, _ in vocab.key_values()}
    assert "tokenizer.ggml.pre" not in by_key
    assert (by_key["tokenizer.ggml.bos_token_id"], by_key["tokenizer.ggml.add_bos_token"]) == (1, True)


def test_what_a_gguf_file_does_not_say_is_noted(tmp_path):
    path = tmp_path / "a.gguf"
    assert read(gguf_of(path), 6).notes == []
    keys = {"model": "gpt2", "tokens": ["a", "b", "ab"], "merges": ["a b"]}
    typed, named = {"token_type": [1, 1, 1]}, {"pre": "gpt-2"}
    for more, says in (typed, "no tokenizer.ggml.pre: 'mpt' is"), (named, "no tokenizer.ggml.token_type: all"):
        with GGUFWriter(path, "llama") as writer:
            for key, value in (keys | more).items():
                writer.add(f"tokenizer.ggml.{key}", value)
        (note,) = read(path, 6).notes
        assert f"a.gguf has {says}" in note


@pytest.mark.parametrize("merges", ["a b", 3, [1, 2], [True]])
def test_merges_of_a_gguf_file_that_are_no_strings(tmp_path, merges):
    with pytest.raises(
        TokenizerError, match=r"a\.gguf: tokenizer\.ggml\.merges is not an array of STRING\. Use another"
    ):
        read(gguf_of(tmp_path / "a.gguf", merges=merges), 6)


SPECIALS = {"bos_token": "<bos>", "unk_token": "<unk>"}


def test_gemma4(bpe):
    """As llama.cpp's converter writes it: merges, scores of -1000, BOS although the file adds none; tokens that belong
    to an answer's text are not CONTROL."""
    vocab = read(bpe(gemma, tokenizer_config=SPECIALS), 11)
    assert (vocab.model, vocab.pre, vocab.merges) == ("gemma4", "", ["▁ b", "a b"])
    assert vocab.types == [3, 3, 6, 1, 1, 1, 1, 1, 3, 4, 5]
    assert vocab.scores == [-1000.0] * 10 + [-10000.0]
    assert vocab.ids == {"unk": 0, "bos": 1}
    assert vocab.flags == {"add_bos_token": True, "add_eos_token": False}
    assert {pair[:2] for pair in vocab.more} == {
        ("tokenizer.ggml.add_space_prefix", False),
        ("hybrid.tokenizer.normalizer", "none"),
    }
    assert len(vocab.notes) == 1 and "begin with BOS" in vocab.notes[0]
    assert "tokenizer.ggml.pre" not in {key for key, _, _ in vocab.key_values()}


def test_gemma4_with_steps_of_its_own(bpe):
    def change(content):
        gemma(content)
        content["normalizer"] = {"type": "Sequence", "normalizers": [{"type": "NFKC"}, content["normalizer"]]}
        content["pre_tokenizer"] = {"type": "Digits", "individual_digits": True}
        content["post_processor"]["single"].insert(0, {"SpecialToken": {"id": "<bos>"}})

    vocab = read(bpe(change, tokenizer_config=SPECIALS))
    more = {key: value for key, value, _ in vocab.more}
    assert more["hybrid.tokenizer.normalizer"] == "NFKC" and more["hybrid.tokenizer.split"] == [r"\p{N}"]
    assert len(vocab.notes) == 1 and "splits text in a way" in vocab.notes[0]

    def whole(content):
        gemma(content)
        content["model"]["ignore_merges"] = True

    assert any("takes whole words" in note for note in read(bpe(whole, tokenizer_config=SPECIALS)).notes)


@pytest.mark.parametrize("byte_level", [True, False])
def test_an_expression_that_backtracks_is_refused(bpe, byte_level):
    """With it some texts could not be encoded."""

    def change(content):
        if not byte_level:
            gemma(content)
        split = {"type": "Split", "pattern": {"Regex": r"(\s+)+x"}, "behavior": "Isolated", "invert": False}
        content["pre_tokenizer"] = {
            "type": "Sequence",
            "pretokenizers": [split, *[content["pre_tokenizer"]] * byte_level],
        }

    with pytest.raises(TokenizerError, match=r"tokenizer.json: the expression '.*' that splits text fails on a text"):
        read(bpe(change, tokenizer_config=SPECIALS))


def test_metaspace_spells_spaces(bpe):
    """transformers' own spelling of the same; without `split: false` pieces begin at spaces."""

    def change(content, **options):
        gemma(content)
        content["normalizer"] = None
        content["pre_tokenizer"] = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never", **options}

    vocab = read(bpe(lambda content: change(content, split=False)))
    assert (vocab.model, [key for key, _, _ in vocab.more if "split" in key]) == ("gemma4", [])
    vocab = read(bpe(change))
    assert [value for key, value, _ in vocab.more if key == "hybrid.tokenizer.split"] == [["▁[^▁]*|[^▁]+"]]


def test_byte_level_normalizers(bpe):
    for form in ("NFD", "NFKC", "NFKD"):
        vocab = read(bpe(lambda content: content.update(normalizer={"type": form})))  # noqa: B023
        assert [value for key, value, _ in vocab.more if "normalizer" in key] == [form] and not vocab.notes
    vocab = read(bpe(lambda content: content.update(normalizer={"type": "Lowercase"})))
    assert [value for key, value, _ in vocab.more if "normalizer" in key] == ["none"]
    assert vocab.notes == ["the normalizer Lowercase of tokenizer.json is not applied"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.pop("model"), "has no model"),
        (
            lambda c: c["model"].update(type="WordLevel"),
            "type WordLevel are not supported, only BPE, Word",
        ),
        (lambda c: c["model"].update(vocab=["a"]), "not an object of tokens"),
        (lambda c: c["model"].update(vocab={}), "not an object of tokens"),
        (lambda c: c["model"]["vocab"].update(z=-1), "ids that are not small integers"),
        (lambda c: c["model"]["vocab"].update(z="1"), "ids that are not small integers"),
        (lambda c: c["model"]["vocab"].update(z=2**40), "ids that are not small integers"),
        (lambda c: c["model"]["vocab"].update(z=10**6), "ids up to 1000000"),
        (lambda c: c["model"]["vocab"].update(z=1), "id 1 is both"),
        (lambda c: c["model"].update(end_of_word_suffix="</w>"), "a BPE with end_of_word_suffix = </w> is not supp"),
        (lambda c: c["model"].update(merges="a b"), "merges is not a list"),
        (lambda c: c["model"].update(merges=["a b c"]), "merge 0 is"),
        (lambda c: c["model"].update(merges=[["a", 3]]), "merge 0 is"),
        (lambda c: c["model"].update(merges=[["b", "a"]]), "merge 0 .* not there"),
        (lambda c: c.update(pre_tokenizer=[]), "pretokenizers is not an object"),
        (lambda c: c.update(pre_tokenizer={"type": "Sequence"}), "Sequence without pretokenizers"),
        (lambda c: c.update(pre_tokenizer={"type": "Split"}), "Split without a pattern"),
        (lambda c: c.update(pre_tokenizer=None, decoder=None), "without bytes"),
        (lambda c: (gemma(c), c.update(normalizer=None)), r"does not spell spaces as U\+2581"),
        (lambda c: (gemma(c), c["normalizer"].update(pattern={"String": "x"})), r"does not spell spaces as U\+2581"),
        (lambda c: (gemma(c), c["model"].update(merges=["a c"])), "merge 0 .* not there"),
        (lambda c: (gemma(c), c["model"].update(merges=None)), "merges is not a list"),
        (lambda c: (gemma(c), c["model"]["vocab"].update(a=5)), "id 5 is both"),
        (lambda c: (gemma(c), c["model"].update(vocab=["a"])), "not an object of tokens"),
        (lambda c: c.update(added_tokens={}), "added_tokens is not a list"),
        (lambda c: c.update(added_tokens=[{"id": "x"}]), "has no id or no content"),
        (lambda c: c["model"]["vocab"].update({f"t{i}": 10 + i for i in range(30)}), "has 40 tokens"),
    ],
)
def test_damaged_json(bpe, change, message):
    with pytest.raises(HybridError, match=message) as caught:
        read(bpe(change))
    assert isinstance(caught.value, TokenizerError | UnsupportedError) and "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff{}", b"[" * 5000])
def test_files_that_are_no_json(tmp_path, content):
    (tmp_path / "tokenizer.json").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"tokenizer\.json"):
        read(tmp_path)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("tokenizer_config", {"added_tokens_decoder": []}, "added_tokens_decoder = .*an object"),
        ("tokenizer_config", {"added_tokens_decoder": {"x": {"content": "a"}}}, "is not an added token"),
        ("tokenizer_config", {"added_tokens_decoder": {"1": {"content": 3}}}, "is not an added token"),
        ("tokenizer_config", {"add_bos_token": "yes"}, 'add_bos_token = "yes"'),
        ("tokenizer_config", {"bos_token": 3}, "bos_token = 3"),
        ("tokenizer_config", {"chat_template": 3}, "chat_template is an integer"),
        ("tokenizer_config", {"chat_template": [{"name": "x"}]}, "chat_template is a list"),
        ("added_tokens", {"x": "1"}, "expected an id"),
        ("tokenizer_config", [], "expected an object"),
    ],
)
def test_damaged_companions(model, file, content, message):
    with pytest.raises(HybridError, match=message):
        read(model(**{file: content}))


def test_ids_beyond_the_model(model):
    with pytest.raises(CheckpointError, match=r"eos_token_id = 99, but the model has 10 tokens"):
        read(model(), config={"eos_token_id": 99})
    assert read(model(), config={"pad_token_id": -1}).ids.get("pad") is None


# --- chat templates ---


def test_chat_template_precedence(model):
    folder = model()
    (folder / "chat_template.json").write_text(json.dumps({"chat_template": "from json"}))
    assert read(folder).chat_templates == {"default": "from json"}
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": "from config"}))
    assert read(folder).chat_templates == {"default": "from config"}
    (folder / "chat_template.jinja").write_text("from jinja")
    assert read(folder).chat_templates == {"default": "from jinja"}


def test_named_chat_templates(model):
    templates = [{"name": "default", "template": "d"}, {"name": "tool_use", "template": "t"}]
    vocab = read(model(tokenizer_config={"chat_template": templates}))
    by_key = {key: value for key, value, _ in vocab.key_values() if "chat_template" in key}
    assert by_key == {
        "tokenizer.chat_templates": ["tool_use"],
        "tokenizer.chat_template.tool_use": "t",
        "tokenizer.chat_template": "d",
    }


# --- pre-tokenizers ---


def _json_of(rule):
    steps = [{"type": "Split", "pattern": {"Regex": x}, "behavior": "Isolated"} for x in rule.split]
    steps.append({"type": "ByteLevel", "use_regex": False})
    return {"pre_tokenizer": {"type": "Sequence", "pretokenizers": steps}}


def test_every_rule_of_the_table_is_found():
    for rule in pretokenizers.load():
        if rule.byte_level:
            name, exact = find_name(Structure.of(_json_of(rule), "x"), rule.ignore_merges, rule.names)
            assert exact, rule.names
            named = pretokenizers.by_name(name)
            assert named is not None and list(map(canonical, named.split)) == list(map(canonical, rule.split))


def test_names_are_in_one_rule_each():
    names = [name for rule in pretokenizers.load() for name in rule.names]
    assert len(names) == len(set(names)) == 91
    assert pretokenizers.by_name("no such name") is None


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        (
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
            r"|\s+(?!\S)|\s+",
            "qwen2",
        ),
        (
            "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\r\n]*|\\s*[\r\n]+"
            "|\\s+(?!\\S)|\\s+",
            "qwen2",
        ),
    ],
)
def test_spellings_of_one_expression(pattern, name):
    steps = [
        {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated"},
        {"type": "ByteLevel", "use_regex": False},
    ]
    structure = Structure.of({"pre_tokenizer": {"type": "Sequence", "pretokenizers": steps}}, "x")
    assert find_name(structure, False, ()) == (name, True)


def test_digits_are_a_split():
    steps = [{"type": "Digits", "individual_digits": True}, {"type": "ByteLevel", "use_regex": True}]
    structure = Structure.of({"pre_tokenizer": {"type": "Sequence", "pretokenizers": steps}}, "x")
    assert find_name(structure, False, ("smollm",)) == ("smollm", True)


def test_unknown_structures_are_kept(bpe):
    def change(content):
        content["pre_tokenizer"] = {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": r"\p{N}{1,7}"}, "behavior": "Isolated"},
                {"type": "ByteLevel", "use_regex": True},
            ],
        }

    vocab = read(bpe(change))
    more = {key: value for key, value, _ in vocab.more}
    assert more["hybrid.tokenizer.split"][0] == r"\p{N}{1,7}" and len(more["hybrid.tokenizer.split"]) == 2
    assert pretokenizers.by_name(vocab.pre) is not None
    assert any("nearest" in note for note in vocab.notes)
