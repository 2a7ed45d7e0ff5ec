"""Prompts with a gap, beside llama-server's /infill.

tests/data/serve/infill.json has the number of tokens and the text of each prompt (of a long one its hash), as llama.cpp
0c1e570 answered. PEER=path/to/llama.cpp/build/bin asks llama-server again.
"""

import hashlib
import json
import os
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from filling_models import CONTEXT, MODELS

from hybrid.cli.serve.llama_server.infill import InfillRequest
from hybrid.infer.answers.asking.infill import OtherFile, infill_prompt
from hybrid.infer.text.tokenizer import Tokenizer, load_tokenizer
from hybrid.quant.ggml.split import open_gguf

PEER = os.environ.get("PEER", "")
CODE = "for i in range(n):\n    int x = ints[i]  # <|fim_prefix|> é\n"
OTHERS = [{"filename": "a.h", "text": "int f();\n"}, {"text": "in the second\n"}]
LONG = {"input_prefix": CODE * 80, "input_suffix": CODE * 40, "n_predict": 64}
CASES: list[dict[str, Any]] = [
    {"input_prefix": "def f(n):\n", "prompt": "    int ", "input_suffix": "    return x\n"},
    {"input_prefix": "", "input_suffix": ""},
    {"input_prefix": CODE, "input_suffix": " in\n", "input_extra": OTHERS},
    {"input_prefix": [40, "int x", 41], "input_suffix": [" in"], "prompt": "<|fim_middle|>x"},
    {**LONG, "prompt": "  int", "input_extra": [{"filename": "long", "text": CODE * 200}, OTHERS[0]]},
    LONG,
]
KINDS = [(name, suffix_first) for name in MODELS for suffix_first in (False, True)]


def name_of(name: str, suffix_first: bool) -> str:
    return f"{name} --spm-infill" if suffix_first else name


def short(n_tokens: int, text: str) -> list[Any]:
    return [n_tokens, text if len(text) < 300 else hashlib.sha256(text.encode()).hexdigest()]


@pytest.fixture(scope="module")
def wanted(data_dir: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((data_dir / "serve" / "infill.json").read_text())
    return found


def tokenizer_of(name: str, folder: Path) -> Tokenizer:
    return load_tokenizer(open_gguf(MODELS[name]().write(folder / "model.gguf")))


@pytest.mark.parametrize(("name", "suffix_first"), KINDS)
def test_prompts_are_llama_servers(name: str, suffix_first: bool, wanted: dict[str, Any], tmp_path: Path) -> None:
    tokenizer = tokenizer_of(name, tmp_path)
    for case, want in zip(CASES, wanted[name_of(name, suffix_first)], strict=True):
        body = InfillRequest.model_validate(case)
        ids = infill_prompt(
            tokenizer,
            body.input_prefix,
            body.input_suffix,
            CONTEXT,
            prompt=body.prompt,
            others=[OtherFile(other.text, other.filename) for other in body.input_extra or ()],
            n_predict=body.n_predict,
            suffix_first=suffix_first,
        )
        text = b"".join(map(tokenizer.piece, ids)).decode()
        # as llama.cpp writes tokens: only the space before a whole text is dropped
        assert short(len(ids), text.removeprefix(" ") if tokenizer.drops_leading_space else text) == want


@pytest.mark.skipif(not PEER, reason="needs PEER, llama.cpp's folder of programs")
@pytest.mark.parametrize(("name", "suffix_first"), KINDS)
def test_llama_server_answers_so(name: str, suffix_first: bool, wanted: dict[str, Any], tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [f"{PEER}/llama-server", "-m", str(MODELS[name]().write(tmp_path / "model.gguf")), "--port", str(port)]
    command += ["-c", str(CONTEXT), "-np", "1", "-n", "64", "-t", "1", "--no-warmup"]
    command += ["--spm-infill"] if suffix_first else []
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=120) as client:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            _until_it_answers(client, process)
            answers = [client.post("/infill", json={"n_predict": 1, **case}).json() for case in CASES]
        finally:
            process.kill()
            process.wait()
    told = [short(answer["tokens_evaluated"], answer["prompt"]) for answer in answers]
    assert told == wanted[name_of(name, suffix_first)]


def _until_it_answers(client: httpx.Client, process: "subprocess.Popen[bytes]") -> None:
    end = time.monotonic() + 60
    while True:
        try:
            if client.get("/health").status_code == 200:
                return
        except httpx.TransportError:
            pass
        assert process.poll() is None and time.monotonic() < end
        time.sleep(0.1)
