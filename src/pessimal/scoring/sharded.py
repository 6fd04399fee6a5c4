"""A network larger than one card: its layers sharded over the processes, gathered one after the other as they run.

PyTorch's fully sharded data parallelism (`fully_shard`): each process keeps a part of every layer and scores its own
batches, so all of them must take the same number of steps.
"""

from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, fully_shard

from pessimal.errors import ConfigError
from pessimal.scoring.engine import Decoder


def shard_over(network: nn.Module, decoder: Decoder | None, mesh: DeviceMesh) -> None:
    """Shard the backbone of `network` over the processes of `mesh`, layer by layer; the head stays whole.

    Adds the attribute `whole_parts`, the decoder as it was taken before. Does nothing the second time. Raises ConfigError for a network whose layers pessimal does not find.
    """
    if isinstance(getattr(decoder, "backbone", None), FSDPModule):
        return
    if decoder is None:
        raise ConfigError(
            f"trainer=sharded needs a decoder with a head that pessimal knows; {type(network).__name__} is none. "
            "Type trainer=gpu"
        )
    processes = mesh["data_parallel"]
    for layer in decoder.layers:
        fully_shard(layer, mesh=processes)
    fully_shard(decoder.backbone, mesh=processes)
    network.whole_parts = decoder
