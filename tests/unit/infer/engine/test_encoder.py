"""Encoders with random weights against the same model in float64, and guarantees of a pass."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import random_checkpoints
from random_checkpoints import ENCODERS
from reference.encoders import encoder as twin
from reference.encoders import rows as twin_rows

from hybrid.convert import convert
from hybrid.infer import LoadedModel
from hybrid.infer.engine.encoder import PASS_TEXTS, PASS_TOKENS, Encoder
from hybrid.infer.evaluate.embed import Embedder, Pooling
from hybrid.infer.kernels.emit.isa import host
from hybrid.infer.kernels.products import gemm
from hybrid.quant import quantize
from hybrid.quant.ggml.errors import FormatError, Remedy, TokenizerError, UnsupportedError, UsageError
from hybrid.quant.ggml.reader import GGUFFile
from hybrid.quant.ggml.writer import GGUFWriter

EncoderPath = Callable[..., Path]


@pytest.fixture(scope="session")
def encoder_path(data_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> EncoderPath:
    """encoder_path(name, type='f32', **changes to the config) -> GGUF file."""
    folder = tmp_path_factory.mktemp("encoders")

    def make(name: str, kind: str = "f32", **changes: object) -> Path:
        path = folder / f"{name}-{kind}-{'-'.join(map(str, changes.values()))}.gguf"
        if not path.exists():
            source = random_checkpoints.write({**ENCODERS[name], **changes}, folder / path.stem)
            random_checkpoints.pad_positions(source)
            convert(source, path, outtype="f32", tokenizer=data_dir / "tokenizers" / "wordpiece")
            if kind != "f32":
                whole = path.rename(path.with_suffix(".f32"))
                quantize(whole, path, kind)
        return path

    return make


def some_texts(*lengths: int, seed: int = 1) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [rng.integers(0, 2000, n).tolist() for n in lengths]


def same(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and a.tobytes() == b.tobytes() and bool(np.isfinite(a).all())


@pytest.mark.parametrize("name", ENCODERS)
@pytest.mark.parametrize("precision", ["exact", "fast"])
def test_rows_of_random_models(name: str, precision: str, encoder_path: EncoderPath) -> None:
    config = {"max_position_embeddings": 512, **ENCODERS[name]}
    tensors = random_checkpoints.tensors(config)
    encoder = Encoder.load(encoder_path(name), precision=precision)
    texts = some_texts(1, 2, 5, 40, 129)
    seconds = [1, 1, 3, 40, 64]
    for text, second, rows in zip(texts, seconds, encoder.encode(texts, seconds), strict=True):
        expected = twin_rows(config, tensors, text, second)
        error = np.abs(rows - expected).max() / np.abs(expected).max()
        print(f"{name} {len(text)}: {error:.1e}")
        assert error < 1e-5
    encoder.close()


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *(("bert-even", kind) for kind in ("f32", "f16", "bf16", "q8_0")),
        ("modern-bert", "f32"),
        ("embedding-gemma", "f32"),
    ],
)
def test_a_text_depends_on_nothing_beside_it(name: str, kind: str, encoder_path: EncoderPath) -> None:
    path = encoder_path(name, kind)
    texts = some_texts(3, 1, 64, 65, 17, 130, 8, 2, 40)
    encoder = Encoder.load(path, n_threads=2)
    alone = [encoder.encode([text])[0] for text in texts]
    for order in (range(9), range(8, -1, -1), (4, 0, 8)):
        together = encoder.encode([texts[i] for i in order])
        assert all(same(rows, alone[i]) for rows, i in zip(together, order, strict=True))
    encoder.close()
    for n_threads in (1, 3):
        encoder = Encoder.load(path, n_threads=n_threads)
        assert all(same(a, b) for a, b in zip(encoder.encode(texts), alone, strict=True))
        assert same(encoder.encode(texts[1:2])[0], alone[1])
        encoder.close()


@pytest.mark.parametrize(("kind", "least"), [("f16", 0.999999), ("q8_0", 0.999)])
def test_vectors_of_quantized_models(kind: str, least: float, encoder_path: EncoderPath) -> None:
    ids = some_texts(30, 7, 100)
    with Embedder(encoder_path("bert-even")) as original, Embedder(encoder_path("bert-even", kind)) as smaller:
        likeness = (original.embed_ids(ids) * smaller.embed_ids(ids)).sum(1)
    print(kind, likeness)
    assert (likeness > least).all()


def test_no_keys_and_values_are_kept(encoder_path: EncoderPath) -> None:
    """A cache would take memory for every layer and every position of the context."""
    sizes = {}
    for n_layer, n_ctx in ((2, 600), (8, 600), (2, 200)):
        path = encoder_path("bert-even", num_hidden_layers=n_layer, max_position_embeddings=n_ctx)
        encoder = Encoder.load(path, n_threads=1)
        encoder.encode(some_texts(100, 100))
        assert encoder.memory.attention.k == encoder.memory.attention.v == {}
        assert encoder.memory.bytes_kv_per_token == 0
        assert all(not layer.memory() for layer, _ in encoder.parts)
        sizes[n_layer, n_ctx] = encoder.working_bytes
        encoder.close()
    print(sizes)
    assert len(set(sizes.values())) == 1


@pytest.mark.parametrize("name", ["bert-even", "modern-bert"])
def test_a_text_may_be_longer_than_a_pass_of_several(name: str, encoder_path: EncoderPath) -> None:
    config = {**ENCODERS[name]}
    assert config["max_position_embeddings"] > PASS_TOKENS
    encoder = Encoder.load(encoder_path(name))
    texts = some_texts(600, 9)
    before = encoder.encode(texts[1:])[0]
    rows = encoder.encode(texts[:1])[0]
    assert np.abs(rows - twin_rows(config, random_checkpoints.tensors(config), texts[0], 600)).max() < 2e-5
    assert same(encoder.encode(texts[1:])[0], before)
    encoder.close()


def test_passes_take_neighbours_in_order(encoder_path: EncoderPath) -> None:
    encoder = Encoder.load(encoder_path("bert"))
    lengths = [160, 160, 160, 160, *[1] * 70, 512, 3]
    passes = list(encoder.passes(lengths))
    assert [i for part in passes for i in part] == list(range(len(lengths)))
    assert all(len(part) <= PASS_TEXTS for part in passes)
    assert all(sum(lengths[i] for i in part) <= PASS_TOKENS for part in passes)
    assert passes[0] == range(3)
    assert list(encoder.passes([])) == []
    encoder.close()


def test_pooling_and_length(encoder_path: EncoderPath) -> None:
    ids = some_texts(12, 5)
    encoder = Encoder.load(encoder_path("bert"))
    rows = encoder.encode(ids)
    encoder.close()
    wanted = {
        Pooling.CLS: [r[0] for r in rows],
        Pooling.LAST: [r[-1] for r in rows],
        Pooling.MEAN: [r.astype(np.float64).mean(0) for r in rows],
        None: [r.astype(np.float64).mean(0) for r in rows],
    }
    for pooling, expected in wanted.items():
        with Embedder(encoder_path("bert"), pooling=pooling) as embedder:
            np.testing.assert_allclose(embedder.embed_ids(ids, normalize=False), expected, rtol=1e-6)
            unit = embedder.embed_ids(ids)
            np.testing.assert_allclose(np.linalg.norm(unit, axis=1), 1, rtol=1e-6)
            np.testing.assert_allclose(unit, expected / np.linalg.norm(expected, axis=1)[:, None], rtol=1e-5)
            assert embedder.embed([]).shape == (0, 60)


def test_texts_that_do_not_fit(encoder_path: EncoderPath) -> None:
    with Embedder(encoder_path("bert")) as embedder:
        long = "word " * 400
        too_large = r"^text 2 is too large: it has \d+ tokens, the context has 160\.$"
        with pytest.raises(UsageError, match=too_large) as refused:
            embedder.embed(["short", long])
        assert refused.value.remedy is Remedy.TRUNCATE
        ids = embedder.tokens(["short", long], truncate=True)
        whole = embedder.tokenizer.encode(long)
        assert ids[1] == [*whole[:159], whole[-1]]
        assert embedder.embed(["short", long], truncate=True).shape == (2, 60)
    with Embedder(encoder_path("bert"), n_ctx=20) as embedder:
        assert len(embedder.tokens([long], truncate=True)[0]) == 20
    with pytest.raises(UsageError, match=r"a context of 161 tokens: .* has 160 positions"):
        Embedder(encoder_path("bert"), n_ctx=161)


def test_ids_that_cannot_be(encoder_path: EncoderPath) -> None:
    with Embedder(encoder_path("bert")) as embedder:
        for ids, message in (
            ([[1], []], "text 2 has 0 tokens"),
            ([[1] * 161], "text 1 is too large: it has 161 tokens"),
            ([[1, 2000]], "not of the vocabulary of 2000"),
            ([[-1]], "not of the vocabulary"),
        ):
            with pytest.raises(UsageError, match=message):
                embedder.embed_ids(ids)


PAIRS = [("how to read a file", "opening files"), ("a", ""), ("Keys & values", "of a map, in order " * 9), ("a", "b")]


@pytest.mark.parametrize("precision", ["exact", "fast"])
def test_scores_of_pairs(precision: str, encoder_path: EncoderPath) -> None:
    tensors = random_checkpoints.tensors(ENCODERS["bert-scores"])
    with Embedder(encoder_path("bert-scores"), precision=precision) as embedder:
        assert (embedder.n_labels, embedder.labels) == (3, ("far", "near", "same"))
        scores, tokens = embedder.scores(PAIRS), embedder.pairs.all(PAIRS, truncate=False)
        wanted = np.array([twin(ENCODERS["bert-scores"], tensors, one.ids, one.second) for one in tokens])
        print(np.abs(scores - wanted).max())
        np.testing.assert_allclose(scores, wanted, atol=3e-6)
        swapped = np.array([twin(ENCODERS["bert-scores"], tensors, one.ids, len(one.ids)) for one in tokens])
        assert np.abs(swapped - wanted).min() > 1e-4, "types of tokens count"
        for pair, together in zip(PAIRS, scores, strict=True):
            assert same(embedder.scores([pair])[0], together)
        (single,) = embedder.pairs.all(["one text"], truncate=False)
        assert (single.second, single.ids) == (len(single.ids), embedder.tokenizer.encode("one text"))
        expected = twin(ENCODERS["bert-scores"], tensors, single.ids, single.second)
        np.testing.assert_allclose(embedder.scores(["one text"])[0], expected, atol=3e-6)
        assert embedder.scores([]).shape == (0, 3)


def test_scores_or_embeddings(encoder_path: EncoderPath) -> None:
    with Embedder(encoder_path("bert-scores")) as embedder:
        with pytest.raises(UnsupportedError, match=r"scores texts \(far, near, same\): it makes no embed") as refused:
            embedder.embed(["a"])
        assert refused.value.remedy is Remedy.POOLING
    with Embedder(encoder_path("bert-scores"), pooling=Pooling.MEAN) as embedder:
        assert embedder.embed(["a"]).shape == (1, 56)
    with Embedder(encoder_path("bert")) as embedder:
        assert embedder.labels == ()
        with pytest.raises(UnsupportedError, match=r"bert-f32-\.gguf has no cls\.output\.weight: it makes embeddings"):
            embedder.scores([("a", "b")])


def changed(path: Path, target: Path, n_rows: int = 0, **keys: object) -> Path:
    """A copy with changed bert.* keys, and fewer rows in the embedding."""
    with GGUFFile.open(path) as file:
        key_values = {k: (v, file.value_types[k]) for k, v in file.metadata.items() if k != "general.architecture"}
        for key, value in keys.items():
            key_values[f"bert.{key}"] = (value, key_values.get(f"bert.{key}", (0, None))[1])
        with GGUFWriter(target, "bert") as writer:
            for key, (value, kind) in key_values.items():
                writer.add(key, value.tolist() if hasattr(value, "tolist") else value, kind)
            raw = {
                name: file.raw(name)[: n_rows or None if name == "token_embd.weight" else None] for name in file.tensors
            }
            for name, info in file.tensors.items():
                writer.declare(
                    name, (len(raw[name]), *info.shape[1:]) if len(info.shape) > 1 else info.shape, info.type
                )
            for name, values in raw.items():
                writer.write(name, [values])
    return target


def test_what_is_wrong_with_a_file_is_said(encoder_path: EncoderPath, tmp_path: Path) -> None:
    path = encoder_path("bert")
    with pytest.raises(UnsupportedError, match=r"is an encoder \(bert\): it makes embeddings only\.$") as refused:
        LoadedModel.load(path)
    assert refused.value.remedy is Remedy.EMBEDDINGS
    with pytest.raises(FormatError, match=r"bert\.context_length = 159, expected 160, the rows of position_embd"):
        Encoder.load(changed(path, tmp_path / "a.gguf", context_length=159))
    with pytest.raises(
        FormatError, match=r"bert\.attention\.head_count = 7, expected a divisor of embedding_length = 60"
    ):
        Encoder.load(changed(path, tmp_path / "b.gguf", **{"attention.head_count": 7}))
    with pytest.raises(FormatError, match=r"c\.gguf has no cls\.output\.weight, the head that scores texts"):
        Embedder(changed(path, tmp_path / "c.gguf", pooling_type=4))
    with pytest.raises(UnsupportedError, match="pooling_type = 5 is unknown"):
        Embedder(changed(path, tmp_path / "g.gguf", pooling_type=5))
    with pytest.raises(FormatError, match="pooling_type = 'cls', expected an integer"):
        Embedder(changed(path, tmp_path / "e.gguf", pooling_type="cls"))
    with (
        Embedder(changed(path, tmp_path / "f.gguf", n_rows=1999)) as embedder,
        pytest.raises(TokenizerError, match=r"the tokenizer has 2000 tokens, token_embd.weight 1999 rows"),
    ):
        embedder.embed(["a"])
    with Embedder(changed(path, tmp_path / "d.gguf", pooling_type=3)) as embedder:
        assert embedder.pooling is Pooling.LAST


def test_passes_waste_little(encoder_path: EncoderPath) -> None:
    """Products compute whole tiles of columns: for a thousand texts of very different lengths, in any order, at most
    5 % more columns than tokens."""
    lengths = np.clip(np.random.default_rng(1).lognormal(4.0, 0.8, 1000).astype(int), 3, 400)
    with Embedder(encoder_path("bert-even")) as embedder:
        assert embedder.encoder is not None
        for order in (lengths, np.sort(lengths)):
            parts = [[int(order[i]) for i in part] for part in embedder.encoder.passes(order.tolist())]
            assert [n for part in parts for n in part] == order.tolist() and max(map(len, parts)) <= 32
            for tile in gemm.tiles(host()):
                computed = sum(-(-sum(part) // tile.cols) * tile.cols for part in parts)
                print(tile.cols, computed / lengths.sum() - 1)
                assert computed <= 1.05 * lengths.sum()
