"""Commands with which the chat reports about itself."""

from types import SimpleNamespace

from fake_chat import FakeModel, Template, talk

from hybrid.cli.chat.about_commands import statistics_text


def test_the_context_takes_its_states_and_the_keys_and_values_of_its_tokens() -> None:
    chat = talk(FakeModel("one two"), Template())
    model = chat.model
    model.memory = SimpleNamespace(bytes_state_per_seq=3 << 20, bytes_kv_per_token=1 << 18)  # type: ignore
    model.cache = SimpleNamespace(n_tokens=7, n_checkpoints=2, nbytes=5 << 20)  # type: ignore
    list(chat.answer("hi"))
    held = len(chat.seq.tokens)
    assert held > 1
    context, _, kept, *_ = statistics_text(chat).splitlines()
    assert context == f"context     {held} of {model.n_ctx} tokens, {3 + held / 4:.1f} MiB"
    assert kept == "kept        7 tokens, 2 checkpoints, 5.0 MiB"
