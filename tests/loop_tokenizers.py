"""Tiny tokenizers as policies and reward models have them, and conversations, for what trainers
send (experiments/trainers/record_loops.py records it from their own code)."""

import copy
import functools

from tiny_language_models import CHAT
from tiny_language_models import tokenizer as trained

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
PLAIN = (
    "{% for m in messages %}{{ m['role'] | upper }}: {{ m['content'] | trim }}"
    "{% if m['role'] == 'assistant' %}{{ eos_token }}{% endif %}\n{% endfor %}"
    "{% if add_generation_prompt %}ASSISTANT:{% endif %}"
)
CLOSED = CHATML.replace("<|im_end|>\n{% endfor", "<|im_end|>{% endfor")
NAMES = [
    ("bos", "bos"),
    ("chatml", "chatml"),
    ("closed", "closed"),
    ("chatml", "bos"),
    ("bos", "chatml"),
    ("plain", "closed"),
]
"""Pairs of a policy and a reward model."""
QUESTION = {"role": "user", "content": "What in one word is the greatest thing ever?"}
EARLIER = [
    {"role": "system", "content": "Be kind."},
    {"role": "user", "content": "Hello!"},
    {"role": "assistant", "content": "Hello. Ask me."},
]
CONVERSATIONS = [
    ([QUESTION], "love and wisdom"),
    ([QUESTION], 'Truth, "peace" — naïve?\n\n1. war\n'),
    ([*EARLIER, QUESTION], " best"),
]
"""Messages before the response, and the response."""


tokenizer = functools.cache(trained)


def made(name: str):
    """A tokenizer: `bos` begins texts with a token, as Llama 3's does; `chatml` ends turns in a
    token and a line, `closed` in a token; `plain` marks turns by words."""
    if name == "bos":
        return copy.deepcopy(tokenizer(template=CHAT))
    made = copy.deepcopy(tokenizer(template=CHAT))
    made.chat_template = {"chatml": CHATML, "closed": CLOSED, "plain": PLAIN}[name]
    made.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>"]})
    made._tokenizer.post_processor = None
    made.bos_token = None
    if name != "plain":
        made.eos_token = "<|im_end|>"
    return made
