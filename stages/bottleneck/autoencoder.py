"""The whole model: encode each view once, hand each decoder the view that it reads, sum the named losses."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from stages.artifacts.checkpoints import TextEncoder
from stages.bottleneck.decoders import NETWORKS
from stages.bottleneck.decoders.reading import Network, Reading, Surroundings, initialise
from stages.bottleneck.recipe import Decoder, Recipe
from stages.bottleneck.turns import in_turns
from stages.bottleneck.views import MicroBatch, ViewBatch
from stages.bottleneck.vocabulary import ReplacementHead, VocabularyHead
from stages.training.processes import Processes

if TYPE_CHECKING:
    from stages.bottleneck.generator import Generator


class Autoencoder(nn.Module):
    """An encoder and the heads that a recipe trains it with.

    Attributes:
        new: names of the parameters that the backbone did not bring.
    """

    def __init__(
        self,
        recipe: Recipe,
        encoder: TextEncoder,
        heads: dict[str, Tensor],
        teacher: TextEncoder | None = None,
        counts: Tensor | None = None,
        generator: "Generator | None" = None,
        processes: Processes | None = None,
    ):
        """Args:
        heads: parameters of a previous pre-training or of the backbone's own head, by name; those that fit are taken.
        teacher: the backbone as it was, for networks that recover its vectors.
        counts: [V] how often each piece occurs in the corpus; all alike by default.
        generator: for views that one fills, on the right device; trained here only if the recipe says ``joint``.
        processes: the peers, for losses across the whole batch; alone by default.
        """
        super().__init__()
        self.recipe, self.encoder = recipe, encoder
        self.head = VocabularyHead(encoder.config, encoder.transformer.get_input_embeddings(), counts)  # type: ignore[operator]
        initialise(self.head, "normal")
        judged = [view.mask.ratio for view in recipe.views().values() if view.predict == "replaced"]
        if judged:
            self.detector = ReplacementHead(encoder.config)
            initialise(self.detector, "normal")
            self.detector.expect(sum(judged) / len(judged))
        self.around = Surroundings(encoder, self.head, teacher, getattr(self, "detector", None), processes)
        self.decoders = nn.ModuleDict()
        for name, spec in recipe.decoders.items():
            if _owner(name, spec) not in self.decoders:
                self.decoders[_owner(name, spec)] = NETWORKS[spec.network](spec, self.around)
        self.frozen = (generator,)  # in a tuple: not among the parameters that are trained and saved …
        if generator and recipe.generator and recipe.generator.train == "joint":
            self.generator = generator  # … unless it learns too
        taken = self.take(heads)
        self.new = {name for name, _ in self.named_parameters() if not name.startswith("encoder.")} - taken

    @torch.no_grad()
    def take(self, heads: dict[str, Tensor]) -> set[str]:
        """Copy the parameters that fit by name and shape, and return their names."""
        own = dict(self.named_parameters())
        fit = {name for name, value in heads.items() if name in own and own[name].shape == value.shape}
        for name in fit:
            own[name].copy_(heads[name])
        return fit

    def heads(self) -> dict[str, Tensor]:
        """Every parameter that is not the encoder's, by name."""
        return {name: value for name, value in self.named_parameters() if not name.startswith("encoder.")}

    def forward(self, batch: MicroBatch, totals: dict[str, int]) -> tuple[Tensor, dict[str, tuple[Tensor, Tensor]]]:
        """This micro-batch's share of the weighted sum of mean losses, and every loss and accuracy by name."""
        views, learnt = self.filled(batch.views)
        tally = Tally(self, batch.counts, totals)
        share = torch.stack([tally(name, *outcome) for name, outcome in learnt.items()]).sum() if learnt else 0.0
        readings = {name: self.read(views[f"encoder/{name}"]) for name in self.recipe.encoder}
        tensors = [tensor for reading in readings.values() for tensor in reading.tensors()]

        def losses(read: Sequence[Tensor]) -> Iterator[Tensor]:
            given = iter(read)
            own = {name: reading.of(given) for name, reading in readings.items()}
            yield from (tally(name, *outcome) for name, outcome in self.losses(own, views))

        share = share + in_turns(losses, tensors, [one for one in self.parameters() if one.requires_grad])
        # a micro-batch may hold nothing to learn from, and the loop calls backward all the same
        return share if share.requires_grad else share + self.head.bias.sum() * 0, tally.observed

    def losses(
        self, readings: dict[str, Reading], views: dict[str, ViewBatch]
    ) -> Iterator[tuple[str, tuple[Tensor, Tensor | None]]]:
        """Name, and (summed loss, hits), of every view that there is something to learn from, the encoder's first."""
        for name, spec in self.recipe.encoder.items():
            view = views[f"encoder/{name}"]
            if len(view.labels):
                yield f"encoder/{name}", self.around.rebuild(readings[name].states, view, spec.predict)
        for name, decoder in self.recipe.decoders.items():
            network = self.network(name)
            if len(views[name].rows) or network.compares:  # peers wait for one that compares
                yield name, network(self.part(decoder, readings, views, views[name]), views[name])

    def network(self, name: str) -> Network:
        """The network of a decoder, its own or shared."""
        network = self.decoders[_owner(name, self.recipe.decoders[name])]
        assert isinstance(network, Network)
        return network

    def filled(
        self, views: dict[str, ViewBatch]
    ) -> tuple[dict[str, ViewBatch], dict[str, tuple[Tensor, Tensor | None]]]:
        """The views with the generator's samples written in, and its own losses: of what the encoder reads."""
        filled, losses = dict(views), {}
        generator, joint = self.frozen[0], hasattr(self, "generator")
        for name, view in views.items():
            if view.noise is not None and len(view.rows):
                assert generator is not None, "the recipe asks for a generator"
                ids, learnt = generator.fill(view, joint and name.startswith("encoder/"))
                filled[name] = replace(view, ids=ids)
                if learnt:
                    losses[f"generator/{name}"] = learnt
        return filled, losses  # type: ignore[return-value]

    def part(
        self, decoder: Decoder, readings: dict[str, Reading], views: dict[str, ViewBatch], target: ViewBatch
    ) -> Reading:
        """What a decoder may know of the encoder, cut to the passages that have the decoder's text."""
        part = _part(readings[decoder.reads], views[f"encoder/{decoder.reads}"], target)
        if not decoder.beside:
            return part
        other = _part(readings[decoder.beside], views[f"encoder/{decoder.beside}"], target)
        return replace(part, beside=other.vector)

    def read(self, view: ViewBatch) -> Reading:
        """Encode a view."""
        wanted = any(self.network(name).middle for name in self.recipe.decoders)
        states, middle = encode(self.encoder, view, wanted)
        return Reading(self.encoder.pool(states, view.lengths), states, middle, view.lengths, view.clean)


