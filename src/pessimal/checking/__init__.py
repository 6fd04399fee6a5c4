"""The conformance suite: is a model's score the same whatever the batch, the padding, the path and
the precision?

`suite` asks its questions in order. Every check is a row of one table: what was measured, what is
allowed, and for a check that fails what that means and what to type. `trust` is the small version
before every scan.
"""
