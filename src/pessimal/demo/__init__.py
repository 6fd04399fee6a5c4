"""The embedded family of reward models: tiny, trained on first use, with known truths planted in
them.

Start with `recipes` (what a sibling is made of) and `family.obtain` (its checkpoint folder). The
other files, from words to weights: `lexicon`, `minilm`, `bases`, `prompts`, `utility`; of siblings
that judge whole responses, not words, `features`, `grammar`, `responses`; `groups`, `packing`,
`training`, `evaluation`, `card`, `checkpoint`.
"""
