"""Requests of all kinds for a soak, and a form of their answers that can be compared.

Every answered request has its own seed and text, so that another request's answer is noticed.
"""

import json
import random
from dataclasses import dataclass, field
from typing import Any

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
WORDS = """
state space model memory attention token layer reads keeps forgets writes long short text table number river stone bread
letter window answer question machine garden winter music
""".split()  # noqa: SIM905
MOST_TURNS = 6

Answer = list[tuple[Any, ...]]


@dataclass(frozen=True)
class Ask:
    """One request. earlier: the earlier requests of its conversation, in order."""

    path: str
    body: dict[str, Any]
    earlier: tuple["Ask", ...] = ()

    @property
    def key(self) -> str:
        """Equal for requests that must get the same answer."""
        return json.dumps([self.path, self.body], sort_keys=True)

    def streamed(self) -> dict[str, Any]:
        """The body for a stream."""
        return {**self.body, "stream": True}


def whole_answer(reply: dict[str, Any]) -> Answer:
    """(text, reason, logprobs) of each choice of a response; for APIs without choices all lasting fields."""
    if "choices" not in reply:
        return [(json.dumps(lasting(reply), sort_keys=True),)]
    return [(_text(choice), choice["finish_reason"], _logprobs(choice)) for choice in reply["choices"]]


@dataclass
class Parts:
    """The same, collected from the events of a stream."""

    texts: dict[int, str] = field(default_factory=dict)
    reasons: dict[int, str] = field(default_factory=dict)
    logprobs: dict[int, list[float]] = field(default_factory=dict)

    def add(self, event: dict[str, Any]) -> None:
        if "error" in event:
            raise ValueError(f"an error in a stream: {event['error']}")
        for choice in event["choices"]:
            index = choice["index"]
            self.texts[index] = self.texts.get(index, "") + _text(choice)
            self.logprobs.setdefault(index, []).extend(_logprobs(choice))
            if choice["finish_reason"]:
                self.reasons[index] = choice["finish_reason"]

    def answer(self) -> Answer:
        return [(self.texts[i], self.reasons[i], self.logprobs[i]) for i in sorted(self.texts)]


def _text(choice: dict[str, Any]) -> str:
    said = choice.get("message") or choice.get("delta")
    text = choice.get("text") if said is None else said.get("content")
    return text or ""


def _logprobs(choice: dict[str, Any]) -> list[float]:
    given = choice.get("logprobs") or {}
    return list(given.get("token_logprobs") or [entry["logprob"] for entry in given.get("content") or []])


@dataclass
class Talk:
    """A conversation of a stateless client: all messages are sent every time."""

    number: int
    messages: list[dict[str, str]] = field(default_factory=list)
    asked: list[Ask] = field(default_factory=list)
    n_begun: int = 0

    def ask(self, rng: random.Random) -> Ask:
        """Its next turn; `heard` continues it."""
        if not self.messages or len(self.asked) >= MOST_TURNS:
            self.n_begun += 1
            self.asked = []
            self.messages = [
                {"role": "system", "content": f"Conversation {self.number} of a soak, time {self.n_begun}."}
            ]
        self.messages.append({"role": "user", "content": f"{sentence(rng, 12)} ({self.number})"})
        body = {"messages": list(self.messages), **drawing(rng)}
        if rng.random() < 0.3:
            body |= {"logprobs": True, "top_logprobs": rng.randrange(3)}
        return Ask(CHAT, body, tuple(self.asked))

    def heard(self, ask: Ask, answer: Answer) -> None:
        self.asked.append(ask)
        self.messages.append({"role": "assistant", "content": answer[0][0]})

    def forget(self) -> None:
        """Remove the question, which was not answered."""
        self.messages.pop()


@dataclass
class Agent(Talk):
    """Sends nearly the same prompt repeatedly: the time at its beginning changes, its list of tools grows, and earlier
    messages are edited or left for another branch."""

    tools: list[str] = field(default_factory=list)
    n_asked: int = 0

    def ask(self, rng: random.Random) -> Ask:
        """The agent's next request."""
        self.n_asked += 1
        kind = rng.random()
        if kind < 0.2 and len(self.tools) < 8:
            self.tools.append(f"tool {len(self.tools)}: {sentence(rng, 9)}")
        questions = [i for i, message in enumerate(self.messages) if message["role"] == "user"]
        if len(questions) >= MOST_TURNS:
            self.messages, self.asked = [], []
        elif kind < 0.4 and questions:  # back to an earlier question, to ask another one
            at = rng.choice(questions)
            self.messages, self.asked = self.messages[:at], self.asked[: questions.index(at)]
        self.messages.append({"role": "user", "content": f"{sentence(rng, 9)} ({self.number})"})
        rules = " ".join(f"Rule {i} of {self.number}: {WORDS[i % len(WORDS)]} is read." for i in range(12))
        system = f"It is {self.n_asked // 2} o'clock. {rules} {' '.join(self.tools)}"
        messages = [{"role": "system", "content": system}, *self.messages]
        body: dict[str, Any] = {"messages": messages, **drawing(rng)}
        form = rng.random()
        if form < 0.1:
            body |= {"response_format": {"type": "json_object"}, "max_tokens": 24}
        elif form < 0.2:
            body |= {"stop": [rng.choice(WORDS), "."]}
        return Ask(CHAT, body, tuple(self.asked))


