"""How waiting threads behave, on a quiet machine and on a busy one: each setting a process of its
own.

OpenMP's threads spin while they wait: as long as they like (default), a thousand turns
(GOMP_SPINCOUNT=1000, which the command line sets before torch is imported), or not at all
(OMP_WAIT_POLICY=PASSIVE). Where another process wants the cores, those that spin keep the one that
works from its core. Printed: candidates a second of the scan's own engine, for a small network (2
million parameters, as the demo family) and a larger one (25 million), by policy, number of threads
and load (as many other processes as cores).

python experiments/speed/threads.py
"""

import itertools
import os
import subprocess
import sys
import time

BUSY = "while True: pass"
POLICIES = {
    "default": {},
    "short": {"GOMP_SPINCOUNT": "1000"},
    "passive": {"OMP_WAIT_POLICY": "PASSIVE"},
}
SECONDS, ROUNDS = 1.5, 3


def measure() -> None:
    """In the child: print candidates a second of both networks."""
    import torch
    from scan import PREFIX, Setting, network, shared_prefix

    from pessimal.scoring.trainer import Lengths, find_batch_size, keep_large_buffers

    torch.set_num_threads(int(os.environ["THREADS"]))
    keep_large_buffers()
    sizes = {"hidden_size": 64, "intermediate_size": 256, "num_hidden_layers": 2}
    sizes |= {"num_attention_heads": 4, "num_key_value_heads": 4}
    rates = []
    with torch.inference_mode():
        for made in (network(torch.float32, **sizes), network(torch.float32)):
            setting = Setting.of(torch.float32, 1, candidates=4096)
            setting.network = made
            way = shared_prefix(setting)
            size = find_batch_size(made.config, Lengths(2, PREFIX + 2), device=torch.device("cpu"))
            way(setting.candidates[:size])
            done, started = 0, time.perf_counter()
            while time.perf_counter() - started < SECONDS:
                way(setting.candidates[:size])
                done += size
            rates.append(done / (time.perf_counter() - started))
    print(*rates)


def main() -> None:
    """Print one line a setting: medians over ROUNDS, settings in turn."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    settings = list(itertools.product(POLICIES, sorted({1, cores})))
    for busy in (0, cores):
        others = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(busy)]
        measured = {setting: [] for setting in settings}
        try:
            for _ in range(ROUNDS):
                for policy, threads in settings:
                    environment = os.environ | {"THREADS": str(threads)}
                    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
                        environment.pop(name, None)
                    environment |= POLICIES[policy]
                    child = subprocess.run(
                        [sys.executable, __file__, "child"],
                        env=environment,
                        capture_output=True,
                        text=True,
                        check=True,
                    )
                    measured[policy, threads].append([float(rate) for rate in child.stdout.split()])
        finally:
            for other in others:
                other.kill()
        print(f"{busy} other processes, load {os.getloadavg()[0]:.1f}")
        for (policy, threads), rates in measured.items():
            small, large = (sorted(rate)[len(rate) // 2] for rate in zip(*rates, strict=True))
            print(
                f"  {policy:8} {threads} threads: {small:8,.0f} candidates/s small, {large:7,.0f} "
                f"large",
                flush=True,
            )


if __name__ == "__main__":
    measure() if sys.argv[1:] == ["child"] else main()
