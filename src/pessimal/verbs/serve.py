"""`pessimal serve`: any reward behind /get_reward, /classify and /v1/score, and behind
/contexts, where candidates stand in real answers."""

import logging
import socket
from functools import partial
from typing import Any

import numpy as np

from pessimal.checking.grading import MEND, thread_differences
from pessimal.config.schema import ServeConfig
from pessimal.errors import UserError, WorkError, require
from pessimal.progress import quiet_libraries
from pessimal.rewards.callable import CallableReward
from pessimal.rewards.obtain import open_reward
from pessimal.scoring.contexts import read_context
from pessimal.scoring.serving import WIRES, Served
from pessimal.scoring.trainer import begin_process, make_trainer

log = logging.getLogger(__name__)


def run(config: ServeConfig) -> None:
    """Open the reward, print the address, and answer until it is stopped.

    Raises WorkError where the address is taken.
    """
    for module in ("fastapi", "uvicorn"):
        require(module, purpose="serve")
    import uvicorn

    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((config.host, config.port))
    except OSError as error:
        where = f"{config.host}:{config.port}"
        raise WorkError(f"cannot listen at {where} ({error.strerror}): type port=0") from error
    quiet_libraries()
    begin_process(config.trainer)
    reward = open_reward(config.model, cache=config.paths.cache)
    device = make_trainer(config.trainer, root=config.paths.cache).strategy.root_device
    served = Served.from_reward(reward, device)
    for function in reward.functions:
        report_threads(function)
    host, port = listening.getsockname()[:2]
    print(f"http://{host}:{port}", flush=True)
    log.info("%s at %s; ctrl-C stops it", served.reward.name, ", ".join([*WIRES, "/contexts"]))
    server = uvicorn.Server(
        uvicorn.Config(application(served), log_level="warning", lifespan="off")
    )
    server.run(sockets=[listening])


def report_threads(reward: CallableReward) -> None:
    """Log whether a function gives the same rewards in a thread, where requests are answered."""
    n, differences = thread_differences(reward)
    if not differences:
        log.info("%s gives %d answers the same reward in a thread as outside", reward.name, n)
        return
    sentence = (
        "%s gives another reward in a thread, where requests are answered, to %d of %d answers: to "
        "%r it gives %s, in a thread %s. %s"
    )
    log.warning(sentence, reward.name, len(differences), n, *differences[0], MEND["thread"])


def context_rewards(served: Served, body: dict[str, Any]) -> dict[str, Any]:
    """Rewards of `candidates`, texts, in the slot of each of `contexts`: rows as in the file of a
    scan, with its `slot`. The empty text leaves an answer as it is."""
    texts, slot = list(body["candidates"]), body.get("slot")
    contexts = [read_context(row, slot, f"contexts[{i}]") for i, row in enumerate(body["contexts"])]
    rewards = served.rewards([context.filled(text) for context in contexts for text in texts])
    return {"rewards": np.reshape(rewards, (len(contexts), len(texts))).tolist()}


def application(served: Served) -> Any:
    """The FastAPI application that answers for a reward; what it cannot answer is 400, with a
    sentence."""
    from fastapi import Body, FastAPI
    from fastapi.responses import JSONResponse

    app = FastAPI(title=f"pessimal serve: {served.reward.name}")

    def answer(path: str, body: dict[str, Any] = Body(...)) -> Any:  # noqa: B008  FastAPI's way
        try:
            return wires[path](served, body)
        except UserError as error:
            message = str(error)
        except (KeyError, TypeError, ValueError, IndexError) as error:
            message = f"{path} does not take this request ({type(error).__name__}: {error})"
        return JSONResponse({"error": message}, status_code=400)

    wires = WIRES | {"/contexts": context_rewards}
    for path in wires:
        app.post(path)(partial(answer, path))
    return app
