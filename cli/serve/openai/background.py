"""Answers that go on without a connection, and their events, which connections may read from any place."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

MOST_EVENTS = 16 << 20  # characters of the events of one answer, and of the events of all ended answers together


class BackgroundAnswer:
    """One answer. `lost`: its events were too many to be kept; the answer itself goes on."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.size = 0
        self.lost = self.cancelled = False
        self.task: asyncio.Task[None] | None = None
        self._news = asyncio.Event()

    @property
    def done(self) -> bool:
        return self.task is None or self.task.done()

    async def run(self, events: AsyncIterator[str]) -> None:
        """Keeps the events."""
        try:
            async for text in events:
                if text.startswith(":"):  # a comment for a connection
                    continue
                self.size += len(text)
                self.lost |= self.size > MOST_EVENTS
                if self.lost:
                    self.events.clear()
                else:
                    self.events.append(text)
                self._tell()
        finally:
            self._tell()

    async def end(self) -> None:
        """Cancels the answer, if it has not ended."""
        if self.task is not None and not self.task.done():
            self.cancelled = True
            self.task.cancel()
            await asyncio.wait({self.task})

    async def replay(self, at: int) -> AsyncIterator[str]:
        """Its events from number `at` on, as they come."""
        while not self.lost:
            news = self._news
            for text in self.events[at:]:
                at += 1
                yield text
            if self.done and at >= len(self.events):
                return
            if news is self._news:
                await news.wait()

    def _tell(self) -> None:
        self._news.set()
        self._news = asyncio.Event()


class BackgroundAnswers:
    """The answers that run, and the last that have ended."""

    def __init__(self) -> None:
        self._running: dict[str, BackgroundAnswer] = {}
        self._ended: OrderedDict[str, BackgroundAnswer] = OrderedDict()

    def running(self, name: str) -> BackgroundAnswer | None:
        """The answer of this response, if it has not ended."""
        return self._running.get(name)

    def known(self, name: str) -> BackgroundAnswer | None:
        """The answer of this response, if its events are kept."""
        found = self._running.get(name) or self._ended.get(name)
        return None if found is None or found.lost else found

    def start(self, name: str, events: AsyncIterator[str], on_end: Callable[[], None]) -> BackgroundAnswer:
        """Runs an answer. on_end: called at its end, whatever it is."""
        answer = self._running[name] = BackgroundAnswer()
        answer.task = asyncio.ensure_future(answer.run(events))

        def ended(task: "asyncio.Task[None]") -> None:
            with suppress(asyncio.CancelledError):
                task.exception()  # otherwise asyncio logs that nobody asked for it
            answer._tell()
            self._ended[name] = self._running.pop(name)
            while sum(one.size for one in self._ended.values()) > MOST_EVENTS:
                self._ended.popitem(last=False)
            on_end()

        answer.task.add_done_callback(ended)
        return answer

    def forget(self, name: str) -> None:
        """Drops the events of an answer that has ended."""
        self._ended.pop(name, None)
