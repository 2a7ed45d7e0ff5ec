"""Messages for templates that take one call per message."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from hybrid.infer.answers.chat.messages import Message, one_call_each


def calling(*names: str) -> Message:
    return {"role": "assistant", "content": "so", "tool_calls": [{"id": name} for name in names]}


def result(name: str, content: str) -> Message:
    return {"role": "tool", "tool_call_id": name, "content": content}


def one_by_one(messages: list[Message]) -> list[Message]:
    """One message per call; each result follows the last message that asks for it."""
    made: list[Message] = []
    for message in messages:
        calls = message.get("tool_calls", [])
        if len(calls) > 1:
            made.append({**message, "tool_calls": calls[:1]})
            made += [{"role": "assistant", "content": "", "tool_calls": [call]} for call in calls[1:]]
            continue
        asks = [
            i
            for i, one in enumerate(made)
            if message["role"] == "tool" and message["tool_call_id"] in [c["id"] for c in one.get("tool_calls", [])]
        ]
        made.insert(asks[-1] + 1 if asks else len(made), message)
    return made


NAMES = st.sampled_from("abcd")
MESSAGES = st.one_of(
    st.lists(NAMES, max_size=3).map(lambda names: calling(*names)),
    st.tuples(NAMES, st.text("xyz", max_size=2)).map(lambda pair: result(*pair)),
    st.just({"role": "user", "content": "?"}),
)


@given(st.lists(MESSAGES, max_size=12))
def test_each_call_stands_before_its_result(messages: list[Message]) -> None:
    assert one_call_each(messages) == one_by_one(messages)


def test_a_message_is_looked_at_a_few_times_however_many_there_are() -> None:
    looks = 0

    class Counted(dict[str, Any]):
        def get(self, key: str, default: Any = None) -> Any:
            nonlocal looks
            looks += 1
            return super().get(key, default)

    messages: list[Message] = []
    for i in range(2000):
        messages += [Counted(calling(f"{i}")), Counted(result(f"{i}", "x"))]
    assert one_call_each(messages) == messages
    assert looks <= 4 * len(messages)
