"""Integer texts → vectors, in batches of like length."""

import numpy as np
import torch

from stages.artifacts.checkpoints import TextEncoder, Vocabulary
from stages.artifacts.ragged import Ragged
from stages.embedding.pieces import BUDGET, Padded, chunks, framed_lengths, single


@torch.inference_mode()
def encode_batch(encoder: TextEncoder, batch: Padded) -> torch.Tensor:
    """[B, d] float32 vectors of one micro-batch on the encoder's device; pooled in float32."""
    return encoder.finish(encoder.pool(encoder.states(batch.ids, batch.lengths).float(), batch.lengths))


def encode_rows(
    encoder: TextEncoder, pieces: Ragged, rows: np.ndarray, vocabulary: Vocabulary, longest: int
) -> np.ndarray:
    """[n, d] float32 vectors of some rows, in their order, encoded in batches of like length."""
    device = next(encoder.parameters()).device
    out = np.empty((len(rows), encoder.width), dtype=np.float32)
    for chunk in chunks(framed_lengths(pieces, rows, longest), BUDGET[device.type], device):
        batch = single(pieces, rows[chunk], vocabulary, longest).to(device)
        out[chunk] = encode_batch(encoder, batch).cpu().numpy()
    return out
