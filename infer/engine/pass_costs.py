"""What passes of several tokens cost on this machine, measured while they run: whether guessing tokens pays."""

MARGIN = 1.15  # a guess costs more than its pass: looking up, taking back, a state to be copied
WORTH = 1.25  # tokens per plain pass that must be expected of a guess
UNKNOWN = 0.35  # assumed cost of one more token until a wider pass was measured
WIDE = 8  # passes of up to so many tokens have one program, wider ones another (program.FEW_COLUMNS)
AT_START, AT_MOST, SHARE = 1.0, 8.0, 0.01


class PassCosts:
    """What passes of several tokens cost a model on this machine, in passes of one token, and what guessing has gained.

    Guessing must not cost more than it gains. It has `credit`: AT_START passes, SHARE of a pass for every plain one, a
    pass for every guess that comes true (AT_MOST in all), less what wider passes cost beyond one. Without credit there
    are no guesses.
    """

    def __init__(self) -> None:
        self.credit = AT_START
        self._seconds: dict[int, list[float]] = {}  # width of a pass -> [number of passes, average]
        self._compiled: set[bool] = set()  # whether wide, of programs of several tokens that have run

    def timed(self, width: int, seconds: float, *, charged: bool = True) -> float:
        """How long a pass of so many tokens took. Returns what it took beyond a plain one, in plain ones. Not charged:
        it is not paid of this credit, since something else has guessed."""
        if width > 1 and (width > WIDE) not in self._compiled:
            self._compiled.add(width > WIDE)
            return 0.0
        passes = self._seconds.setdefault(width, [0, 0.0])
        passes[0] += 1
        passes[1] += (seconds - passes[1]) / min(passes[0], 8)
        if width == 1:
            self._earn(SHARE)
            return 0.0
        if not self.ready:
            return 0.0
        cost = seconds / self._seconds[1][1]
        if charged:
            self.credit -= MARGIN * cost - 1
        return max(0.0, cost - 1)

    def came_true(self) -> None:
        """A guessed token was drawn."""
        self._earn(1.0)

    def _earn(self, passes: float) -> None:
        self.credit = min(AT_MOST, self.credit + passes)

    @property
    def ready(self) -> bool:
        """Whether plain passes have been measured."""
        return self._seconds.get(1, [0])[0] > 1

    def may_pay(self, most: int) -> bool:
        """Whether a guess of up to `most` tokens can be worth a pass, if it is right."""
        return self.ready and self.credit > 0 and any(n > WORTH * self.cost(n) for n in range(2, most + 2))

    @property
    def plain_seconds(self) -> float:
        """Of a pass of one token, once `ready`."""
        return self._seconds[1][1]

    def cost(self, width: int) -> float:
        """Of a pass of so many tokens: measured, or on a line through the nearest ones that were."""
        if width == 1 or not self.ready:
            return 1.0
        one = self._seconds[1][1]
        if width in self._seconds:
            return max(1.0, MARGIN * self._seconds[width][1] / one)
        below = max(w for w in self._seconds if w < width)
        above = min((w for w in self._seconds if w > width), default=0)
        low = self._seconds[below][1] / one
        if above:
            slope = (self._seconds[above][1] / one - low) / (above - below)
        else:
            slope = (low - 1) / (below - 1) if below > 1 else UNKNOWN
        return max(1.0, MARGIN * (low + slope * (width - below)))
