"""Encoder, qrels and a run of negatives → retriever: 1 (BM25's negatives), 2 (mined ones), distilled (a teacher)."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import typer

from stages.artifacts.checkpoints import load_tokenizer, load_vocabulary
from stages.artifacts.documents import write_json
from stages.artifacts.files import remove
from stages.artifacts.ragged import read_ragged
from stages.artifacts.refusal import Refusal
from stages.artifacts.scratch import scratch
from stages.artifacts.tables import Tokens
from stages.embedding.pieces import tokenised
from stages.embedding.probe import Probe, dev_sample
from stages.ranking import options
from stages.ranking.biencoder import UNCACHED, Batches, Retriever
from stages.ranking.corpus import Corpus, Reading
from stages.ranking.groups import Inputs, Rules, read_groups
from stages.ranking.objective import Objective
from stages.ranking.refresh import Refresher, Total, stretches
from stages.ranking.sampling import Sampler, told
from stages.ranking.spelling import refuse_other_pieces
from stages.ranking.towers import Shape, load_towers, save_towers
from stages.training.curves import Curves
from stages.training.loop import train
from stages.training.precision import Precision, resolved
from stages.training.processes import join

TEMPERATURE = {"cosine": 0.02, "dot": 1.0}


def retriever(
    encoder: options.Encoder,
    tokens: options.TokensFile,
    queries: options.QueriesFile,
    qrels: options.QrelsFile,
    passages: options.PassagesFile,
    out: options.Model,
    metrics: options.Metrics,
    negatives: Annotated[
        list[Path] | None, typer.Option(help="Run that proposes negatives; several are mixed; none: in-batch only.")
    ] = None,
    answers: options.Answers = None,
    teacher: Annotated[Path | None, typer.Option(help="Run with a teacher's scores to distil.")] = None,
    curves: options.CurvesFolder = None,
    epochs: options.Epochs = 3.0,
    steps: options.Steps = None,
    batch: Annotated[int, typer.Option(min=2, help="Queries per step, over all processes.")] = 32,
    group: options.Group = 8,
    depth: options.Depth = 200,
    first: options.First = 1,
    margin: options.Margin = None,
    draw: options.Draw = "sample",
    fill: options.Fill = True,
    fraction: options.Fraction = 1.0,
    learning_rate: options.LearningRate = 2e-5,
    warmup: options.Warmup = 0.1,
    weight_decay: options.WeightDecay = 0.01,
    similarity: Annotated[Literal["cosine", "dot"], typer.Option(help="How vectors are compared.")] = "cosine",
    temperature: Annotated[
        float | None, typer.Option(min=1e-4, help="τ; by default 0.02 for cosine, 1 for dot.")
    ] = None,
    objective: Annotated[
        Literal["contrastive", "triplet", "pairwise", "listwise"],
        typer.Option(help="The positive against the batch's passages, or (the others) against its group's."),
    ] = "contrastive",
    denominator: Annotated[
        Literal["eq3", "infonce", "release"], typer.Option(help="Contrastive: what a positive competes with.")
    ] = "eq3",
    hinge: Annotated[float, typer.Option(min=0.0, help="Triplet: the margin, in units of similarity / τ.")] = 1.0,
    distillation: Annotated[
        Literal["kl", "cross-entropy", "margin-mse"], typer.Option(help="How a teacher's scores are learnt.")
    ] = "kl",
    alpha: Annotated[float, typer.Option(min=0.0, help="Weight of the objective beside a teacher.")] = 0.2,
    longest: options.Longest = 128,
    longest_query: options.LongestQuery = 32,
    towers: Annotated[
        Literal["tied", "untied"], typer.Option(help="One encoder, or one for queries and one for passages.")
    ] = "tied",
    head: Annotated[
        Literal["none", "linear", "linear-norm"],
        typer.Option(help="New layers behind the pooling; none: as before."),
    ] = "none",
    width: Annotated[
        int | None, typer.Option(min=0, help="Dimensions behind the head; default: the model's; 0: the bag alone.")
    ] = None,
    bag: Annotated[
        int, typer.Option(min=0, help="Pieces kept of a passage's bag of words, beside the vector; 0: no bag.")
    ] = 0,
    refresh: Annotated[int, typer.Option(min=0, help="How often negatives are mined anew while training.")] = 0,
    dropout: options.Dropout = 0.0,
    chunk: Annotated[int, typer.Option(min=0, help="Pieces encoded at once with gradient caching; 0: no caching.")] = 0,
    probe_every: Annotated[int, typer.Option(min=0, help="Steps between probes on dev queries; 0: none.")] = 0,
    probe_queries: Annotated[int, typer.Option(min=1, help="Dev queries in a probe.")] = 200,
    probe_passages: Annotated[int, typer.Option(min=1, help="Passages that a probe ranks.")] = 1000,
    seed: options.Seed = 0,
    precision: Precision = "auto",
    checkpoint: options.Checkpoint = 60.0,
) -> None:
    """Fine-tune an encoder on queries, their positives, in-batch and hard negatives (SimLM's pipeline)."""
    precision = resolved(precision)
    settings, runs = options.plain(locals()), tuple(negatives or ())
    shape = Shape(towers == "untied", similarity == "cosine", head, width, bag)
    goal = Objective(1 / (temperature or TEMPERATURE[similarity]), objective, denominator, hinge, distillation, alpha)
    shape.refuse()
    _refuse(objective, runs, teacher, refresh, probe_every > 0 and (shape.untied or shape.bag > 0))
    processes = join()
    inputs, rules = Inputs(tokens, queries, qrels, passages, runs, teacher, answers), Rules(first, depth, margin)
    asking, ids, groups = read_groups(inputs, rules, seed, fraction)
    refuse_other_pieces(encoder, tokens, passages)
    sampler = Sampler(groups, batch, group if runs else 1, seed, draw, fill)
    sampler.refuse(", ".join(map(str, runs)), processes.world)
    tokenizer, vocabulary = load_tokenizer(encoder), load_vocabulary(encoder)
    corpus = Corpus(ids, read_ragged(Tokens, tokens, "pieces"), tokens)
    model = load_towers(encoder, shape, dropout, seed)
    probe = None
    if probe_every:
        sample = dev_sample(queries, qrels, ids, tokenizer, probe_queries, probe_passages, seed)
        probe = Probe(model.passage, sample, corpus.pieces, vocabulary, longest_query, longest, precision, "dev ")
    limits = longest_query, longest, chunk or UNCACHED
    batches = Batches(sampler, tokenised(asking.texts, tokenizer), corpus.pieces, vocabulary, *limits, processes)
    optimiser = learning_rate, warmup, weight_decay, seed, precision, checkpoint, probe_every
    plan = options.plan(len(groups), batch, epochs, steps, *optimiser)
    if refresh >= plan.steps:
        raise Refusal(f"--refresh {refresh}: there are only {plan.steps} steps")
    state = scratch("retriever", settings, [encoder, *inputs.paths])
    reading = Reading(longest, longest_query, precision)
    miner = Refresher(model, encoder, corpus, asking, reading, depth, state, processes)
    learner, total = Retriever(model, processes, goal, chunk > 0), Total()
    for number, end in stretches(plan.steps, refresh, state):
        if number:
            now = replace(inputs, negatives=(miner.run(number),))
            sampler = replace(sampler, groups=read_groups(now, rules, seed, fraction)[2])
            sampler.refuse(f"refresh {number}", processes.world)
        shown = Curves(curves if processes.first else None)
        part = replace(batches, sampler=sampler), replace(plan, pause=end), processes, state, shown, probe
        total.add(train(learner, *part, what="retriever"))
    if processes.first:
        save_towers(model, encoder, out)
        write_json(metrics, told(sampler, total.report))
        remove(state)


def _refuse(objective: str, runs: tuple[Path, ...], teacher: Path | None, refresh: int, probed: bool) -> None:
    """Raise `Refusal` where options contradict one another."""
    if teacher and not runs:
        raise Refusal("--teacher needs --negatives: the run whose passages the teacher has scored")
    if objective != "contrastive" and not runs:
        raise Refusal(f"--objective {objective} needs --negatives: it compares passages of a query's own group")
    if refresh and not runs:
        raise Refusal("--refresh needs --negatives: the run to begin with")
    if refresh and teacher:
        raise Refusal("--refresh: a teacher has not scored what will be mined; not with --teacher")
    if probed:
        raise Refusal("--probe-every: a probe looks at one dense encoder; not with --towers untied or --bag")
