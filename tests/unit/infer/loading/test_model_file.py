"""A file's facts about its model: identity for state files, and whether its tokenizer fits."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from reference.tokenizer_files import FakeGGUF

from hybrid.infer.bench.shapes import ModelShape, write_shape
from hybrid.infer.loading.model_file import ModelFile, fitting_tokenizer
from hybrid.quant.ggml.errors import TokenizerError
from hybrid.quant.ggml.families.hparams import Hparams
from hybrid.quant.ggml.reader import GGUFFile
from hybrid.quant.ggml.types import FileType

MAMBA = ModelShape("file-mamba", "mamba", 2, 64, 320, 512, 1e-5, d_state=16, dt_rank=4)


class TwoTables(Hparams):
    """A model whose weights depend on the context."""

    def variant(self, tensors: object, n_ctx: int) -> str:
        return "long" if n_ctx > 100 else ""


def test_who_it_is(tmp_path: Path) -> None:
    hparams = TwoTables(n_layer=2, n_ahead=0, n_embd=64, n_ctx_train=512, eps=1e-5)
    with GGUFFile.open(write_shape(MAMBA, tmp_path / "m.gguf", FileType.Q8_0)) as gguf:
        short, long = (ModelFile(gguf, hparams, n_ctx, 320) for n_ctx in (64, 128))
        assert (short.arch, short.file_type, short.n_layer) == ("mamba", "Q8_0", 2)
        assert long.description == f"{short.description} (long)"
        assert len(short.fingerprint) == 32 and short.fingerprint != long.fingerprint, "other weights count"
        assert ModelFile(gguf, hparams, 65, 320).fingerprint == short.fingerprint
    with GGUFFile.open(write_shape(MAMBA, tmp_path / "other.gguf", FileType.Q4_0)) as gguf:
        assert ModelFile(gguf, hparams, 64, 320).fingerprint != short.fingerprint


def test_a_tokenizer_that_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    gguf = FakeGGUF({})
    gguf.path = Path("odd.gguf")
    monkeypatch.setattr("hybrid.infer.text.tokenizer.load_tokenizer", lambda _: SimpleNamespace(n_vocab=257))
    with pytest.raises(TokenizerError, match=r"odd.gguf: the tokenizer has 257 tokens, token_embd.weight 320 rows"):
        fitting_tokenizer(gguf, 320)  # type: ignore[arg-type]
    assert fitting_tokenizer(gguf, 257).n_vocab == 257  # type: ignore[arg-type]
