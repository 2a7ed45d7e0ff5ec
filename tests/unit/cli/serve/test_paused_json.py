"""Other threads get their turn while a large answer is encoded as JSON."""

import json
from collections.abc import ItemsView
from types import SimpleNamespace
from typing import Any

import pytest

from hybrid.cli.serve.llama_server.answer import probabilities
from hybrid.cli.serve.openai.chat import token_logprobs
from hybrid.cli.serve.paused_json import Pausing
from hybrid.infer.answers.drawing.drawing import TextPiece, TokenLogprobs

TOKENIZER: Any = SimpleNamespace(piece=lambda token: b"a%d" % token)


def test_the_encoder_calls_python_for_every_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only during a call may the interpreter let another thread run."""
    pieces = [TextPiece("a", i, TokenLogprobs(-1.5, ((i, -1.5), (7, -2.5)))) for i in range(20)]
    served: Any = SimpleNamespace(model=SimpleNamespace(tokenizer=TOKENIZER))
    job: Any = SimpleNamespace(drawing=SimpleNamespace(sampled=False))
    for listed in (probabilities(served, job, pieces), token_logprobs(TOKENIZER, pieces)):
        plain = json.dumps([dict(each) for each in listed])
        assert json.loads(plain)[3]["top_logprobs"][1]["token"] == "a7"
        calls: list[int] = []

        def items(self: Pausing, calls: list[int] = calls) -> ItemsView[str, Any]:
            calls.append(1)
            return dict.items(self)

        with monkeypatch.context() as patch:
            patch.setattr(Pausing, "items", items)
            assert json.dumps(listed) == plain and len(calls) == 20
