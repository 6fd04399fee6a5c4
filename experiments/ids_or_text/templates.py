"""What the published way of scoring a token does to it, on a Llama-3-style and a Gemma-style
tokenizer.

Run from the repository root: `python experiments/ids_or_text/templates.py > report.md` (ten
seconds, no model).

Both tokenizers are made here: real small vocabularies, trained on English words weighted by
frequency (wordfreq), with the chat templates and the beginning-of-sequence post-processors of the
models whose style they have. Prints Markdown: how many beginning tokens each mode has, what
trimming does, and the share of tokens that survive, by kind.
"""

import json

import pandas as pd
import wordfreq
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from transformers import PreTrainedTokenizerFast

from pessimal.rewards.formats import Templated
from pessimal.scoring.candidates import vocabulary
from pessimal.texts import literal

PROMPT = "What, in one word, is the greatest thing ever?"
SIZE, WORDS = 12_000, 20_000
SPELLINGS = {" {}": 1.0, " {C}": 0.2, "{}": 0.3, "{C}": 0.15}
"""How often each spelling counts, against the one after a space; `{C}` is capitalised."""
EXAMPLES = ("love", " love", "Love", " Love", " ", "\n\n", "A")

LLAMA_STYLE = (
    "{{ bos_token }}{% for m in messages %}<|start_header_id|>{{ m['role'] }}<|end_header_id|>\n\n"
    "{{ m['content'] | trim }}<|eot_id|>{% endfor %}"
)
GEMMA_STYLE = (
    "{{ bos_token }}{% for m in messages %}<start_of_turn>{{ 'model' if m['role'] == 'assistant' "
    "else m['role'] }}\n"
    "{{ m['content'] | trim }}<end_of_turn>\n{% endfor %}"
)


def main() -> None:
    for name, tokenizer in (("Llama-3-style", llama_style()), ("Gemma-style", gemma_style())):
        print(f"## {name}: {len(tokenizer):,} tokens\n")
        print_beginning_tokens(tokenizer)
        print_survival(tokenizer)


def llama_style() -> PreTrainedTokenizerFast:
    """Byte-level BPE; the post-processor adds `<|begin_of_text|>`, which the template has written
    already."""
    names = ("begin_of_text", "end_of_text", "start_header_id", "end_header_id", "eot_id")
    reserved = (f"reserved_special_token_{i}" for i in range(16))
    specials = [f"<|{name}|>" for name in (*names, *reserved)]
    backend = Tokenizer(models.BPE())
    # Line breaks stay together, with the spaces before them; else letters, up to three digits, or
    # signs, each with one space before.
    pieces = r"\s*[\r\n]+| ?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+|\s+"
    split = pre_tokenizers.Split(Regex(pieces), behavior="isolated")
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.pre_tokenizer = pre_tokenizers.Sequence([split, to_bytes])
    backend.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=SIZE, special_tokens=specials, initial_alphabet=alphabet, show_progress=False
    )
    backend.train_from_iterator(spellings(), trainer)
    ends = {"begin": "<|begin_of_text|>", "end": "<|eot_id|>"}
    return finished(backend, **ends, specials=specials, template=LLAMA_STYLE)


def gemma_style() -> PreTrainedTokenizerFast:
    """BPE over characters with ▁ for a space and bytes for what it lacks; the post-processor adds
    `<bos>`."""
    specials = ["<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>"]
    specials += [f"<unused{i}>" for i in range(16)]
    learning = Tokenizer(models.BPE())
    learning.normalizer = normalizers.Replace(" ", "▁")
    options = {"vocab_size": SIZE - 256, "special_tokens": specials, "show_progress": False}
    learning.train_from_iterator(spellings(), trainers.BpeTrainer(**options))
    learned = json.loads(learning.to_str())["model"]
    # Bytes are plain entries, as in SentencePiece: as added tokens, a typed "<0x41>" would become
    # one.
    bytes_first = [*specials, *(f"<0x{i:02X}>" for i in range(256))]
    pieces = sorted(set(learned["vocab"]) - set(specials), key=learned["vocab"].get)
    vocab = {token: i for i, token in enumerate([*bytes_first, *pieces])}
    merges = [tuple(pair) for pair in learned["merges"]]
    unknown = {"byte_fallback": True, "unk_token": "<unk>", "fuse_unk": True}
    backend = Tokenizer(models.BPE(vocab, merges, **unknown))
    backend.normalizer = normalizers.Replace(" ", "▁")
    parts = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    backend.decoder = decoders.Sequence(parts)
    return finished(backend, begin="<bos>", end="<eos>", specials=specials, template=GEMMA_STYLE)


