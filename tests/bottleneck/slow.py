"""Independent, slow and obvious definitions in float64, for tests of networks."""

from typing import Any

import torch
from torch import Tensor

from stages.bottleneck.autoencoder import Autoencoder


def linear(module: Any, x: Tensor) -> Tensor:
    return x @ module.weight.double().T + module.bias.double()


def norm(module: Any, x: Tensor) -> Tensor:
    spread = ((x - x.mean()) ** 2).mean()
    return (x - x.mean()) / torch.sqrt(spread + module.eps) * module.weight.double() + module.bias.double()


def gelu(x: Tensor) -> Tensor:
    return x * 0.5 * (1 + torch.erf(x / 2**0.5))


def attention(query: Tensor, keys: list[Tensor], values: list[Tensor], heads: int) -> Tensor:
    """[d], [n] of [d], [n] of [d] → [d], a head at a time."""
    size = len(query) // heads
    mixed = []
    for head in range(heads):
        part = slice(head * size, (head + 1) * size)
        scores = [float(query[part] @ key[part]) / size**0.5 for key in keys]
        total = sum(torch.tensor(score).double().exp() for score in scores)
        shares = [torch.tensor(score).double().exp() / total for score in scores]
        mixed.append(sum(share * value[part] for share, value in zip(shares, values, strict=True)))
    return torch.cat(mixed)  # type: ignore[arg-type]


def embedded(net: Autoencoder, piece: int, position: int) -> Tensor:
    """What BERT's embedding layer makes of a piece."""
    own: Any = net.encoder.transformer.embeddings
    word, place = own.word_embeddings.weight[piece], own.position_embeddings.weight[position]
    return norm(own.LayerNorm, (word + place + own.token_type_embeddings.weight[0]).double())


def transformed(net: Autoencoder, state: Tensor) -> Tensor:
    """[d] → [V]: the logits of the masked language model."""
    transform: Any = net.head.transform
    hidden = norm(transform.LayerNorm, gelu(linear(transform.dense, state)))
    return net.head.matrix.double() @ hidden + net.head.bias.double()


def surprise(logits: Tensor, label: int) -> float:
    """−log softmax(logits)[label]."""
    return float(torch.log(torch.exp(logits - logits.max()).sum()) + logits.max() - logits[label])


def layer_behind_attention(layer: Any, mixed: Tensor, residual: Tensor) -> Tensor:
    """The rest of a BERT layer, after its attention has mixed the values."""
    attended = norm(layer.attention.output.LayerNorm, linear(layer.attention.output.dense, mixed) + residual)
    inner = gelu(linear(layer.intermediate.dense, attended))
    return norm(layer.output.LayerNorm, linear(layer.output.dense, inner) + attended)


def layer(module: Any, states: list[Tensor]) -> list[Tensor]:
    """A BERT layer over one text, every state looking at every other."""
    inner = module.attention.self
    query, key, value = ([linear(part, state) for state in states] for part in (inner.query, inner.key, inner.value))
    mixed = [attention(one, key, value, inner.num_attention_heads) for one in query]
    return [layer_behind_attention(module, *pair) for pair in zip(mixed, states, strict=True)]


def causal(net: Autoencoder, decoder: Any, vector: Tensor, ids: list[int]) -> list[Tensor]:
    """States of one text; the memory is read by real attention, whose query and key matrices cannot matter."""
    words = net.encoder.transformer.get_input_embeddings().weight  # type: ignore[operator]
    stream = [norm(decoder.first, (words[piece] + decoder.positions.weight[i]).double()) for i, piece in enumerate(ids)]
    for layer in decoder.layers:
        normed = [norm(layer.norms[0], state) for state in stream]
        query, key, value = zip(*(linear(layer.project, state).chunk(3) for state in normed), strict=True)
        for i in range(len(ids)):
            span = len(ids) if decoder.span == "all" else decoder.span
            columns = sorted({0} | set(range(max(0, i - span + 1), i + 1)))
            keys, values = [key[j] for j in columns], [value[j] for j in columns]
            state = stream[i] + linear(layer.out, attention(query[i], keys, values, layer.heads))
            one_value = linear(layer.memory[0], vector)
            remembered = attention(torch.randn_like(state), [torch.randn_like(state)], [one_value], layer.heads)
            state = state + linear(layer.memory[1], remembered)
            wide = gelu(linear(layer.up, norm(layer.norms[1], state)))
            stream[i] = state + linear(layer.down, wide)
    return [norm(decoder.last, state) for state in stream]
