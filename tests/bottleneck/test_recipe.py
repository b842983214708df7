"""Recipes: all of them load; what is wrong with one is said with the path of keys to it."""

import re
from pathlib import Path

import pytest

from stages.artifacts.refusal import Refusal
from stages.bottleneck.masks import Mask
from stages.bottleneck.recipe import Recipe, load_recipe

RECIPES = sorted((Path(__file__).parents[2] / "stages" / "recipes").glob("*.yaml"))


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_every_recipe_loads_and_says_what_it_is(path: Path) -> None:
    load_recipe(path)
    assert path.read_text().startswith("# ")


def test_master_is_what_the_paper_says() -> None:
    recipe = load_recipe(next(path for path in RECIPES if path.stem == "master"))
    assert recipe.encoder["passage"].mask == Mask("random", 0.3)
    assert {name: decoder.text for name, decoder in recipe.decoders.items()} == {
        "keywords": "passage",
        "complement": "passage",
        "neighbour": "next",
        "queries": "queries",
        "continuation": "continuations",
    }
    assert {decoder.layers for decoder in recipe.decoders.values()} == {2}
    assert recipe.weights == {"keywords"}


def test_an_empty_recipe_is_no_pre_training(tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text("# nothing\n")
    assert load_recipe(tmp_path / "r.yaml") == Recipe()


def test_weight_zero_leaves_a_decoder_out(tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text("encoder: {passage: {}}\ndecoders: {a: {weight: 0}, b: {mask: all}}\n")
    assert list(load_recipe(tmp_path / "r.yaml").decoders) == ["b"]


def lines() -> list[tuple[str, str]]:
    """Every override of a recipe's number that the documentation shows: file and pattern."""
    text = (RECIPES[0].parents[2] / "docs" / "recipes.md").read_text() + (
        RECIPES[0].parents[2] / "README.md"
    ).read_text()
    found = re.findall(r"-S '?(stages/recipes/[\w-]+\.yaml):([^\s'`]+)", text)
    return [(file, pattern.split(",")[0]) for file, pattern in found if "path.to" not in pattern]


@pytest.mark.parametrize(("file", "pattern"), lines())
def test_documented_overrides_are_possible(tmp_path: Path, file: str, pattern: str) -> None:
    from dvc.utils.hydra import apply_overrides

    path = tmp_path / "r.yaml"
    path.write_text((RECIPES[0].parents[2] / file).read_text())
    before = load_recipe(path)
    apply_overrides(str(path), [pattern])
    assert load_recipe(path) != before


def test_every_recipe_is_documented() -> None:
    headings = re.findall(r"^## (.*)$", (RECIPES[0].parents[2] / "docs" / "recipes.md").read_text(), re.MULTILINE)
    assert {path.stem for path in RECIPES} <= {name for heading in headings for name in heading.split(", ")}


ENCODER = "encoder: {passage: {mask: {random: 0.3}}}\n"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("encode: {}", "unknown key 'encode'; did you mean 'encoder'?"),
        ("encoder: {passage: {masks: none}}", "encoder.passage: unknown key 'masks'; did you mean 'mask'?"),
        (
            "encoder: {passage: {mask: {random: 1.3}}}",
            "encoder.passage.mask.random.ratio: 1.3 should be between 0 and 1",
        ),
        ("encoder: {passage: {mask: {random: 0}}}", "encoder.passage.mask.random.ratio: 0 should be between 0 and 1"),
        ("encoder: {passage: {mask: {random: much}}}", "ratio: 'much' should be between 0 and 1"),
        ("encoder: {passage: {mask: {rondom: 0.3}}}", "'rondom' is none of .* did you mean 'random'?"),
        ("encoder: {passage: {mask: {weighted: 0.3}}}", "mask.weighted.by: '' should be a weight's name"),
        (
            "encoder: {passage: {mask: {weighted: {ratio: 0.3, by: keywords, unit: piece}}}}",
            "weighted.unit: 'piece' does not go with by: the weights 'keywords' are words'",
        ),
        ("encoder: {passage: {mask: [none]}}", "is not one strategy"),
        ("encoder: {passage: {text: pasage}}", "'pasage' is none of .* did you mean 'passage'?"),
        ("encoder: {passage: {weight: -1}}", "encoder.passage.weight: -1 should be ≥ 0"),
        (ENCODER + "decoders: {a: {reads: b}}", "decoders.a.reads: 'b' is none of passage"),
        (ENCODER + "decoders: {a: {network: deep}}", "decoders.a.network: 'deep' is none of"),
        (ENCODER + "decoders: {a: {layers: 0}}", "decoders.a.layers: 0 should be a whole number > 0"),
        (ENCODER + "decoders: {a: {text: next, mask: complement}}", "complement needs the text that the encoder sees"),
        ("[1, 2]", "is not a mapping"),
        ("encoder: {passage: {fill: generator}}", "encoder.passage.fill: generator needs a section `generator:`"),
        ("generator: {train: never}", "generator.train: 'never' is none of frozen, joint"),
        ("generator: {step: 5}", "generator: unknown key 'step'; did you mean 'steps'?"),
        ("generator: {steps: -1}", "generator.steps: -1 should be a whole number ≥ 0"),
        ("generator: {ratio: 1}", "generator.ratio: 1 should be between 0 and 1"),
        (ENCODER + "decoders: {a: {network: contrastive}}", "decoders.a.beside: '' is none of passage"),
        (ENCODER + "decoders: {a: {network: enhanced, layers: 1}}", "decoders.a: enhanced needs `predict: all`"),
        (ENCODER + "decoders: {a: {share: s}, b: {share: s, layers: 3}}", "a.share: .* one network differ in layers"),
        (ENCODER + "decoders: {a: {}, b: {share: a, init: last}}", "b.share: .* one network differ in init"),
    ],
)
def test_what_is_wrong_is_one_line_that_names_it(tmp_path: Path, text: str, line: str) -> None:
    path = tmp_path / "r.yaml"
    path.write_text(text)
    with pytest.raises(Refusal, match=line) as refusal:
        load_recipe(path)
    assert str(refusal.value).startswith(f"{path}:")
    assert "\n" not in str(refusal.value)
