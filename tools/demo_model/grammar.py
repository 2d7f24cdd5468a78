"""The grammar of the demo model's corpus: what it may say, with which probability, and whether a text follows it.

Every choice is uniform, so the entropy of a document is the sum of the logarithms of the numbers of alternatives met
on the way; Drawn.nats carries it along. A story is a chain of stages; each stage picks one template; a slot such as
{hero} is drawn when it is first met and keeps its value to the end of the story.
"""

import math
import random
import re
from dataclasses import dataclass, field

# A first name that tells the second keeps the names apart for a model that is still learning; single names, which are
# all alike in use, are not told apart for a very long time and so never copied.
HEROES = ["Anna Acorn", "Ben Brook", "Clara Clover", "David Dew", "Ella Elm", "Finn Fern", "Grace Glen", "Henry Hazel",
          "Ida Ivy", "Jack Juniper", "Kate Kettle", "Leo Lark"]
FRIENDS = ["Mia Moss", "Noah Nest", "Olive Oak", "Peter Pine", "Rosa Reed", "Sam Stone", "Tess Thistle", "Uma Umber",
           "Vera Vale", "Will Willow", "Yara Yew", "Zoe Zephyr"]
KINDS = "fox rabbit mouse frog hedgehog squirrel".split()
OTHERS = "bear wolf duck badger beaver goat".split()
PLACES = ["a quiet forest", "a green valley", "a small village", "an old mill", "a windy hill", "a sunny meadow",
          "a little harbor", "a deep wood", "a stone cottage", "a wide field"]
TRAITS = "kind brave curious gentle clever cheerful patient honest".split()
THINGS = ["red ball", "blue kite", "silver bell", "wooden boat", "golden key", "warm scarf", "tiny lamp", "paper star",
          "round stone", "little drum", "green hat", "copper coin"]
WEATHER = "sunny rainy cloudy windy snowy foggy".split()
FOOD = ["honey cakes", "apple pie", "warm bread", "berry soup", "sweet plums", "nut cookies"]

SLOTS = {"hero": HEROES, "kind": KINDS, "place": PLACES, "trait": TRAITS, "thing": THINGS, "weather": WEATHER,
         "friend": FRIENDS, "other": OTHERS, "food": FOOD}

STAGES = [
    ["Once upon a time, a {kind} named {hero} lived in {place}.",
     "Long ago there was a {kind} called {hero} who lived in {place}.",
     "In {place} lived a little {kind} whose name was {hero}.",
     "There once was a {kind} named {hero}, and home was {place}."],
    ["{hero} was very {trait}.",
     "Everyone said that {hero} was {trait}.",
     "{hero} was small but {trait}.",
     "All the neighbors knew how {trait} {hero} was."],
    ["More than anything, {hero} loved a {thing}.",
     "Every morning {hero} played with a {thing}.",
     "{hero} kept a {thing} under the bed.",
     "On the shelf stood a {thing}, and {hero} looked at it every day."],
    ["One {weather} day the {thing} was gone.",
     "One {weather} morning {hero} could not find the {thing}.",
     "Then, on a {weather} evening, the {thing} fell into the river.",
     "But one {weather} night the wind took the {thing} away."],
    ["{hero} felt sad and sat down under a tree.",
     "{hero} looked behind every door and under every leaf.",
     "\"Where can it be?\" asked {hero}.",
     "{hero} began to cry, but only a little."],
    ["Just then a {other} named {friend} came along the path.",
     "A {other} called {friend} heard this and came closer.",
     "Soon {friend} the {other} knocked at the door.",
     "Behind the hill {hero} met {friend}, a wise old {other}."],
    ["\"Do not worry,\" said {friend}. \"We will look together.\"",
     "\"I will help you,\" said {friend}.",
     "\"Two of us see more than one,\" said {friend} with a smile.",
     "{friend} said, \"Let us make a plan.\""],
    ["They walked over the bridge and through the tall grass.",
     "They asked the birds, the bees and the old turtle.",
     "They followed small footprints until the sun went down.",
     "They climbed the highest rock and looked all around."],
    ["At last they found the {thing} in a bush.",
     "And there, behind a log, was the {thing}.",
     "Suddenly {friend} saw the {thing} shining in the moss.",
     "In the end the {thing} was in a nest, safe and dry."],
    ["{hero} jumped for joy and thanked {friend}.",
     "{hero} laughed and gave {friend} a big hug.",
     "\"Thank you, {friend}!\" said {hero}.",
     "{hero} was so happy that both of them danced."],
    ["Then they ate {food} together.",
     "That evening they shared {food} by the fire.",
     "{friend} stayed for supper, and there was {food} for both.",
     "At home {hero} made {food} for {friend}."],
    ["From that day on they were best friends.",
     "And so {hero} learned that it is good to ask for help.",
     "After that {hero} was never alone again.",
     "They lived happily, and the {thing} was never lost again."],
]

REQUESTS = ["Tell me a story.", "Tell me a short story.", "Write a story.", "Tell me a story about a {kind}.",
            "Write a story about a {kind}.", "Tell me a story about a {kind} named {hero}.",
            "I want a story about a {kind} and a {thing}.", "Once more, a story please."]

SYSTEMS = ["You are a helpful assistant.", "You tell stories to children.", "You answer questions about Bulkhead."]


@dataclass
class Drawn:
    """A random choice maker that adds up what its choices cost, in nats."""

    rng: random.Random
    nats: float = 0.0
    slots: dict = field(default_factory=dict)

    def pick(self, options):
        self.nats += math.log(len(options))
        return options[self.rng.randrange(len(options))]

    def fill(self, template):
        def value(match):
            name = match.group(1)
            if name not in self.slots:
                self.slots[name] = self.pick(SLOTS[name])
            return self.slots[name]

        return re.sub(r"\{(\w+)\}", value, template)


def draw_story(drawn):
    """One story; slots already set in `drawn` (by the request) are kept."""
    return " ".join(drawn.fill(drawn.pick(stage)) for stage in STAGES)


def parses(text):
    """Whether `text` is a story of this grammar, whole."""

    def pattern(template, slots):
        out = ""
        for part in re.split(r"(\{\w+\})", template):
            name = part[1:-1]
            if not re.fullmatch(r"\{\w+\}", part):
                out += re.escape(part)
            elif name in slots:
                out += re.escape(slots[name])
            elif f"(?P<{name}>" in out:
                out += f"(?P={name})"
            else:
                out += f"(?P<{name}>" + "|".join(map(re.escape, SLOTS[name])) + ")"
        return out

    def rest(position, stage, slots):
        if stage == len(STAGES):
            return position == len(text)
        lead = " " if stage else ""
        for template in STAGES[stage]:
            match = re.compile(re.escape(lead) + pattern(template, slots)).match(text, position)
            if match and rest(match.end(), stage + 1, {**slots, **match.groupdict()}):
                return True
        return False

    return rest(0, 0, {})