def finished(
    backend: Tokenizer, *, begin: str, end: str, specials: list[str], template: str
) -> PreTrainedTokenizerFast:
    """The tokenizer as transformers has it, adding `begin` wherever special tokens are asked
    for."""
    backend.add_special_tokens(
        [AddedToken(token, special=True, normalized=False) for token in specials]
    )
    backend.post_processor = processors.TemplateProcessing(
        single=f"{begin} $A", special_tokens=[(begin, backend.token_to_id(begin))]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token=begin, eos_token=end, chat_template=template
    )


def spellings():
    """English words, each spelling as often as its share of the word's frequency; line breaks and
    runs of spaces."""
    for word in wordfreq.top_n_list("en", WORDS):
        frequency = wordfreq.word_frequency(word, "en")
        for spelling, share in SPELLINGS.items():
            # Damped: more whole words, fewer pieces.
            count = round(share * (frequency * 1e7) ** 0.8)
            yield from [spelling.format(word, C=word.capitalize())] * min(count, 2_000)
    for blank in ("\n\n", "\n\n\n", "    ", "        ", " \n"):
        yield from [blank] * 500


def print_beginning_tokens(tokenizer) -> None:
    begin = tokenizer.bos_token_id
    print("| mode | beginning tokens | ids before the response |\n|---|---|---|")
    for mode, double in (("ids, text", False), ("paper", True)):
        prefix = Templated(tokenizer).frame(PROMPT, double_bos=double).prefix
        first = " ".join(tokenizer.convert_ids_to_tokens(prefix[:3]))
        print(f"| {mode} | {prefix.count(begin)} | {len(prefix)}: `{first} …` |")


def print_survival(tokenizer) -> None:
    frame = Templated(tokenizer).frame(PROMPT)
    rows = vocabulary(tokenizer, size=len(tokenizer)).rows
    slots = [frame.inside(ids) for ids in Templated(tokenizer).ids(PROMPT, rows["text"].tolist())]
    rows = rows.assign(
        slot=slots,
        survives=[slot == [i] for slot, i in zip(slots, rows["candidate_id"], strict=True)],
        input=[tuple(slot) if slot is not None else ("tied", i) for i, slot in enumerate(slots)],
        kind=rows["kind"].where(
            ~rows["text"].str.match(r"\s") | (rows["kind"] != "normal"), "normal, white space first"
        ),
    )
    share = rows.groupby("kind").agg(tokens=("survives", "size"), survive=("survives", "sum"))
    share.loc["all"] = share.sum()
    print("\n| kind | tokens | survive | share |\n|---|---|---|---|")
    for kind, tokens, survive in share.itertuples():
        print(f"| {kind} | {tokens:,} | {survive:,} | {survive / tokens:.1%} |")
    empty, joined = sum(slot == [] for slot in slots), sum(slot is None for slot in slots)
    print(
        f"\nThe {len(rows):,} tokens make {rows['input'].nunique():,} different inputs as text; "
        f"{empty} are an empty response; {joined} join with what stands around them.\n"
    )
    print("| token | text | in the slot, as text | survives |\n|---|---|---|---|")
    examples = [rows[rows["text"] == text].head(1) for text in EXAMPLES]
    examples += [rows[rows["kind"] == "byte"].iloc[[65]], rows[rows["kind"] == "unused"].head(1)]
    for row in pd.concat(examples).drop_duplicates("candidate_id").itertuples():
        slot = "joined with its surroundings"
        if row.slot is not None:
            slot = " ".join(tokenizer.convert_ids_to_tokens(row.slot)) or "(nothing)"
        cells = (literal(row.token), literal(row.text), slot)
        print("| " + " | ".join(f"`{cell}`" for cell in cells), end=" | ")
        print("yes |" if row.survives else "no |")
    print()


main()
