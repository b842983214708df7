"""A recipe: which views the encoder sees, which decoders read its vector. Defaults live here, choices in YAML."""

import difflib
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from stages.artifacts.documents import read_yaml
from stages.artifacts.refusal import Refusal
from stages.bottleneck.decoders import NETWORKS
from stages.bottleneck.fills import FILLS
from stages.bottleneck.masks import SCORES, Mask
from stages.bottleneck.texts import TEXTS

PREDICTS = ("hidden", "all", "replaced", "none")
ALIKE = ("network", "layers", "init", "bottleneck", "options")  # what decoders of one network have in common


@dataclass(frozen=True)
class View:
    """One look at one text.

    Attributes:
        text: which text, relative to the passage: a key of `texts.TEXTS`.
        mask: which words are hidden.
        fill: what is written there: a key of `fills.FILLS`.
        predict: which pieces must be rebuilt: the ``hidden`` ones, ``all`` or ``none``; or of all pieces,
            whether they were ``replaced``.
        weight: of this view's loss in the sum.
    """

    text: str = "passage"
    mask: Mask = field(default_factory=Mask)
    fill: str = "bert"
    predict: str = "hidden"
    weight: float = 1.0


@dataclass(frozen=True)
class Decoder(View):
    """A view that is rebuilt from the vector of an encoder view; weight 0 leaves it out.

    Attributes:
        reads: the encoder view whose vector it is given.
        network: a key of `decoders.NETWORKS`.
        layers: how deep it is.
        init: ``normal`` (N(0, 0.02)), ``torch`` (PyTorch's defaults) or ``last`` (the backbone's last layers).
        bottleneck: ``identity`` or ``linear``, the map between the vector and the decoder.
        share: decoders with the same word here are one network with one set of parameters.
        beside: another encoder view whose vector the network compares with.
        options: what only this network knows of.
    """

    reads: str = "passage"
    network: str = "bidirectional"
    layers: int = 2
    init: str = "normal"
    bottleneck: str = "identity"
    share: str = ""
    beside: str = ""
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Generation:
    """The masked language model that ``fill: generator`` samples from (SimLM, section 3.1 and appendix C).

    Attributes:
        checkpoint: a folder or Hub id of a masked language model over the backbone's vocabulary; none: a small
            one of the backbone's kind is made, and trained on the corpus first.
        train: ``frozen``, or ``joint`` with the encoder.
        weight: of its own loss where it is trained jointly.
        layers: of a model that is made; it is half as wide as the backbone.
        steps: that a model that is made is trained alone; 0 leaves it random.
        ratio: share of the words that are hidden from it in these steps.
    """

    checkpoint: str | None = None
    train: str = "frozen"
    weight: float = 0.2
    layers: int = 2
    steps: int = 1000
    ratio: float = 0.3


@dataclass(frozen=True)
class Recipe:
    """Encoder views and decoders by name. Without any, the backbone passes through untouched."""

    encoder: dict[str, View] = field(default_factory=dict)
    decoders: dict[str, Decoder] = field(default_factory=dict)
    generator: Generation | None = None

    def views(self) -> dict[str, View]:
        """Every view by the name of its loss, the encoder's first."""
        return {f"encoder/{name}": view for name, view in self.encoder.items()} | dict(self.decoders)

    @property
    def weights(self) -> set[str]:
        """Names of the word weights that masks look at."""
        return {view.mask.by for view in self.views().values() if view.mask.by}

    @property
    def taught(self) -> bool:
        """Whether a decoder looks at the backbone as it was."""
        return any(NETWORKS[spec.network].teacher for spec in self.decoders.values())

    @property
    def texts(self) -> set[str]:
        """Names of the texts that views look at."""
        return {view.text for view in self.views().values()}


def load_recipe(path: Path | str) -> Recipe:
    """The recipe in a YAML file.

    Raises:
        Refusal: an unknown key or value, or an impossible ratio, with the file and the path of keys to it.
    """
    document = read_yaml(path) or {}
    _refuse_unknown(document, Recipe, str(path))
    encoder = {
        name: _view(View, view or {}, f"{path}: encoder.{name}") for name, view in document.get("encoder", {}).items()
    }
    decoders = {
        name: _view(Decoder, view or {}, f"{path}: decoders.{name}")
        for name, view in document.get("decoders", {}).items()
    }
    generator = _generator(document["generator"] or {}, f"{path}: generator") if "generator" in document else None
    recipe = Recipe(encoder, {name: decoder for name, decoder in decoders.items() if decoder.weight}, generator)
    for name, view in recipe.views().items():
        where = f"{path}: {name.replace('/', '.') if name.startswith('encoder/') else f'decoders.{name}'}"
        if view.fill == "generator" and not generator:
            raise Refusal(f"{where}.fill: generator needs a section `generator:` in the recipe")
        if isinstance(view, Decoder):
            _refuse_unrelated(view, recipe, where)
    return recipe


