"""Retriever and a teacher's run → the same retriever with a query encoder of its own, for a corpus without labels."""

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from stages.artifacts.checkpoints import load_encoder, load_tokenizer, load_vocabulary
from stages.artifacts.documents import write_json
from stages.artifacts.files import remove
from stages.artifacts.judgements import asked, judged
from stages.artifacts.ragged import Ragged
from stages.artifacts.refusal import Refusal
from stages.artifacts.scratch import scratch
from stages.embedding.pieces import tokenised
from stages.ranking import options
from stages.ranking.asking import Asker, Batches, Lessons
from stages.ranking.bags import has_bag
from stages.ranking.corpus import Corpus
from stages.ranking.encoding import Wanted, encode
from stages.ranking.rankings import Rankings, read_rankings
from stages.ranking.spelling import refuse_other_pieces
from stages.ranking.towers import query_folder, save_query
from stages.training.curves import Curves
from stages.training.loop import train
from stages.training.precision import Precision, resolved
from stages.training.processes import join


def adapt(
    model: Annotated[Path, typer.Argument(help="Model folder of the retriever.")],
    teacher: Annotated[Path, typer.Argument(help="Run of the queries, of BM25 and the retriever together, say.")],
    tokens: options.TokensFile,
    queries: options.QueriesFile,
    qrels: Annotated[Path, typer.Argument(help="Qrels table: where a query is from, which teaches nothing.")],
    passages: options.PassagesFile,
    out: options.Model,
    metrics: options.Metrics,
    curves: options.CurvesFolder = None,
    epochs: options.Epochs = 2.0,
    steps: options.Steps = None,
    batch: Annotated[int, typer.Option(min=1, help="Queries per step, over all processes.")] = 32,
    best: Annotated[int, typer.Option(min=2, help="First passages of the teacher's ranking, at every step.")] = 32,
    drawn: Annotated[int, typer.Option(min=0, help="Passages drawn from those behind, anew at every step.")] = 32,
    learning_rate: options.LearningRate = 2e-5,
    warmup: options.Warmup = 0.1,
    weight_decay: options.WeightDecay = 0.01,
    temperature: Annotated[float, typer.Option(min=1e-4, help="τ of the retriever's products.")] = 0.05,
    sharpness: Annotated[float, typer.Option(min=0.0, help="By which the teacher's scores are multiplied.")] = 6.0,
    longest: options.Longest = 128,
    longest_query: options.LongestQuery = 32,
    seed: options.Seed = 0,
    precision: Precision = "auto",
    checkpoint: options.Checkpoint = 60.0,
) -> None:
    """Teach a retriever's queries what another ranking of the corpus knows; no passage is encoded anew.

    The passage encoder stays as it is, and with it every index: only queries are read by the new encoder, which
    lies in ``query/`` of the model folder. KL divergence from the teacher's softmax to the retriever's.
    """
    precision = resolved(precision)
    settings = options.plain(locals())
    if has_bag(model):
        raise Refusal(f"{model}: ranks by a bag of words too, which one encoder makes of queries and passages")
    processes, asking, corpus = join(), asked(queries, ["train"]), Corpus.read(tokens)
    rankings = read_rankings(teacher, asking, corpus.ids)
    lessons = Lessons(*learnt(rankings, judged(qrels, asking, corpus.ids)), best, drawn)
    if not len(lessons.queries):
        raise Refusal(f"{teacher}: ranks nothing for a train query of {queries} but the passage that it is from")
    if min(batch, len(lessons.queries)) < processes.world:
        raise Refusal(f"--batch {batch} of {len(lessons.queries)} queries: fewer than {processes.world} processes")
    refuse_other_pieces(model, tokens, passages)
    vocabulary = load_vocabulary(model)
    vectors = encode(model, Wanted(corpus.pieces, corpus.content, longest, "encode passages"), precision, processes)
    encoder = load_encoder(query_folder(model)).vectors_only()
    pieces = tokenised(asking.texts, load_tokenizer(model))
    batches = Batches(lessons, pieces, vectors, vocabulary, longest_query, batch, seed, processes)
    optimiser = learning_rate, warmup, weight_decay, seed, precision, checkpoint
    plan = options.plan(len(lessons.queries), batch, epochs, steps, *optimiser)
    state = scratch("adapt", settings, [model, teacher, tokens, queries, qrels])
    shown = Curves(curves if processes.first else None)
    report = train(Asker(encoder, 1 / temperature, sharpness), batches, plan, processes, state, shown, what="adapt")
    if processes.first:
        save_query(encoder, model, out)
        told = {"queries": len(lessons.queries), "precision": report.precision, "speed": report.speed}
        write_json(metrics, told | {"last": report.history[-1]})
        remove(state)


def learnt(rankings: Rankings, own: Ragged) -> tuple[np.ndarray, Ragged, Ragged]:
    """Queries, passages and scores of the rankings that teach something, without the passages that are ``own``."""
    queries, passages, scores = [], [], []
    for place, query in enumerate(rankings.queries):
        some = slice(rankings.rows.offsets[place], rankings.rows.offsets[place + 1])
        others = ~np.isin(rankings.rows.values[some], own.values[own.offsets[query] : own.offsets[query + 1]])
        if others.sum() > 1:
            queries.append(query)
            passages.append(rankings.rows.values[some][others])
            scores.append(rankings.scores.values[some][others])
    return np.array(queries, dtype=np.int64), Ragged.of(passages, np.int64), Ragged.of(scores, np.float32)
