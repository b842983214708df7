"""What a retriever and a cross-encoder learn from: contrastive denominators, distillation, listwise choice.

Letters: N queries, n passages a query; the positive of query i is column i·n of N·n.
"""

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

Denominator = Literal["eq3", "infonce", "release"]


def contrastive(q_ND: Tensor, d_MD: Tensor, allowed_NM: Tensor, scale: float, denominator: Denominator) -> Tensor:
    """Mean over queries of −log of the positive's share of a denominator (a scalar).

    Args:
        q_ND: query vectors.
        d_MD: passage vectors, M = N·n.
        allowed_NM: bool; whether passage j may stand in query i's denominator: its own positive does, its other
            positives do not.
        scale: 1/τ, by which products are multiplied.
        denominator: ``infonce``: q_i with every passage. ``eq3``: besides, d⁺_i with every negative
            (SimLM, Eq. 3). ``release``: q_i with every passage, d⁺_i with the other queries, q_i with the
            other queries, d⁺_i with the other positives (SimLM's released code).
    """
    N, n = len(q_ND), len(d_MD) // len(q_ND)
    own = torch.arange(N, device=q_ND.device) * n
    logits = [_masked(scale * q_ND @ d_MD.T, allowed_NM)]
    if denominator == "eq3":
        negative = allowed_NM.clone()
        negative[torch.arange(N, device=own.device), own] = False
        logits.append(_masked(scale * d_MD[own] @ d_MD.T, negative))
    elif denominator == "release":
        apart = allowed_NM[:, own] & ~torch.eye(N, dtype=torch.bool, device=own.device)
        both = apart & apart.T  # neither's positive is the other's too
        p_ND = d_MD[own]
        logits.append(_masked(scale * p_ND @ q_ND.T, apart.T))
        logits.append(_masked(scale * q_ND @ q_ND.T, both))
        logits.append(_masked(scale * p_ND @ p_ND.T, both))
    return F.cross_entropy(torch.cat(logits, dim=1), own)


def distillation(student_Nn: Tensor, teacher_Nn: Tensor) -> Tensor:
    """Mean over queries of KL(softmax teacher ‖ softmax student) over a group; NaN scores take no part."""
    scored = ~teacher_Nn.isnan()
    teacher = _masked(teacher_Nn, scored).log_softmax(1)
    student = _masked(student_Nn, scored).log_softmax(1)
    terms = torch.where(scored, teacher.exp() * (teacher - student), 0.0)
    return terms.sum() / len(student_Nn)


def listwise(scores_Nn: Tensor) -> Tensor:
    """Sum over queries of −log softmax of the first passage's score among its group's."""
    return -scores_Nn.log_softmax(1)[:, 0].sum()


def _masked(logits: Tensor, kept: Tensor) -> Tensor:
    return logits.masked_fill(~kept, torch.finfo(logits.dtype).min)
