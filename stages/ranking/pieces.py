"""Pairs of a query and a passage on their way into a cross-encoder."""

import numpy as np
import torch

from stages.artifacts.checkpoints import Vocabulary
from stages.artifacts.ragged import Ragged
from stages.embedding.pieces import Padded, blank


def paired(queries: Ragged, passages: Ragged, vocabulary: Vocabulary, longest: int, longest_query: int) -> Padded:
    """``[CLS] query [SEP] passage [SEP]``, row by row.

    A query is cut to ``longest_query`` - 2 pieces (as `single` would cut it), the passage to what is then left
    of ``longest``.
    """
    queries = queries.take(np.arange(len(queries)), longest_query - 2)
    first = queries.lengths[:, None] + 1  # where the first separator stands
    passages = passages.take(np.arange(len(passages)), longest - 2 - first[:, 0])
    lengths = queries.lengths + passages.lengths + 3
    ids, columns = blank(lengths, vocabulary)
    last = lengths[:, None] - 1
    ids[(columns >= 1) & (columns < first)] = queries.values
    ids[(columns > first) & (columns < last)] = passages.values
    ids[(columns == first) | (columns == last)] = vocabulary.sep
    segments = ((columns > first) & (columns <= last)).astype(np.int64)
    return Padded(torch.from_numpy(ids), torch.from_numpy(lengths), torch.from_numpy(segments))
