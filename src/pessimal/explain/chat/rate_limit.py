"""The rate limit of requests, and the waits after a failure.

Knows a clock and a way of sleeping, both of which are given. Does not know requests.
"""

import email.utils
import time
from collections.abc import Awaitable, Callable, Mapping

import numpy as np

Clock = Callable[[], float]
Sleep = Callable[[float], Awaitable[None]]


class RateLimit:
    """Lets requests go at an even rate, and none while the server asks to wait."""

    def __init__(self, *, per_minute: float | None, clock: Clock, sleep: Sleep):
        """
        Args:
            per_minute: requests a minute; None does not limit.
            clock: seconds, ever growing.
        """
        self._gap = 60 / per_minute if per_minute else 0.0
        self._clock, self._sleep = clock, sleep
        self._next = self._held = clock()

    async def turn(self) -> None:
        """Wait for one's turn."""
        mine = max(self._clock(), self._next)
        self._next = mine + self._gap  # before the wait: the next one queues behind this one
        while (wait := max(mine, self._held) - self._clock()) > 0:
            await self._sleep(wait)

    def hold(self, seconds: float) -> None:
        """Let nothing go for so long; a shorter hold than the one that stands changes nothing."""
        self._held = max(self._held, self._clock() + seconds)


def backoff(attempt: int, *, first: float, longest: float, random: np.random.Generator) -> float:
    """Seconds to wait before attempt + 1 (counted from 0): doubled each time, and between half of that and all of it, so
    that requests that failed together do not come back together."""
    return min(longest, first * 2.0 ** min(attempt, 60)) * float(random.uniform(0.5, 1.0))


def retry_after(headers: Mapping[str, str], *, now: Callable[[], float] = time.time) -> float | None:
    """Seconds that a server asks to wait for, by a number or a date; None where it does not say, or not in earnest."""
    for name, scale in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        try:
            seconds = float(headers[name]) * scale
        except (KeyError, ValueError):
            continue
        if seconds >= 0:  # not for "nan"
            return seconds
    try:
        date = email.utils.mktime_tz(email.utils.parsedate_tz(headers["retry-after"]))
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
    return max(0.0, date - now())
