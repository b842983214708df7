"""A corpus, a recipe and a model for tests of this room."""

from pathlib import Path

import numpy as np
import torch

from stages.artifacts.checkpoints import load_encoder, load_heads, load_vocabulary
from stages.bottleneck.autoencoder import Autoencoder
from stages.bottleneck.batches import Batches
from stages.bottleneck.generator import made
from stages.bottleneck.recipe import Recipe, load_recipe
from stages.bottleneck.texts import Corpus, read_corpus
from stages.bottleneck.views import Collator, Draws, MicroBatch
from stages.training.processes import Processes
from tests.conftest import World

ALONE = Processes(0, 1, torch.device("cpu"))
RECIPES = Path(__file__).parents[2] / "stages" / "recipes"


def corpus(world: World) -> Corpus:
    """Every weight and text; generated texts are played by the passages themselves, and some are missing."""
    beside = {"keywords": world.keywords, "salience": world.salience}
    beside |= {"queries": world.tokens, "continuations": world.tokens}
    read = read_corpus(world.passages, world.tokens, beside)
    for name, (pieces, rows) in list(read.texts.items()):
        read.texts[name] = pieces, np.where(np.arange(len(rows)) % 3 == 0, -1, rows)
    return read


def collated(world: World, recipe: Recipe, step: int = 0, longest: int = 32) -> MicroBatch:
    """All passages as one batch."""
    everything = corpus(world)
    rows = np.arange(len(everything))
    return Collator(recipe, everything, load_vocabulary(world.backbone), longest)(rows, Draws(1, step, len(rows), rows))


def model(
    world: World, recipe: Recipe, seed: int = 0, counts: torch.Tensor | None = None, who: Processes = ALONE
) -> Autoencoder:
    """The recipe's model on the small backbone."""
    encoder = load_encoder(world.backbone)
    torch.manual_seed(0)  # the generator is an input, like the backbone: the same whatever the seed
    generator = made(recipe.generator, encoder.config).eval() if recipe.generator else None
    torch.manual_seed(seed)
    wanted = any(spec.network == "vector" for spec in recipe.decoders.values())
    teacher = load_encoder(world.backbone).eval() if wanted else None
    return Autoencoder(recipe, encoder, load_heads(world.backbone), teacher, counts, generator, who)


def batches(world: World, recipe: Recipe, batch: int = 16, pieces: int = 512, who: Processes = ALONE) -> Batches:
    """What the loop asks for."""
    return Batches(recipe, corpus(world), load_vocabulary(world.backbone), 32, batch, pieces, 1, who)


def named(name: str) -> Recipe:
    """A recipe of the product."""
    return load_recipe(RECIPES / f"{name}.yaml")


def written(folder: Path, text: str) -> Recipe:
    """A recipe of a test."""
    (folder / "recipe.yaml").write_text(text)
    return load_recipe(folder / "recipe.yaml")
