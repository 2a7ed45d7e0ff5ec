"""Distributes work over threads and returns results in order: they do not depend on the number of threads."""

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def in_order(pool: ThreadPoolExecutor, function: Callable[[T], R], tasks: Iterable[T], window: int) -> Iterator[R]:
    """function(task) of every task, in order, with at most `window` tasks started and not yet returned."""
    remaining = iter(tasks)
    pending: deque[Future[R]] = deque(pool.submit(function, task) for task in itertools.islice(remaining, window))
    while pending:
        done = pending.popleft().result()
        pending.extend(pool.submit(function, task) for task in itertools.islice(remaining, 1))
        yield done
