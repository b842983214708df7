"""Where an encoder puts texts: how alike random ones are by length, and how alike the states of one text are."""

from pathlib import Path
from typing import Annotated

import torch
import typer

from stages.artifacts.checkpoints import load_vocabulary
from stages.artifacts.documents import write_json
from stages.artifacts.ragged import read_ragged
from stages.artifacts.refusal import Refusal
from stages.artifacts.tables import Tokens
from stages.embedding.pieces import BUDGET, chunks, framed_lengths, single
from stages.embedding.positions import Likeness, by_position
from stages.embedding.probe import mean_cosine, normalised
from stages.embedding.samples import of_length
from stages.embedding.vectors import encode_rows
from stages.ranking.encoding import for_inference
from stages.training.precision import Precision, resolved
from stages.training.processes import join


def cosines(
    models: Annotated[list[Path], typer.Argument(help="model folders of encoders, of one tokenizer")],
    tokens: Annotated[Path, typer.Option(help="Tokens table of the corpus")],
    out: Annotated[Path, typer.Option(help="JSON rows for dvc plots: a row a length, a column a model")],
    lengths: Annotated[list[int], typer.Option(min=3, help="pieces, special ones included")] = [  # noqa: B006
        16,
        32,
        64,
        128,
        256,
        512,
    ],
    sample: Annotated[int, typer.Option(min=2, help="texts of a length, at most")] = 500,
    precision: Precision = "auto",
    seed: Annotated[int, typer.Option(min=0, help="of the sample")] = 0,
) -> None:
    """The mean cosine of all pairs among random texts cut to one length (SEED-Encoder, Figure 5).

    Near 1, the vectors tell texts apart by little. A length that fewer than two texts of the corpus reach is left out.
    """
    precision = resolved(precision)
    pieces = read_ragged(Tokens, tokens, "pieces")
    rows = {length: of_length(pieces, length, sample, seed) for length in sorted(set(lengths))}
    rows = {length: some for length, some in rows.items() if len(some) > 1}
    if not rows:
        raise Refusal(f"{tokens}: no two passages of {min(lengths)} pieces")
    table: list[dict[str, float]] = [{"length": length, "texts": len(some)} for length, some in rows.items()]
    for model in models:
        encoder, vocabulary = for_inference(model, precision, join().device), load_vocabulary(model)
        for row, (length, some) in zip(table, rows.items(), strict=True):
            row[model.name] = mean_cosine(normalised(encode_rows(encoder, pieces, some, vocabulary, length)))
    write_json(out, table)


@torch.inference_mode()
def positions(
    models: Annotated[list[Path], typer.Argument(help="model folders of encoders, of one tokenizer")],
    tokens: Annotated[Path, typer.Option(help="Tokens table of the corpus")],
    out: Annotated[Path, typer.Option(help="JSON rows for dvc plots: a row a position, a column a model")],
    longest: Annotated[
        int, typer.Option(min=3, help="pieces of a text, special ones included; shorter are left out")
    ] = 128,
    sample: Annotated[int, typer.Option(min=1, help="texts, at most")] = 500,
    precision: Precision = "auto",
    seed: Annotated[int, typer.Option(min=0, help="of the sample")] = 0,
) -> None:
    """The mean cosine between the last state of every position and that of [CLS], over texts of one length.

    Position 0 is [CLS] itself. SEED-Encoder's Figure 4 looks at its decoder's states so: that is `decoders`.
    """
    precision = resolved(precision)
    pieces = read_ragged(Tokens, tokens, "pieces")
    rows = of_length(pieces, longest, sample, seed)
    if not len(rows):
        raise Refusal(f"{tokens}: no passage of {longest} pieces")
    device = join().device
    columns: dict[str, Likeness] = {}
    for model in models:
        encoder, vocabulary = for_inference(model, precision, device), load_vocabulary(model)
        columns[model.name] = Likeness(longest)
        for chunk in chunks(framed_lengths(pieces, rows, longest), BUDGET[device.type], device):
            batch = single(pieces, rows[chunk], vocabulary, longest).to(device)
            states = encoder.states(batch.ids, batch.lengths)
            columns[model.name].add(states, states[:, 0], batch.lengths)
    write_json(out, by_position(longest, columns))
