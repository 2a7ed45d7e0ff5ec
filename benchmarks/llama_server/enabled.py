"""Cases that llama.cpp's server tests leave out because they fail there: answers do not depend on the slot, nor on
other answers. And the answers of several adapters, whose texts those tests only have for their own model."""

import pytest
from utils import ServerPreset, download_file, parallel_function_calls  # of llama.cpp's tests

PROMPTS = ["Write a very long book.", "What is LLM?", "The sky is blue and I love it.", "Write a very long joke."]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("n_slots", [1, 2, 4])
def test_same_result_in_every_slot(n_slots: int, temperature: float) -> None:
    """An answer does not depend on its slot, nor on other answers."""
    server = ServerPreset.tinyllama2()
    server.n_slots = n_slots
    server.start()

    def ask(prompt: str, slot: int):
        body = {"prompt": prompt, "seed": 42, "temperature": temperature, "id_slot": slot, "n_predict": 24}
        return server.make_request("POST", "/completion", data=body)

    alone = [ask(prompt, 0).body["content"] for prompt in PROMPTS]
    for shift in range(n_slots):
        calls = [(ask, (prompt, (i + shift) % n_slots)) for i, prompt in enumerate(PROMPTS)]
        answers = parallel_function_calls(calls)
        assert [answer.body["content"] for answer in answers] == alone


def test_adapters_of_requests_at_a_time() -> None:
    """Each answer has the adapter's scale of its request, and is the one that it would be alone."""
    server = ServerPreset.stories15m_moe()
    server.lora_files = [download_file("adapter")]
    server.n_slots = 4
    server.start()

    def ask(scale: float):
        body = {"prompt": PROMPTS[0], "temperature": 0.0, "n_predict": 24, "lora": [{"id": 0, "scale": scale}]}
        return server.make_request("POST", "/completion", data=body)

    scales = [0.0, 0.3, 1.0]
    alone = [ask(scale).body["content"] for scale in scales]
    assert len(set(alone)) == 3
    answers = parallel_function_calls([(ask, (scale,)) for scale in scales * 2])
    assert [answer.body["content"] for answer in answers] == alone * 2
