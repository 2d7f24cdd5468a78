"""Documents for training: chats in ChatML and stories without it, with the entropy of each."""

import random

import grammar
from questions import QUESTIONS

IM_START, IM_END, END = "<|im_start|>", "<|im_end|>", "<|endoftext|>"


def turn(role, text):
    return f"{IM_START}{role}\n{text}{IM_END}\n"


def draw_exchange(drawn):
    """A request and its answer: a question three times of five, else a story."""
    drawn.slots = {}
    if drawn.pick(range(5)) < 3:
        phrasings, answer = drawn.pick(QUESTIONS)
        return drawn.pick(phrasings), answer
    request = drawn.fill(drawn.pick(grammar.REQUESTS))
    return request, grammar.draw_story(drawn)


def draw_document(rng):
    """(text, nats): nats is the document's entropy given its first token. The branches that the first token decides (or
    that it takes part in) are not counted, which makes the bar for the held-out loss lower, never higher."""
    drawn = grammar.Drawn(rng)
    if rng.random() < 0.3:
        story = grammar.draw_story(drawn)
        return story + END, drawn.nats - 2 * grammar.math.log(4)
    text = ""
    if drawn.pick(range(4)) == 0:
        text += turn("system", drawn.pick(grammar.SYSTEMS))
    for _ in range(1 + drawn.pick(range(3))):
        request, answer = draw_exchange(drawn)
        text += turn("user", request) + turn("assistant", answer)
    return text + END, drawn.nats


def documents(seed, count):
    rng = random.Random(seed)
    return [draw_document(rng) for _ in range(count)]
