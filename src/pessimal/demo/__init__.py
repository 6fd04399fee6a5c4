"""The data and plants of the embedded family of reward models: tiny, with known truths planted in
them. `pessimal.training.demo_family` trains them, on first use.

Start with `recipes` (what a sibling is made of). The other files, from words to groups of answers:
`lexicon`, `bases`, `prompts`, `utility`; of siblings that judge whole responses, not words,
`features`, `grammar`, `responses`; `groups`, `packing`.
"""
