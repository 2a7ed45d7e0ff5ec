"""The reference's answers to prompts with pictures, over HTTP."""

import base64
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from golden.models import Golden
from golden.vision_goldens import PROMPTS, VISION, VisionGolden
from http_server import Server

from hybrid.cli.serve.jobs import Maker
from hybrid.cli.serve.pictures.sight import Sight
from hybrid.infer import LoadedModel
from hybrid.infer.answers.asking.eyes import Eyes

pytestmark = pytest.mark.shared


class Asked:
    """A server, and the reference of its model."""

    def __init__(self, golden: Golden, path: Path) -> None:
        self.golden = VisionGolden(golden).golden
        self.model = LoadedModel.load(path, n_ctx=512, precision="exact", n_seq_max=4, checkpoint_budget=64 << 20)
        self.eyes = Eyes.open(next(path.parent.glob("mmproj-*.gguf")), self.model)
        maker = Maker(self.model, self.model.chat_template, 2, sight=Sight(self.eyes))
        self.server = Server(self.model, maker=maker)

    def messages(self, prompt: str) -> list[dict[str, Any]]:
        described = self.golden.prompts[prompt]
        files = iter(described["images"])

        def part(given: dict[str, Any]) -> dict[str, Any]:
            if given["type"] != "image":
                return given
            data = (self.golden.folder / "images" / next(files)).read_bytes()
            return {"type": "image_url", "image_url": {"url": f"data:;base64,{base64.b64encode(data).decode()}"}}

        return [{**m, "content": [part(given) for given in m["content"]]} for m in described["messages"]]

    def close(self) -> None:
        self.server.close()
        self.eyes.close()
        self.model.close()


@pytest.fixture(scope="module", params=VISION)
def asked(request: pytest.FixtureRequest, golden: Callable[[str], Golden], converted: Callable) -> Iterator[Asked]:
    asked = Asked(golden(request.param), converted(request.param))
    yield asked
    asked.close()


@pytest.mark.parametrize("prompt", PROMPTS)
def test_the_reference_answers(prompt: str, asked: Asked) -> None:
    body = {
        "messages": asked.messages(prompt), "max_tokens": 32, "temperature": 0, "repeat_penalty": 1.0,
        "ignore_eos": True, "verbose": True, "n_probs": 0, "skip_special_tokens": False,
    }  # fmt: skip
    ids = asked.golden.greedy[prompt]["ids"][:32]
    for again in (False, True):
        answer = asked.server.http.post("/v1/chat/completions", json=body).json()
        usage = answer["usage"]
        assert usage["prompt_tokens"] == len(asked.golden.prompts[prompt]["ids"]) and usage["completion_tokens"] == 32
        assert answer["__verbose"]["content"] == asked.model.tokenizer.decode(ids)
        if again:
            assert usage["cache"]["processed"] <= 1, usage
