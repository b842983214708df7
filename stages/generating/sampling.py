"""Drawing texts piece by piece: temperature, top-k (Fan et al. 2018), nucleus (Holtzman et al. 2020).

transformers' ``generate`` draws from the whole vocabulary, which on a CPU costs several times what the model
does. Here the k best pieces are found first and the draw is among them, and the random numbers come from outside:
they belong to a passage, not to the batch that it happens to be in.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from stages.artifacts.ragged import Ragged
from stages.generating.generators import Generator

SHRINK = 0.75  # drop finished rows when fewer than this share of the rows is still being written


@dataclass(frozen=True)
class Sampling:
    """How texts are drawn.

    Attributes:
        count: texts for each prompt.
        new_pieces: most pieces of a text.
        top_k: draw among this many best pieces; 0 for all, 1 for the best.
        top_p: draw among the fewest best pieces whose probability reaches this.
    """

    count: int
    new_pieces: int
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0


def draw(logits: Tensor, noise: Tensor, how: Sampling) -> Tensor:
    """[B, V] logits and [B] uniform numbers in [0, 1) → [B] ids, by inverting the distribution function."""
    scores, ids = logits.float().topk(min(how.top_k or logits.shape[1], logits.shape[1]))
    shares = torch.softmax(scores / how.temperature, dim=-1)
    shares = shares * (shares.cumsum(-1) - shares < how.top_p)  # HF's: what is above a piece has not reached p
    reached = shares.cumsum(-1)
    place = torch.searchsorted(reached, noise[:, None] * reached[:, -1:], right=True)
    last = (shares > 0).sum(-1, keepdim=True) - 1
    return ids.gather(1, torch.minimum(place, last))[:, 0]


@torch.inference_mode()
def sample(generator: Generator, prompts: Ragged, noise: np.ndarray, how: Sampling) -> list[np.ndarray]:
    """Write ``how.count`` texts for each prompt.

    Args:
        prompts: one batch.
        noise: [prompts · count, new_pieces] uniform numbers in [0, 1), float32.

    Returns:
        The ids of text 0 of prompt 0, text 1 of prompt 0, …; each without its end piece. A text has at least
        one piece.
    """
    written = torch.full(noise.shape, generator.end, device=generator.device)
    numbers = torch.from_numpy(noise).to(generator.device)
    logits, state = generator.read(prompts)
    logits, state = logits.repeat_interleave(how.count, 0), state.repeated(how.count)
    rows = torch.arange(len(noise), device=generator.device)
    going = torch.ones_like(rows, dtype=torch.bool)
    for step in range(how.new_pieces):
        logits[:, generator.mute if step else generator.mute_first] = -torch.inf
        ids = torch.where(going, draw(logits, numbers[rows, step], how), generator.end)
        written[rows, step] = ids
        going = ids != generator.end
        left = int(going.sum())
        if left == 0 or step + 1 == how.new_pieces:
            break
        if left < SHRINK * len(rows):
            keep = going.nonzero()[:, 0]
            state.keep(keep)
            rows, ids, going = rows[keep], ids[keep], going[keep]
        logits = generator.write(ids, state)
    return _texts(written.cpu().numpy(), generator.end)


def _texts(written: np.ndarray, end: int) -> list[np.ndarray]:
    """Each row up to its first end piece."""
    ended = np.pad(written == end, ((0, 0), (0, 1)), constant_values=True)
    return [row[:length] for row, length in zip(written, ended.argmax(axis=1), strict=True)]
