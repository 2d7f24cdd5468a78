#!/usr/bin/python3
"""Trains the demo model and writes models/demo.gguf; see models/README.md. Deterministic for one machine and torch."""

import argparse
import math
import pathlib
import random
import time

import torch
from torch.nn import functional as F

import bpe
import corpus
import gguf_file
from model import VOCABULARY, Model

SPECIALS = (corpus.END, corpus.IM_START, corpus.IM_END)


def batches(tokenizer, rng, tokens):
    """For ever: padded batches of about `tokens` tokens, of documents of like length."""
    while True:
        ids = [tokenizer.encode(corpus.draw_document(rng)[0]) for _ in range(1024)]
        ids.sort(key=len)
        pool, batch = [], []
        for document in ids:
            if batch and len(document) * (len(batch) + 1) > tokens:
                pool.append(batch)
                batch = []
            batch.append(document)
        rng.shuffle(pool)
        for batch in pool:
            width = max(map(len, batch))
            yield torch.tensor([document + [-1] * (width - len(document)) for document in batch])


def loss_of(model, batch):
    """Summed loss of every token but the first of each document, and how many those are."""
    logits = model(batch.clamp(min=0)[:, :-1])
    target = batch[:, 1:]
    return F.cross_entropy(logits.reshape(-1, VOCABULARY), target.reshape(-1), ignore_index=-1,
                           reduction="sum"), int((target >= 0).sum())


@torch.no_grad()
def held_out(model, tokenizer, seed, count):
    """(loss, entropy) in nats a token over documents the training never saw."""
    loss = nats = tokens = 0
    for text, entropy in corpus.documents(seed, count):
        part, n = loss_of(model, torch.tensor([tokenizer.encode(text)]))
        loss, nats, tokens = loss + float(part), nats + entropy, tokens + n
    return loss / tokens, nats / tokens


def new_tokenizer(seed):
    texts = [text for text, _ in corpus.documents(seed, 4000)]
    plain = [piece.split("|>", 1)[-1] for text in texts for piece in text.split("<|") if piece]
    return bpe.Tokenizer(bpe.train(plain, VOCABULARY - 256 - len(SPECIALS)), SPECIALS)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=20261130)
    parser.add_argument("--steps", type=int, default=1600)
    parser.add_argument("--rate", type=float, default=4e-3)
    parser.add_argument("--batch-tokens", type=int, default=4096)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=pathlib.Path,
                        default=pathlib.Path(__file__).resolve().parents[2] / "models" / "demo.gguf")
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    torch.set_num_threads(options.threads)

    tokenizer, model = new_tokenizer(options.seed), Model()
    print(f"{len(tokenizer.tokens)} tokens in the vocabulary", flush=True)
    print(f"{sum(p.numel() for p in model.parameters())} parameters", flush=True)
    decayed = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() == 1]
    optimiser = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.05}, {"params": others, "weight_decay": 0.0}],
                                  lr=options.rate, betas=(0.9, 0.98))
    source = batches(tokenizer, random.Random(options.seed + 1), options.batch_tokens)
    start, seen = time.time(), 0
    for step in range(options.steps):
        warm = min(1.0, (step + 1) / 100)
        for group in optimiser.param_groups:
            group["lr"] = options.rate * warm * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * step / options.steps)))
        loss, tokens = loss_of(model, next(source))
        optimiser.zero_grad()
        (loss / tokens).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        seen += tokens
        if step % 50 == 0 or step + 1 == options.steps:
            print(f"step {step} loss {float(loss) / tokens:.4f} tokens {seen} seconds {time.time() - start:.0f}", flush=True)
        if (step + 1) % 500 == 0 or step + 1 == options.steps:
            loss, entropy = held_out(model, tokenizer, options.seed + 2, 300)
            print(f"held out: loss {loss:.4f} entropy {entropy:.4f} gap {loss - entropy:.4f} nat a token", flush=True)
            gguf_file.write(options.out, model, tokenizer)


if __name__ == "__main__":
    main()
