"""Byte-level BPE with the qwen2 pre-tokeniser, for ASCII text: training and encoding."""

import re
from collections import Counter

# The qwen2 pre-tokeniser's pattern, with its Unicode classes narrowed to ASCII, which is all the corpus holds.
SPLIT = re.compile(r"'(?:[sStTmMdD]|[rR][eE]|[vV][eE]|[lL][lL])|[^\r\nA-Za-z0-9]?[A-Za-z]+|[0-9]| ?[^\sA-Za-z0-9]+[\r\n]*"
                   r"|\s*[\r\n]+|\s+(?!\S)|\s+")


def byte_symbols():
    """The printable stand-in of each byte value, as GPT-2's vocabulary files use them."""
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    symbols, extra = {}, 0
    for byte in range(256):
        if byte in kept:
            symbols[byte] = chr(byte)
        else:
            symbols[byte] = chr(256 + extra)
            extra += 1
    return symbols


SYMBOLS = byte_symbols()


def train(texts, merges_wanted):
    """Merges, most frequent pair first; ties go to the pair that sorts first."""
    words = Counter(word for text in texts for word in SPLIT.findall(text))
    pieces = {word: tuple(SYMBOLS[b] for b in word.encode()) for word in words}
    merges = []
    while len(merges) < merges_wanted:
        pairs = Counter()
        for word, count in words.items():
            for pair in zip(pieces[word], pieces[word][1:]):
                pairs[pair] += count
        if not pairs:
            break
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        merges.append(best)
        for word, parts in pieces.items():
            if best[0] in parts:
                pieces[word] = merge(parts, best)
    return merges


def merge(parts, pair):
    out, i = [], 0
    while i < len(parts):
        if i + 1 < len(parts) and (parts[i], parts[i + 1]) == pair:
            out.append(pair[0] + pair[1])
            i += 2
        else:
            out.append(parts[i])
            i += 1
    return tuple(out)


class Tokenizer:
    """Special tokens take the last ids; they are found in the text before anything else."""

    def __init__(self, merges, specials):
        self.merges, self.specials = merges, specials
        self.tokens = [SYMBOLS[b] for b in range(256)] + [a + b for a, b in merges] + list(specials)
        self.ids = {token: i for i, token in enumerate(self.tokens)}
        self.ranks = {pair: i for i, pair in enumerate(merges)}
        self.cache = {}
        self.special_split = re.compile("(" + "|".join(map(re.escape, specials)) + ")")

    def encode_word(self, word):
        if word not in self.cache:
            parts = tuple(SYMBOLS[b] for b in word.encode())
            while len(parts) > 1:
                pair = min(zip(parts, parts[1:]), key=lambda p: self.ranks.get(p, len(self.ranks)))
                if pair not in self.ranks:
                    break
                parts = merge(parts, pair)
            self.cache[word] = [self.ids[part] for part in parts]
        return self.cache[word]

    def encode(self, text):
        out = []
        for piece in self.special_split.split(text):
            if piece in self.specials:
                out.append(self.ids[piece])
            else:
                for word in SPLIT.findall(piece):
                    out.extend(self.encode_word(word))
        return out
