"""A small generator that learns on the corpus itself, where there is no checkpoint.

It is a folder like any checkpoint's, with two differences: it knows the pieces that the corpus uses and no others
(``pieces.json``), and says how its training ended (``training.json``).
"""

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing
from torch import Tensor, nn

from stages.artifacts.checkpoints import Vocabulary, load_tokenizer, load_vocabulary
from stages.artifacts.documents import read_json, write_json
from stages.artifacts.files import whole
from stages.artifacts.names import TOKENIZER, WEIGHTS
from stages.artifacts.refusal import Refusal
from stages.generating.lessons import PairLearner, Pairs, StreamLearner, Windows
from stages.generating.pieces import Pieces
from stages.generating.prompts import Pair, blocks, texts
from stages.training.loop import Batches, Plan, train
from stages.training.precision import Numbers
from stages.training.processes import Processes

FOLDER = "generator"
HEAD = 32  # width of an attention head
INNER = 4  # width of a feed-forward layer over the width of the model
BLOCK = 4096  # passages that are tokenised together
EMBEDDING_DEVIATION = {"t5": 1.0, "gpt2": 0.1}  # of the first embeddings; T5 scales its outputs down, GPT-2 does not


@dataclass(frozen=True)
class School:
    """Size and training of a generator of one's own."""

    layers: int
    width: int
    steps: int
    batch: int
    learning_rate: float
    seed: int
    precision: Numbers

    def __post_init__(self) -> None:
        if self.width % HEAD:
            raise Refusal(f"width {self.width}: not a multiple of {HEAD}, the width of an attention head")

    @property
    def plan(self) -> Plan:
        """A tenth of the steps is warm-up."""
        return Plan(
            steps=self.steps,
            learning_rate=self.learning_rate,
            warmup=self.steps // 10,
            seed=self.seed,
            precision=self.precision,
            checkpoint=20.0,
        )


def learn_queries(
    backbone: Path, passages: Path, pairs: list[Pair], longest: tuple[int, int], school: School, folder: Path
) -> None:
    """Train an encoder–decoder on (passage → query) pairs and write it to ``folder`` / `FOLDER`.

    Args:
        backbone: lends its tokenizer and its embeddings.
        passages: whose pieces are known, beside those of the pairs.
        longest: most pieces of a passage and of a query.
        folder: also keeps the state of an interrupted training.
    """
    if (folder / FOLDER).is_dir():
        return
    vocabulary, tokenizer = load_vocabulary(backbone), load_tokenizer(backbone)
    used = np.union1d(_used(passages, tokenizer), Pieces(tokenizer).whole([pair.query for pair in pairs]).values)
    pieces = Pieces(_ending(tokenizer, vocabulary.sep), _kept(used, vocabulary))
    sources = pieces.prompts([pair.passage for pair in pairs], longest[0], "right")
    targets = pieces.prompts([pair.query for pair in pairs], longest[1], "right")
    model = _encoder_decoder(pieces, vocabulary, backbone, school)
    batches = Pairs(sources, targets, school.batch, school.seed)
    _learn(folder, model, PairLearner(model), batches, pieces, school)


def learn_language(backbone: Path, passages: Path, longest: int, school: School, folder: Path) -> None:
    """Train a causal language model on windows of ``longest`` pieces and write it to ``folder`` / `FOLDER`.

    Passages of a document follow each other without a mark, so that the model learns what comes after a passage.
    """
    if (folder / FOLDER).is_dir():
        return
    vocabulary, tokenizer = load_vocabulary(backbone), load_tokenizer(backbone)
    stream = _stream(passages, tokenizer, vocabulary.sep)
    pieces = Pieces(_ending(tokenizer, None), _kept(np.unique(stream), vocabulary))
    assert pieces.kept is not None
    renamed = np.searchsorted(pieces.kept, np.arange(vocabulary.size)).astype(np.int32)
    model = _causal(pieces, vocabulary, backbone, longest, school)
    batches = Windows(stream, renamed, longest, school.batch, school.seed)
    _learn(folder, model, StreamLearner(model), batches, pieces, school)


def report(folder: Path) -> dict[str, float]:
    """How the training in ``folder`` ended: ``loss``."""
    learnt: dict[str, float] = read_json(folder / FOLDER / "training.json")
    return learnt


def _learn(folder: Path, model: Any, learner: nn.Module, batches: Batches, pieces: Pieces, school: School) -> None:
    """One process trains: then the generator does not depend on how many there are."""
    from transformers.utils.logging import disable_progress_bar

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    learnt = train(learner, batches, school.plan, Processes(0, 1, device), folder / "training", what="own generator")
    disable_progress_bar()
    with whole(folder / FOLDER) as partial:
        model.save_pretrained(partial)
        pieces.tokenizer.no_truncation()
        pieces.tokenizer.save(str(partial / TOKENIZER))
        write_json(partial / "pieces.json", pieces.known.tolist())
        write_json(partial / "training.json", {"loss": learnt.last("loss")})


def _kept(used: np.ndarray, vocabulary: Vocabulary) -> np.ndarray:
    return np.union1d(used, [vocabulary.pad, vocabulary.sep]).astype(np.int64)


