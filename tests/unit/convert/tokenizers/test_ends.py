"""The tokens that end an answer, from a checkpoint's files to the tokenizer of the GGUF file."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from hybrid.convert import plan
from hybrid.convert.checkpoint import Config
from hybrid.convert.tokenizers import Vocabulary, read_vocabulary
from hybrid.convert.tokenizers.vocabulary import END_IDS, EOM
from hybrid.infer.text.tokenizer import load_tokenizer
from hybrid.quant.ggml.errors import CheckpointError, TokenizerError
from hybrid.quant.ggml.writer import GGUFWriter

ENDOFTEXT, USER, OBSERVATION, TOOL, TEXT = 2, 3, 4, 5, 6
PIECES = [
    ("<unk>", 0.0, 2),
    ("<s>", 0.0, 3),
    ("<|endoftext|>", 0.0, 3),
    ("<|user|>", 0.0, 3),
    ("<|observation|>", 0.0, 3),
    ("<tool>", 0.0, 4),
    ("▁a", -1.0, 1),
]
N_VOCAB = 10


@pytest.fixture
def folder(tmp_path, spm):
    """Writes a tokenizer whose EOS is <|endoftext|>, and a generation_config.json; returns the folder."""

    def write(generation=None):
        (tmp_path / "tokenizer.model").write_bytes(spm(PIECES))
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|endoftext|>"}))
        (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": generation}))
        return tmp_path

    return write


def read(folder, config=None, **options):
    return read_vocabulary(folder, Config(config or {}, "config.json"), N_VOCAB, **options)


def keys_of(vocabulary: Vocabulary):
    return {key: value for key, value, _ in vocabulary.key_values()}


def ends_of(vocabulary: Vocabulary):
    """The tokens that end an answer with the written file."""
    return load_tokenizer(SimpleNamespace(path=Path("model.gguf"), metadata=keys_of(vocabulary))).eog


def test_every_token_of_the_list_ends_an_answer(folder):
    """llama.cpp has three keys. Ordinary text is in ours: readers take the tokens of the three for control tokens."""
    for third in ([OBSERVATION, TEXT], [TEXT, OBSERVATION]):
        vocabulary = read(folder([ENDOFTEXT, USER, *third]))
        keys = keys_of(vocabulary)
        named = [keys[f"tokenizer.ggml.{key}_token_id"] for key in ("eos", "eot", "eom")]
        assert named == [ENDOFTEXT, USER, OBSERVATION] and keys[END_IDS] == [TEXT]
        assert ends_of(vocabulary) == {ENDOFTEXT, USER, OBSERVATION, TEXT}
    keys = keys_of(read(folder([ENDOFTEXT, USER, OBSERVATION, TOOL])))
    assert keys[EOM] == OBSERVATION and keys[END_IDS] == [TOOL]


def test_lists_of_both_files_count(folder):
    vocabulary = read(folder([ENDOFTEXT, USER]), {"eos_token_id": [ENDOFTEXT, TOOL, USER, -1]})
    assert keys_of(vocabulary)[EOM] == TOOL and ends_of(vocabulary) == {ENDOFTEXT, USER, TOOL}
    assert ends_of(read(folder(), {"eos_token_id": [ENDOFTEXT, TOOL, TEXT]})) == {ENDOFTEXT, TOOL, TEXT}
    assert not {EOM, END_IDS} & keys_of(read(folder([ENDOFTEXT, USER]), {"eos_token_id": [USER, ENDOFTEXT]})).keys()


@pytest.mark.parametrize(
    ("generation", "config", "ends"),
    [
        (USER, None, {ENDOFTEXT, USER}),
        (TEXT, None, {ENDOFTEXT}),  # the default of a class
        (None, USER, {ENDOFTEXT, USER}),
        (None, TEXT, {ENDOFTEXT}),
        (USER, OBSERVATION, {ENDOFTEXT, USER}),  # as in transformers
        ([], None, {ENDOFTEXT}),
    ],
)
def test_a_single_id(folder, generation, config, ends):
    assert ends_of(read(folder(generation), {"eos_token_id": config})) == ends


def test_ids_beyond_the_vocabulary(folder):
    vocabulary = read(folder([ENDOFTEXT, 99, USER, 10**30]))
    assert ends_of(vocabulary) == {ENDOFTEXT, USER}
    notes = [note for note in vocabulary.notes if "eos_token_id" in note]
    assert notes == [f"generation_config.json: eos_token_id 99, {10**30} left out: the model has {N_VOCAB} tokens"]
    with pytest.raises(CheckpointError, match=r"config\.json: eos_token_id has 99, but the model has 10 tokens"):
        read(folder(), {"eos_token_id": [ENDOFTEXT, 99]})
    for wrong in ("</s>", ["</s>"], [True], {"a": 1}, 2.5):
        with pytest.raises(CheckpointError, match=r"generation_config\.json: eos_token_id has .*, expected the id"):
            read(folder(wrong))


def test_the_checkpoint_counts_beside_another_tokenizer(folder, tmp_path):
    """The other tokenizer is a folder, then a GGUF file, which passes on its own list."""
    source = folder([ENDOFTEXT, USER, OBSERVATION])
    checkpoint = tmp_path / "checkpoint"
    checkpoint.mkdir()
    (checkpoint / "generation_config.json").write_text(json.dumps({"eos_token_id": [ENDOFTEXT, TOOL]}))
    vocabulary = read(source, checkpoint=checkpoint)
    assert ends_of(vocabulary) == {ENDOFTEXT, USER, OBSERVATION, TOOL}
    path = tmp_path / "tokenizer.gguf"
    with GGUFWriter(path, "llama") as writer:
        for key, value, kind in read(source).key_values():
            writer.add(key, value, kind)
    vocabulary = read(path, checkpoint=checkpoint)
    assert keys_of(vocabulary)[EOM] == OBSERVATION and keys_of(vocabulary)[END_IDS] == [TOOL]
    assert ends_of(vocabulary) == {ENDOFTEXT, USER, OBSERVATION, TOOL}


def test_a_conversion_reads_them(data_dir, tmp_path):
    """With the checkpoint's own tokenizer, and with another one."""
    source = data_dir / "checkpoints" / "jamba-dense"
    checkpoint = shutil.copytree(source, tmp_path / "checkpoint")
    (checkpoint / "generation_config.json").write_text('{"eos_token_id": [2, 5, 7]}')
    for tokenizer in (None, source):
        metadata = dict(plan(checkpoint, tokenizer=tokenizer, vocab_only=True).metadata)
        assert load_tokenizer(SimpleNamespace(path=Path("model.gguf"), metadata=metadata)).eog >= {2, 5, 7}


