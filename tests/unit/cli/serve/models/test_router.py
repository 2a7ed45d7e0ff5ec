"""Which models of a server are loaded, in which order, and what requests are told: with models that load at once."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import ClientDisconnect

from hybrid.cli.serve.errors import RequestError
from hybrid.cli.serve.models import router as module
from hybrid.cli.serve.models.entry import WORKING_BYTES, ModelEntry, State
from hybrid.cli.serve.models.router import HEADROOM, ModelRouter
from hybrid.cli.serve.server_settings import ServerSettings
from hybrid.quant.ggml.errors import FormatError
from hybrid.reporting import Reporter

SIZE = 100 << 20  # bytes that each model takes
BASE = 50 << 20  # and the process without models


class FakeService:
    def __init__(self) -> None:
        self.is_open, self.fault = True, None
        self.on_closed: Callable[[], None] | None = None

    def close(self) -> None:
        self.is_open = False

    def fail(self) -> None:
        self.is_open, self.fault = False, ValueError("wrong")  # type: ignore[assignment]
        if self.on_closed is not None:
            self.on_closed()


class FakeServed:
    sees, n_jobs = False, 0

    def __init__(self, name: str) -> None:
        self.name, self.service = name, FakeService()


class FakeRequest:
    def __init__(self) -> None:
        self.scope: dict[str, Any] = {}
        self.has_gone = False

    async def is_disconnected(self) -> bool:
        return self.has_gone


class House:
    """A router over fake models, and what it has done."""

    def __init__(self, names: Sequence[str], fit: float, **more: Any) -> None:
        self.log: list[str] = []
        self.broken: set[str] = set()
        self.loaded: set[str] = set()
        self.entries = {name: ModelEntry(name, None, self._opener(name), measured=SIZE) for name in names}
        memory = int((BASE + fit * SIZE) / (1 - HEADROOM)) + 1
        self.router = ModelRouter(list(self.entries.values()), ServerSettings(), memory=memory, **more)

    def _opener(self, name: str) -> Any:
        @contextmanager
        def opened(_: Reporter) -> Iterator[FakeServed]:
            if name in self.broken:
                raise FormatError("/secret/folder/x.gguf: is broken.")
            self.log.append(f"+{name}")
            self.loaded.add(name)
            yield FakeServed(name)
            self.loaded.discard(name)
            self.log.append(f"-{name}")

        return opened

    def resident(self) -> int:
        return BASE + SIZE * len(self.loaded)

    async def use(self, name: str | None) -> FakeRequest:
        """A request that uses the model until `end`."""
        request = FakeRequest()
        served = await self.router.use(request, name)  # type: ignore[arg-type]
        assert name is None or served.name == self.router.find(name).name
        return request

    def end(self, request: FakeRequest) -> None:
        self.router.release(request.scope)

    async def once(self, name: str | None) -> None:
        self.end(await self.use(name))


def run(house: House, work: Callable[[], Awaitable[None]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "resident_bytes", house.resident)
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.01)

    async def whole() -> None:
        async with asyncio.timeout(20):
            await work()
        await house.router.close()

    asyncio.run(whole())
    house.router.unload_all()
    assert not house.loaded


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.001)


def test_loaded_on_first_use_and_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    house = House("ab", 3)

    async def work() -> None:
        assert house.entries["a"].state is State.ASLEEP
        await house.once("a")
        await house.once(None)  # the first one
        assert house.log == ["+a"] and house.entries["a"].state is State.LOADED
        assert house.entries["a"].n_users == 0 and house.entries["a"].n_loads == 1

    run(house, work, monkeypatch)


def test_the_longest_unused_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    house = House("abcd", 2)
    house.entries["d"].pinned = True

    async def work() -> None:
        for name in "abac":
            await house.once(name)
        assert house.log == ["+a", "+b", "-b", "+c"]
        await house.once("d")
        await house.once("b")  # the pinned one stays
        assert house.log[4:] == ["-a", "+d", "-c", "+b"]

    run(house, work, monkeypatch)


def test_a_used_model_is_not_unloaded_and_takes_no_new_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    house = House("ab", 1)

    async def work() -> None:
        first = await house.use("a")
        waiting = asyncio.ensure_future(house.use("b"))
        await until(lambda: house.entries["a"].leaves)
        later = asyncio.ensure_future(house.use("a"))  # comes after b, which waits already
        await asyncio.sleep(0.03)
        assert house.log == ["+a"] and not waiting.done() and not later.done()
        house.end(first)
        second = await waiting
        assert house.log == ["+a", "-a", "+b"] and not later.done()
        house.end(second)
        house.end(await later)
        assert house.log == ["+a", "-a", "+b", "-b", "+a"]

    run(house, work, monkeypatch)


def test_work_that_outlives_its_request_holds_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    house = House("ab", 1)

    async def work() -> None:
        first = await house.use("a")
        release = house.router.hold(first.scope)
        house.end(first)
        waiting = asyncio.ensure_future(house.use("b"))
        await until(lambda: house.entries["a"].leaves)
        await asyncio.sleep(0.03)
        assert house.log == ["+a"] and house.entries["a"].n_users == 1
        release()
        house.end(await waiting)
        assert house.log == ["+a", "-a", "+b"]

    run(house, work, monkeypatch)


def test_requests_for_one_model_load_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    house = House("abc", 2)

    async def work() -> None:
        busy = await house.use("a")
        await house.once("b")
        for request in await asyncio.gather(*(house.use("c") for _ in range(3))):
            house.end(request)
        assert house.log == ["+a", "+b", "-b", "+c"]  # b goes, the used one stays
        house.end(busy)

    run(house, work, monkeypatch)


def test_a_client_that_leaves_costs_no_model_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    house = House("ab", 1)

    async def work() -> None:
        busy, gone = await house.use("a"), FakeRequest()
        waiting = asyncio.ensure_future(house.router.use(gone, "b"))  # type: ignore[arg-type]
        await until(lambda: house.entries["a"].leaves)
        gone.has_gone = True
        with pytest.raises(ClientDisconnect):
            await waiting
        await until(lambda: not house.entries["a"].leaves and house.entries["b"].loading is None)
        await house.once("a")
        house.end(busy)
        assert house.log == ["+a"] and house.entries["b"].state is State.ASLEEP

    run(house, work, monkeypatch)


def test_a_model_that_does_not_load(monkeypatch: pytest.MonkeyPatch) -> None:
    house = House("ab", 3)
    house.broken.add("b")
    house.entries["b"].path = Path("/secret/folder/x.gguf")

    async def work() -> None:
        await house.once("a")
        with pytest.raises(RequestError, match=r"^b does not load: x\.gguf: is broken\.$"):
            await house.use("b")
        assert house.entries["b"].state is State.FAILED and house.entries["b"].why == "x.gguf: is broken."
        await house.once("a")
        house.broken.clear()
        await house.once("b")
        assert house.entries["b"].state is State.LOADED and house.entries["b"].why == ""

    run(house, work, monkeypatch)


def test_a_model_that_fails_is_loaded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    house = House("ab", 3)

    async def work() -> None:
        await house.once("a")
        served: Any = house.entries["a"].served
        served.service.fail()
        await until(lambda: house.entries["a"].why != "")
        assert house.entries["a"].state is State.FAILED and house.router.is_open
        await house.once("b")
        await house.once("a")
        assert house.log == ["+a", "+b", "-a", "+a"]

    run(house, work, monkeypatch)


def test_the_only_model_ends_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    house, ended = House("a", 3, only=True), list[bool]()

    async def work() -> None:
        house.router.on_ended = lambda: ended.append(True)
        await house.once("anything")
        served: Any = house.entries["a"].served
        served.service.fail()
        await until(lambda: bool(ended))
        assert not house.router.is_open

    run(house, work, monkeypatch)


def test_larger_than_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    strict, free = House("ab", 2, is_strict=True), House("ab", 2)
    for house in (strict, free):
        house.entries["b"].measured = 10 * SIZE

    async def refused() -> None:
        await strict.once("a")
        with pytest.raises(RequestError, match=r"^b does not load: it needs 1000\.0 MiB, and this server may use 266"):
            await strict.use("b")
        assert strict.log == ["+a"]

    async def tried() -> None:
        await free.once("a")
        await free.once("b")  # alone: its file is mapped, and the system may drop its pages
        assert free.log == ["+a", "-a", "+b"]

    run(strict, refused, monkeypatch)
    run(free, tried, monkeypatch)


def test_a_number_of_models(monkeypatch: pytest.MonkeyPatch) -> None:
    house = House("abc", 9, most=2)

    async def work() -> None:
        for name in "abc":
            await house.once(name)
        assert house.log == ["+a", "+b", "-a", "+c"]
        house.entries["b"].pinned = house.entries["c"].pinned = True
        with pytest.raises(RequestError, match="pinned models have the rest"):
            await house.use("a")

    run(house, work, monkeypatch)


def test_no_room_beside_pinned_models(monkeypatch: pytest.MonkeyPatch) -> None:
    house = House("ab", 1, is_strict=True)
    house.entries["a"].pinned = True

    async def work() -> None:
        await house.once("a")
        with pytest.raises(RequestError, match=r"^b does not load: 100\.0 MiB of memory are missing, and pinned"):
            await house.use("b")

    run(house, work, monkeypatch)


def test_idle_models_and_too_much_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    house = House("abc", 4)
    house.entries["a"].idle = house.entries["b"].idle = 60.0

    async def work() -> None:
        for name in "abc":
            await house.once(name)
        busy = await house.use("b")
        assert house.router._too_many() == []
        for entry in house.entries.values():
            entry.last_used -= 61
        assert house.router._too_many() == [house.entries["a"]]  # b is used, c never sleeps
        house.end(busy)
        house.router.memory = BASE
        house.entries["a"].last_used += 61
        assert house.router._too_many() == [house.entries["c"]]  # the longest unused
        users = [await house.use(name) for name in "abc"]
        assert house.router._too_many() == [house.entries["c"]]  # it goes after its requests
        for user in users:
            house.end(user)

    run(house, work, monkeypatch)


def test_a_look_neither_loads_nor_keeps_awake(monkeypatch: pytest.MonkeyPatch) -> None:
    house = House("ab", 3)

    async def look(name: str) -> FakeRequest:
        request = FakeRequest()
        await house.router.use(request, name, loads=False, counts=False)  # type: ignore[arg-type]
        return request

    async def work() -> None:
        with pytest.raises(RequestError, match=r"^a is asleep, and this request loads no model$"):
            await look("a")
        await house.once("a")
        entry = house.entries["a"]
        used = entry.last_used
        seen = await look("a")
        assert entry.n_users == 1
        house.end(seen)
        assert (entry.n_users, entry.last_used) == (0, used)
        entry.leaves = True
        with pytest.raises(RequestError, match="a is making room for another, and"):
            await look("a")
        entry.leaves = False
        await house.once("a")
        assert entry.last_used > used and house.log == ["+a"]

    run(house, work, monkeypatch)


def test_asking_loads_and_unloads(monkeypatch: pytest.MonkeyPatch) -> None:
    house = House("ab", 1, autoload=False)

    async def work() -> None:
        with pytest.raises(RequestError, match=r"^a is asleep: POST /models/load loads it$"):
            await house.use("a")
        await house.router.begin_load(house.entries["a"], asked=True)
        await house.once("a")
        await house.router.unload(house.entries["a"])
        assert house.log == ["+a", "-a"] and house.entries["a"].state is State.ASLEEP

    run(house, work, monkeypatch)


def test_unloading_later(monkeypatch: pytest.MonkeyPatch) -> None:
    house = House("ab", 2)
    house.entries["b"].pinned = True

    async def work() -> None:
        asks = await house.use("a")
        await house.once("b")
        house.router.unload_later(house.entries["a"])
        house.router.unload_later(house.entries["b"])
        await asyncio.sleep(0.02)
        assert house.loaded == {"a", "b"}, "a request uses it"
        house.end(asks)
        await until(lambda: house.loaded == {"b"})

    run(house, work, monkeypatch)


def test_names() -> None:
    house = House(["coder", "coder-small", "titles"], 3)
    house.entries["coder"].aliases = ("claude-*", "gpt-4o")
    house.entries["titles"].path = Path("/models/t-Q4_0.gguf")
    names = {"coder": "coder", "claude-sonnet-4-5": "coder", "gpt-4o": "coder", "t-Q4_0.gguf": "titles", "": "coder"}
    assert {name: house.router.find(name).name for name in names} == names
    assert house.router.find("t-Q4_0").name == "titles"
    with pytest.raises(
        RequestError, match=r"^model: there is no codr here\. Near names: coder, coder-small\.$"
    ) as error:
        house.router.find("codr")
    assert error.value.status == 404
    with pytest.raises(RequestError, match=r"Here are: coder, coder-small, titles\.$"):
        house.router.find("xyz")
    with pytest.raises(RequestError, match="this server has no models"):
        ModelRouter([], ServerSettings()).find("a")


def test_a_model_that_was_never_loaded_needs_its_file_and_some_memory() -> None:
    assert ModelEntry("a", None, lambda _: None).nbytes == WORKING_BYTES  # type: ignore[arg-type, return-value]
