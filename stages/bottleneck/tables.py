"""Which tables beside the tokens a recipe looks at."""

from collections.abc import Mapping
from pathlib import Path

from stages.artifacts.refusal import Refusal
from stages.bottleneck.recipe import Recipe
from stages.bottleneck.texts import GENERATED

WORTH = ("keywords", "salience")


def needed(recipe: Recipe, beside: Mapping[str, Path | None], path: Path) -> dict[str, Path]:
    """The tables beside the tokens that the recipe looks at.

    Raises:
        Refusal: one of them was not given.
    """
    given = {}
    for name in sorted(recipe.weights | (recipe.texts & set(GENERATED))):
        if name not in beside:
            raise Refusal(f"{path}: no weights named {name!r}; there are {', '.join(WORTH)}")
        table = beside[name]
        if table is None:
            raise Refusal(f"{path}: the recipe looks at {name}, and no table of them was given")
        given[name] = table
    return given
