"""Several models behind one address: a request names one, which is loaded on its first use.

    router = ModelRouter(entries, ServerSettings(), memory=16 << 30)
    served = await router.use(request, "coder")     # until the request ends, which calls `release`

A model stays loaded while the memory allows. If another one needs room, the one unused for longest goes first; its
texts go to disk before that, if the server keeps them there. A model that requests use is not unloaded: it takes no new
ones, and goes when the running ones have ended. Everything here runs in the event loop's thread, except loading and
unloading, which have a thread of their own.
"""

import asyncio
import gc
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from starlette.requests import ClientDisconnect, Request
from starlette.types import Scope

from hybrid.infer.faults import SidePath
from hybrid.quant.ggml.byte_sizes import size_text
from hybrid.quant.ggml.errors import HybridError, shown
from hybrid.quant.ggml.machine_memory import resident_bytes
from hybrid.reporting import SILENT, Reporter

from ..errors import RequestError
from ..served import Served
from ..server_settings import ServerSettings
from ..warning_log import WarningLog
from .entry import ModelEntry, State

USED = "hybrid.models"  # name in a request's scope: the models that it uses
LOOK_SECONDS = 0.2  # between two looks at whether a waiting client is still there
WATCH_SECONDS = 0.5  # between two looks at idle models and at the memory
HEADROOM = 1 / 16  # of the memory, for what loaded models take in addition between two looks
NEAR = 3  # names that a message suggests

WATCH = SidePath("the watch over idle models")