def sentence(rng: random.Random, most: int) -> str:
    return " ".join(rng.choice(WORDS) for _ in range(rng.randint(2, most)))


def drawing(rng: random.Random) -> dict[str, Any]:
    """Sampling settings; half of them are greedy."""
    temperature = rng.choice((0, 0, 0.7, 1.2))
    return {"max_tokens": rng.randint(1, 12), "temperature": temperature, "seed": rng.getrandbits(40)}


def completion(rng: random.Random, n_vocab: int) -> Ask:
    """A prompt as text, tokens, or a list of texts."""
    prompt: Any = rng.choice(
        [
            sentence(rng, 60),
            [rng.randrange(10, min(n_vocab, 250)) for _ in range(rng.randint(1, 80))],
            [sentence(rng, 8), sentence(rng, 20)],
        ]
    )
    body: dict[str, Any] = {"prompt": prompt, **drawing(rng)}
    if rng.random() < 0.3:
        body["logprobs"] = rng.randrange(4)
    if rng.random() < 0.2:
        body["n"] = 2
    if rng.random() < 0.15:
        body["echo"] = True
    if rng.random() < 0.2:
        body["stop"] = [rng.choice(WORDS), "."]
    return Ask(COMPLETIONS, body)


OTHERS = ("/completion", "/v1/messages", "/v1/responses", "/v1/embeddings", "/apply-template")
VOLATILE = {"id", "created", "created_at", "completed_at", "timings", "usage", "generation_settings", "id_slot"}


def other(rng: random.Random, path: str) -> Ask:
    """A request to one of OTHERS, which a server may lack; its answer never changes."""
    text, draw = sentence(rng, 30), drawing(rng)
    if path == "/completion":
        body = {"prompt": text, "n_predict": draw["max_tokens"], **draw}
        del body["max_tokens"]
    elif path == "/v1/embeddings":
        body = {"input": [text, sentence(rng, 5)]}
    else:
        messages = [{"role": "user", "content": text}]
        body = {"input" if path == "/v1/responses" else "messages": messages}
        if path == "/v1/messages":
            body |= {"max_tokens": draw["max_tokens"], "temperature": 0}
        elif path == "/v1/responses":
            body |= {"max_output_tokens": 16 + draw["max_tokens"], "temperature": 0}
    return Ask(path, body)


def lasting(reply: Any) -> Any:
    """A reply without the fields that change between requests."""
    if isinstance(reply, dict):
        return {key: lasting(value) for key, value in reply.items() if key not in VOLATILE}
    return [lasting(one) for one in reply] if isinstance(reply, list) else reply


def broken(rng: random.Random) -> tuple[str, bytes]:
    """(path, body) that must be refused."""
    path = rng.choice((CHAT, COMPLETIONS, "/detokenize"))  # /tokenize accepts a prompt, whatever other fields there are
    body: Any = rng.choice(
        [
            {"prompt": 5},
            {"prompt": []},
            {"prompt": [-1]},
            {"prompt": [10**9]},
            {"messages": []},
            {"messages": "x"},
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            {"prompt": "x", "n": 0},
            {"prompt": "x", "temperature": "hot"},
            [],
            7,
            None,
            {"tokens": ["x"]},
            {"tokens": [10**9]},
            {"prompt": "x", "n": 10**6},
            {"prompt": "word " * 20_000, "stop": ""},
            {"prompt": "x", "top_p": -3},
            {"prompt": "x", "logit_bias": {"x": 1}, "top_p": -1},
        ]
    )
    text = json.dumps(body).encode()
    damage = rng.random()
    if damage < 0.2:
        text = text[: rng.randrange(len(text))] + b"{"
    elif damage < 0.3:
        text = rng.randbytes(rng.randrange(1, 2000))
    elif damage < 0.35:
        text = b"[" * 50_000
    return path, text
