"""Work beside a training: within a share of its time, and never its end.

Knows time and exceptions. Does not know what the work is.
"""

import logging
import time
from collections.abc import Callable
from typing import Any

from pessimal.errors import ConfigError

log = logging.getLogger(__name__)

LONG, SHORT, MOST = 0.01, 0.1, 60.0
"""By default, of a training's time: a hundredth; while it is short a tenth, up to so many
seconds."""


class Aside:
    """What runs beside a training.

    Args:
        share: of the training's time; by default a tenth up to a minute, then a hundredth.
        clock: seconds.

    Raises:
        ConfigError: share is not above 0 and at most 1.
    """

    def __init__(self, share: float | None = None, clock: Callable[[], float] = time.perf_counter):
        if share is not None and not 0 < share <= 1:
            raise ConfigError(f"share={share}: give a number above 0, 1 at most")
        self.share, self.clock = share, clock
        self.started: float | None = None
        self.spent = 0.0
        self.failed: set[str] = set()
        """Parts that raised an error; they are not tried again."""
        self._warned = self._busy = False

    @property
    def elapsed(self) -> float:
        """Seconds since training began."""
        return 0.0 if self.started is None else self.clock() - self.started

    @property
    def share_taken(self) -> float:
        """What it took of the time since training began."""
        return self.spent / max(self.elapsed, 1e-9)

    def allowed(self, seconds: float) -> float:
        """Seconds that it may take of a training of so many."""
        if self.share is not None:
            return self.share * seconds
        return max(LONG * seconds, min(SHORT * seconds, MOST))

    def affords(self, seconds: float, step: int) -> bool:
        """Whether there is time for it now. Says so once where there is not."""
        spare = self.allowed(self.elapsed) - self.spent
        if seconds > spare and not self._warned:
            self._warned = True
            times = seconds, self.spent, self.elapsed
            log.warning(
                "step %d: %s looks later than asked, and less often: a look takes %.2g s, and %.2g "
                "of the training's %.2g s are spent. A larger share= or every= would change that",
                *(step, type(self).__name__, *times),
            )
        return seconds <= spare

    def attempt(self, part: str, work: Callable[..., Any], *given: Any, **named: Any) -> Any:
        """What `work` gives. None where a part failed, now or before: it is said once, the part is
        left out from then on, and the training goes on."""
        if part in self.failed:
            return None
        began = None if self._busy else self.clock()
        self._busy = True
        try:
            return work(*given, **named)
        except Exception as error:
            self.failed.add(part)
            message = "%s: %s is left out from here on; the training goes on. %s: %.500s"
            names = type(self).__name__, part, type(error).__name__
            # Without its frames, which hold tensors.
            log.warning(message, *names, error.with_traceback(None))
            return None
        finally:
            if began is not None:
                self.spent, self._busy = self.spent + self.clock() - began, False
