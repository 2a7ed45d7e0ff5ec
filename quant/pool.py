"""Work shared out among threads, with results in order, so that nothing depends on the number of threads."""

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def in_order(pool: ThreadPoolExecutor, function: Callable[[T], R], tasks: Iterable[T], window: int) -> Iterator[R]:
    """function(task) of every task, in their order, with at most `window` of them begun and not handed out."""
    remaining = iter(tasks)
    pending: deque[Future[R]] = deque(pool.submit(function, task) for task in itertools.islice(remaining, window))
    while pending:
        done = pending.popleft().result()
        pending.extend(pool.submit(function, task) for task in itertools.islice(remaining, 1))
        yield done
