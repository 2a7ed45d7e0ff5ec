"""A scripted model for chats. Tokens are characters (and five control tokens), so that every prefill can be read."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from hybrid.infer.answers.chat.reader import AnswerPart
from hybrid.infer.answers.chat.tools import tools_of
from hybrid.infer.answers.conversations.conversation import Conversation
from hybrid.infer.answers.sampling import SamplingParams
from hybrid.infer.engine.applied import NONE
from hybrid.infer.guessers import Guessers
from hybrid.infer.runner import Result, Work
from hybrid.infer.step_costs import StepCosts
from hybrid.infer.text.chat_template import ChatTemplate

CONTROL = {"<s>": 0, "</s>": 1, "<user>": 2, "<bot>": 3, "<sys>": 4, "<tool>": 5}
NAMES = {i: name for name, i in CONTROL.items()}
N_VOCAB = 300


class FakeTokenizer:
    """One token per character; control tokens are recognized on request."""

    bos, eos, eot = 0, 1, None
    kind = "gpt2"
    eog = frozenset({1})

    special_texts = NAMES

    def encode(
        self,
        text: str,
        *,
        add_special: bool = True,
        parse_special: bool = False,
        continues: bool = False,
        dropped: str = "",
    ) -> list[int]:
        ids = [0] if add_special and not continues else []
        while text:
            name = next((n for n in CONTROL if parse_special and text.startswith(n)), None)
            if name or text[0] != dropped:
                ids.append(CONTROL[name] if name else ord(text[0]))
            text = text[len(name or " ") :]
        return ids

    def piece(self, token: int) -> bytes:
        return NAMES.get(token, chr(token)).encode()

    def is_control(self, token: int) -> bool:
        return token in NAMES

    def parts(self, text: str) -> list[str | int]:
        return [text]

    def is_eog(self, token: int) -> bool:
        return token == 1

    def stream(self, skip_special: bool = False, at_start: bool = False, shown: Any = ()) -> Any:
        return SimpleNamespace(push=lambda t: "" if t in NAMES else chr(t), flush=lambda: "")


class FakeSequence:
    """Says the script, character by character, then </s>. Can go back to the end of a prompt or an answer."""

    slot, is_open, logits = 0, True, None
    applied, owner = NONE, b""

    def __init__(self, model: "FakeModel") -> None:
        self.model, self.tokens, self.prefills = model, [], []  # type: tuple[FakeModel, list[int], list[str]]
        self.said: list[int] = []
        self.points: set[tuple[int, ...]] = set()
        self.boundaries: list[int] = []
        self.shifted = False
        self.extra: dict[str, Any] = {}
        self.runner = FakeRunner(model)
        self.guessers = self.runner.guessers
        self._read: list[int] = []  # of a prompt, so far

    tokenizer = property(lambda self: self.model.tokenizer)
    n_past = property(lambda self: len(self.tokens))
    room = property(lambda self: self.model.n_ctx - len(self.tokens))
    pending = property(lambda self: self.extra.get("pending", []))

    def read(self, ids: Sequence[int], is_whole: bool) -> np.ndarray | None:
        """Read a token of the answer, a prompt, or a part of a prompt up to a boundary."""
        if self.said and not self._read and len(ids) == 1:
            self.tokens.append(ids[0])
            return self._next()
        if self.model.stop is not None:
            self.model.stop.check()
        if self.model.interrupt_prefill:
            self.tokens += list(ids)[:2]
            raise KeyboardInterrupt
        if not self._read:
            self.boundaries = []
        self._read += ids
        self.tokens += ids
        if not is_whole:
            self.boundaries.append(len(self.tokens))
            return None
        self.prefills.append("".join(NAMES.get(i, chr(i)) for i in self._read))
        self._read = []
        self.said = [*map(ord, self.model.script.pop(0)), 1]
        return self._next()

    def checkpoint(self, *, boundary: bool = True) -> None:
        self._remember()

    def _next(self) -> np.ndarray:
        logits = np.zeros(N_VOCAB, np.float32)
        logits[self.said.pop(0) if self.said else 1] = 9.0
        return logits

    def resume(self, ids: Sequence[int]) -> int:
        self._remember()
        self.shifted = False
        self.tokens = list(max((p for p in self.points if list(p) == ids[: len(p)] and len(p) < len(ids)), key=len))
        return len(self.tokens)

    def shift(self, keep: int, n: int) -> None:
        self.model.shifts.append((keep, n))
        del self.tokens[keep : keep + n]
        self.shifted = True

    def _remember(self) -> None:
        if not self.shifted:
            self.points.add(tuple(self.tokens))

    def clear(self) -> None:
        self.tokens, self.shifted = [], False

    def save(self, path: Path, extra: dict[str, Any], checkpoints: int = 0) -> int:
        self.model.n_saved += 1
        self.model.files[path] = (list(self.tokens), json.loads(json.dumps(extra)))
        return 7


class FakeRunner:
    """The parts of a runner that a batch of one needs."""

    n_seq_max, n_ubatch, n_vocab, depth, recovers = 1, 4096, N_VOCAB, 1, True

    def __init__(self, model: "FakeModel") -> None:
        self.n_ctx, self.memory, self.costs = model.n_ctx, SimpleNamespace(bytes_state_per_seq=0), StepCosts()
        self.guessers, self.cache = Guessers(ngrams=False), "a cache"
        self.engine = SimpleNamespace(stop=None, compile_seconds=0.0, shape=lambda n: n)

    def check(self, works: Sequence[Work]) -> None:
        pass

    def cut(self, ids: Sequence[int], first: int, end: int) -> int:
        return end

    def stopped_by(self, stop: Any) -> Any:
        return nullcontext()

    def step(self, seq: FakeSequence, token: int) -> np.ndarray:
        logits = seq.read([token], is_whole=True)
        assert logits is not None
        return logits

    def begin(self, works: Sequence[Work]) -> Any:
        def results() -> list[Result]:
            rows = [work.seq.read(work.ids, work.output == "last") for work in works]  # type: ignore[attr-defined]
            return [Result(None if row is None else row[None], None) for row in rows]

        return SimpleNamespace(results=results, give_up=lambda: None)


class FakeModel:
    def __init__(self, *script: str, n_ctx: int = 400) -> None:
        self.script, self.n_ctx, self.n_vocab = list(script), n_ctx, N_VOCAB
        self.tokenizer, self.files, self.interrupt_prefill = FakeTokenizer(), {}, False  # type: ignore[var-annotated]
        self.seq = FakeSequence(self)
        self.stop: Any = None
        self.stops: list[Any] = []  # one for every answer
        self.n_saved = 0
        self.path, self.arch = Path("fake.gguf"), "fake"
        self.memory = SimpleNamespace(immovable="", is_recurrent=False)
        self.shifts: list[tuple[int, int]] = []

    def sequence(self) -> FakeSequence:
        return self.seq

    def restore(self, path: Path, seq: FakeSequence) -> FakeSequence:
        seq.tokens, seq.extra = list(self.files[path][0]), self.files[path][1]
        return seq

    @contextmanager
    def stopped_by(self, stop: Any) -> Iterator[None]:
        self.stop = stop
        self.stops.append(stop)
        yield
        self.stop = None


TOOLS = tools_of([{"type": "function", "function": {"name": name}} for name in ("weather", "clock")])
TOLD = f"<sys>{json.dumps([tool.as_given for tool in TOOLS])}</s>"


def thinking_template() -> ChatTemplate:
    """The prompt opens thoughts, thoughts before the last question are dropped, and calls are JSON in <call>."""
    return ChatTemplate(
        """{{ bos_token }}{%- if tools %}<sys>{{ tools | tojson + eos_token }}{% endif -%}
        {%- set ns = namespace(last=-1) -%}
        {%- for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor -%}
        {%- for m in messages -%}
            {%- if m.role == 'assistant' -%}
                <bot>
                {%- if loop.index0 > ns.last and m.reasoning_content -%}
                    {{- '<think>\\n' + m.reasoning_content + '\\n</think>\\n\\n' -}}
                {%- endif -%}
                {{- m.content or '' -}}
                {%- for call in m.tool_calls or [] -%}
                    {{- '<call>' + call.function | tojson + '</call>' -}}
                {%- endfor -%}
                {{- eos_token -}}
            {%- elif m.role == 'tool' -%}
                <tool>{{ m.content + eos_token }}
            {%- else -%}
                <{{ 'sys' if m.role == 'system' else 'user' }}>{{ m.content + eos_token }}
            {%- endif -%}
        {%- endfor -%}
        {%- if add_generation_prompt -%}
            {{- '<bot>' if enable_thinking is defined and not enable_thinking else '<bot><think>\\n' -}}
        {%- endif -%}""",
        tokens={"bos_token": "<s>", "eos_token": "</s>"},
    )


class Template(ChatTemplate):
    """<s><user>question</s><bot>answer</s>..., with the extra text of `around` in answers."""

    def __init__(self, before: str = "", trim: bool = False) -> None:
        super().__init__("as `render` has it")
        self.before, self.trim = before, trim

    def render(self, messages: list[dict[str, Any]], add_generation_prompt: bool = True, **more: Any) -> str:
        text = "<s>"
        for m in messages:
            if m["role"] == "system":
                text += f"<sys>{m['content']}</s>"
            elif m["role"] == "user":
                text += f"<user>{m['content']}</s>"
            else:
                text += f"<bot>{self.before}{m['content'].strip() if self.trim else m['content']}</s>"
        return text + "<bot>" * add_generation_prompt


def talk(model: FakeModel, template: Template | ChatTemplate | None, **more: Any) -> Conversation:
    return Conversation(model, SamplingParams(temp=0), template, **more)  # type: ignore[arg-type]


def said(parts: Iterator[AnswerPart]) -> str:
    return "".join(part.text for part in parts if part.kind == "text")
