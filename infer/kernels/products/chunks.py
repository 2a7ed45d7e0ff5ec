"""Distribution of the chunks of a product's rows among threads.

Threads take chunks one at a time from counters that are zero when a run begins. Fewer than 8 threads share one counter.
More have one per group (kernels/execute.py), 64 bytes apart, for a range of chunks proportional to the group's size: a
thread takes from its own group's range, then from the ranges that follow. So 4 to 9 threads write a counter until its
range ends, and a group reads adjacent memory.
"""

from ..build.jit import device
from ..emit.emitter import atomic_add, atomic_load
from ..groups import n_groups


@device
def next_chunk(counter, n, tid, nth, step):
    """(next untaken of n chunks, n or more if none is left; `step` for the next call). A share begins with step 0."""
    groups = n_groups(nth)
    if groups == 1:
        return atomic_add(counter, 1), 0
    home = ((tid + 1) * groups - 1) // nth
    while step < groups:
        group = (home + step) % groups
        begin, end = group * nth // groups * n // nth, (group + 1) * nth // groups * n // nth
        own = counter + 64 * group
        # a helper reads first: an addition would take the cache line from the range's own threads
        if step == 0 or begin + atomic_load(own) < end:
            i = begin + atomic_add(own, 1)
            if i < end:
                return i, step
        step += 1
    return n, step