def _used(passages: Path, tokenizer: Tokenizer) -> np.ndarray:
    """The ids that occur in the passages, ascending."""
    seen = np.zeros(tokenizer.get_vocab_size(), dtype=bool)
    for block in blocks(passages, BLOCK):
        seen[Pieces(tokenizer).whole(texts(block)).values] = True
    return np.flatnonzero(seen)


def _stream(passages: Path, tokenizer: Tokenizer, end: int) -> np.ndarray:
    """[pieces] int32: all passages, ``end`` between documents, in an unnamed memory-mapped file."""
    document = None
    with tempfile.TemporaryFile() as file:
        for block in blocks(passages, BLOCK):
            rows = Pieces(tokenizer).whole(texts(block))
            for row, name in enumerate(block["document_id"].to_pylist()):
                if document not in (None, name):
                    np.array([end], dtype=np.int32).tofile(file)
                document = name
                rows.values[rows.offsets[row] : rows.offsets[row + 1]].astype(np.int32).tofile(file)
        file.flush()
        if file.tell() < 2 * np.dtype(np.int32).itemsize:
            raise Refusal(f"{passages}: no text to learn from")
        return np.memmap(file, dtype=np.int32, mode="r")


def _ending(tokenizer: Tokenizer, end: int | None) -> Tokenizer:
    """The tokenizer, which now puts ``end`` behind every text, or nothing."""
    name = None if end is None else tokenizer.id_to_token(end)
    marks = [] if name is None else [(name, end)]
    tokenizer.post_processor = TemplateProcessing(single=f"$A {name}" if name else "$A", special_tokens=marks)
    return tokenizer


def _encoder_decoder(pieces: Pieces, vocabulary: Vocabulary, backbone: Path, school: School) -> Any:
    from transformers.models.t5.configuration_t5 import T5Config
    from transformers.models.t5.modeling_t5 import T5ForConditionalGeneration

    pad, end = np.searchsorted(pieces.known, [vocabulary.pad, vocabulary.sep]).tolist()
    config = T5Config(
        vocab_size=len(pieces.known),
        d_model=school.width,
        d_kv=HEAD,
        d_ff=INNER * school.width,
        num_layers=school.layers,
        num_decoder_layers=school.layers,
        num_heads=school.width // HEAD,
        dropout_rate=0.0,
        pad_token_id=pad,
        eos_token_id=end,
        decoder_start_token_id=pad,
    )
    torch.manual_seed(school.seed)
    model = T5ForConditionalGeneration(config)
    _lend(model.shared.weight, backbone, pieces.known, EMBEDDING_DEVIATION["t5"])
    with torch.no_grad():  # attention hands a passage's words through at first: most of a query is copied
        for block in model.decoder.block:
            attention = block.layer[1].EncDecAttention
            nn.init.eye_(attention.v.weight)
            nn.init.eye_(attention.o.weight)
    return model


def _causal(pieces: Pieces, vocabulary: Vocabulary, backbone: Path, longest: int, school: School) -> Any:
    from transformers.models.gpt2.configuration_gpt2 import GPT2Config
    from transformers.models.gpt2.modeling_gpt2 import GPT2LMHeadModel

    pad, end = np.searchsorted(pieces.known, [vocabulary.pad, vocabulary.sep]).tolist()
    config = GPT2Config(
        vocab_size=len(pieces.known),
        n_embd=school.width,
        n_head=school.width // HEAD,
        n_layer=school.layers,
        n_inner=INNER * school.width,
        n_positions=longest,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=end,
        eos_token_id=end,
        pad_token_id=pad,
    )
    torch.manual_seed(school.seed)
    model = GPT2LMHeadModel(config)
    _lend(model.transformer.wte.weight, backbone, pieces.known, EMBEDDING_DEVIATION["gpt2"])
    return model


@torch.no_grad()
def _lend(embeddings: Tensor, backbone: Path, known: np.ndarray, deviation: float) -> None:
    """Start from the backbone's embeddings, in their principal axes: measured, that is worth more than twice the steps.

    The axes are turned at random, so that no dimension is larger than another.
    """
    lent = _embeddings(backbone, known)
    if lent is None:
        return
    centred = lent - lent.mean(0)
    _, axes = torch.linalg.eigh(centred.T @ centred)  # ascending
    width = min(embeddings.shape[1], axes.shape[1])
    turn, _ = torch.linalg.qr(torch.randn(width, width))
    projected = centred @ axes[:, -width:] @ turn
    embeddings[:, :width] = projected * (deviation / projected.std())


def _embeddings(backbone: Path, known: np.ndarray) -> Tensor | None:
    """[n, d] the backbone's vectors of the known pieces; None where it has none."""
    if not (backbone / WEIGHTS).is_file():
        return None
    with safe_open(backbone / WEIGHTS, "pt") as file:
        shapes = {name: file.get_slice(name).get_shape() for name in file.keys() if "embed" in name}  # noqa: SIM118
        tables = sorted(name for name, shape in shapes.items() if len(shape) == 2 and shape[0] > known[-1])
        table: Tensor | None = file.get_tensor(tables[0]) if tables else None
    return None if table is None else table[torch.from_numpy(known)].float()
