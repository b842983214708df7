"""The loss of a retriever's batch, as the options of the chapter put it together."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from stages.ranking.losses import (
    Denominator,
    contrastive,
    distillation,
    listwise,
    margin_mse,
    pairwise,
    soft_labels,
    triplet,
)
from stages.training.loop import Observed

Choice = Literal["contrastive", "triplet", "pairwise", "listwise"]
Lesson = Literal["kl", "cross-entropy", "margin-mse"]

LESSONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "kl": distillation,
    "cross-entropy": soft_labels,
    "margin-mse": margin_mse,
}


@dataclass(frozen=True)
class Objective:
    """What makes a batch's vectors good.

    Attributes:
        scale: 1/τ, by which products are multiplied before anything else.
        choice: ``contrastive`` compares with every passage of the batch, the others within a query's own group.
        denominator: of the contrastive loss.
        margin: of the triplet loss, in units of scaled products.
        lesson: how a teacher's scores are distilled.
        alpha: weight of the choice's loss beside a teacher's.
    """

    scale: float
    choice: Choice = "contrastive"
    denominator: Denominator = "eq3"
    margin: float = 1.0
    lesson: Lesson = "kl"
    alpha: float = 0.2

    def __call__(
        self, q_ND: Tensor, d_MD: Tensor, allowed_NM: Tensor, teacher_Nn: Tensor | None
    ) -> tuple[Tensor, Observed]:
        """The loss of a whole batch, and what is seen of it.

        Args:
            q_ND: query vectors.
            d_MD: passage vectors, M = N·n; the positive of query i is row i·n.
            allowed_NM: bool; whether passage j may compete with query i's positive.
            teacher_Nn: a teacher's scores of every group, or None.
        """
        n, one = len(d_MD) // len(q_ND), torch.ones((), device=q_ND.device)
        s_Nn = self.scale * torch.einsum("nd,nkd->nk", q_ND, d_MD.view(-1, n, d_MD.shape[1]))
        loss = self._chosen(q_ND, d_MD, allowed_NM, s_Nn)
        observed: Observed = {self.choice: (loss.detach(), one)}
        if n > 1:
            observed["first in its group"] = ((s_Nn.argmax(1) == 0).float().sum(), one * len(s_Nn))
        if teacher_Nn is not None:
            taught = LESSONS[self.lesson](s_Nn, teacher_Nn)
            observed["distillation"] = (taught.detach(), one)
            loss = taught + self.alpha * loss
        return loss, observed

    def _chosen(self, q_ND: Tensor, d_MD: Tensor, allowed_NM: Tensor, s_Nn: Tensor) -> Tensor:
        if self.choice == "contrastive":
            return contrastive(q_ND, d_MD, allowed_NM, self.scale, self.denominator)
        if self.choice == "triplet":
            return triplet(s_Nn, self.margin)
        return pairwise(s_Nn) if self.choice == "pairwise" else listwise(s_Nn) / len(s_Nn)