class Tally:
    """What became of one micro-batch: the weighted share of every loss, and what was observed.

    Attributes:
        observed: sums and counts by name, without gradient.
    """

    def __init__(self, model: Autoencoder, here: dict[str, int], totals: dict[str, int]):
        self.model, self.here, self.totals, self.views = model, here, totals, model.recipe.views()
        self.observed: dict[str, tuple[Tensor, Tensor]] = {}

    def __call__(self, name: str, loss: Tensor, hits: Tensor | None) -> Tensor:
        """Weight · loss / count over the global batch."""
        weight, count = self.counted(name)
        here = torch.tensor(float(self.here[count]))
        self.observed[f"{name}/loss"] = loss.detach(), here
        if hits is not None:
            self.observed[f"{name}/accuracy"] = hits, here
        return weight * loss / max(self.totals[count], 1)

    def counted(self, name: str) -> tuple[float, str]:
        """The weight of a loss, and the name of the count that it is a mean over."""
        if name.startswith("generator/"):
            assert self.model.recipe.generator is not None
            return self.model.recipe.generator.weight, f"{name.removeprefix('generator/')}/replaced"
        per_text = name in self.model.recipe.decoders and self.model.network(name).per == "texts"
        return self.views[name].weight, f"{name}/texts" if per_text else name


def encode(encoder: TextEncoder, view: ViewBatch, middle: bool) -> tuple[Tensor, Tensor | None]:
    """[B, L, d] states of the last layer and, if wanted, of the layer at half the depth."""
    kept: list[Tensor] = []
    if not len(view.rows):  # no passage of this micro-batch has such a text; BERT's reshaping wants one
        nothing = torch.zeros(*view.ids.shape, encoder.config.hidden_size, device=view.ids.device)
        return nothing, nothing if middle else None
    if not middle:
        return encoder.states(view.ids, view.lengths), None
    layers: Any = encoder.transformer.encoder.layer  # type: ignore[union-attr]
    handle = layers[len(layers) // 2 - 1].register_forward_hook(lambda module, args, out: kept.append(out))
    try:
        return encoder.states(view.ids, view.lengths), kept[0]
    finally:
        handle.remove()


def _part(reading: Reading, read: ViewBatch, target: ViewBatch) -> Reading:
    """The rows of the encoder's view that have the decoder's text."""
    if len(target.rows) == len(read.rows):
        return reading
    rows = torch.searchsorted(read.rows, target.rows)
    middle = None if reading.middle is None else reading.middle[rows]
    return Reading(reading.vector[rows], reading.states[rows], middle, reading.lengths[rows], reading.clean[rows])


def _owner(name: str, spec: Decoder) -> str:
    """The name under which a decoder's network is kept."""
    return spec.share or name
