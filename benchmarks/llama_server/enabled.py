"""Cases that llama.cpp's server tests leave out because they fail there: answers do not depend on the slot, nor on
other answers."""

import pytest
from utils import ServerPreset, parallel_function_calls  # of llama.cpp's tests

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
