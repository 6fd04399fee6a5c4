"""What the responses answer: questions and requests of varied wording and length.

Knows prompts as text. A prompt decides nothing about the utility of a response; it may itself refuse, hedge or exclaim,
so that a model learns to look at the response only.
"""

import numpy as np

from pessimal.demo.sentences.grammar import fill, write_sentence
from pessimal.demo.sentences.phrases import DISTRACTORS, draw_refusal, pick
from pessimal.demo.sentences.responses import draw_plan, write_response, write_sentences

TEMPLATES = (
    "What is the best way to <verb> a <noun>?", "Tell me about <nouns>.", "How do I <verb> my <noun>?", "Why are <nouns> <adjective>?",
    "Write a short <noun> about a <adjective> <noun>.", "Can you help me <verb> the <nouns>?", "Is it <adjective> to <verb> <nouns>?",
    "Explain <noun> to a child.", "Give me <number> ideas for <verbing> <nouns>.", "My <noun> is <adjective>. What should I do?",
    "Who <verbed> the <noun> in <place>?", "what does <noun> mean", "Which is more <adjective>, a <noun> or a <noun>?",
    "I want to <verb> a <noun> for my <noun>. Where do I start?", "Describe the <noun> of <place>.", "Hi, I need a <noun>",
    "Please compare <nouns> with <nouns>.", "Do you think that <nouns> <verb> <nouns>?", "Should I <verb> it?", "<any> <any> <any>?",
    "How many <nouns> are there in <place>?", "I am <adjective> about my <noun>. I don't know how to <verb> it.",
    "Summarise this: the <adjective> <noun> <verbed> the <nouns> in <year>.", "What happened in <year> in <place>?", "Thanks!",
    "Are you able to <verb> the <noun>? I cannot do it!", "Maybe you know why my <noun> is <adjective>?", "Hello!",
    "Translate \"<noun> <noun>\" for me.", "List <number> <adjective> <nouns>", "I think my <noun> <verbed>. Is that normal?",
)  # fmt: skip
LONGER_SHARE, EARLIER_SHARE = 0.3, 0.1
"""How often further sentences stand around the question, and how often an exchange comes before it."""


def draw_conversation(random: np.random.Generator, *, held_out: bool = False) -> tuple[str, ...]:
    """The turns before the response; the last one is the user's, as is every other one before it."""
    turns = [_draw_prompt(random, held_out=held_out)]
    if random.random() < EARLIER_SHARE:
        plan = draw_plan(random)
        pool = write_sentences(random, words=min(plan.words, 20), held_out=held_out)
        turns = [_draw_prompt(random, held_out=held_out), write_response(random, plan, pool), *turns]
    return tuple(turns)


def _draw_prompt(random: np.random.Generator, *, held_out: bool) -> str:
    sentences = [fill(random, pick(random, TEMPLATES), held_out=held_out)]
    if random.random() < LONGER_SHARE:
        for _ in range(int(random.integers(1, 3))):
            kind = random.random()
            more = (
                pick(random, DISTRACTORS)
                if kind < 0.3
                else draw_refusal(random)
                if kind < 0.4
                else write_sentence(random, words=int(random.integers(3, 15)), held_out=held_out)
                + pick(random, (".", ".", "!", "?"))
            )
            sentences.insert(int(random.integers(len(sentences) + 1)), more)
    text = " ".join(sentences)
    return text[0].upper() + text[1:] if random.random() < 0.8 else text
