"""The embedded family of reward models: tiny, trained on first use, with known truths planted in them.

Start with `recipes` (what a sibling is made of) and `family.obtain` (its checkpoint folder). The other files, from
words to weights: `lexicon`, `prompts`, `minilm`, `bpe`, `bases`, `utility`, `packing`, `groups`, `module`,
`training`, `evaluation`, `card`, `checkpoint`. Siblings that judge whole responses, not words, differ in their data:
`sentences`.
"""
