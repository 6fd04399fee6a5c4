"""Verdicts on a reward (pass, fail, look, not measured), of Results and of thresholds with a reason
each; what changed since a baseline; and the files that carry them.

Pure functions over Results and score tables. Knows no model, registry or configuration:
`verbs.audit` brings the Results.
"""
