"""One network a file: how a text is rebuilt from a vector."""

from stages.bottleneck.decoders.bag import Bag
from stages.bottleneck.decoders.bidirectional import Bidirectional
from stages.bottleneck.decoders.reading import Network
from stages.bottleneck.decoders.vector import Vector

NETWORKS: dict[str, type[Network]] = {
    "bidirectional": Bidirectional,
    "bag": Bag,
    "vector": Vector,
}
