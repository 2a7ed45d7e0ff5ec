"""XXH64 in plain integers, after its specification (xxHash, doc/xxhash_spec.md)."""

PRIMES = (
    11400714785074694791, 14029467366897019727, 1609587929392839161, 9650029242287828579, 2870177450012600261
)  # fmt: skip
MASK = 2**64 - 1


def rotated(x: int, n: int) -> int:
    return ((x << n) | (x >> (64 - n))) & MASK


def lane_round(acc: int, lane: int) -> int:
    return rotated((acc + lane * PRIMES[1]) & MASK, 31) * PRIMES[0] & MASK


def xxh64(data: bytes) -> int:
    p1, p2, p3, p4, p5 = PRIMES
    acc, at = [(p1 + p2) & MASK, p2, 0, -p1 & MASK], 0
    while len(data) - at >= 32:
        acc = [lane_round(a, int.from_bytes(data[at + 8 * i : at + 8 * i + 8], "little")) for i, a in enumerate(acc)]
        at += 32
    h = p5
    if len(data) >= 32:
        h = sum(rotated(a, n) for a, n in zip(acc, (1, 7, 12, 18), strict=True)) & MASK
        for a in acc:
            h = ((h ^ lane_round(0, a)) * p1 + p4) & MASK
    h = (h + len(data)) & MASK
    for size in (8, 4, 1):
        while len(data) - at >= size:
            lane = int.from_bytes(data[at : at + size], "little")
            at += size
            if size == 8:
                h = (rotated(h ^ lane_round(0, lane), 27) * p1 + p4) & MASK
            elif size == 4:
                h = (rotated(h ^ lane * p1 & MASK, 23) * p2 + p3) & MASK
            else:
                h = rotated(h ^ lane * p5 & MASK, 11) * p1 & MASK
    h = (h ^ h >> 33) * p2 & MASK
    h = (h ^ h >> 29) * p3 & MASK
    return h ^ h >> 32
