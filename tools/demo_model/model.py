"""The demo model in torch: the `qwen3` architecture of GGUF files, small."""

import math

import torch
from torch import nn
from torch.nn import functional as F

WIDTH, LAYERS, HEADS, KV_HEADS, HEAD, HIDDEN = 96, 4, 3, 1, 32, 256
VOCABULARY, CONTEXT, THETA, EPSILON = 1024, 1024, 10000.0, 1e-6


class Norm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPSILON) * self.weight


def rotate(x, cos, sin):
    """NEOX pairing: element i with element i + HEAD/2."""
    a, b = x[..., : HEAD // 2], x[..., HEAD // 2 :]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def attend(q, k, v, mask):
    return (torch.mm(q / math.sqrt(HEAD), k.T) + mask).softmax(-1).mm(v)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.attn_norm, self.ffn_norm = Norm(WIDTH), Norm(WIDTH)
        self.attn_q_norm, self.attn_k_norm = Norm(HEAD), Norm(HEAD)
        self.attn_q = nn.Linear(WIDTH, HEADS * HEAD, bias=False)
        self.attn_k = nn.Linear(WIDTH, KV_HEADS * HEAD, bias=False)
        self.attn_v = nn.Linear(WIDTH, KV_HEADS * HEAD, bias=False)
        self.attn_output = nn.Linear(HEADS * HEAD, WIDTH, bias=False)
        self.ffn_gate = nn.Linear(WIDTH, HIDDEN, bias=False)
        self.ffn_up = nn.Linear(WIDTH, HIDDEN, bias=False)
        self.ffn_down = nn.Linear(HIDDEN, WIDTH, bias=False)

    def forward(self, x, cos, sin, mask):
        batch, length, _ = x.shape
        y = self.attn_norm(x)
        q = self.attn_q(y).view(batch, length, HEADS, HEAD).transpose(1, 2)
        k = self.attn_k(y).view(batch, length, KV_HEADS, HEAD).transpose(1, 2)
        v = self.attn_v(y).view(batch, length, KV_HEADS, HEAD).transpose(1, 2)
        q, k = rotate(self.attn_q_norm(q), cos, sin), rotate(self.attn_k_norm(k), cos, sin)
        # One plain product a head: Debian's torch has no fast batched product.
        q, k, v = ([row.unbind() for row in x.unbind()] for x in (q, k, v))
        heads = [attend(q[b][h], k[b][h * KV_HEADS // HEADS], v[b][h * KV_HEADS // HEADS], mask)
                 for b in range(batch) for h in range(HEADS)]
        mixed = torch.stack(heads).view(batch, HEADS, length, HEAD).transpose(1, 2)
        x = x + self.attn_output(mixed.reshape(batch, length, HEADS * HEAD))
        y = self.ffn_norm(x)
        return x + self.ffn_down(F.silu(self.ffn_gate(y)) * self.ffn_up(y))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.token_embd = nn.Embedding(VOCABULARY, WIDTH)
        self.blk = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.output_norm = Norm(WIDTH)
        for name, parameter in self.named_parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02 if "embd" in name else 0.7 / math.sqrt(parameter.shape[1]))

    def forward(self, ids):
        length = ids.shape[1]
        angle = torch.arange(length)[:, None] * THETA ** (-torch.arange(0, HEAD, 2) / HEAD)[None]
        mask = torch.full((length, length), -math.inf).triu(1)
        x = self.token_embd(ids)
        for layer in self.blk:
            x = layer(x, angle.cos(), angle.sin(), mask)
        return self.output_norm(x) @ self.token_embd.weight.T
