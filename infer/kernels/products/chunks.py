"""Who computes which chunk of a product's rows.

Threads take chunks one at a time from counters that are zero when a run begins. Fewer than 8 have one counter. More
have one for each of their groups (kernels/execute.py), 64 bytes apart, each for a range of chunks as large as its
group: a thread takes from its own group's range, then helps in the ranges that follow. So a counter is written by 4 to
9 threads until their range ends, and what a group reads lies together.
"""

from ..build.jit import device
from ..emit.emitter import atomic_add, atomic_load
from ..groups import n_groups


@device
def next_chunk(counter, n, tid, nth, step):
    """The next of n chunks that nobody has taken, n or more when there are none; and the `step` of the next call, which
    is 0 in the first of a share."""
    groups = n_groups(nth)
    if groups == 1:
        return atomic_add(counter, 1), 0
    home = ((tid + 1) * groups - 1) // nth
    while step < groups:
        group = (home + step) % groups
        begin, end = group * nth // groups * n // nth, (group + 1) * nth // groups * n // nth
        own = counter + 64 * group
        # a helper looks first: an addition would take the cache line from the owners of the range
        if step == 0 or begin + atomic_load(own) < end:
            i = begin + atomic_add(own, 1)
            if i < end:
                return i, step
        step += 1
    return n, step
