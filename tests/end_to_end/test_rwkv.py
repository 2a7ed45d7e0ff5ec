"""RWKV-7 through the commands: a Hugging Face folder with a World vocabulary, converted, quantized, inspected, run."""

import json
from pathlib import Path
from typing import Any

import pytest
import random_checkpoints
from random_checkpoints import CONFIGS
from reference.tokenizer_files import world_file, world_vocabulary

from hybrid.cli.main import run
from hybrid.infer import LoadedModel

pytestmark = pytest.mark.exhaustive
PROMPT = "The sea, the sun and the \u65e5\u672c\n\nUser: hi"


def test_from_a_folder_to_text(tmp_path: Path, prose: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def ok(*words: object) -> str:
        assert run([str(word) for word in words]) == 0
        return capsys.readouterr().out

    def data(*words: object) -> Any:
        return json.loads(ok(*words, "--json"))

    config = {**CONFIGS["rwkv7"], "vocab_size": 1 + len(world_vocabulary())}
    folder = random_checkpoints.write(config, tmp_path / "model")
    (folder / "rwkv_vocab_v20230424.txt").write_text(world_file(world_vocabulary()), encoding="utf-8")
    path = tmp_path / "q.gguf"
    ok("quantize", folder, path, "Q8_0")
    facts = data("inspect", path)
    assert facts["architecture"] == "rwkv7"
    assert facts["pattern"] == ["R", "R", "R"]
    with LoadedModel.load(path, n_ctx=64) as model:
        assert facts["state_nbytes_per_seq"] == model.memory.recurrent.bytes_per_sequence
        assert facts["kv_nbytes_per_token"] == 0
        ids = model.tokenizer.encode(PROMPT)
        assert model.tokenizer.decode(ids) == PROMPT
    assert data("perplexity", path, "-f", prose, "-c", "64", "--chunks", "3")["ppl"] > 100

    options = ["--seed", "7", "--temp", "1.0"]
    whole = data("run", path, "--raw", "-p", PROMPT, "-n", 24, *options)
    assert whole["prompt_tokens"] == len(ids)
    state = tmp_path / "half.state"
    first = data("run", path, "--raw", "-p", PROMPT, "-n", 9, "--state", state, *options)
    second = data("run", path, "--raw", "-p", "", "-n", 15, "--state", state, *options)
    assert first["ids"] + second["ids"] == whole["ids"], "half a text, and on from its state"