class ModelRouter:
    """The models of one server.

    memory   bytes that this process may use; None: no limit. is_strict: a model that does not fit alone is refused
    most     models that are loaded at a time; None: as many as the memory holds
    only     every name means the one model
    rescan   finds the models again, for a folder whose files change
    tell     called with a line about a model that was loaded, unloaded, or has failed
    reporter gets notes about the loading of models
    autoload whether a request loads a model; otherwise only POST /models/load does
    """

    def __init__(
        self,
        entries: Sequence[ModelEntry],
        settings: ServerSettings,
        *,
        memory: int | None = None,
        is_strict: bool = False,
        most: int | None = None,
        only: bool = False,
        autoload: bool = True,
        rescan: Callable[[Sequence[ModelEntry]], Sequence[ModelEntry]] | None = None,
        tell: Callable[[str], None] = lambda line: None,
        reporter: Reporter = SILENT,
    ) -> None:
        self.entries, self.settings = list(entries), settings
        self.memory, self.is_strict, self.most, self.only, self.autoload = memory, is_strict, most, only, autoload
        self._rescan, self.tell, self.reporter = rescan, tell, reporter
        self.stopping = False  # new requests are refused
        self.n_running = 0  # requests in progress, of any kind
        self.started = time.time()
        self.told = WarningLog()  # warnings that were logged, by client
        self.on_ended: Callable[[], None] | None = None  # called when the only model has failed
        self.on_sleep: Callable[[ModelEntry, Served], None] = lambda entry, served: None  # called before it is unloaded
        self._turn = asyncio.Lock()  # one model is loaded or unloaded at a time, in the order of asking
        self._freed = asyncio.Event()  # set whenever a request has ended
        self._thread = ThreadPoolExecutor(1, "hybrid-models")
        self._watch: asyncio.Task[None] | None = None
        self._unloading: set[asyncio.Task[None]] = set()  # asyncio itself keeps no task alive

    @classmethod
    def of(cls, served: Served) -> "ModelRouter":
        """A server with one model, which is loaded already and stays the caller's."""
        names = tuple(adapter.name for adapter in served.adapters.names)
        entry = ModelEntry(served.name, served.model.path, lambda _: _NotOurs(served), adapters=names, served=served)
        return cls([entry], served.settings, only=True)

    # --- names ---
    @property
    def default(self) -> ModelEntry:
        """The model of requests that name none. RequestError: there is no model."""
        if not self.entries:
            self.rescan()
        if not self.entries:
            raise RequestError("this server has no models", status=404)
        return self.entries[0]

    @property
    def sees(self) -> bool:
        """Whether a model takes pictures."""
        return any(entry.served.sees if entry.served is not None else entry.facts.sees for entry in self.entries)

    def rescan(self) -> None:
        """Looks for models that have come and gone; loaded ones stay."""
        if self._rescan is not None:
            self.entries = list(self._rescan(self.entries))

    def find(self, name: str | None) -> ModelEntry:
        """The model of this name. RequestError: no model has it; the message has the near names."""
        if not name or self.only or not self.entries:
            return self.default
        found = self._called(name)
        if found is None:
            self.rescan()
            found = self._called(name)
        if found is None:
            raise RequestError(f"model: there is no {shown(name)} here. {self._near(name)}", param="model", status=404)
        return found

    def named(self, name: str) -> ModelEntry:
        """The model that has this name, also where every name means the one model. RequestError: no model has it."""
        entry = self.find(name)
        if self._called(name) is not entry:
            raise RequestError(f"model: there is no {shown(name)} here, only {entry.name}", param="model", status=404)
        return entry

    def _called(self, name: str) -> ModelEntry | None:
        names = (name, name.removesuffix(":latest"))  # ollama's clients add that
        own = next((entry for entry in self.entries if entry.name in names), None)
        return own or next((entry for entry in self.entries if any(map(entry.is_called, names))), None)

    def _near(self, name: str) -> str:
        import difflib  # slow to import

        known = [entry.name for entry in self.entries]
        near = difflib.get_close_matches(name, known, NEAR, 0.5) or [each for each in known if name in each][:NEAR]
        if near:
            return f"Near names: {', '.join(map(shown, near))}."
        return f"Here are: {', '.join(map(shown, known[:NEAR]))}{', ...' if len(known) > NEAR else '.'}"

    def canonical(self, served: Served, name: str | None) -> str | None:
        """The name of a served model, or of its adapter, that a request means by this name; the name itself where every
        name means the one model."""
        entry = next((entry for entry in self.entries if entry.served is served), None)
        return name if entry is None or name is None else entry.canonical(name) or name

    # --- use ---
    async def use(self, request: Request, name: str | None, *, loads: bool = True, counts: bool = True) -> Served:
        """The model of a request until its end (`release`), loaded if it was asleep. RequestError: there is no such
        model, or it does not load. ClientDisconnect: the client left while the request waited.

        loads   whether a model that is not loaded is loaded; otherwise the request is refused
        counts  whether the request keeps the model from falling asleep
        """
        entry = self.find(name)
        if not loads and not self.is_ready(entry):
            now = "making room for another" if entry.leaves else entry.state
            raise RequestError(f"{entry.name} is {now}, and this request loads no model", param="model")
        served = entry.served
        if served is not None and not served.service.is_open and not self.only:
            await self.unload(entry, wait=False)
            served = None
        if served is not None and not entry.leaves:
            entry.n_users += 1
        else:
            served = await self._waited(entry, request)
        request.scope.setdefault(USED, []).append((entry, counts))
        return served

    def is_ready(self, entry: ModelEntry) -> bool:
        """Whether a request for this model waits for no load."""
        return entry.served is not None and (self.only or (entry.served.service.is_open and not entry.leaves))

    def release(self, scope: Scope) -> None:
        """Ends the use of models by a request."""
        for entry, counts in scope.pop(USED, ()):
            entry.n_users -= 1
            if counts:
                entry.last_used = time.monotonic()
        self._freed.set()

    def hold(self, scope: Scope) -> Callable[[], None]:
        """Lets work that outlives a request use its models, until it calls the result."""
        held = {USED: scope.pop(USED, ())}
        return lambda: self.release(held)

    async def _waited(self, entry: ModelEntry, request: Request) -> Served:
        """The model once it is loaded, which then counts this request as one of its users."""
        if not self.autoload and entry.loading is None:
            raise RequestError(f"{entry.name} is asleep: POST /models/load loads it", param="model")
        future: asyncio.Future[Served] = asyncio.get_running_loop().create_future()
        entry.waiting.append(future)
        self.begin_load(entry)
        try:
            while not (await asyncio.wait({future}, timeout=LOOK_SECONDS))[0]:
                if await request.is_disconnected():
                    raise ClientDisconnect
            return future.result()
        except BaseException:
            if future.done() and future.exception() is None:
                entry.n_users -= 1
                self._freed.set()
            raise
        finally:
            if future in entry.waiting:
                entry.waiting.remove(future)

    # --- loading ---
    def begin_load(self, entry: ModelEntry, *, asked: bool = False) -> "asyncio.Task[None]":
        """Begins to load a model, or joins the load that is under way. asked: also if no request waits for it. The
        entry says how it ended."""
        if entry.loading is None:
            entry.loading = asyncio.ensure_future(self._load(entry, asked=asked))
        return entry.loading

    async def _load(self, entry: ModelEntry, *, asked: bool) -> None:
        failure: Exception | None = None
        try:
            async with self._turn:
                await self._loaded_now(entry, asked=asked)
        except _NobodyWaitsError:
            pass
        except (HybridError, OSError, MemoryError) as error:
            what = "there is not enough memory" if isinstance(error, MemoryError) else entry.without_folder(error)
            entry.why = what
            self.tell(f"{entry.name} does not load: {what}")
            failure = RequestError(f"{entry.name} does not load: {what}", param="model")
        except Exception as error:
            failure = error
        finally:
            entry.loading = None
            for future in entry.waiting:  # they are users from now on, before others can unload the model
                if failure is not None or entry.served is None:
                    future.set_exception(failure or ClientDisconnect())
                else:
                    entry.n_users += 1
                    future.set_result(entry.served)
            entry.waiting.clear()

    async def _loaded_now(self, entry: ModelEntry, *, asked: bool) -> None:
        """Loads the model. It is this one's turn."""
        entry.leaves = False
        if entry.served is not None:
            return
        await self._make_room(entry, asked=asked)
        before = resident_bytes() or 0
        served = await asyncio.get_running_loop().run_in_executor(self._thread, entry.opened, self.reporter)
        entry.served, entry.why, entry.last_used = served, "", time.monotonic()
        entry.n_loads += 1
        entry.measured = max(entry.measured, (resident_bytes() or 0) - before)
        self._follow(entry, served)
        self.tell(f"{entry.name} loaded in {entry.load_seconds:.2f} s")

    def _follow(self, entry: ModelEntry, served: Served) -> None:
        """Notices when the model's service ends by itself."""
        loop = asyncio.get_running_loop()

        def closed() -> None:
            with suppress(RuntimeError):  # the loop has ended before the service
                loop.call_soon_threadsafe(self._has_ended, entry, served)

        served.service.on_closed = closed
        if not served.service.is_open:  # the model failed before the callback was set
            closed()

    def _has_ended(self, entry: ModelEntry, served: Served) -> None:
        if entry.served is not served or served.service.fault is None:
            return
        entry.why = f"it has failed: {served.service.fault}"
        self.tell(f"{entry.name} has failed; its next request loads it again")
        if self.only and self.on_ended is not None:
            self.on_ended()

    # --- room ---
    def _short(self, entry: ModelEntry) -> int:
        """Bytes that are missing for this model; if too many models are loaded, all of its bytes."""
        if self.most is not None and len(self._loaded()) >= self.most:
            return entry.nbytes
        if self.memory is None:
            return 0
        used = resident_bytes()
        if used is None:  # this system does not say
            used = sum(other.nbytes for other in self._loaded())
        return used + entry.nbytes - int(self.memory * (1 - HEADROOM))

    def _loaded(self) -> list[ModelEntry]:
        """The loaded models, the one unused for longest first."""
        loaded = [entry for entry in self.entries if entry.served is not None]
        return sorted(loaded, key=lambda entry: entry.last_used)

    async def _make_room(self, entry: ModelEntry, *, asked: bool) -> None:
        """Unloads models until this one fits. RequestError: it never does. _NobodyWaitsError: the clients have gone."""
        others = [other for other in self._loaded() if not other.pinned]
        if self.is_strict and self.memory is not None and entry.nbytes > self.memory:
            raise RequestError(f"it needs {size_text(entry.nbytes)}, and this server may use {size_text(self.memory)}")
        while self._short(entry) > 0 and others:
            other = next((each for each in others if not each.is_used), others[0])
            if other.is_used and not await self._leaves(other, entry, asked=asked):
                raise _NobodyWaitsError
            await self._unload(other)
            others = [other for other in self._loaded() if not other.pinned]
        if (self.is_strict or self.most is not None) and (short := self._short(entry)) > 0 and self._loaded():
            raise RequestError(f"{size_text(short)} of memory are missing, and pinned models have the rest")

    async def _leaves(self, other: ModelEntry, entry: ModelEntry, *, asked: bool) -> bool:
        """Waits until requests use `other` no more, and takes no new ones for it. False: nobody waits for `entry`."""
        other.leaves = True
        while other.is_used:
            self._freed.clear()
            if not asked and not entry.waiting:
                other.leaves = False
                return False
            try:
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._freed.wait()
            except TimeoutError:
                continue
        return True

    async def unload(self, entry: ModelEntry, *, wait: bool = True) -> None:
        """Unloads a model, after the requests that use it have ended, or without that."""
        async with self._turn:
            if entry.served is not None:
                if wait:
                    await self._leaves(entry, entry, asked=True)
                await self._unload(entry)

    def unload_later(self, entry: ModelEntry) -> None:
        """Unloads a model after the requests that use it have ended, also the one that asks for it. The only model of a
        server and pinned ones stay."""
        if not self.only and not entry.pinned:
            task = asyncio.ensure_future(self.unload(entry))
            self._unloading.add(task)
            task.add_done_callback(self._unloading.discard)

    async def _unload(self, entry: ModelEntry) -> None:
        served, entry.served, entry.leaves = entry.served, None, False
        if served is None:
            return
        served.service.on_closed = None
        self.on_sleep(entry, served)
        before = resident_bytes() or 0
        why = await asyncio.get_running_loop().run_in_executor(self._thread, entry.closed)
        del served
        gc.collect()  # the file stays mapped while an array shows it
        entry.measured = max(entry.measured, before - (resident_bytes() or before))
        self.tell(f"{entry.name} sleeps{f': {why}' if why else ''}")

    # --- while the server runs ---
    def begin(self) -> None:
        """Watches over idle models and the memory from now on. Call it in the event loop."""
        for entry in self.entries:
            if entry.served is not None:
                self._follow(entry, entry.served)
            elif entry.pinned:
                self.begin_load(entry, asked=True)
        if self.memory is not None or any(entry.idle is not None for entry in self.entries):
            self._watch = asyncio.ensure_future(self._look_after())

    async def _look_after(self) -> None:
        while not WATCH.is_off:
            await asyncio.sleep(WATCH_SECONDS)
            for entry in WATCH.run(self._too_many, lambda: ()):
                await self.unload(entry)

    def _too_many(self) -> Sequence[ModelEntry]:
        """The models to unload now: idle ones; if the memory is over its limit, the one unused for longest. If all are
        in use, it goes after its requests."""
        now = time.monotonic()
        loaded = [entry for entry in self._loaded() if not entry.pinned]
        free = [entry for entry in loaded if not entry.is_used]
        idle = [entry for entry in free if entry.idle is not None and now - entry.last_used >= entry.idle]
        used = resident_bytes() or 0
        if not idle and self.memory is not None and used > self.memory * (1 - HEADROOM) and len(self._loaded()) > 1:
            return free[:1] or loaded[:1]
        return idle

    @property
    def is_open(self) -> bool:
        """Whether requests are answered: false after the only model has failed."""
        return not self.only or self.default.state is not State.FAILED

    @property
    def busy(self) -> bool:
        """Whether requests wait for an open model."""
        return any(entry.served is not None and entry.served.service.is_open for entry in self.entries)

    async def close(self) -> None:
        """Ends all models: running answers are cancelled, texts go to disk."""
        for task in (self._watch, *self._unloading):
            if task is not None:
                task.cancel()
        for entry in self._loaded():
            assert entry.served is not None
            entry.served.service.on_closed = None
            await asyncio.to_thread(entry.served.service.close)

    def unload_all(self) -> None:
        """After `close`: unloads everything that this router has loaded. Not in the event loop."""
        for entry in self.entries:
            if entry.served is not None:
                entry.served = None
                entry.closed()
        self._thread.shutdown()


class _NobodyWaitsError(Exception):
    """All clients that waited for a model have gone."""


class _NotOurs:
    """A context for a model that somebody else opens and closes."""

    def __init__(self, served: Served) -> None:
        self.served = served

    def __enter__(self) -> Served:
        return self.served

    def __exit__(self, *_: object) -> None:
        return None
