"""Siblings that judge whole responses of several sentences, each with one planted liking, for calibrating `explain`.

Start with `labs` (what each likes) and `features` (how that is read off a text). The other files, from words to
weights: `phrases`, `slots`, `grammar`, `responses`, `prompts`, `groups`, `module`, `natural`, `evaluation`, `card`.
"""
