"""One network a file: how a text is rebuilt from a vector."""

from stages.bottleneck.decoders.bag import Bag
from stages.bottleneck.decoders.bidirectional import Bidirectional
from stages.bottleneck.decoders.causal import Causal
from stages.bottleneck.decoders.contrastive import Contrastive
from stages.bottleneck.decoders.enhanced import Enhanced
from stages.bottleneck.decoders.reading import Network
from stages.bottleneck.decoders.skip import Skip
from stages.bottleneck.decoders.vector import Vector

NETWORKS: dict[str, type[Network]] = {
    "bidirectional": Bidirectional,
    "enhanced": Enhanced,
    "causal": Causal,
    "skip": Skip,
    "bag": Bag,
    "contrastive": Contrastive,
    "vector": Vector,
}
