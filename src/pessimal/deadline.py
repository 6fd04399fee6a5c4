"""A call that may take so long and no longer."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TypeVar

T = TypeVar("T")


def call_within(seconds: float, call: Callable[[], T], *, task: str) -> T:
    """The value that `call` returns, or what it raises; TimeoutError naming `task` where that takes
    longer than `seconds`.

    For calls that have no limit of their own. What does not come back in time goes on in a thread
    that dies with this process.
    """
    future: Future[T] = Future()

    def work() -> None:
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=work, daemon=True, name=task).start()
    if not wait([future], max(seconds, 0.01)).done:
        raise TimeoutError(f"{task} took longer than {seconds:.0f} seconds")
    return future.result()
