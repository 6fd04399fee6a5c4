"""How much of an attribute a response has, by grounds of its own: the judge's fifteen detectors.

Each is a function of a `Reading` alone, written without sight of the rules that perturb. An amount may be compared with
that of another response to the same prompt; it is no scale across prompts, and no human rating.
"""
