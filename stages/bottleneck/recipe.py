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

PREDICTS = ("hidden", "all", "none")


@dataclass(frozen=True)
class View:
    """One look at one text.

    Attributes:
        text: which text, relative to the passage: a key of `texts.TEXTS`.
        mask: which words are hidden.
        fill: what is written there: a key of `fills.FILLS`.
        predict: which pieces must be rebuilt: the ``hidden`` ones, ``all`` or ``none``.
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
        options: what only this network knows of.
    """

    reads: str = "passage"
    network: str = "bidirectional"
    layers: int = 2
    init: str = "normal"
    bottleneck: str = "identity"
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Recipe:
    """Encoder views and decoders by name. Without any, the backbone passes through untouched."""

    encoder: dict[str, View] = field(default_factory=dict)
    decoders: dict[str, Decoder] = field(default_factory=dict)

    def views(self) -> dict[str, View]:
        """Every view by the name of its loss, the encoder's first."""
        return {f"encoder/{name}": view for name, view in self.encoder.items()} | dict(self.decoders)

    @property
    def weights(self) -> set[str]:
        """Names of the word weights that masks look at."""
        return {view.mask.by for view in self.views().values() if view.mask.by}

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
    recipe = Recipe(encoder, {name: decoder for name, decoder in decoders.items() if decoder.weight})
    for name, decoder in recipe.decoders.items():
        _refuse_other(decoder.reads, recipe.encoder, f"{path}: decoders.{name}.reads")
        related = decoder.mask.strategy in ("same", "complement", "superset")
        if related and recipe.encoder[decoder.reads].text != decoder.text:
            raise Refusal(f"{path}: decoders.{name}.mask: {decoder.mask.strategy} needs the text that the encoder sees")
    return recipe


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
