"""What a retriever and a cross-encoder learn from: contrastive denominators, choices within a group, distillation.

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


def soft_labels(student_Nn: Tensor, teacher_Nn: Tensor) -> Tensor:
    """Mean over queries of −Σ_d softmax(teacher)_d · log softmax(student)_d (DupMAE, Eq. 15 as intended).

    Its gradient is that of `distillation`; its value is larger by the teacher's entropy. NaN scores take no part.
    """
    scored = ~teacher_Nn.isnan()
    teacher = _masked(teacher_Nn, scored).softmax(1)
    student = _masked(student_Nn, scored).log_softmax(1)
    return -torch.where(scored, teacher * student, 0.0).sum() / len(student_Nn)


def margin_mse(student_Nn: Tensor, teacher_Nn: Tensor) -> Tensor:
    """Mean over scored negatives of the squared difference of margins (Hofstätter et al. 2020, section 3.2).

    A margin is the positive's score minus the negative's; NaN scores take no part.
    """
    student, teacher = student_Nn[:, :1] - student_Nn[:, 1:], teacher_Nn[:, :1] - teacher_Nn[:, 1:]
    scored = ~teacher.isnan()
    squares = torch.where(scored, student - teacher.nan_to_num(), 0.0).square()
    return squares.sum() / scored.sum().clamp(min=1)


def triplet(scores_Nn: Tensor, margin: float) -> Tensor:
    """Mean over queries and their negatives of max(0, margin − s⁺ + s⁻) (SEED, section 3.3; its margin is 1)."""
    return (margin - scores_Nn[:, :1] + scores_Nn[:, 1:]).relu().mean()


def pairwise(scores_Nn: Tensor) -> Tensor:
    """Mean over queries and their negatives of −log softmax of s⁺ against s⁻ alone (SEED's released code)."""
    return F.softplus(scores_Nn[:, 1:] - scores_Nn[:, :1]).mean()


def listwise(scores_Nn: Tensor) -> Tensor:
    """Sum over queries of −log softmax of the first passage's score among its group's."""
    return -scores_Nn.log_softmax(1)[:, 0].sum()


def consistent(one_Nn: Tensor, other_Nn: Tensor) -> Tensor:
    """Sum over queries of half the symmetric KL between two passes' shares of a group (R-Drop, Liang et al. 2021)."""
    one, other = one_Nn.log_softmax(1), other_Nn.log_softmax(1)
    return 0.5 * ((one.exp() - other.exp()) * (one - other)).sum()


def _masked(logits: Tensor, kept: Tensor) -> Tensor:
    return logits.masked_fill(~kept, torch.finfo(logits.dtype).min)