def _refuse_unrelated(decoder: Decoder, recipe: Recipe, where: str) -> None:
    """A decoder must fit the encoder views that it names and the decoders that it shares its network with."""
    _refuse_other(decoder.reads, recipe.encoder, f"{where}.reads")
    if NETWORKS[decoder.network].compares or decoder.beside:
        _refuse_other(decoder.beside, recipe.encoder, f"{where}.beside")
    related = decoder.mask.strategy in ("same", "complement", "superset")
    if related and recipe.encoder[decoder.reads].text != decoder.text:
        raise Refusal(f"{where}.mask: {decoder.mask.strategy} needs the text that the encoder sees")
    if NETWORKS[decoder.network].rows and (related or decoder.mask.strategy not in SCORES or decoder.predict != "all"):
        raise Refusal(f"{where}: {decoder.network} needs `predict: all` and a mask that can be drawn for every row")
    for name, other in recipe.decoders.items():
        differ = [key for key in ALIKE if getattr(other, key) != getattr(decoder, key)]
        if decoder.share == (other.share or name) and differ:
            raise Refusal(f"{where}.share: decoders that are one network differ in {differ[0]}")


def _generator(document: Any, where: str) -> Generation:
    _refuse_unknown(document, Generation, where)
    made = Generation(**document)
    _refuse_other(made.train, ("frozen", "joint"), f"{where}.train")
    _require(
        made.checkpoint is None or isinstance(made.checkpoint, str), f"{where}.checkpoint", made.checkpoint, "text"
    )
    _require(isinstance(made.weight, int | float) and made.weight >= 0, f"{where}.weight", made.weight, "≥ 0")
    _require(isinstance(made.layers, int) and made.layers > 0, f"{where}.layers", made.layers, "a whole number > 0")
    _require(isinstance(made.steps, int) and made.steps >= 0, f"{where}.steps", made.steps, "a whole number ≥ 0")
    possible = isinstance(made.ratio, int | float) and 0 < made.ratio < 1
    _require(possible, f"{where}.ratio", made.ratio, "between 0 and 1")
    return made


def _view(kind: type[Any], document: dict[str, Any], where: str) -> Any:
    _refuse_unknown(document, kind, where)
    values = dict(document)
    if "mask" in values:
        values["mask"] = _mask(values["mask"], f"{where}.mask")
    view = kind(**values)
    _refuse_other(view.text, TEXTS, f"{where}.text")
    _refuse_other(view.fill, FILLS, f"{where}.fill")
    _refuse_other(view.predict, PREDICTS, f"{where}.predict")
    _require(isinstance(view.weight, int | float) and view.weight >= 0, f"{where}.weight", view.weight, "≥ 0")
    if isinstance(view, Decoder):
        _refuse_other(view.network, NETWORKS, f"{where}.network")
        _refuse_other(view.init, ("normal", "torch", "last"), f"{where}.init")
        _refuse_other(view.bottleneck, ("identity", "linear"), f"{where}.bottleneck")
        _require(isinstance(view.layers, int) and view.layers > 0, f"{where}.layers", view.layers, "a whole number > 0")
    return view


def _mask(document: Any, where: str) -> Mask:
    """``complement``, ``{random: 0.3}`` or ``{weighted: {ratio: 0.5, by: keywords}}``."""
    if isinstance(document, str):
        _refuse_other(document, ("none", "all", "same", "complement"), where)
        return Mask(document)
    if not isinstance(document, dict) or len(document) != 1:
        raise Refusal(f"{where}: {document!r} is not one strategy")
    ((strategy, numbers),) = document.items()
    _refuse_other(strategy, SCORES, where)
    numbers = numbers if isinstance(numbers, dict) else {"ratio": numbers}
    _refuse_unknown(numbers, Mask, f"{where}.{strategy}")
    mask = Mask(strategy, **numbers)
    possible = isinstance(mask.ratio, int | float) and 0 < mask.ratio < 1
    _require(possible, f"{where}.{strategy}.ratio", mask.ratio, "between 0 and 1")
    _require(
        bool(mask.by) == (strategy in ("weighted", "salient")), f"{where}.{strategy}.by", mask.by, "a weight's name"
    )
    _refuse_other(mask.unit, ("word", "piece"), f"{where}.{strategy}.unit")
    if mask.by and mask.unit == "piece":
        raise Refusal(f"{where}.{strategy}.unit: 'piece' does not go with by: the weights {mask.by!r} are words'")
    return mask


def _refuse_unknown(document: Any, kind: type[Any], where: str) -> None:
    if not isinstance(document, dict):
        raise Refusal(f"{where}: {document!r} is not a mapping")
    known = [one.name for one in fields(kind)]
    for key in document:
        if key not in known:
            raise Refusal(f"{where}: unknown key {key!r}{_nearest(key, known)}")


def _refuse_other(value: Any, known: Any, where: str) -> None:
    if value not in known:
        raise Refusal(f"{where}: {value!r} is none of {', '.join(known)}{_nearest(value, known)}")


def _require(holds: bool, where: str, value: Any, wanted: str) -> None:
    if not holds:
        raise Refusal(f"{where}: {value!r} should be {wanted}")


def _nearest(value: Any, known: Any) -> str:
    near = difflib.get_close_matches(str(value), list(known), 1)
    return f"; did you mean {near[0]!r}?" if near else ""