@pytest.mark.parametrize("ids", [[N_VOCAB], [-1], [0.5], 3, ["a"]])
def test_a_file_with_wrong_ids(folder, tmp_path, ids):
    vocabulary = read(folder())
    metadata = {**keys_of(vocabulary), END_IDS: ids}
    with pytest.raises(TokenizerError, match=END_IDS):
        load_tokenizer(SimpleNamespace(path=Path("model.gguf"), metadata=metadata))
    path = tmp_path / "tokenizer.gguf"
    with GGUFWriter(path, "llama") as writer:
        for key, value, kind in vocabulary.key_values():
            writer.add(key, value, kind)
        writer.add(END_IDS, ids, None)
    with pytest.raises(TokenizerError, match=END_IDS):
        read(path)


def test_text_that_ends_an_answer_stays_text(folder):
    """A list may have a token of ordinary text, such as a blank line."""
    vocabulary = read(folder([ENDOFTEXT, USER, TEXT]))
    tokenizer = load_tokenizer(SimpleNamespace(path=Path("model.gguf"), metadata=keys_of(vocabulary)))
    assert tokenizer.is_eog(TEXT) and not tokenizer.is_control(TEXT)
    assert tokenizer.encode("a", add_special=False) == [TEXT]
    assert tokenizer.decode([TEXT], skip_special=True) == "a"
