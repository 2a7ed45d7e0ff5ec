"""--spec mtp: the model's own head guesses, or the error names the missing part."""

from pathlib import Path

import pytest
import random_heads

from hybrid.cli.options.guess_options import GuessOptions, Spec
from hybrid.cli.options.model_loading import loaded_with
from hybrid.convert import convert
from hybrid.infer.answers.guessing.head_guesser import HeadGuesser
from hybrid.infer.loading.options import LoadOptions
from hybrid.quant.ggml.errors import UsageError


@pytest.mark.parametrize("heads", [True, False])
def test_spec_mtp(heads: bool, tmp_path: Path, data_dir: Path) -> None:
    checkpoint, path = random_heads.write("qwen35-mtp", tmp_path / "model"), tmp_path / "model.gguf"
    convert(checkpoint, path, outtype="q8_0", tokenizer=data_dir / "checkpoints" / "mamba-bf16", heads=heads)
    options = LoadOptions(n_ctx=64)
    if not heads:
        with pytest.raises(UsageError, match=r"--spec mtp: model\.gguf has no head that guesses tokens ahead"):
            loaded_with(path, options, GuessOptions(Spec.MTP))
        return
    with loaded_with(path, options, GuessOptions(Spec.MTP)) as model:
        assert isinstance(model.runner.guessers.helper, HeadGuesser) and model.runner.guessers.ngrams
    with loaded_with(path, options, GuessOptions(Spec.NGRAM)) as model:
        assert model.runner.guessers.helper is None and model.runner.follower is None


def test_one_of_two_guesses(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--spec mtp and --draft: either"):
        loaded_with(tmp_path / "no.gguf", LoadOptions(), GuessOptions(Spec.MTP, tmp_path / "draft.gguf"))
